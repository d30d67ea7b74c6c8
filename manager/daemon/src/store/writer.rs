//! The one task that writes: at most 512 messages on their way, one per subject, each sent again until it is
//! acknowledged. A message that was sent twice is one value written twice, or carries an id the server knows.
//!
//! One at a time per subject keeps their order although a lost acknowledgement makes a message arrive again
//! later.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ACK_LIMIT;
use super::connect::random_below;

const IN_FLIGHT_MOST: usize = 512;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MOST: Duration = Duration::from_secs(2);
/// A write that is not taken for this long is said aloud, and again after as long.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Why a write was not, and will not be, done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("{subject} is too large to be stored ({bytes} bytes)")]
    TooLarge { subject: String, bytes: usize },
    #[error("the store is closed")]
    Closed,
}

/// One message to be stored.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) subject: String,
    pub(super) headers: Option<HeaderMap>,
    pub(super) payload: Bytes,
    /// A later job of the subject may take its place while it was not sent: true for values, false for
    /// events.
    pub(super) replaceable: bool,
}

struct Batch {
    jobs: Vec<Job>,
    done: oneshot::Sender<Result<(), WriteError>>,
}

/// A handle of the writing task. The channel holds 64 batches; a caller beyond that waits.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    batches: mpsc::Sender<Batch>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn spawn(jetstream: jetstream::Context, tasks: &mut JoinSet<()>) -> Self {
        let (batches, incoming) = mpsc::channel(64);
        tasks.spawn(run(jetstream, incoming));
        Self { batches }
    }

    pub(super) async fn write(&self, jobs: Vec<Job>) -> Result<(), WriteError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let (done, result) = oneshot::channel();
        self.batches.send(Batch { jobs, done }).await.map_err(|_| WriteError::Closed)?;
        result.await.map_err(|_| WriteError::Closed)?
    }
}

/// A batch some of whose messages are not acknowledged.
struct OpenBatch {
    left: usize,
    error: Option<WriteError>,
    done: oneshot::Sender<Result<(), WriteError>>,
}

/// A message and the batches that wait for it: more than one when it took the place of others.
struct Pending {
    job: Job,
    batches: Vec<u64>,
}

#[derive(Default)]
struct Queue {
    next_batch: u64,
    open: HashMap<u64, OpenBatch>,
    /// Subjects in turn to be sent; each at most once.
    turn: VecDeque<String>,
    /// What waits per subject, while it is in turn or one of it is in flight.
    waiting: HashMap<String, VecDeque<Pending>>,
}

struct Outcome {
    subject: String,
    batches: Vec<u64>,
    result: Result<(), WriteError>,
}

async fn run(jetstream: jetstream::Context, mut incoming: mpsc::Receiver<Batch>) {
    let mut queue = Queue::default();
    let mut in_flight: FuturesUnordered<BoxFuture<'static, Outcome>> = FuturesUnordered::new();
    let mut closed = false;
    while !closed || !in_flight.is_empty() || !queue.turn.is_empty() {
        while in_flight.len() < IN_FLIGHT_MOST {
            let Some(pending) = queue.next() else { break };
            in_flight.push(Box::pin(store(jetstream.clone(), pending)));
        }
        tokio::select! {
            batch = incoming.recv(), if !closed => match batch {
                Some(batch) => queue.add(batch),
                None => closed = true,
            },
            Some(outcome) = in_flight.next(), if !in_flight.is_empty() => queue.settle(outcome),
        }
    }
}

impl Queue {
    fn add(&mut self, batch: Batch) {
        let number = self.next_batch;
        self.next_batch += 1;
        self.open.insert(number, OpenBatch { left: batch.jobs.len(), error: None, done: batch.done });
        for job in batch.jobs {
            let waiting = match self.waiting.get_mut(&job.subject) {
                Some(waiting) => waiting,
                None => {
                    self.turn.push_back(job.subject.clone());
                    self.waiting.entry(job.subject.clone()).or_default()
                }
            };
            match waiting.back_mut() {
                Some(last) if last.job.replaceable && job.replaceable => {
                    last.batches.push(number);
                    last.job = job;
                }
                _ => waiting.push_back(Pending { job, batches: vec![number] }),
            }
        }
    }

    /// The next message to send. What only cancelled batches wait for is dropped.
    fn next(&mut self) -> Option<Pending> {
        while let Some(subject) = self.turn.pop_front() {
            let Some(waiting) = self.waiting.get_mut(&subject) else { continue };
            while let Some(pending) = waiting.pop_front() {
                let open = &self.open;
                let wanted = pending
                    .batches
                    .iter()
                    .any(|number| open.get(number).is_some_and(|batch| !batch.done.is_closed()));
                if wanted {
                    return Some(pending);
                }
                for number in pending.batches {
                    self.open.remove(&number);
                }
            }
            self.waiting.remove(&subject);
        }
        None
    }

    fn settle(&mut self, outcome: Outcome) {
        for number in outcome.batches {
            let Some(batch) = self.open.get_mut(&number) else { continue };
            batch.left = batch.left.saturating_sub(1);
            if let Err(error) = &outcome.result {
                batch.error.get_or_insert_with(|| error.clone());
            }
            if batch.left == 0
                && let Some(batch) = self.open.remove(&number)
            {
                // A caller that is gone does not hear.
                let _ = batch.done.send(batch.error.map_or(Ok(()), Err));
            }
        }
        match self.waiting.get(&outcome.subject) {
            Some(waiting) if !waiting.is_empty() => self.turn.push_back(outcome.subject),
            _ => drop(self.waiting.remove(&outcome.subject)),
        }
    }
}

