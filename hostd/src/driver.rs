//! The one loop of hostd: an input, the core's decision, the effects.
//!
//! It never waits for slow work: effects become jobs, their outcomes come back as inputs. What follows from a record
//! waits in the agent's lane until the record is on the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hostd_core::{AgentRecord, Core, Effect, Input};
use protocol::ids::{AgentId, Fencing, Seq};
use protocol::order::Ask;
use protocol::report::DigestRow;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::asks::{self, Asked};
use crate::bus::{EventSink, Heard, Inbox, Replier, ReportSink};
use crate::machine::Handle;
use crate::state::Life;
use crate::{activity, agents, clock};

/// After a record could not be saved.
const SAVE_AGAIN: Duration = Duration::from_secs(1);
/// Questions that are answered at once; more are refused.
const ASKS_AT_ONCE: usize = 64;

#[derive(Debug)]
pub struct Driver {
    pub core: Core,
    pub life: Life,
    pub machine: Handle,
    pub inbox: Inbox,
    pub inputs: mpsc::Receiver<Input>,
    pub digests: mpsc::Receiver<oneshot::Sender<Vec<DigestRow>>>,
    pub reports: ReportSink,
    pub events: EventSink,
    pub fencing: watch::Sender<Fencing>,
    pub disk_used: watch::Receiver<u64>,
    /// Agents of earlier lives whose state is not told yet: their orders are dropped, they come again.
    pub adopting: BTreeSet<AgentId>,
    pub jobs: JoinSet<Done>,
    pub lanes: BTreeMap<AgentId, VecDeque<Batch>>,
    pub reported: BTreeMap<AgentId, Seq>,
    pub asks_under_way: usize,
    /// Taken, and not on the disk: not told to anyone until it is.
    pub unsaved_fencing: Option<Fencing>,
}

/// How a job ended, where the driver itself must know.
#[derive(Debug)]
pub enum Done {
    Saved(AgentId),
    Answered,
    Nothing,
}

/// What waits for a record to be on the disk.
#[derive(Debug)]
pub struct Batch {
    record: Box<AgentRecord>,
    then: Vec<Effect>,
}

/// What woke the loop.
enum Woken {
    Input(Input),
    Heard(Option<Heard>),
    Digest(oneshot::Sender<Vec<DigestRow>>),
    Done(Done),
    Disk(u64),
    Stop,
}

