//! The streams and buckets, their sizes, and that the server stored them as asked.
//!
//! Buckets are made as plain streams: `create_key_value` would allow rollup headers, with which one put to a
//! host's own key wipes the whole bucket. Sizes are shares of what the server may store; their sum stays
//! below it, since the server refuses a stream whose maximum it could not hold.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::stream::{Compression, Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{Context, object_store};

use protocol::house::StreamUse;
use serde::{Deserialize, Serialize};

use super::error::StoreError;

/// The event stream and the transcript stream.
pub const EVENTS: &str = "EV";
pub const TRANSCRIPTS: &str = "TR";
/// The object store of prompts, bundles and files.
pub const BLOBS: &str = "blobs";

/// Twice what a publisher may need to come back after a cut.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
const DAY: Duration = Duration::from_secs(24 * 3600);
const VALUE_MOST: i32 = 1 << 20;

/// Thousandths of `max_file`; with those of the buckets below 1000, so that the server has room for its own.
const TRANSCRIPTS_SHARE: u64 = 450;
const EVENTS_SHARE: u64 = 100;
const BLOBS_SHARE: u64 = 120;

/// A key–value bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bucket {
    /// What hosts report: written by them.
    Agents,
    /// What hosts are: written by them.
    Hosts,
    Desired,
    Runs,
    Tasks,
    Outbox,
    /// Answers by idempotency key; forgotten after a day.
    Requests,
    Lead,
    /// Sealed values of `--env`.
    Secrets,
}

