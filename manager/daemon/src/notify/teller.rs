//! Reads the facts for one hook and brings it what it wants to know, in their order, at least once: how far it has come
//! is on the disk after each. A hook that fails is tried again with growing pauses, and given up for one notice after a
//! bounded number of tries. Each hook has one delivery at a time and holds up nobody else. Before each try the settings
//! are looked at; a hook that is taken out is told of nothing more.

use std::sync::Arc;
use std::time::Duration;

use protocol::agent::Environment;
use protocol::event::Event;
use protocol::notify::NoticeKind;
use protocol::subject::ALL_EVENTS;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::force::Force;
use super::subject::LookedUp;
use super::{AGAIN, Hooks, Surroundings, decoded, end_once, ledger_of};
use crate::driver::NotTaken;
use crate::store::journal::{Log, Stored};
use manager_installation::ledger::{self, Failed, Ledger};
use manager_notify::notice::{Notice, Values};
use manager_notify::send::{Undelivered, send};
use manager_plan::notify::hook::{Asked, Hook, Scope};

const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Facts that are of no concern are not written down one by one.
const SKIPPED_MOST: u64 = 500;

/// The hook was taken out, or the manager ends: the next one looks at this fact again.
struct Over;

pub(super) struct Teller {
    pub around: Surroundings,
    pub hooks: Hooks,
    pub force: watch::Receiver<Arc<Force>>,
    /// Of its hook, which may change while it goes to the same place.
    pub id: String,
    /// Place of the first fact for a hook that is new.
    pub begins: u64,
}