impl Driver {
    /// Until `stop` says so, or the bus is closed for good.
    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let deadline = self.core.deadline();
            let tick = async move {
                match deadline {
                    None => std::future::pending().await,
                    Some(at) => {
                        let ahead = Duration::from_millis(at.ms_since(clock::now()));
                        tokio::time::sleep_until(Instant::now() + ahead).await;
                    }
                }
            };
            let woken = tokio::select! {
                biased;
                _ = stop.changed() => Woken::Stop,
                Some(done) = self.jobs.join_next() => Woken::Done(finished(done)),
                Some(input) = self.inputs.recv() => Woken::Input(input),
                Some(digest) = self.digests.recv() => Woken::Digest(digest),
                Ok(()) = self.disk_used.changed() => Woken::Disk(*self.disk_used.borrow_and_update()),
                heard = self.inbox.next() => Woken::Heard(heard),
                () = tick => Woken::Input(Input::Tick),
            };
            match woken {
                Woken::Stop | Woken::Heard(None) => return,
                Woken::Input(input) => self.take(input),
                Woken::Heard(Some(heard)) => self.hear(heard),
                Woken::Digest(answer) => self.digest(answer),
                Woken::Disk(used_percent) => self.take(Input::Disk { used_percent }),
                Woken::Done(Done::Saved(agent)) => self.saved(agent),
                Woken::Done(Done::Answered) => self.asks_under_way = self.asks_under_way.saturating_sub(1),
                Woken::Done(Done::Nothing) => {}
            }
            if let Some(fencing) = self.unsaved_fencing {
                self.save_fencing(fencing);
            }
        }
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Order(order) => {
                if self.adopting.contains(&order.command.agent()) {
                    return;
                }
                match asks::random_hex() {
                    Ok(epoch) => self.take(Input::Order { order, epoch }),
                    Err(error) => {
                        tracing::error!(%error, "no randomness: an order is dropped, it comes again")
                    }
                }
            }
            Heard::Ask { ask, replier } => self.ask(*ask, *replier),
        }
    }

    fn ask(&mut self, ask: Ask, replier: Replier) {
        let refusal = if self.asks_under_way >= ASKS_AT_ONCE {
            Some(asks::busy())
        } else if ask.expires < clock::now() || ask.fencing < self.core.fencing() {
            Some(asks::outdated())
        } else {
            None
        };
        if let protocol::order::Question::Report { agents } = &ask.question {
            for agent in agents.clone() {
                self.take(Input::ReportAgain { agent });
            }
        }
        let record = asks::agent_of(&ask.question)
            .and_then(|agent| self.core.agent(agent))
            .map(|agent| agent.record.clone());
        let asked = Asked { machine: self.machine.clone(), question: ask.question, record, refusal };
        // A program beside an agent may run for days; it has a bound of its own.
        if matches!(asked.question, protocol::order::Question::Exec { .. }) {
            self.jobs.spawn(async move {
                asks::answer(asked, replier).await;
                Done::Nothing
            });
            return;
        }
        self.asks_under_way += 1;
        self.jobs.spawn(async move {
            asks::answer(asked, replier).await;
            Done::Answered
        });
    }

    /// One input through the core.
    pub fn take(&mut self, input: Input) {
        if let Input::Found { record, .. } = &input {
            self.adopting.remove(&record.agent);
        }
        let now = clock::now();
        let before = input.agent().and_then(|agent| self.core.agent(agent).map(hostd_core::Agent::phase));
        let agent = input.agent();
        let effects = self.core.handle(now, input);
        if let Some(agent) = agent {
            let after = self.core.agent(agent);
            if let Some(after) = after.filter(|after| Some(after.phase()) != before) {
                tracing::info!(%agent, phase = %after.phase(), "phase");
            }
        }
        self.spread(effects);
    }

    /// Gives each effect its way: at once, or into the lane of an agent whose record is being saved.
    fn spread(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Save(record) => self.save(record),
                Effect::SaveFencing(fencing) => self.save_fencing(fencing),
                effect => {
                    let lane = effect_agent(&effect).and_then(|agent| self.lanes.get_mut(&agent));
                    match lane.and_then(VecDeque::back_mut) {
                        Some(batch) => batch.then.push(effect),
                        None => self.carry_out(effect),
                    }
                }
            }
        }
    }

    fn save(&mut self, record: Box<AgentRecord>) {
        let agent = record.agent;
        let lane = self.lanes.entry(agent).or_default();
        lane.push_back(Batch { record, then: Vec::new() });
        if lane.len() == 1 {
            self.start_save(agent);
        }
    }

    fn start_save(&mut self, agent: AgentId) {
        let Some(batch) = self.lanes.get(&agent).and_then(VecDeque::front) else { return };
        let (machine, record) = (self.machine.clone(), batch.record.clone());
        self.jobs.spawn(async move {
            let mut told = false;
            loop {
                let (folders, copy) = (machine.folders.clone(), record.clone());
                let saved = tokio::task::spawn_blocking(move || folders.save(&copy)).await;
                let reason = match saved {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => crate::chain(&error),
                    Err(error) => error.to_string(),
                };
                tracing::error!(%agent, reason, "a record could not be saved; tried again");
                if !std::mem::replace(&mut told, true) {
                    machine.tell(Input::SaveFailed { agent, reason }).await;
                }
                tokio::time::sleep(SAVE_AGAIN).await;
            }
            if told {
                machine.tell(Input::Degraded { agent, what: "unsaved", degraded: false }).await;
            }
            Done::Saved(agent)
        });
    }

    fn saved(&mut self, agent: AgentId) {
        let Some(lane) = self.lanes.get_mut(&agent) else { return };
        let batch = lane.pop_front();
        let more = !lane.is_empty();
        if !more {
            self.lanes.remove(&agent);
        }
        if let Some(batch) = batch {
            for effect in batch.then {
                self.carry_out(effect);
            }
        }
        if more {
            self.start_save(agent);
        }
    }

    /// Rare (a new leader) and small; the orders of an older leader must not be taken meanwhile.
    fn save_fencing(&mut self, fencing: Fencing) {
        if let Err(error) = self.life.raise_fencing(fencing) {
            tracing::error!(error = crate::chain(&error), "the fencing of the leader could not be saved");
            self.unsaved_fencing = Some(fencing);
            return;
        }
        self.unsaved_fencing = None;
        self.fencing.send_replace(fencing);
    }

    fn carry_out(&mut self, effect: Effect) {
        let machine = self.machine.clone();
        match effect {
            // Both have gone their own way in `spread`.
            Effect::Save(_) | Effect::SaveFencing(_) => {}
            Effect::Report(report) => {
                self.reported.insert(report.agent, report.seq);
                self.reports.put(report);
            }
            Effect::Event { agent, name, fact } => self.events.note(clock::now(), Some(agent), name, fact),
            // The record may have been saved only after the core had given the start up.
            Effect::Create(agent)
                if self.core.agent(agent).is_none_or(|agent| agent.stage != hostd_core::Stage::Creating) => {}
            Effect::Create(agent) => self.job(agent, |record| agents::create(machine, record)),
            Effect::Collect(agent) => self.job(agent, |record| agents::collect(machine, record)),
            Effect::Remove { agent, discard } => {
                self.job(agent, |record| agents::remove(machine, record, discard));
            }
            Effect::Terminate(agent) => self.job(agent, |_| agents::terminate(machine, agent)),
            Effect::Kill(agent) => self.job(agent, |_| agents::kill(machine, agent)),
            Effect::AskLease { agent, generation } => {
                self.job(agent, |_| async move { agents::ask_lease(&machine, agent, generation).await });
            }
            Effect::SetLease { agent, until } => {
                self.job(agent, |_| async move { agents::set_lease(&machine, agent, until).await });
            }
        }
    }

    fn job<F>(&mut self, agent: AgentId, work: impl FnOnce(AgentRecord) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(record) = self.core.agent(agent).map(|agent| agent.record.clone()) else { return };
        let work = work(record);
        self.jobs.spawn(async move {
            work.await;
            Done::Nothing
        });
    }

    fn digest(&mut self, answer: oneshot::Sender<Vec<DigestRow>>) {
        let rows = self.core.digest(&self.reported);
        let machine = self.machine.clone();
        self.jobs.spawn(async move {
            let _ = answer.send(activity::measure(machine, rows).await);
            Done::Nothing
        });
    }
}

fn effect_agent(effect: &Effect) -> Option<AgentId> {
    match effect {
        Effect::Save(record) => Some(record.agent),
        Effect::SaveFencing(_) => None,
        Effect::Create(agent) | Effect::Terminate(agent) | Effect::Kill(agent) | Effect::Collect(agent) => {
            Some(*agent)
        }
        Effect::Remove { agent, .. }
        | Effect::AskLease { agent, .. }
        | Effect::SetLease { agent, .. }
        | Effect::Event { agent, .. } => Some(*agent),
        Effect::Report(report) => Some(report.agent),
    }
}

/// A job that panicked is a defect of ours; its agent is looked at again by the next life.
fn finished(done: Result<Done, tokio::task::JoinError>) -> Done {
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "a job broke off");
        Done::Nothing
    })
}
