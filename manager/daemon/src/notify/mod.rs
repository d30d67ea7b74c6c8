//! Notifications, as the daemon brings them: which hooks are in force (`force`, read anew when the settings change), one
//! teller for each, which brings it what it wants to know (`teller`, `subject`), and what clients ask of them (`view`).
//! The keeper is the one writer of what is in force. It reads the facts too, so that the settings are looked at before
//! each that somebody may want to know, whether there are hooks or not: a new hook begins with that fact.

mod force;
mod subject;
mod teller;
pub mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use protocol::codec::Frame;
use protocol::event::Event;
use protocol::ids::Name;
use protocol::notify::{MissingHook, NoticeKind};
use protocol::subject::ALL_EVENTS;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinSet};

use super::driver::Glance;
use super::hosts::Hosts;
use super::raised;
use super::secrets::Secrets;
use crate::store::Store;
use crate::store::journal::{Log, Stored};
use crate::store::streams::EVENTS;
use force::{Force, Reader};
use manager_installation::ledger;
use manager_notify::notice::kind_of;
use teller::Teller;

/// Between two tries to read where the stream ends, or a ledger.
const AGAIN: Duration = Duration::from_secs(2);
/// Looks that wait; who comes then waits too.
const ASKS_WAITING: usize = 64;

/// What tellers and the keeper need of the daemon.
#[derive(Clone)]
pub struct Surroundings {
    pub hosts: Hosts,
    pub store: Store,
    pub secrets: Secrets,
    /// Where the ledgers lie.
    pub folder: PathBuf,
}

/// A wish for a look at the settings.
struct Ask {
    /// Place of the fact that it is for.
    fact: Option<u64>,
    reply: oneshot::Sender<Arc<Force>>,
}

/// The way to the keeper; cheap to clone.
#[derive(Clone)]
pub struct Hooks {
    asks: mpsc::Sender<Ask>,
    hosts: Hosts,
    folder: PathBuf,
}

impl Hooks {
    /// What is in force, after a look at the settings; `None`: the manager ends.
    async fn look(&self, fact: Option<u64>) -> Option<Arc<Force>> {
        let (reply, answer) = oneshot::channel();
        self.asks.send(Ask { fact, reply }).await.ok()?;
        answer.await.ok()
    }
}

/// The keeper, and the way to it.
#[must_use]
pub fn new(around: Surroundings) -> (Keeper, Hooks) {
    let (asks, asked) = mpsc::channel(ASKS_WAITING);
    let hooks = Hooks { asks, hosts: around.hosts.clone(), folder: around.folder.clone() };
    let keeper = Keeper {
        around,
        hooks: hooks.clone(),
        asked,
        reader: Some(Reader::default()),
        force: watch::Sender::new(Arc::default()),
        tellers: JoinSet::new(),
        serving: BTreeMap::new(),
        spotted: 1,
    };
    (keeper, hooks)
}

pub struct Keeper {
    around: Surroundings,
    hooks: Hooks,
    asked: mpsc::Receiver<Ask>,
    /// `None` while it reads.
    reader: Option<Reader>,
    force: watch::Sender<Arc<Force>>,
    tellers: JoinSet<()>,
    /// By the id of its hook.
    serving: BTreeMap<Id, String>,
    /// Place of the first fact before which the settings were not looked at: new hooks begin there.
    spotted: u64,
}

