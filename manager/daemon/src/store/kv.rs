//! Values by key: the snapshot of a bucket, writes, compare-and-set, and forgetting deleted keys.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use futures::StreamExt;

use super::Store;
use super::error::StoreError;
use super::streams::Bucket;
use super::writer::{Job, WriteError};

/// The header and word of a deleted key, as every NATS client writes it.
pub(super) const OPERATION: &str = "KV-Operation";
pub(super) const DELETED: &str = "DEL";

const LOAD_TRIES: u32 = 5;
const LOAD_SILENCE: Duration = Duration::from_secs(5);

/// A value to be written; none deletes the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub bucket: Bucket,
    pub key: String,
    pub value: Option<Bytes>,
}

/// A value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Bytes,
    /// Grows with every write to the bucket.
    pub revision: u64,
}

/// What a compare-and-set came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cas {
    Written {
        revision: u64,
    },
    /// The key has another revision; nothing was written.
    Conflict,
}

impl Store {
    /// Every live value of a bucket, oldest first. An empty bucket gives none, at once.
    pub async fn load(&self, bucket: Bucket) -> Result<Vec<Entry>, StoreError> {
        let mut last = None;
        for _ in 0..LOAD_TRIES {
            match self.load_once(bucket).await {
                Ok(entries) => return Ok(entries),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or(StoreError::ReadTimedOut {
            what: bucket.to_string(),
            seconds: LOAD_SILENCE.as_secs(),
        }))
    }

    async fn load_once(&self, bucket: Bucket) -> Result<Vec<Entry>, StoreError> {
        let failed = |source| StoreError::Read { what: format!("bucket {bucket}"), source };
        let silent =
            || StoreError::ReadTimedOut { what: bucket.to_string(), seconds: LOAD_SILENCE.as_secs() };
        let config = push::OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: bucket.subject(">"),
            ..Default::default()
        };
        let consumer = self.jetstream.create_consumer_on_stream(config, bucket.stream());
        let consumer = consumer.await.map_err(|error| failed(error.into()))?;
        let mut left = consumer.cached_info().num_pending;
        let mut entries = Vec::with_capacity(usize::try_from(left).unwrap_or_default().min(100_000));
        if left == 0 {
            return Ok(entries);
        }
        let mut messages = consumer.messages().await.map_err(|error| failed(error.into()))?;
        while left > 0 {
            let next = tokio::time::timeout(LOAD_SILENCE, messages.next()).await.map_err(|_| silent())?;
            let message = next.ok_or_else(silent)?.map_err(|error| failed(error.into()))?;
            let info = message.info().map_err(failed)?;
            (left, _) = (info.pending, ());
            let revision = info.stream_sequence;
            let Some(key) = bucket.key_of(&message.subject) else { continue };
            if !is_delete(message.headers.as_ref()) {
                entries.push(Entry { key: key.to_owned(), value: message.payload.clone(), revision });
            }
        }
        Ok(entries)
    }

    /// Writes all records and returns when each is acknowledged. Sent again until it is, over any outage; the
    /// order of writes to one key is kept, also between batches. Dropping the future gives up what was not
    /// sent yet. A later value of a key takes the place of an earlier one that was not sent yet.
    pub async fn write_batch(&self, records: Vec<Record>) -> Result<(), WriteError> {
        let jobs = records.into_iter().map(|record| Job {
            subject: record.bucket.subject(&record.key),
            headers: record.value.is_none().then(delete_headers),
            payload: record.value.unwrap_or_default(),
            replaceable: true,
        });
        self.writer.write(jobs.collect()).await
    }

    /// Writes a value if the key still has revision `expected` (0: no value was ever written, or it was
    /// forgotten). After an error the value may or may not have been written: read it before trying again.
    pub async fn cas(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        expected: u64,
    ) -> Result<Cas, StoreError> {
        let what = || format!("{bucket}/{key}");
        let message = PublishMessage::build().payload(value).expected_last_subject_sequence(expected);
        let sent = self.jetstream.send_publish(bucket.subject(key), message).await;
        let ack = match sent {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        match ack {
            Ok(ack) => Ok(Cas::Written { revision: ack.sequence }),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(Cas::Conflict),
            Err(error) => Err(StoreError::Write { what: what(), source: error.into() }),
        }
    }

    /// The value and revision of one key. A deleted key has no value but a revision.
    pub async fn get(&self, bucket: Bucket, key: &str) -> Result<Option<(Option<Bytes>, u64)>, StoreError> {
        use async_nats::jetstream::stream::DirectGetErrorKind;
        let failed = |source| StoreError::Read { what: format!("{bucket}/{key}"), source };
        let stream = self.jetstream.get_stream_no_info(bucket.stream()).await;
        let stream = stream.map_err(|error| failed(error.into()))?;
        match stream.direct_get_last_for_subject(bucket.subject(key)).await {
            Ok(message) => {
                let value = (!is_delete(Some(&message.headers))).then_some(message.payload);
                Ok(Some((value, message.sequence)))
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Removes the marks that deleted keys left; returns how many. A mark says that a key is gone to those
    /// who watch, so this is for keys deleted long ago; a value written meanwhile stays.
    pub async fn forget_deleted(&self, bucket: Bucket, keys: &[(String, u64)]) -> Result<u64, StoreError> {
        let failed = |source| StoreError::Write { what: format!("bucket {bucket}"), source };
        let stream = self.jetstream.get_stream_no_info(bucket.stream()).await;
        let stream = stream.map_err(|error| failed(error.into()))?;
        let mut forgotten = 0;
        for (key, revision) in keys {
            let purge = stream.purge().filter(bucket.subject(key)).sequence(revision.saturating_add(1));
            forgotten += purge.await.map_err(|error| failed(error.into()))?.purged;
        }
        Ok(forgotten)
    }
}

pub(super) fn is_delete(headers: Option<&HeaderMap>) -> bool {
    headers
        .and_then(|headers| headers.get(OPERATION))
        .is_some_and(|operation| operation.as_str() == DELETED || operation.as_str() == "PURGE")
}

fn delete_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(OPERATION, DELETED);
    headers
}
