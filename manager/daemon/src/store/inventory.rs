//! All that lies in the object store of blobs, and the taking away of one thing of it. Whether it may go is the caller's
//! to know, and that nobody puts meanwhile.
//!
//! An object is a message that describes it, and chunks under a number of their own. The description goes first: what
//! is cut in between leaves chunks that nothing describes, which are found as the rest of a cut put.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use data_encoding::BASE64URL;
use futures::TryStreamExt;
use protocol::time::Timestamp;

use super::blobs::{Blobs, objects_failed};
use super::error::StoreError;
use super::streams::BLOBS;

/// The look at everything.
const LIMIT: Duration = Duration::from_secs(60);
/// A lower-case hex sha256.
const NAME_LENGTH: usize = 64;

/// What one thing is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lies {
    /// A whole blob, by its name.
    Blob(String),
    /// Parts of a blob without the word that tells that it is whole, by its name; or chunks that no object has, by
    /// their number.
    Cut(String),
    /// An object whose name this build does not understand.
    Unknown(String),
}

/// One thing in the object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lying {
    pub what: Lies,
    pub bytes: u64,
    /// When the last of it was put.
    pub at: Timestamp,
    /// Subjects of its messages, in the order in which they go.
    subjects: Vec<String>,
}

impl Lying {
    fn new(what: Lies) -> Self {
        Self { what, bytes: 0, at: Timestamp(0), subjects: Vec::new() }
    }
}

impl Blobs {
    /// # Errors
    /// When the bus does not say all of it in time.
    pub async fn inventory(&self) -> Result<Vec<Lying>, StoreError> {
        let looked = tokio::time::timeout(LIMIT, self.look());
        looked.await.unwrap_or_else(|_| {
            Err(StoreError::ReadTimedOut { what: "blob store".to_owned(), seconds: LIMIT.as_secs() })
        })
    }

    async fn look(&self) -> Result<Vec<Lying>, StoreError> {
        let failed = |source| objects_failed("store", source);
        let stream = self.stream().await?;
        // Before the objects: chunks of one that is put in between are then not seen at all.
        let mut chunks = BTreeMap::new();
        let mut counts =
            stream.info_with_subjects(chunk_subject(">")).await.map_err(|error| failed(error.into()))?;
        while let Some((subject, count)) = counts.try_next().await.map_err(|error| failed(error.into()))? {
            chunks.insert(subject, count);
        }
        let mut things: BTreeMap<Lies, Lying> = BTreeMap::new();
        let mut objects = self.objects().await?.list().await.map_err(|error| failed(error.into()))?;
        let mut infos = Vec::new();
        while let Some(info) = objects.try_next().await.map_err(|error| failed(error.into()))? {
            infos.push(info);
        }
        let names: BTreeSet<String> = infos.iter().map(|info| info.name.clone()).collect();
        for info in infos {
            let what = what_is(&info.name, |name| names.contains(name));
            let thing = things.entry(what.clone()).or_insert_with(|| Lying::new(what));
            let size = u64::try_from(info.size).unwrap_or(u64::MAX);
            thing.bytes = thing.bytes.saturating_add(size);
            // Of one that does not say when it was put nothing is known: it counts as put now, and for ever.
            let at = info.modified.map_or(Timestamp(u64::MAX), |at| stamp(at.unix_timestamp_nanos()));
            thing.at = thing.at.max(at);
            let own = [meta_subject(&info.name), chunk_subject(&info.nuid)];
            chunks.remove(&own[1]);
            if info.name.len() == NAME_LENGTH {
                // The word that it is whole goes before any part.
                thing.subjects.splice(0..0, own);
            } else {
                thing.subjects.extend(own);
            }
        }
        for (subject, count) in chunks {
            let last = stream.direct_get_last_for_subject(subject.as_str()).await;
            let last = last.map_err(|error| failed(error.into()))?;
            let number = subject.rsplit('.').next().unwrap_or_default().to_owned();
            let mut thing = Lying::new(Lies::Cut(number));
            let size = u64::try_from(last.payload.len()).unwrap_or(u64::MAX);
            thing.bytes = size.saturating_mul(u64::try_from(count).unwrap_or(u64::MAX));
            thing.at = stamp(last.time.unix_timestamp_nanos());
            thing.subjects.push(subject);
            things.insert(thing.what.clone(), thing);
        }
        Ok(things.into_values().collect())
    }

    /// Takes it away. After an error any of it may be there, and another inventory shows it.
    ///
    /// # Errors
    /// When the bus does not do it.
    pub async fn remove(&self, thing: &Lying) -> Result<(), StoreError> {
        let stream = self.stream().await?;
        for subject in &thing.subjects {
            stream.purge().filter(subject).await.map_err(|error| StoreError::Write {
                what: format!("blob store, to take away {subject}"),
                source: error.into(),
            })?;
        }
        Ok(())
    }

    async fn stream(&self) -> Result<Stream, StoreError> {
        let stream = self.store.jetstream.get_stream(format!("OBJ_{BLOBS}")).await;
        stream.map_err(|error| objects_failed("store", error.into()))
    }
}

/// Whole blobs are named by their digest, parts of them by it and a number.
fn what_is(object: &str, is_there: impl Fn(&str) -> bool) -> Lies {
    let (name, part) = object.split_once('.').map_or((object, None), |(name, part)| (name, Some(part)));
    let is_name =
        name.len() == NAME_LENGTH && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match part {
        None if is_name => Lies::Blob(name.to_owned()),
        Some(part) if is_name && part.parse::<u32>().is_ok() => {
            let name = name.to_owned();
            if is_there(&name) { Lies::Blob(name) } else { Lies::Cut(name) }
        }
        None | Some(_) => Lies::Unknown(object.to_owned()),
    }
}

fn meta_subject(object: &str) -> String {
    format!("$O.{BLOBS}.M.{}", BASE64URL.encode(object.as_bytes()))
}

fn chunk_subject(number: &str) -> String {
    format!("$O.{BLOBS}.C.{number}")
}

fn stamp(unix_nanos: i128) -> Timestamp {
    Timestamp(u64::try_from(unix_nanos / 1_000_000).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_told_by_its_name_and_by_what_else_is_there() {
        let name = "0a".repeat(32);
        let part = format!("{name}.3");
        assert_eq!(what_is(&name, |_| false), Lies::Blob(name.clone()));
        assert_eq!(what_is(&part, |whole| whole == name), Lies::Blob(name.clone()));
        assert_eq!(what_is(&part, |_| false), Lies::Cut(name.clone()));
        for unknown in ["bundle", &name.to_uppercase(), &format!("{name}.idx"), &name[1..], ""] {
            assert_eq!(what_is(unknown, |_| true), Lies::Unknown(unknown.to_owned()));
        }
    }
}