impl Keeper {
    /// Until `stop` is raised.
    pub async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        let end = tokio::select! {
            () = raised(&mut stop) => return,
            end = end_of_facts(&self.around.hosts) => end,
        };
        self.spotted = end;
        self.look().await;
        let mut followers = JoinSet::new();
        let mut coming =
            self.around.store.follow_log(Log::Events, ALL_EVENTS.to_owned(), end, &mut followers);
        loop {
            tokio::select! {
                () = raised(&mut stop) => break,
                Some(ask) = self.asked.recv() => {
                    self.look_for(ask.fact).await;
                    // Who asked may have gone.
                    let _ = ask.reply.send(Arc::clone(&self.force.borrow()));
                }
                Some(stored) = coming.recv() => {
                    if decoded(&stored).is_some_and(|(_, kind)| kind.is_some()) {
                        self.look_for(Some(stored.sequence)).await;
                    }
                }
                Some(ended) = self.tellers.join_next_with_id() => self.ended(ended).await,
            }
        }
        // What is under way is sent again by the next manager, under the same id.
        self.tellers.shutdown().await;
    }

    /// A teller may be before the keeper: it has had a look for each fact before this one, since it began no later.
    async fn look_for(&mut self, fact: Option<u64>) {
        if let Some(fact) = fact {
            self.spotted = self.spotted.max(fact);
        }
        self.look().await;
        if let Some(fact) = fact {
            self.spotted = self.spotted.max(fact.saturating_add(1));
        }
    }

    /// Reads the settings if they may have changed. Those that are wrong change nothing but what is said of them.
    async fn look(&mut self) {
        let Some(mut reader) = self.reader.take() else { return };
        let read = tokio::task::spawn_blocking(move || (reader.look(), reader)).await;
        let Ok((found, reader)) = read else {
            self.reader = Some(Reader::default());
            return;
        };
        self.reader = Some(reader);
        match found {
            None => {}
            Some(Ok(hooks)) => {
                let before = Arc::clone(&self.force.borrow());
                let is_new = before.hooks != hooks;
                self.force.send_replace(Arc::new(Force { hooks, wrong: String::new(), is_read: true }));
                if !before.is_read {
                    let ids = self.force.borrow().hooks.iter().map(|hook| hook.id()).collect();
                    self.forget_others(ids).await;
                }
                if is_new {
                    self.serve();
                    self.tell_missing().await;
                }
            }
            Some(Err(wrong)) => {
                let before = Arc::clone(&self.force.borrow());
                let wrong = wrong.to_string();
                if before.wrong != wrong {
                    let (hooks, is_read) = (before.hooks.clone(), before.is_read);
                    if is_read {
                        let hooks = hooks.len();
                        tracing::error!(
                            wrong,
                            hooks,
                            "the settings are wrong: the hooks of before stay in force"
                        );
                    } else {
                        // The ledgers are kept: each hook goes on where it was.
                        tracing::error!(
                            wrong,
                            "the settings are wrong: nobody is notified until they are mended"
                        );
                    }
                    self.force.send_replace(Arc::new(Force { hooks, wrong, is_read }));
                }
            }
        }
    }

    /// A teller for each hook that has none.
    fn serve(&mut self) {
        let served: BTreeSet<&String> = self.serving.values().collect();
        let ids: Vec<String> = self.force.borrow().hooks.iter().map(|hook| hook.id()).collect();
        let new: Vec<String> = ids.into_iter().filter(|id| !served.contains(id)).collect();
        for id in new {
            let teller = Teller {
                around: self.around.clone(),
                hooks: self.hooks.clone(),
                force: self.force.subscribe(),
                id: id.clone(),
                begins: self.spotted,
            };
            let task = self.tellers.spawn(teller.serve()).id();
            self.serving.insert(task, id);
        }
    }

    /// Its hook was taken out; by now it may be there again, and begins anew: nobody wants to be told of the time
    /// between.
    async fn ended(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        match ended {
            Ok((task, ())) => {
                self.serving.remove(&task);
                self.forget_others(self.serving.values().cloned().collect()).await;
            }
            // Its place stays: it is served again from there.
            Err(error) => {
                tracing::error!(%error, "what serves a hook failed");
                self.serving.remove(&error.id());
            }
        }
        self.serve();
    }

    async fn forget_others(&self, ids: Vec<String>) {
        let folder = self.around.folder.clone();
        match tokio::task::spawn_blocking(move || ledger::forget_others(&folder, &ids)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the place of a former hook is kept"),
            Err(error) => tracing::warn!(%error, "the place of a former hook is kept"),
        }
    }

    async fn tell_missing(&self) {
        let names = self.force.borrow().names();
        let missing = self.around.hosts.driver.glance(move |glance| missing(glance, &names)).await;
        for MissingHook { hook, run, run_name } in missing.unwrap_or_default() {
            let (hook, run, run_name) = (hook.as_str(), run.to_string(), run_name.as_str());
            tracing::warn!(hook, run, run_name, "a run asks for a hook that is not in the settings any more");
        }
    }
}

/// What runs that go on ask for in vain.
fn missing(glance: &Glance<'_>, names: &BTreeSet<Name>) -> Vec<MissingHook> {
    let asked = glance.core.asking().flat_map(|(run, spec)| {
        let gone = spec.notify.iter().filter(|told| !names.contains(&told.to));
        gone.map(move |told| MissingHook { hook: told.to.clone(), run, run_name: spec.name.clone() })
    });
    asked.collect()
}

/// The place after the last fact.
async fn end_of_facts(hosts: &Hosts) -> u64 {
    loop {
        match end_once(hosts).await {
            Ok(end) => return end,
            Err(why) => tracing::warn!(why, "notifications wait"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn end_once(hosts: &Hosts) -> Result<u64, String> {
    let kept = hosts.bus.kept(EVENTS).await.map_err(|error| protocol::chain(&error))?;
    let (_, newest) = kept.bounds().await.map_err(|error| protocol::chain(&error))?;
    Ok(newest.saturating_add(1))
}

/// A fact, and what it is to tell; `None`: it cannot be decoded.
fn decoded(stored: &Stored) -> Option<(Event, Option<NoticeKind>)> {
    let event = Frame::decode(&stored.payload).and_then(|frame| frame.body::<Event>());
    match event {
        Ok(event) => {
            let kind = kind_of(&event.fact);
            Some((event, kind))
        }
        Err(error) => {
            tracing::warn!(%error, sequence = stored.sequence, "a fact cannot be decoded: nobody is notified");
            None
        }
    }
}

/// The ledger of a hook, if it has one.
async fn ledger_of(folder: &Path, id: &str) -> Result<Option<ledger::Ledger>, String> {
    let (folder, id) = (folder.to_owned(), id.to_owned());
    let found = tokio::task::spawn_blocking(move || ledger::read(&folder, &id)).await;
    found.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
