//! Blobs that nothing names any more go: found by marking what all records name, and taking away the rest.
//!
//! A client brings a blob *before* it sends the request that names it, and one whose content is there already is not
//! brought again. So "nothing names it" is no proof that nobody needs it. These rules make it safe, each by itself but
//! for the time that a crash may take:
//!
//! 1. Bringing, keeping and the requests that name blobs hold [`Blobs::gate`] shared, from the look whether a blob is
//!    there until its name is in the core; a sweep holds it alone, from the marking to the last removal. So whoever was
//!    told "it is there" and has named it is marked, and nobody is told so of what is about to go.
//! 2. A request that names a blob which is not there is refused before the core hears of it. A client that took longer
//!    than the grace to name what it brought loses no work: it brings it again.
//! 3. Every answer "it is there" counts as bringing: what was brought or asked for within the grace stays. That is for
//!    the client's sake; and for that of the manager's own blobs, which are put before the core names them, and of a
//!    request that is decided while its records wait for the bus.
//! 4. Marked is what the core names, and what the bytes of any stored record name but those of agents that are gone for
//!    good. The first sees what is decided and not written, the second what is unread, of a later build, or decided to
//!    go and not gone.
//!
//! A sweep that cannot read all of this takes nothing.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use manager_core::record::DESIRED;
use manager_core::{StoredRecord, judge, names_in};
use protocol::agent::Blob;
use protocol::api::Mutation;
use protocol::error::{ErrorCode, WireError};
use protocol::house::{Freed, Holding, HouseItem};
use protocol::time::Timestamp;
use tokio::sync::RwLockReadGuard;

use super::{Blobs, of_store};
use crate::driver::Driver;
use crate::parts;
use crate::store::inventory::{Lies, Lying};

/// What goes while the gate is closed once.
const MOST_AT_ONCE: usize = 200;
const YOUNG: &str = "it is younger than asked for";
const STRANGE: &str = "this build does not know what it is";

