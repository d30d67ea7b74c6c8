//! Joins the loop's ports to the real things: the store as the keeper of records, the clock and the fleet's key as its
//! surroundings, the supervisor as what is kept alive.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manager_core::{StoredRecord, record};
use protocol::agent::Environment;
use protocol::time::Timestamp;
use tokio::sync::watch;

use super::clock::Clock;
use super::driver::Surroundings;
use super::driver::commit::SECRETS;
use super::driver::writer::Records;
use super::guard::Sealed;
use super::{raised, secrets};
use crate::store::seal::FleetKey;
use crate::store::{Bucket, Record, Store, StoreError, WriteError};
use manager_installation::Layout;
use manager_installation::supervisor::{self, Alive};

/// The buckets whose records the core loads, with the names it has for them.
pub(crate) const LOADED: [(Bucket, &str); 5] = [
    (Bucket::Desired, record::DESIRED),
    (Bucket::Runs, record::RUNS),
    (Bucket::Tasks, record::TASKS),
    (Bucket::Outbox, record::OUTBOX),
    (Bucket::Requests, record::REQUESTS),
];
const SUPERVISOR_EVERY: Duration = Duration::from_secs(3);

/// The store, and the sealed values that went into it.
pub struct Writing {
    pub store: Store,
    pub sealed: Sealed,
}

impl Records for Writing {
    type Error = WriteError;

    async fn write(&self, layer: &[StoredRecord]) -> Result<(), WriteError> {
        let records: Vec<Record> = layer
            .iter()
            .filter_map(|record| {
                let bucket = bucket_of(record.bucket)?;
                Some(Record { bucket, key: record.key.clone(), value: record.value.clone().map(Bytes::from) })
            })
            .collect();
        let secrets: Vec<_> = records
            .iter()
            .filter(|record| record.bucket == Bucket::Secrets)
            .map(|record| (record.key.clone(), record.value.clone()))
            .collect();
        self.store.write_batch(records).await?;
        self.sealed.note(secrets);
        Ok(())
    }
}

fn bucket_of(name: &str) -> Option<Bucket> {
    if name == SECRETS {
        return Some(Bucket::Secrets);
    }
    let known = LOADED.iter().find(|(_, known)| *known == name).map(|(bucket, _)| *bucket);
    if known.is_none() {
        tracing::error!(bucket = name, "the core writes into a bucket that the store does not have");
    }
    known
}

/// All records of the core.
///
/// # Errors
/// The store's.
pub async fn load_records(store: &Store) -> Result<Vec<StoredRecord>, StoreError> {
    let mut records = Vec::new();
    for (bucket, name) in LOADED {
        let entries = store.load(bucket).await?;
        records.extend(entries.into_iter().map(|entry| StoredRecord {
            bucket: name,
            key: entry.key,
            value: Some(entry.value.to_vec()),
        }));
    }
    Ok(records)
}

/// The real clock, randomness and key.
pub struct System {
    pub clock: Clock,
    pub key: Arc<FleetKey>,
}

impl Surroundings for System {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn seed(&self) -> u128 {
        self.clock.random()
    }

    fn seal(&self, owner: &str, environment: &Environment) -> Option<Vec<u8>> {
        secrets::seal(&self.key, owner, environment)
    }
}

/// Brings the supervisor back whenever it is gone, until `stop` is raised.
pub async fn keep_supervisor(layout: Layout, command: Vec<OsString>, mut stop: watch::Receiver<bool>) {
    let mut every = tokio::time::interval(SUPERVISOR_EVERY);
    loop {
        tokio::select! {
            () = raised(&mut stop) => return,
            _ = every.tick() => {}
        }
        let (layout, command) = (layout.clone(), command.clone());
        let looked = tokio::task::spawn_blocking(move || supervisor::ensure_alive(&layout, &command)).await;
        match looked {
            Ok(Ok(Alive::Already | Alive::StoppedOnPurpose)) => {}
            Ok(Ok(Alive::Started)) => tracing::warn!("the supervisor was gone and is started again"),
            Ok(Err(error)) => {
                tracing::error!(error = %protocol::chain(&error), "the supervisor cannot be started");
            }
            Err(error) => tracing::error!(%error, "the supervisor was not looked at"),
        }
    }
}