async fn store(jetstream: jetstream::Context, pending: Pending) -> Outcome {
    let Pending { job, batches } = pending;
    let result = until_stored(&jetstream, &job).await;
    Outcome { subject: job.subject, batches, result }
}

async fn until_stored(jetstream: &jetstream::Context, job: &Job) -> Result<(), WriteError> {
    let mut pause = RETRY_FIRST;
    let mut complained = Instant::now();
    loop {
        let error = match tokio::time::timeout(ACK_LIMIT * 2, publish(jetstream, job)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => PublishError::new(PublishErrorKind::TimedOut),
        };
        if is_too_large(&error) {
            return Err(WriteError::TooLarge { subject: job.subject.clone(), bytes: job.payload.len() });
        }
        if complained.elapsed() >= COMPLAIN_EVERY {
            complained = Instant::now();
            tracing::error!(subject = job.subject, %error, "write not taken, trying again");
        }
        let jitter = random_below(u64::try_from(pause.as_millis()).unwrap_or(1));
        tokio::time::sleep(pause / 2 + Duration::from_millis(jitter / 2)).await;
        pause = (pause * 2).min(RETRY_MOST);
    }
}

async fn publish(jetstream: &jetstream::Context, job: &Job) -> Result<(), PublishError> {
    let (subject, payload) = (job.subject.clone(), job.payload.clone());
    let ack = match &job.headers {
        Some(headers) => jetstream.publish_with_headers(subject, headers.clone(), payload).await?,
        None => jetstream.publish(subject, payload).await?,
    };
    ack.await.map(drop)
}

/// The one refusal that trying again does not mend: the connection's limit, or the stream's (error 10054).
fn is_too_large(error: &PublishError) -> bool {
    let of_stream = std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<jetstream::Error>())
        .is_some_and(|cause| cause.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM);
    of_stream || error.kind() == PublishErrorKind::MaxPayloadExceeded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(subject: &str, payload: &'static str, replaceable: bool) -> Job {
        Job { subject: subject.to_owned(), headers: None, payload: Bytes::from(payload), replaceable }
    }

    fn add(queue: &mut Queue, jobs: Vec<Job>) -> oneshot::Receiver<Result<(), WriteError>> {
        let (done, result) = oneshot::channel();
        queue.add(Batch { jobs, done });
        result
    }

    fn settle(queue: &mut Queue, pending: Pending, result: Result<(), WriteError>) {
        queue.settle(Outcome { subject: pending.job.subject, batches: pending.batches, result });
    }

    #[test]
    fn one_message_of_a_subject_is_on_its_way_and_later_values_take_the_place_of_unsent_ones() {
        let mut queue = Queue::default();
        let mut first = add(&mut queue, vec![job("a", "1", true)]);
        let sent = queue.next().unwrap();
        let mut second = add(&mut queue, vec![job("a", "2", true)]);
        let mut third = add(&mut queue, vec![job("a", "3", true)]);
        assert!(queue.next().is_none(), "a is on its way");
        settle(&mut queue, sent, Ok(()));
        assert_eq!(first.try_recv().unwrap(), Ok(()));
        let last = queue.next().unwrap();
        assert_eq!(last.job.payload, "3");
        assert!(second.try_recv().is_err(), "not acknowledged before what took its place is");
        settle(&mut queue, last, Ok(()));
        assert_eq!((second.try_recv().unwrap(), third.try_recv().unwrap()), (Ok(()), Ok(())));
        assert!(queue.waiting.is_empty() && queue.open.is_empty() && queue.turn.is_empty());
    }

    #[test]
    fn events_of_a_subject_are_all_sent_in_their_order() {
        let mut queue = Queue::default();
        let mut done = add(&mut queue, vec![job("e", "1", false), job("e", "2", false)]);
        for expected in ["1", "2"] {
            let pending = queue.next().unwrap();
            assert_eq!(pending.job.payload, expected);
            assert!(queue.next().is_none());
            settle(&mut queue, pending, Ok(()));
        }
        assert_eq!(done.try_recv().unwrap(), Ok(()));
    }

    #[test]
    fn a_batch_that_nobody_waits_for_is_not_sent_unless_another_needs_the_key() {
        let mut queue = Queue::default();
        let cancelled = add(&mut queue, vec![job("a", "1", true), job("b", "1", true)]);
        let _kept = add(&mut queue, vec![job("b", "2", true)]);
        drop(cancelled);
        assert_eq!(queue.next().unwrap().job.payload, "2");
        assert!(queue.next().is_none());
    }

    #[test]
    fn one_refused_message_fails_its_batch_after_all_others_are_settled() {
        let mut queue = Queue::default();
        let mut done = add(&mut queue, vec![job("a", "1", true), job("b", "1", true)]);
        let (a, b) = (queue.next().unwrap(), queue.next().unwrap());
        let refusal = WriteError::TooLarge { subject: "a".to_owned(), bytes: 1 };
        settle(&mut queue, a, Err(refusal.clone()));
        assert!(done.try_recv().is_err());
        settle(&mut queue, b, Ok(()));
        assert_eq!(done.try_recv().unwrap(), Err(refusal));
    }
}