impl Bucket {
    pub const ALL: [Self; 9] = [
        Self::Agents,
        Self::Hosts,
        Self::Desired,
        Self::Runs,
        Self::Tasks,
        Self::Outbox,
        Self::Requests,
        Self::Lead,
        Self::Secrets,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Hosts => "hosts",
            Self::Desired => "desired",
            Self::Runs => "runs",
            Self::Tasks => "tasks",
            Self::Outbox => "outbox",
            Self::Requests => "requests",
            Self::Lead => "lead",
            Self::Secrets => "secrets",
        }
    }

    /// The stream behind the bucket.
    pub fn stream(self) -> String {
        format!("KV_{}", self.name())
    }

    /// The subject of a key; `>` stands for all.
    pub fn subject(self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name())
    }

    /// The key a subject names.
    pub fn key_of(self, subject: &str) -> Option<&str> {
        subject.strip_prefix("$KV.")?.strip_prefix(self.name())?.strip_prefix('.')
    }

    fn share(self) -> u64 {
        match self {
            Self::Agents | Self::Tasks => 70,
            Self::Desired => 50,
            Self::Runs | Self::Outbox | Self::Requests => 30,
            Self::Hosts | Self::Secrets => 10,
            Self::Lead => 4,
        }
    }

    /// What hosts write belongs to their region's server; the streams of other regions are sources beside it.
    fn subjects(self, region: &str) -> Vec<String> {
        match self {
            Self::Agents | Self::Hosts => vec![self.subject(&format!("{region}.>"))],
            _ => vec![self.subject(">")],
        }
    }

    fn config(self, region: &str, max_file: u64) -> Config {
        Config {
            name: self.stream(),
            subjects: self.subjects(region),
            storage: StorageType::File,
            max_messages_per_subject: 1,
            max_bytes: share_of(max_file, self.share()),
            max_message_size: VALUE_MOST,
            max_age: if self == Self::Requests { DAY } else { Duration::ZERO },
            // A full bucket refuses new values: forgetting old ones would lose agents.
            discard: DiscardPolicy::New,
            allow_direct: true,
            deny_delete: true,
            allow_rollup: false,
            duplicate_window: DUPLICATE_WINDOW,
            num_replicas: 1,
            ..Default::default()
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn share_of(max_file: u64, thousandths: u64) -> i64 {
    i64::try_from(max_file / 1000 * thousandths).unwrap_or(i64::MAX)
}

fn logs(region: &str, max_file: u64) -> [Config; 2] {
    let shared = Config {
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        duplicate_window: DUPLICATE_WINDOW,
        allow_direct: true,
        deny_delete: true,
        compression: Some(Compression::S2),
        num_replicas: 1,
        ..Default::default()
    };
    [
        Config {
            name: EVENTS.to_owned(),
            subjects: vec![format!("ev.{region}.>")],
            max_bytes: share_of(max_file, EVENTS_SHARE),
            max_age: 30 * DAY,
            max_messages_per_subject: 20_000,
            ..shared.clone()
        },
        Config {
            name: TRANSCRIPTS.to_owned(),
            subjects: vec![format!("tr.{region}.>")],
            max_bytes: share_of(max_file, TRANSCRIPTS_SHARE),
            max_age: 14 * DAY,
            max_messages_per_subject: 100_000,
            max_message_size: 262_144,
            ..shared
        },
    ]
}

/// Makes what is missing, brings what differs in line, and reads all of it back.
pub(super) async fn ensure_all(jetstream: &Context, region: &str, max_file: u64) -> Result<(), StoreError> {
    let buckets = Bucket::ALL.into_iter().map(|bucket| bucket.config(region, max_file));
    let wanted = buckets.chain(logs(region, max_file));
    let made = wanted.map(|config| ensure(jetstream, config));
    futures::future::try_join_all(made).await?;
    ensure_blobs(jetstream, max_file).await
}

/// Which stream is behind a bucket, and how much it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    /// When it was made, nanoseconds since 1970: one that was made anew has another time.
    pub created: i128,
    /// Revision of the last write; never falls.
    pub last: u64,
    /// Keys with a value, or with the mark of one that was deleted.
    pub messages: u64,
}

impl super::Store {
    /// The stream behind a bucket; `None` when there is none.
    ///
    /// # Errors
    /// When the server does not say.
    pub async fn state(&self, bucket: Bucket) -> Result<Option<StreamState>, StoreError> {
        match self.jetstream.get_stream(bucket.stream()).await {
            Ok(stream) => {
                let info = stream.cached_info();
                Ok(Some(StreamState {
                    created: info.created.unix_timestamp_nanos(),
                    last: info.state.last_sequence,
                    messages: info.state.messages,
                }))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(StoreError::Read { what: format!("bucket {bucket}"), source: error.into() }),
        }
    }

    /// What each stream takes of its share, the largest first.
    ///
    /// # Errors
    /// When the server does not say.
    pub async fn usage(&self) -> Result<Vec<StreamUse>, StoreError> {
        let buckets = Bucket::ALL.into_iter().map(|bucket| (bucket.name().to_owned(), bucket.stream()));
        let logs = [("events", EVENTS), ("transcripts", TRANSCRIPTS)];
        let logs = logs.map(|(name, stream)| (name.to_owned(), stream.to_owned()));
        let blobs = [(BLOBS.to_owned(), format!("OBJ_{BLOBS}"))];
        let mut used = Vec::new();
        for (name, stream) in buckets.chain(logs).chain(blobs) {
            let info = self.jetstream.get_stream(&stream).await.map_err(|error| StoreError::Read {
                what: format!("stream {stream}"),
                source: error.into(),
            })?;
            let info = info.cached_info();
            used.push(StreamUse {
                name,
                bytes: info.state.bytes,
                most_bytes: u64::try_from(info.config.max_bytes).unwrap_or(0),
                messages: info.state.messages,
                unnamed_bytes: None,
            });
        }
        used.sort_by_key(|stream| std::cmp::Reverse(stream.bytes));
        Ok(used)
    }
}

async fn ensure(jetstream: &Context, wanted: Config) -> Result<(), StoreError> {
    let name = wanted.name.clone();
    let failed = |source| StoreError::CreateStream { name: name.clone(), source };
    let stored = match jetstream.get_stream(&name).await {
        Ok(stream) => stream.cached_info().config.clone(),
        Err(error) if is_missing(&error) => {
            let created =
                jetstream.create_stream(wanted.clone()).await.map_err(|error| failed(error.into()))?;
            tracing::info!(stream = name, "stream made");
            created.cached_info().config.clone()
        }
        Err(error) => return Err(failed(error.into())),
    };
    if difference(&wanted, &stored).is_none() {
        return Ok(());
    }
    let updated = jetstream.update_stream(&wanted).await.map_err(|error| failed(error.into()))?;
    match difference(&wanted, &updated.config) {
        None => Ok(()),
        Some(difference) => Err(StoreError::StreamDiffers { name, difference }),
    }
}

pub(super) fn is_missing(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    use async_nats::jetstream::ErrorCode;
    use async_nats::jetstream::context::GetStreamErrorKind;
    match error.kind() {
        GetStreamErrorKind::JetStream(cause) => cause.error_code() == ErrorCode::STREAM_NOT_FOUND,
        _ => false,
    }
}

async fn ensure_blobs(jetstream: &Context, max_file: u64) -> Result<(), StoreError> {
    if jetstream.get_object_store(BLOBS).await.is_ok() {
        return Ok(());
    }
    let config = object_store::Config {
        bucket: BLOBS.to_owned(),
        max_bytes: share_of(max_file, BLOBS_SHARE),
        storage: StorageType::File,
        num_replicas: 1,
        ..Default::default()
    };
    let created = jetstream.create_object_store(config).await;
    created
        .map(drop)
        .map_err(|error| StoreError::CreateStream { name: BLOBS.to_owned(), source: error.into() })
}

/// The first setting that the server did not take as asked: servers drop what they do not know without a
/// word.
fn difference(wanted: &Config, stored: &Config) -> Option<String> {
    fn differs<T: PartialEq + fmt::Debug>(name: &str, wanted: &T, stored: &T) -> Option<String> {
        (wanted != stored).then(|| format!("{name} is {stored:?}, not {wanted:?}"))
    }
    differs("subjects", &wanted.subjects, &stored.subjects)
        .or_else(|| differs("storage", &wanted.storage, &stored.storage))
        .or_else(|| differs("max_bytes", &wanted.max_bytes, &stored.max_bytes))
        .or_else(|| differs("max_age", &wanted.max_age, &stored.max_age))
        .or_else(|| differs("discard", &wanted.discard, &stored.discard))
        .or_else(|| differs("allow_rollup", &wanted.allow_rollup, &stored.allow_rollup))
        .or_else(|| differs("deny_delete", &wanted.deny_delete, &stored.deny_delete))
        .or_else(|| differs("allow_direct", &wanted.allow_direct, &stored.allow_direct))
        .or_else(|| differs("allow_message_ttl", &wanted.allow_message_ttl, &stored.allow_message_ttl))
        .or_else(|| differs("duplicate_window", &wanted.duplicate_window, &stored.duplicate_window))
        .or_else(|| differs("compression", &packed(wanted), &packed(stored)))
        .or_else(|| {
            let per_subject = |config: &Config| config.max_messages_per_subject;
            differs("max_messages_per_subject", &per_subject(wanted), &per_subject(stored))
        })
}

/// "Not said" and "none" mean the same.
fn packed(config: &Config) -> bool {
    matches!(config.compression, Some(Compression::S2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_all_streams_together_stay_below_what_the_server_may_store() {
        let buckets: u64 = Bucket::ALL.into_iter().map(Bucket::share).sum();
        assert!(buckets + TRANSCRIPTS_SHARE + EVENTS_SHARE + BLOBS_SHARE < 1000);
        assert!(
            share_of(256 << 20, Bucket::Lead.share()) > 1 << 20,
            "the least disk still holds the least bucket"
        );
    }

    #[test]
    fn keys_and_subjects_name_each_other() {
        let subject = Bucket::Agents.subject("hub.h.a");
        assert_eq!(subject, "$KV.agents.hub.h.a");
        assert_eq!(Bucket::Agents.key_of(&subject), Some("hub.h.a"));
        assert_eq!(Bucket::Hosts.key_of(&subject), None);
    }

    #[test]
    fn no_bucket_takes_rollup_headers_and_a_difference_is_named() {
        for bucket in Bucket::ALL {
            let wanted = bucket.config("hub", 1 << 30);
            assert!(!wanted.allow_rollup && wanted.deny_delete && wanted.allow_direct, "{bucket}");
            let stored = Config { allow_rollup: true, ..wanted.clone() };
            assert!(difference(&wanted, &stored).unwrap().contains("allow_rollup"));
        }
    }
}