impl Blobs {
    /// Sees to it that all blobs which the request names are there, and that they stay while the guard is held. A
    /// request that was answered before names nothing anew: its answer needs none of them.
    ///
    /// # Errors
    /// When one is not there, or that cannot be known.
    pub async fn named_by(
        &self,
        request: &Mutation,
        driver: &Driver,
    ) -> Result<Option<RwLockReadGuard<'_, ()>>, WireError> {
        let named = request.blobs();
        if named.is_empty() {
            return Ok(None);
        }
        let open = self.gate.read().await;
        let Some(missing) = self.first_missing(&named).await? else { return Ok(Some(open)) };
        let key = request.key().clone();
        let is_known = driver.glance(move |glance| glance.core.has_answered(&key));
        if is_known.await? {
            return Ok(Some(open));
        }
        let message = format!("{} is not here, and nothing was done", missing.sha256);
        Err(WireError::new(
            ErrorCode::NotFound,
            format!("the prompt, comment or input with the sha256 {message}"),
        )
        .hint(
            "it was never brought, or long before it was named: run the command again, which brings it anew",
        ))
    }

    async fn first_missing<'a>(&self, named: &[&'a Blob]) -> Result<Option<&'a Blob>, WireError> {
        for blob in named {
            if !self.was_seen(&blob.sha256) && !self.is_there(&blob.sha256).await? {
                return Ok(Some(blob));
            }
            self.saw(&blob.sha256);
        }
        Ok(None)
    }

    pub(super) async fn is_there(&self, sha256: &str) -> Result<bool, WireError> {
        let is_there = self.store.blobs().exists(sha256).await.map_err(|error| of_store(&error))?;
        if is_there {
            self.saw(sha256);
        }
        Ok(is_there)
    }

    fn was_seen(&self, sha256: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains_key(sha256)
    }

    /// It is there, and somebody was told so now.
    pub(super) fn saw(&self, sha256: &str) {
        let now = self.clock.now();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(sha256.to_owned(), now);
    }

    /// What nothing names, and why some of it stays.
    ///
    /// # Errors
    /// When not all could be looked at.
    pub async fn unnamed(&self, driver: &Driver) -> Result<Vec<Holding>, WireError> {
        let _alone = self.gate.write().await;
        Ok(self.look(driver, self.lying().await?).await?.into_iter().map(|(_, holding)| holding).collect())
    }

    /// Those of these things that nothing names and that are old enough go; one outcome for each. Gone is done.
    ///
    /// # Errors
    /// When not all could be looked at; nothing went.
    pub async fn free(
        &self,
        driver: &Driver,
        items: Vec<HouseItem>,
        older_ms: u64,
    ) -> Result<Vec<Freed>, WireError> {
        let _alone = self.gate.write().await;
        let found = self.look(driver, self.lying().await?).await?;
        let mut outcomes = Vec::new();
        for item in items {
            let freed = match found.iter().find(|(_, holding)| holding.item == item) {
                Some((thing, holding)) => self.take(thing, holding, older_ms).await,
                None => Freed { kept: self.why_unfound(&item).await?, item, bytes: 0 },
            };
            outcomes.push(freed);
        }
        Ok(outcomes)
    }

    /// All that is old enough, some of it at a time. Gives how many went and their bytes, and whether there may be more.
    ///
    /// # Errors
    /// When not all could be looked at; nothing went.
    pub async fn sweep(&self, driver: &Driver, older_ms: u64) -> Result<Swept, WireError> {
        let _alone = self.gate.write().await;
        let now = self.clock.now();
        let lying = self.lying().await?;
        // To mark, all records are read: not where nothing is old enough to go.
        if lying.iter().all(|thing| thing.at.after_ms(older_ms) > now) {
            return Ok(Swept::default());
        }
        let found = self.look(driver, lying).await?;
        let is_due = |holding: &Holding| holding.kept.is_none() && holding.since.after_ms(older_ms) <= now;
        let mut due = found.iter().filter(|(_, holding)| is_due(holding));
        let mut swept = Swept::default();
        for (thing, holding) in due.by_ref().take(MOST_AT_ONCE) {
            let freed = self.take(thing, holding, older_ms).await;
            match freed.kept {
                None => {
                    swept.things += 1;
                    swept.bytes = swept.bytes.saturating_add(freed.bytes);
                }
                Some(why) => return Err(WireError::new(ErrorCode::Unavailable, why)),
            }
        }
        swept.more = due.next().is_some();
        Ok(swept)
    }

    async fn lying(&self) -> Result<Vec<Lying>, WireError> {
        self.store.blobs().inventory().await.map_err(|error| of_store(&error))
    }

    /// Needs the gate closed.
    async fn look(&self, driver: &Driver, lying: Vec<Lying>) -> Result<Vec<(Lying, Holding)>, WireError> {
        let records = parts::load_records(&self.store).await.map_err(|error| of_store(&error))?;
        let marks = driver.glance(|glance| (glance.core.named_blobs(), glance.core.spent_records()));
        let (known, spent) = marks.await?;
        let is_spent = |record: &&StoredRecord| record.bucket == DESIRED && spent.contains(&record.key);
        let unspent = records.iter().filter(|record| !is_spent(record));
        let stored = unspent.filter_map(|record| record.value.as_deref()).flat_map(names_in).collect();
        drop(records);
        let now = self.clock.now();
        let held = lying.iter().map(|thing| self.holding(thing)).collect();
        let judged = judge(held, &known, &stored, now, self.grace_ms);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|_, at| at.after_ms(self.grace_ms) > now);
        drop(seen);
        let mut things: BTreeMap<HouseItem, Lying> =
            lying.into_iter().map(|thing| (item_of(&thing.what), thing)).collect();
        Ok(judged.into_iter().filter_map(|holding| Some((things.remove(&holding.item)?, holding))).collect())
    }

    fn holding(&self, thing: &Lying) -> Holding {
        let (Lies::Blob(name) | Lies::Cut(name) | Lies::Unknown(name)) = &thing.what;
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let kept = matches!(thing.what, Lies::Unknown(_)).then(|| STRANGE.to_owned());
        Holding {
            item: item_of(&thing.what),
            label: name.clone(),
            bytes: thing.bytes,
            since: seen.unwrap_or(Timestamp(0)).max(thing.at),
            kept,
        }
    }

    async fn take(&self, thing: &Lying, holding: &Holding, older_ms: u64) -> Freed {
        let is_young = holding.since.after_ms(older_ms) > self.clock.now();
        let mut kept = holding.kept.clone().or(is_young.then(|| YOUNG.to_owned()));
        if kept.is_none() {
            // Before: after an error it may be gone all the same.
            self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&holding.label);
            self.held
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|(name, _)| *name != holding.label);
            kept = self.store.blobs().remove(thing).await.err().map(|error| protocol::chain(&error));
        }
        let bytes = if kept.is_none() { holding.bytes } else { 0 };
        Freed { item: holding.item.clone(), bytes, kept }
    }

    /// Why a thing that is not among what nothing names is still there.
    async fn why_unfound(&self, item: &HouseItem) -> Result<Option<String>, WireError> {
        let why = match item {
            HouseItem::Blob { name } if self.is_there(name).await? => "a task or an agent names it",
            HouseItem::Blob { .. } | HouseItem::Cut { .. } => return Ok(None),
            _ => "it is nothing on the bus",
        };
        Ok(Some(why.to_owned()))
    }
}

/// What a sweep came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    pub things: u64,
    pub bytes: u64,
    pub more: bool,
}

fn item_of(what: &Lies) -> HouseItem {
    match what {
        Lies::Blob(name) | Lies::Unknown(name) => HouseItem::Blob { name: name.clone() },
        Lies::Cut(name) => HouseItem::Cut { name: name.clone() },
    }
}
