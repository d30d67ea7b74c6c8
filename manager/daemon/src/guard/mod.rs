//! Sees to it that the bus has what the manager stored in it. A bus that was wiped, or that lost blocks of a stream, says
//! nothing: writes to a stream that is gone are refused one by one, and what is missing shows at the next start only.
//!
//! At each reconnect, and every few seconds, the streams are compared with how they were: those that are gone are made
//! again, and what is missing from one that shrank or is another is written back from the manager's memory. What was
//! lost while no manager lived is known from the [`witness`]. Either is told: in the log, as an event, and in a file
//! that `status` and `doctor` read.

mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use manager_core::{Input, StoredRecord, rewritten};
use manager_installation::Layout;
use manager_installation::losses::{self, Loss};
use protocol::event::Fact;
use protocol::ids::Fencing;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::driver::commit::Keys;
use crate::driver::{DatedFact, Driver, Glance, NotTaken};
use crate::lead::Lead;
use crate::parts::LOADED;
use crate::raised;
use crate::store::{Bucket, Record, Store, StoreError, StreamState, WriteError};
use witness::{Seen, Witness};

const EVERY: Duration = Duration::from_secs(5);

/// Sealed environments as they were written: they are in no record.
#[derive(Clone, Debug, Default)]
pub struct Sealed(Arc<Mutex<BTreeMap<String, Bytes>>>);

impl Sealed {
    /// Takes note of writes that are durable.
    pub fn note(&self, records: impl IntoIterator<Item = (String, Option<Bytes>)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in records {
            match value {
                Some(value) => all.insert(key, value),
                None => all.remove(&key),
            };
        }
    }

    fn all(&self) -> BTreeMap<String, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, key: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }
}

#[derive(Debug, thiserror::Error)]
enum GuardError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Loop(#[from] NotTaken),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// What the guard looks at and acts through.
pub struct Guard {
    pub store: Store,
    pub driver: Driver,
    pub lead: Lead,
    pub sealed: Sealed,
    pub facts: mpsc::Sender<DatedFact>,
    pub clock: Clock,
    pub layout: Layout,
    /// Records that the manager set aside: in the store, and not in its memory.
    pub aside: Keys,
    pub began: Began,
}

/// The store as it was when the manager loaded it.
#[derive(Debug, Default)]
pub struct Began {
    states: BTreeMap<Bucket, StreamState>,
    live: BTreeMap<Bucket, u64>,
    lost: Vec<Loss>,
}

impl Began {
    /// How the streams are, before their records are read.
    ///
    /// # Errors
    /// The store's.
    pub async fn look(store: &Store) -> Result<Self, StoreError> {
        let mut states = BTreeMap::new();
        for (bucket, _) in LOADED {
            states.extend(store.state(bucket).await?.map(|state| (bucket, state)));
        }
        Ok(Self { states, ..Self::default() })
    }

    /// What is missing of what the last manager saw. `led` is the number that the bus knows, `heard` the highest that a
    /// host does.
    pub fn compare(&mut self, layout: &Layout, records: &[StoredRecord], led: Fencing, heard: Fencing) {
        for (bucket, name) in LOADED {
            let live = records.iter().filter(|record| record.bucket == name).count();
            self.live.insert(bucket, u64::try_from(live).unwrap_or(u64::MAX));
        }
        let before = witness::read(&layout.manager());
        let mut missing = Vec::new();
        let mut cut = false;
        for (bucket, now) in self.seen() {
            let Some(before) = before.buckets.get(bucket.name()) else { continue };
            cut |= before.live > 0 && witness::is_cut(&before.stream, &now.stream);
            // Answers to requests expire by themselves.
            let count = if bucket == Bucket::Requests { 0 } else { witness::missing(before, &now) };
            if count > 0 {
                missing.push(format!("{count} of {} {}", before.live, kept_in(bucket)));
            }
        }
        let at_ms = losses::now_ms();
        if !missing.is_empty() || cut {
            let what = if missing.is_empty() { "their last changes".to_owned() } else { missing.join(", ") };
            let what = format!(
                "the bus lost records while the manager was down: {what}; agents that live go on and are listed \
                 as their hosts report them"
            );
            self.lost.push(Loss { at_ms, what, restored: false });
        } else if heard > led {
            let what = format!(
                "the bus was wiped or restored from an older copy: hosts follow a manager with number {heard}, it knows \
                 {led}; agents that live go on and are listed as their hosts report them"
            );
            self.lost.push(Loss { at_ms, what, restored: false });
        }
    }

    fn seen(&self) -> impl Iterator<Item = (Bucket, Seen)> {
        self.states.iter().map(|(bucket, stream)| {
            (*bucket, Seen { stream: *stream, live: self.live.get(bucket).copied().unwrap_or(0) })
        })
    }
}

/// What a bucket keeps, for a person.
fn kept_in(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Desired => "records of agents",
        Bucket::Runs => "runs",
        Bucket::Tasks => "tasks",
        Bucket::Outbox => "messages",
        Bucket::Requests => "answers to requests",
        Bucket::Agents => "reports",
        Bucket::Hosts => "hosts",
        Bucket::Lead => "leads",
        Bucket::Secrets => "sealed environments",
    }
}

