//! What changes in a bucket, for as long as the receiver lives: over killed servers, stalls, and streams made
//! anew.
//!
//! A watch is a hint, the stream is the truth. At every reconnect and every `check_every` the watch compares
//! its place with the stream. A stream made anew (its created time differs) or rolled back leaves a plain
//! watch silent until as many writes have passed as before; here all is read again, after
//! [`WatchEvent::Recreated`] said so. When the stream is ahead and stays so, the watch has stalled and is
//! made again; what was seen is told by its revision.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::consumer::{Consumer, DeliverPolicy};
use async_nats::jetstream::stream::Info;
use async_nats::jetstream::{Context, Message};
use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::{mpsc, watch as level};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::connect::{Link, random_below};
use super::kv::is_delete;
use super::streams::Bucket;
use super::{Store, StoreError};

/// Events a slow receiver may be behind; then the watch waits, and the server with it.
const CHANNEL: usize = 1024;
/// How soon a doubtful check is made again.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
const REBUILD_FIRST: Duration = Duration::from_millis(50);
const REBUILD_MOST: Duration = Duration::from_secs(5);

/// A key's newest value. Values in between may be skipped, the newest never.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    Change(Change),
    /// All that was in the bucket when the watch began, or began anew, has been told.
    Synced,
    /// The stream behind the bucket is another one than before, or lost its end: what follows up to `Synced`
    /// is all it holds, and revisions begin anew. What is missing from it was lost, which proves nothing
    /// about what it described.
    Recreated,
}

impl Store {
    /// Watches a bucket in a task of `tasks`, from its present content on. Ends when the receiver is dropped.
    pub fn watch(&self, bucket: Bucket, tasks: &mut JoinSet<()>) -> mpsc::Receiver<WatchEvent> {
        let (sender, receiver) = mpsc::channel(CHANNEL);
        let watcher = Watcher {
            jetstream: self.jetstream.clone(),
            inbox: self.client.clone(),
            link: self.link.clone(),
            check_every: self.check_every,
            bucket,
            sender,
            known: HashMap::new(),
            created: None,
            seen: 0,
        };
        tasks.spawn(watcher.run());
        receiver
    }
}

struct Watcher {
    jetstream: Context,
    inbox: async_nats::Client,
    link: level::Receiver<Link>,
    check_every: Duration,
    bucket: Bucket,
    sender: mpsc::Sender<WatchEvent>,
    known: HashMap<String, u64>,
    /// The created time of the stream that revisions are of, in nanoseconds.
    created: Option<i128>,
    /// Every revision up to here has been told or replaced.
    seen: u64,
}

/// Why following ended.
enum End {
    /// Nobody listens any more.
    Closed,
    /// The watch must be made again.
    Rebuild(&'static str),
}

/// What a comparison with the stream says.
enum Verdict {
    Good,
    /// Perhaps only late: look again soon.
    Doubtful,
    Rebuild(&'static str),
}

impl Watcher {
    async fn run(mut self) {
        let mut pause = REBUILD_FIRST;
        loop {
            let begun = Instant::now();
            match self.follow().await {
                Ok(End::Closed) => return,
                Ok(End::Rebuild(why)) => tracing::info!(bucket = %self.bucket, why, "watch is made again"),
                Err(error) => tracing::warn!(bucket = %self.bucket, %error, "watch failed, is made again"),
            }
            if begun.elapsed() > REBUILD_MOST {
                pause = REBUILD_FIRST;
            }
            let jitter = random_below(u64::try_from(pause.as_millis()).unwrap_or(1));
            tokio::select! {
                () = tokio::time::sleep(pause / 2 + Duration::from_millis(jitter / 2)) => {}
                () = self.sender.closed() => return,
            }
            pause = (pause * 2).min(REBUILD_MOST);
        }
    }

