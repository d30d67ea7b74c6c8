//! The two logs of the bus: events and transcripts. Appending with an id that makes a second sending
//! harmless, reading a page at a time, following.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull, push};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Store;
use super::error::{Cause, StoreError};
use super::streams::{EVENTS, TRANSCRIPTS};
use super::writer::{Job, WriteError};

const FOLLOW_CHANNEL: usize = 256;
const FOLLOW_AGAIN: Duration = Duration::from_millis(500);
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    Events,
    Transcripts,
}

impl Log {
    fn stream(self) -> &'static str {
        match self {
            Self::Events => EVENTS,
            Self::Transcripts => TRANSCRIPTS,
        }
    }
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub subject: String,
    /// Its place in the log; grows, with gaps.
    pub sequence: u64,
    /// When the server stored it, ms since 1970.
    pub stored_unix_ms: i64,
    pub message_id: Option<String>,
    pub payload: Bytes,
}

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub messages: Vec<Stored>,
    /// Where the next page begins.
    pub next: u64,
    /// Whether the log had more when this was read.
    pub more: bool,
}

impl Store {
    /// Appends one event; returns when it is stored, once, however often it was sent. `message_id` must be
    /// unguessable: the server drops a second message with an id it knows, whoever sent the first.
    pub async fn append_event(&self, subject: &str, message_id: &str, body: Bytes) -> Result<(), WriteError> {
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, message_id);
        let (subject, headers) = (subject.to_owned(), Some(headers));
        self.writer.write(vec![Job { subject, headers, payload: body, replaceable: false }]).await
    }

    /// At most `most` messages of subjects that match `filter`, from sequence `from` (0: from the oldest
    /// there is).
    pub async fn read_log(&self, log: Log, filter: &str, from: u64, most: usize) -> Result<Page, StoreError> {
        let reading = self.read_page(log, filter, from, most);
        tokio::time::timeout(READ_LIMIT, reading).await.unwrap_or_else(|_| {
            let seconds = READ_LIMIT.as_secs();
            Err(StoreError::ReadTimedOut { what: format!("stream {}", log.stream()), seconds })
        })
    }

    async fn read_page(&self, log: Log, filter: &str, from: u64, most: usize) -> Result<Page, StoreError> {
        let failed = |source| failed(log, source);
        let config = pull::Config {
            deliver_policy: start(from),
            ack_policy: AckPolicy::None,
            filter_subject: filter.to_owned(),
            inactive_threshold: Duration::from_secs(15),
            memory_storage: true,
            num_replicas: 1,
            ..Default::default()
        };
        let consumer = self.jetstream.create_consumer_on_stream(config, log.stream()).await;
        let consumer = consumer.map_err(|error| failed(error.into()))?;
        let name = consumer.cached_info().name.clone();
        let pending = consumer.cached_info().num_pending;
        let mut page = Page { messages: Vec::new(), next: from.max(1), more: false };
        let wanted = most.min(usize::try_from(pending).unwrap_or(usize::MAX));
        if wanted > 0 {
            let batch = consumer.fetch().max_messages(wanted).messages().await;
            let mut batch = batch.map_err(|error| failed(error.into()))?;
            while let Some(message) = batch.next().await {
                let (stored, left) = stored(&message.map_err(failed)?).map_err(failed)?;
                page.next = stored.sequence + 1;
                page.more = left > 0;
                page.messages.push(stored);
            }
        }
        // Left alone it would go by itself a little later.
        if let Err(error) = self.jetstream.delete_consumer_from_stream(&name, log.stream()).await {
            tracing::debug!(%error, "reader not removed");
        }
        Ok(page)
    }

    /// All messages that match `filter` from sequence `from` on, also those to come, each once and in order,
    /// until the receiver is dropped.
    pub fn follow_log(
        &self,
        log: Log,
        filter: String,
        from: u64,
        tasks: &mut JoinSet<()>,
    ) -> mpsc::Receiver<Stored> {
        let (sender, receiver) = mpsc::channel(FOLLOW_CHANNEL);
        let store = self.clone();
        tasks.spawn(async move {
            let mut next = from;
            while !sender.is_closed() {
                if let Err(error) = store.follow_once(log, &filter, &mut next, &sender).await {
                    tracing::debug!(%error, "follower is made again");
                }
                tokio::select! {
                    () = tokio::time::sleep(FOLLOW_AGAIN) => {}
                    () = sender.closed() => {}
                }
            }
        });
        receiver
    }

    async fn follow_once(
        &self,
        log: Log,
        filter: &str,
        next: &mut u64,
        sender: &mpsc::Sender<Stored>,
    ) -> Result<(), StoreError> {
        let failed = |source| failed(log, source);
        let config = push::OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            deliver_policy: start(*next),
            filter_subject: filter.to_owned(),
            ..Default::default()
        };
        let consumer = self.jetstream.create_consumer_on_stream(config, log.stream()).await;
        let consumer = consumer.map_err(|error| failed(error.into()))?;
        let mut messages = consumer.messages().await.map_err(|error| failed(error.into()))?;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                () = sender.closed() => return Ok(()),
            };
            let Some(message) = message else { return Ok(()) };
            let (stored, _) = stored(&message.map_err(|error| failed(error.into()))?).map_err(failed)?;
            *next = stored.sequence + 1;
            if sender.send(stored).await.is_err() {
                return Ok(());
            }
        }
    }
}

fn start(from: u64) -> DeliverPolicy {
    match from {
        0 | 1 => DeliverPolicy::All,
        start_sequence => DeliverPolicy::ByStartSequence { start_sequence },
    }
}

fn failed(log: Log, source: Cause) -> StoreError {
    StoreError::Read { what: format!("stream {}", log.stream()), source }
}

/// The message, and how many follow it.
fn stored(message: &Message) -> Result<(Stored, u64), Cause> {
    let info = message.info()?;
    let id = message.headers.as_ref().and_then(|headers| headers.get(async_nats::header::NATS_MESSAGE_ID));
    let stored = Stored {
        subject: message.subject.to_string(),
        sequence: info.stream_sequence,
        stored_unix_ms: i64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX),
        message_id: id.map(|id| id.as_str().to_owned()),
        payload: message.payload.clone(),
    };
    Ok((stored, info.pending))
}