impl Teller {
    /// Until its hook is taken out.
    pub(super) async fn serve(mut self) {
        let mut ledger = loop {
            match self.begin().await {
                Ok(ledger) => break ledger,
                Err(why) => tracing::warn!(hook = self.id, why, "a hook waits"),
            }
            tokio::select! {
                () = gone(&mut self.force, &self.id) => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        };
        let mut tasks = JoinSet::new();
        let store = &self.around.store;
        let mut coming = store.follow_log(Log::Events, ALL_EVENTS.to_owned(), ledger.next, &mut tasks);
        let mut skipped = 0;
        loop {
            let stored = tokio::select! {
                () = gone(&mut self.force, &self.id) => return,
                Some(stored) = coming.recv() => stored,
            };
            match self.tell(&stored, &mut ledger).await {
                Ok(true) => skipped = SKIPPED_MOST,
                Ok(false) => skipped += 1,
                Err(Over) => return,
            }
            ledger.next = stored.sequence.saturating_add(1);
            if skipped >= SKIPPED_MOST {
                skipped = 0;
                self.save(&ledger).await;
            }
        }
    }

    /// Where it was, or, for a new hook, where it begins: nobody wants to be told of last month.
    async fn begin(&self) -> Result<Ledger, String> {
        let found = ledger_of(&self.around.folder, &self.id).await?;
        let end = end_once(&self.around.hosts).await?;
        let shown = self.force.borrow().find(&self.id).map(ToString::to_string).unwrap_or_default();
        match found {
            // A place that the stream has not reached is one of a stream that is gone: all of this one is new.
            Some(found) if found.next > end => Ok(Ledger { next: 1, shown, ..found }),
            Some(found) => Ok(Ledger { shown, ..found }),
            None => {
                let next = self.begins.min(end);
                let ledger = Ledger { version: 1, next, shown, ..Ledger::default() };
                self.save(&ledger).await;
                Ok(ledger)
            }
        }
    }

    async fn save(&self, ledger: &Ledger) {
        let (folder, id, ledger) = (self.around.folder.clone(), self.id.clone(), ledger.clone());
        let written = tokio::task::spawn_blocking(move || ledger::write(&folder, &id, &ledger)).await;
        match written {
            Ok(Ok(())) => {}
            // The next one says the same and more; until then a restart would send again.
            Ok(Err(error)) => {
                tracing::error!(error = %protocol::chain(&error), "how far a hook has come is not kept");
            }
            Err(error) => tracing::error!(%error, "how far a hook has come is not kept"),
        }
    }

    /// The hook as the settings have it now.
    async fn hook(&self, fact: u64) -> Result<Hook, Over> {
        let force = self.hooks.look(Some(fact)).await.ok_or(Over)?;
        force.find(&self.id).cloned().ok_or(Over)
    }

    /// Whether it was something for the hook.
    async fn tell(&mut self, stored: &Stored, ledger: &mut Ledger) -> Result<bool, Over> {
        let Some((event, Some(kind))) = decoded(stored) else { return Ok(false) };
        let hook = self.hook(stored.sequence).await?;
        // Of a hook without a name no run can ask for more.
        if hook.name.is_none() && !hook.on.contains(&kind) {
            return Ok(false);
        }
        let Some(notice) = self.notice(&hook, &event, kind).await? else { return Ok(false) };
        self.deliver(stored.sequence, &notice, ledger).await?;
        Ok(true)
    }

    /// With the names of what it is about. `None`: nothing for this hook, or a task tells of it.
    async fn notice(&self, hook: &Hook, event: &Event, kind: NoticeKind) -> Result<Option<Notice>, Over> {
        let found = loop {
            let fact = event.fact.clone();
            let looking = self.around.hosts.driver.glance(move |glance| LookedUp::at(glance, &fact, kind));
            match looking.await {
                Ok(found) => break found,
                Err(NotTaken::Stopping) => return Err(Over),
                Err(NotTaken::Full) => tokio::time::sleep(PAUSE).await,
            }
        };
        if found.is_told_elsewhere {
            return Ok(None);
        }
        if !hook.is_told(kind, &found.asked) {
            if hook.scope == Scope::Asked && found.asked == Asked::Unknown {
                let id = format!("{}:{}", event.epoch, event.seq);
                tracing::warn!(%hook, id, "not notified: its run is forgotten, with what it asked for");
            }
            return Ok(None);
        }
        let values = match found.owner {
            _ if found.is_gone => Values::Unknown,
            None => Values::Known(Environment::default()),
            Some(owner) => {
                self.around.secrets.open(&owner.to_string()).await.map_or(Values::Unknown, Values::Known)
            }
        };
        let mut notice = Notice::of(event, kind, &values);
        if let (Some(run), Some(name)) = (&mut notice.run, found.run_name) {
            run.name = name;
        }
        if let Some(link) = found.task {
            notice.link(&link);
        }
        Ok(Some(notice))
    }

    async fn deliver(&mut self, fact: u64, notice: &Notice, ledger: &mut Ledger) -> Result<(), Over> {
        let mut pause = PAUSE;
        for left in (0..TRIES).rev() {
            let hook = self.hook(fact).await?;
            let sent = tokio::select! {
                sent = send(&hook, notice) => sent,
                () = gone(&mut self.force, &self.id) => return Err(Over),
            };
            let failure = match sent {
                Ok(_) => {
                    ledger.delivered = ledger.delivered.saturating_add(1);
                    ledger.failure = None;
                    return Ok(());
                }
                Err(failure) => failure,
            };
            let at_ms = self.around.hosts.clock.now().0;
            let is_first = ledger.failure.is_none();
            ledger.failure = Some(Failed { at_ms, why: failure.why().to_owned() });
            if left == 0 || matches!(failure, Undelivered::Refused(_)) {
                ledger.lost = ledger.lost.saturating_add(1);
                tracing::error!(%hook, id = notice.id, why = failure.why(), "a notification is given up");
                return Ok(());
            }
            if is_first {
                tracing::warn!(%hook, why = failure.why(), "a notification failed and is tried again");
                self.save(ledger).await;
            }
            tokio::select! {
                () = gone(&mut self.force, &self.id) => return Err(Over),
                () = tokio::time::sleep(pause) => {}
            }
            pause = pause.saturating_mul(2).min(PAUSE_MOST);
        }
        Ok(())
    }
}

/// Until the hook is not in force any more.
async fn gone(force: &mut watch::Receiver<Arc<Force>>, id: &str) {
    // An error: the keeper ends, and this with it.
    let _ = force.wait_for(|force| force.find(id).is_none()).await;
}