    /// One life of the server-side consumer.
    async fn follow(&mut self) -> Result<End, StoreError> {
        let info = self.info().await?;
        if !self.recognise(&info).await {
            return Ok(End::Closed);
        }
        let consumer = self.consumer().await?;
        let mut left = consumer.cached_info().num_pending;
        let messages = consumer.messages().await;
        let mut messages = messages.map_err(|error| self.failed(error.into()))?;
        // Up to the end of the snapshot, nothing is missing below what the stream had when it began.
        let floor = info.state.last_sequence;
        let mut synced = left == 0;
        if synced && !self.sync(floor).await {
            return Ok(End::Closed);
        }
        let mut check = Box::pin(tokio::time::sleep(self.check_every));
        let mut doubt: Option<u64> = None;
        loop {
            tokio::select! {
                () = self.sender.closed() => return Ok(End::Closed),
                next = messages.next() => match next {
                    Some(Ok(message)) => {
                        let pending = message.info().map_err(|error| self.failed(error))?.pending;
                        if !self.tell(&message).await {
                            return Ok(End::Closed);
                        }
                        left = if synced { 0 } else { pending };
                        if !synced && left == 0 {
                            synced = true;
                            if !self.sync(floor).await {
                                return Ok(End::Closed);
                            }
                        }
                    }
                    // A missed heartbeat, a consumer the library makes again: the check below sees whether it
                    // did.
                    Some(Err(error)) => {
                        tracing::debug!(bucket = %self.bucket, %error, left, "watch hiccup");
                        check.as_mut().reset(Instant::now() + CHECK_AGAIN);
                    }
                    None => return Ok(End::Rebuild("it ended")),
                },
                changed = self.link.changed() => {
                    if changed.is_err() {
                        return Ok(End::Closed);
                    }
                    check.as_mut().reset(Instant::now());
                }
                () = &mut check => {
                    let next = match self.verdict(&mut doubt).await {
                        Verdict::Good => self.check_every,
                        Verdict::Doubtful => CHECK_AGAIN.min(self.check_every),
                        Verdict::Rebuild(why) => return Ok(End::Rebuild(why)),
                    };
                    check.as_mut().reset(Instant::now() + next);
                }
            }
        }
    }

    async fn info(&self) -> Result<Info, StoreError> {
        let stream = self.jetstream.get_stream(self.bucket.stream()).await;
        stream.map(|stream| stream.cached_info().clone()).map_err(|error| self.failed(error.into()))
    }

    async fn consumer(&self) -> Result<Consumer<OrderedConfig>, StoreError> {
        let config = OrderedConfig {
            deliver_subject: self.inbox.new_inbox(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: self.bucket.subject(">"),
            ..Default::default()
        };
        let consumer = self.jetstream.create_consumer_on_stream(config, self.bucket.stream()).await;
        consumer.map_err(|error| self.failed(error.into()))
    }

    fn failed(&self, source: super::error::Cause) -> StoreError {
        StoreError::Read { what: format!("bucket {}", self.bucket), source }
    }

    fn is_another(&self, info: &Info) -> bool {
        let other = self.created.is_some_and(|created| created != info.created.unix_timestamp_nanos());
        other || info.state.last_sequence < self.seen
    }

    /// Takes note of which stream it is; false when nobody listens.
    async fn recognise(&mut self, info: &Info) -> bool {
        let another = self.is_another(info);
        self.created = Some(info.created.unix_timestamp_nanos());
        if another {
            tracing::error!(bucket = %self.bucket, "stream was made anew or lost its end; all is read again");
            self.known.clear();
            self.seen = 0;
            return self.sender.send(WatchEvent::Recreated).await.is_ok();
        }
        true
    }

    async fn verdict(&self, doubt: &mut Option<u64>) -> Verdict {
        let Ok(info) = self.info().await else { return Verdict::Doubtful };
        if self.is_another(&info) {
            return Verdict::Rebuild("the stream is another");
        }
        let stream_at = info.state.last_sequence;
        if self.seen >= stream_at {
            *doubt = None;
            return Verdict::Good;
        }
        match doubt {
            Some(missing) if self.seen < *missing => Verdict::Rebuild("it stalled"),
            _ => {
                *doubt = Some(stream_at);
                Verdict::Doubtful
            }
        }
    }

    /// Tells one value if it is new; false when nobody listens.
    async fn tell(&mut self, message: &Message) -> bool {
        let Ok(info) = message.info() else { return true };
        let revision = info.stream_sequence;
        self.seen = self.seen.max(revision);
        let Some(key) = self.bucket.key_of(&message.subject) else { return true };
        if self.known.get(key).is_some_and(|known| *known >= revision) {
            return true;
        }
        let value = (!is_delete(message.headers.as_ref())).then(|| message.payload.clone());
        let change = Change { key: key.to_owned(), value, revision };
        self.known.insert(key.to_owned(), revision);
        self.sender.send(WatchEvent::Change(change)).await.is_ok()
    }

    async fn sync(&mut self, floor: u64) -> bool {
        self.seen = self.seen.max(floor);
        self.sender.send(WatchEvent::Synced).await.is_ok()
    }
}
