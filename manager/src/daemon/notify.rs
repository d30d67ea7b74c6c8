//! Reads the facts for each hook of the settings and brings it what it wants to know, in their order, at least once: how
//! far it has come is on the disk after each. A hook that fails is tried again with growing pauses, and given up for one
//! notice after a bounded number of tries. Each hook has one delivery at a time and holds up nobody else.

use std::path::PathBuf;
use std::time::Duration;

use manager_core::EnvironmentOwner;
use protocol::agent::{Environment, Role, TaskLink};
use protocol::codec::Frame;
use protocol::event::{Event, Fact};
use protocol::subject::ALL_EVENTS;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::driver::{Glance, NotTaken};
use super::hosts::Hosts;
use super::raised;
use super::secrets::Secrets;
use crate::config::Settings;
use crate::notify::hook::Hook;
use crate::notify::ledger::{self, Failed, Ledger};
use crate::notify::notice::{Kind, Notice, Values};
use crate::notify::send::{Undelivered, send};
use crate::store::Store;
use crate::store::journal::{Log, Stored};
use crate::store::streams::EVENTS;

const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);
/// Between two tries to read where the stream ends, or a ledger.
const AGAIN: Duration = Duration::from_secs(2);
/// Facts that are of no concern are not written down one by one.
const SKIPPED_MOST: u64 = 500;

/// The manager ends.
struct Stopping;

/// What the manager knows of a fact.
struct LookedUp {
    /// Whose values the reason may hold; `None`: nobody's.
    owner: Option<EnvironmentOwner>,
    run_name: Option<String>,
    task: Option<TaskLink>,
    /// It is not known any more, so its values are not either.
    is_gone: bool,
    /// A task tells of it.
    is_told_elsewhere: bool,
}

impl LookedUp {
    fn at(glance: &Glance<'_>, fact: &Fact, kind: Kind) -> Self {
        let core = glance.core;
        let nothing =
            Self { owner: None, run_name: None, task: None, is_gone: false, is_told_elsewhere: false };
        match fact {
            Fact::TaskState { task, .. } => {
                let Some(view) = core.task_view(glance.now, *task) else {
                    return Self { is_gone: true, ..nothing };
                };
                let owner = view.spec.has_environment.then_some(EnvironmentOwner::Task(view.id));
                Self { owner, run_name: Some(view.run_name.to_string()), ..nothing }
            }
            Fact::AgentPhase { agent, .. } => {
                let Some(view) = core.agent_view(glance.now, *agent) else {
                    return Self { is_gone: true, ..nothing };
                };
                let is_told_elsewhere = view.role != Role::Own && kind != Kind::Blocked;
                let owner = core.environment_owner(*agent);
                Self { owner, task: view.spec.task, is_told_elsewhere, ..nothing }
            }
            Fact::RunEnded { .. }
            | Fact::AgentDestroyed { .. }
            | Fact::RunSubmitted { .. }
            | Fact::HostStarted { .. }
            | Fact::Gap { .. }
            | Fact::Unknown => nothing,
        }
    }
}

#[derive(Clone)]
pub struct Notifier {
    pub hosts: Hosts,
    pub store: Store,
    pub secrets: Secrets,
    /// Where the ledgers lie.
    pub folder: PathBuf,
}