impl Guard {
    /// Goes round until `stop` is raised.
    pub async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        for loss in std::mem::take(&mut self.began.lost) {
            self.tell(loss).await;
        }
        self.note();
        let mut link = self.store.link();
        let mut thorough = false;
        loop {
            tokio::select! {
                () = raised(&mut stop) => return,
                changed = link.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    if !link.borrow_and_update().up {
                        continue;
                    }
                    // A server that was restarted reads its files anew: any of it may be gone.
                    thorough = true;
                }
                () = tokio::time::sleep(EVERY) => {}
            }
            tokio::select! {
                () = raised(&mut stop) => return,
                looked = self.round(thorough) => match looked {
                    Ok(()) => thorough = false,
                    Err(error) => {
                        tracing::debug!(error = %protocol::chain(&error), "the bus was not looked at, tried again");
                    }
                }
            }
        }
    }

    async fn round(&mut self, thorough: bool) -> Result<(), GuardError> {
        self.store.ensure_streams().await?;
        let mut doubtful = Vec::new();
        let mut states = BTreeMap::new();
        for (bucket, name) in LOADED {
            let Some(now) = self.store.state(bucket).await? else { continue };
            let before = self.began.states.get(&bucket);
            let shrank = |before: &StreamState| {
                witness::is_cut(before, &now)
                    || (bucket != Bucket::Requests && now.messages < before.messages)
            };
            if thorough || before.is_none_or(shrank) {
                doubtful.push((bucket, name));
            }
            states.insert(bucket, now);
        }
        let restored = if doubtful.is_empty() { BTreeMap::new() } else { self.write_back(&doubtful).await? };
        // Only once what was missing is written: what fails half-way is looked at again.
        self.began.states = states;
        if thorough {
            self.write_secrets_back().await?;
            if let Some(number) = self.lead.keep().await? {
                self.driver.happened(Input::Leads(number)).await?;
            }
        }
        if !restored.is_empty() {
            let counts: Vec<String> =
                restored.iter().map(|(bucket, count)| format!("{count} {}", kept_in(*bucket))).collect();
            let what = format!("the bus lost {}; the manager wrote them back", counts.join(", "));
            self.tell(Loss { at_ms: self.clock.now().0, what, restored: true }).await;
            // What was written back is newer than what was looked at.
            for (bucket, _) in LOADED {
                let state = self.store.state(bucket).await?;
                self.began.states.extend(state.map(|state| (bucket, state)));
            }
        }
        self.count().await?;
        self.note();
        Ok(())
    }

    /// Writes what these buckets lack, or have otherwise than the manager; returns how many of each.
    async fn write_back(
        &self,
        doubtful: &[(Bucket, &'static str)],
    ) -> Result<BTreeMap<Bucket, u64>, GuardError> {
        let wanted = self.held(doubtful).await?;
        let mut stored = BTreeMap::new();
        for (bucket, name) in doubtful {
            for entry in self.store.load(*bucket).await? {
                stored.insert((*name, entry.key), entry.value);
            }
        }
        let mut wrong = Keys::new();
        for (key, value) in &wanted.records {
            if !stored.get(key).is_some_and(|stored| is_same(key.0, stored, value)) {
                wrong.insert(key.clone());
            }
        }
        // Keys that were deleted and came back with an older part of the stream.
        let unknown = |key: &&(&'static str, String)| {
            !wanted.records.contains_key(*key) && !wanted.open.contains(*key) && !self.aside.contains(*key)
        };
        wrong.extend(
            stored.keys().filter(|key| key.0 != manager_core::record::REQUESTS).filter(unknown).cloned(),
        );
        if wrong.is_empty() {
            return Ok(BTreeMap::new());
        }
        // What was changed meanwhile was not lost.
        let now = self.held(doubtful).await?;
        wrong.retain(|key| !now.open.contains(key) && wanted.records.get(key) == now.records.get(key));
        let mut counts = BTreeMap::new();
        for (bucket, name) in doubtful {
            let count = wrong.iter().filter(|key| key.0 == *name).count();
            if count > 0 {
                counts.insert(*bucket, u64::try_from(count).unwrap_or(u64::MAX));
            }
        }
        if !wrong.is_empty() {
            self.driver.write_back(wrong).await?;
        }
        Ok(counts)
    }

    async fn held(&self, buckets: &[(Bucket, &'static str)]) -> Result<Held, GuardError> {
        let (records, open) = self.driver.held().await?;
        let records = records
            .into_iter()
            .filter(|record| buckets.iter().any(|(_, name)| *name == record.bucket))
            .filter_map(|record| Some(((record.bucket, record.key), record.value?)))
            .collect();
        Ok(Held { records, open })
    }

    async fn write_secrets_back(&self) -> Result<(), GuardError> {
        let stored: BTreeSet<String> =
            self.store.load(Bucket::Secrets).await?.into_iter().map(|entry| entry.key).collect();
        let missing: Vec<Record> = self
            .sealed
            .all()
            .into_iter()
            .filter(|(key, _)| !stored.contains(key))
            .map(|(key, value)| Record { bucket: Bucket::Secrets, key, value: Some(value) })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let keys: Vec<String> = missing.iter().map(|record| record.key.clone()).collect();
        self.store.write_batch(missing).await?;
        tracing::warn!(environments = keys.len(), "sealed environments that the bus lost are written back");
        // Those that were forgotten meanwhile stay forgotten.
        let gone = keys.into_iter().filter(|key| !self.sealed.has(key));
        let gone = gone.map(|key| Record { bucket: Bucket::Secrets, key, value: None });
        Ok(self.store.write_batch(gone.collect()).await?)
    }

    async fn count(&mut self) -> Result<(), GuardError> {
        let counts = |glance: &Glance<'_>| (glance.core.record_counts(), glance.unwritten);
        let (counts, unwritten) = self.driver.glance(counts).await?;
        for (bucket, name) in LOADED {
            let count = counts.iter().find(|(counted, _)| *counted == name).map_or(0, |(_, count)| *count);
            let aside = self.aside.iter().filter(|key| key.0 == name).count();
            let count = u64::try_from(count.saturating_add(aside)).unwrap_or(u64::MAX);
            // Any that waits may be one that is not there yet.
            self.began.live.insert(bucket, count.saturating_sub(unwritten));
        }
        Ok(())
    }

    fn note(&self) {
        let buckets = self.began.seen().map(|(bucket, seen)| (bucket.name().to_owned(), seen)).collect();
        witness::write(&self.layout.manager(), &Witness { version: 1, buckets });
    }

    async fn tell(&self, loss: Loss) {
        tracing::error!(what = loss.what, restored = loss.restored, "the bus lost records");
        let fact = Fact::RecordsLost { what: loss.what.clone(), restored: loss.restored };
        if let Err(error) = losses::add(&self.layout, loss) {
            tracing::error!(error = %protocol::chain(&error), "a loss of records is not noted down");
        }
        let fact = DatedFact { at: self.clock.now(), name: "bus".to_owned(), fact };
        if self.facts.try_send(fact).is_err() {
            tracing::warn!("a loss of records is no event: too many wait for the bus");
        }
    }
}

/// What the store must have, and the keys of which it may not have the last value yet.
struct Held {
    records: BTreeMap<(&'static str, String), Vec<u8>>,
    open: Keys,
}

/// One that another build wrote may have other bytes and say the same.
fn is_same(bucket: &str, stored: &Bytes, held: &[u8]) -> bool {
    stored == held || rewritten(bucket, stored).is_some_and(|again| again == held)
}