impl Notifier {
    /// Until `stop` is raised.
    pub async fn keep(self, mut stop: watch::Receiver<bool>) {
        let hooks = match tokio::task::spawn_blocking(Settings::of_daemons).await {
            Ok(Ok(settings)) => {
                let hooks = settings.hooks().to_vec();
                self.forget_others(&hooks).await;
                hooks
            }
            Ok(Err(wrong)) => {
                tracing::error!(%wrong, "the settings are wrong: nobody is notified");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let mut workers = JoinSet::new();
        for hook in hooks {
            workers.spawn(self.clone().serve(hook));
        }
        raised(&mut stop).await;
        // What is under way is sent again by the next manager, under the same id.
        workers.shutdown().await;
    }

    async fn serve(self, hook: Hook) {
        let id = hook.id();
        let mut ledger = loop {
            match self.begin(&hook, &id).await {
                Ok(ledger) => break ledger,
                Err(why) => tracing::warn!(%hook, why, "a hook waits"),
            }
            tokio::time::sleep(AGAIN).await;
        };
        let mut tasks = JoinSet::new();
        let mut coming = self.store.follow_log(Log::Events, ALL_EVENTS.to_owned(), ledger.next, &mut tasks);
        let mut skipped = 0;
        while let Some(stored) = coming.recv().await {
            match self.notice(&hook, &stored).await {
                Ok(Some(notice)) => {
                    self.deliver(&hook, &notice, &mut ledger).await;
                    skipped = SKIPPED_MOST;
                }
                Ok(None) => skipped += 1,
                // The manager ends: the next one looks at this fact again.
                Err(_) => return,
            }
            ledger.next = stored.sequence.saturating_add(1);
            if skipped >= SKIPPED_MOST {
                skipped = 0;
                self.save(&id, &ledger).await;
            }
        }
    }

    /// A hook that was taken out and comes back begins anew: nobody wants to be told of the time between.
    async fn forget_others(&self, hooks: &[Hook]) {
        let (folder, ids) = (self.folder.clone(), hooks.iter().map(Hook::id).collect::<Vec<_>>());
        match tokio::task::spawn_blocking(move || ledger::forget_others(&folder, &ids)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the place of a former hook is kept"),
            Err(error) => tracing::warn!(%error, "the place of a former hook is kept"),
        }
    }

    /// Where it was, or, for a new hook, the end of the stream: nobody wants to be told of last month.
    async fn begin(&self, hook: &Hook, id: &str) -> Result<Ledger, String> {
        let (folder, name) = (self.folder.clone(), id.to_owned());
        let found = tokio::task::spawn_blocking(move || ledger::read(&folder, &name)).await;
        let found = found.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        let kept = self.hosts.bus.kept(EVENTS).await.map_err(|error| crate::chain(&error))?;
        let (_, newest) = kept.bounds().await.map_err(|error| crate::chain(&error))?;
        let end = newest.saturating_add(1);
        match found {
            // A place that the stream has not reached is one of a stream that is gone: all of this one is new.
            Some(found) if found.next > end => Ok(Ledger { next: 1, shown: hook.to_string(), ..found }),
            Some(found) => Ok(Ledger { shown: hook.to_string(), ..found }),
            None => {
                let ledger = Ledger { version: 1, next: end, shown: hook.to_string(), ..Ledger::default() };
                self.save(id, &ledger).await;
                Ok(ledger)
            }
        }
    }

    async fn save(&self, id: &str, ledger: &Ledger) {
        let (folder, name, ledger) = (self.folder.clone(), id.to_owned(), ledger.clone());
        let written = tokio::task::spawn_blocking(move || ledger::write(&folder, &name, &ledger)).await;
        match written {
            Ok(Ok(())) => {}
            // The next one says the same and more; until then a restart would send again.
            Ok(Err(error)) => {
                tracing::error!(error = %crate::chain(&error), "how far a hook has come is not kept");
            }
            Err(error) => tracing::error!(%error, "how far a hook has come is not kept"),
        }
    }

    /// `None`: nothing for this hook.
    async fn notice(&self, hook: &Hook, stored: &Stored) -> Result<Option<Notice>, Stopping> {
        let event = match Frame::decode(&stored.payload).and_then(|frame| frame.body::<Event>()) {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, sequence = stored.sequence, "a fact cannot be decoded: nobody is notified");
                return Ok(None);
            }
        };
        let Some(kind) = Kind::of(&event.fact).filter(|kind| hook.on.contains(kind)) else { return Ok(None) };
        self.described(&event, kind).await
    }

    /// With the names of what it is about. `None`: a task tells of it.
    async fn described(&self, event: &Event, kind: Kind) -> Result<Option<Notice>, Stopping> {
        let found = loop {
            let fact = event.fact.clone();
            match self.hosts.driver.glance(move |glance| LookedUp::at(glance, &fact, kind)).await {
                Ok(found) => break found,
                Err(NotTaken::Stopping) => return Err(Stopping),
                Err(NotTaken::Full) => tokio::time::sleep(PAUSE).await,
            }
        };
        if found.is_told_elsewhere {
            return Ok(None);
        }
        let values = match found.owner {
            _ if found.is_gone => Values::Unknown,
            None => Values::Known(Environment::default()),
            Some(owner) => self.secrets.open(&owner.to_string()).await.map_or(Values::Unknown, Values::Known),
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

    async fn deliver(&self, hook: &Hook, notice: &Notice, ledger: &mut Ledger) {
        let mut pause = PAUSE;
        for left in (0..TRIES).rev() {
            let failure = match send(hook, notice).await {
                Ok(_) => {
                    ledger.delivered = ledger.delivered.saturating_add(1);
                    ledger.failure = None;
                    return;
                }
                Err(failure) => failure,
            };
            let at_ms = self.hosts.clock.now().0;
            let is_first = ledger.failure.is_none();
            ledger.failure = Some(Failed { at_ms, why: failure.why().to_owned() });
            if left == 0 || matches!(failure, Undelivered::Refused(_)) {
                ledger.lost = ledger.lost.saturating_add(1);
                tracing::error!(%hook, id = notice.id, why = failure.why(), "a notification is given up");
                return;
            }
            if is_first {
                tracing::warn!(%hook, why = failure.why(), "a notification failed and is tried again");
                self.save(&hook.id(), ledger).await;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(PAUSE_MOST);
        }
    }
}
