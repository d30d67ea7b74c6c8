//! The one loop of hostd: an input, the core's decision, the effects.
//!
//! It never waits for slow work: effects become jobs, their outcomes come back as inputs. What follows from a record
//! waits in the agent's lane until the record is on the disk. What it touches goes through [`Hands`]: the machine's in
//! `on_machine`, those of a test in a test.

mod hands;
mod on_machine;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hostd_core::{AgentRecord, Core, Effect, Input, TypedOutcome};
use protocol::ids::{AgentId, Fencing, MessageId, Seq};
use protocol::message::MessageText;
use protocol::order::{Ask, Question};
use protocol::report::DigestRow;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::hands::{Hands, Hearing};
pub use self::on_machine::OnMachine;
use crate::asks::{self, Asked};
use crate::bus::{Heard, Replier};
use crate::state::Life;

/// After a record could not be saved.
const SAVE_AGAIN: Duration = Duration::from_secs(1);
/// Questions that are answered at once; more are refused.
const ASKS_AT_ONCE: usize = 64;

#[derive(Debug)]
pub struct Driver<H, E> {
    pub core: Core,
    pub life: Life,
    pub hands: H,
    pub ears: E,
    pub inputs: mpsc::Receiver<Input>,
    pub digests: mpsc::Receiver<oneshot::Sender<Vec<DigestRow>>>,
    pub fencing: watch::Sender<Fencing>,
    pub disk_used: watch::Receiver<u64>,
    /// Agents of earlier lives whose state is not told yet: their orders are dropped, they come again.
    pub adopting: BTreeSet<AgentId>,
    pub jobs: JoinSet<Done>,
    pub lanes: BTreeMap<AgentId, VecDeque<Batch>>,
    /// Texts that the next record of their agent names: on the disk before it.
    pub texts: BTreeMap<AgentId, Vec<(MessageId, MessageText)>>,
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

/// Who stops waits so long for what became of the agents of the last life.
const ADOPTION_LIMIT: Duration = Duration::from_secs(3);

/// What waits for a record to be on the disk.
#[derive(Debug)]
pub struct Batch {
    texts: Vec<(MessageId, MessageText)>,
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

impl<H: Hands, E: Hearing> Driver<H, E> {
    /// Until `stop` says so, or the bus is closed for good. What ended agents have on the machine is taken away by who
    /// knows that they ended: one that is told to stop right after its start looks at them first, and hears nothing else.
    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) {
        let mut ends_at = None;
        loop {
            if ends_at.is_some() && self.adopting.is_empty() {
                return;
            }
            let deadline = self.core.deadline();
            let now = self.hands.now();
            let tick = async move {
                match deadline {
                    None => std::future::pending().await,
                    Some(at) => {
                        let ahead = Duration::from_millis(at.ms_since(now));
                        tokio::time::sleep_until(Instant::now() + ahead).await;
                    }
                }
            };
            let woken = tokio::select! {
                biased;
                _ = stop.changed(), if ends_at.is_none() => Woken::Stop,
                () = past(ends_at) => return,
                Some(done) = self.jobs.join_next() => Woken::Done(finished(done)),
                Some(input) = self.inputs.recv() => Woken::Input(input),
                Some(digest) = self.digests.recv() => Woken::Digest(digest),
                Ok(()) = self.disk_used.changed() => Woken::Disk(*self.disk_used.borrow_and_update()),
                heard = self.ears.next(), if ends_at.is_none() => Woken::Heard(heard),
                () = tick => Woken::Input(Input::Tick),
            };
            match woken {
                Woken::Stop => ends_at = Some(Instant::now() + ADOPTION_LIMIT),
                Woken::Heard(None) => return,
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
        } else if ask.fencing < self.core.fencing() {
            Some(asks::follows_another())
        } else if ask.expires < self.hands.now() {
            Some(asks::outdated())
        } else if asks::is_too_early(&ask.question, &self.adopting) {
            Some(asks::adopting())
        } else {
            None
        };
        if let Question::Report { agents } = &ask.question {
            for agent in agents.clone() {
                self.take(Input::ReportAgain { agent });
            }
        }
        let record = asks::agent_of(&ask.question)
            .and_then(|agent| self.core.agent(agent))
            .map(|agent| agent.record.clone());
        let records = if asks::is_of_host(&ask.question) {
            self.core.agents().values().map(|agent| agent.record.clone()).collect()
        } else {
            Vec::new()
        };
        let asked = Asked { question: ask.question, record, records, refusal };
        let hands = self.hands.clone();
        // A program beside an agent may run for days, and it or a reader may be slow; each has a bound of its own.
        if matches!(
            asked.question,
            Question::Exec { .. }
                | Question::ExecOpen { .. }
                | Question::ExecInput { .. }
                | Question::Compare { .. }
        ) {
            self.jobs.spawn(async move {
                hands.answer(asked, replier).await;
                Done::Nothing
            });
            return;
        }
        self.asks_under_way += 1;
        self.jobs.spawn(async move {
            hands.answer(asked, replier).await;
            Done::Answered
        });
    }

    /// One input through the core.
    pub fn take(&mut self, input: Input) {
        if let Input::Found { record, .. } = &input {
            self.adopting.remove(&record.agent);
        }
        let now = self.hands.now();
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
                Effect::KeepText { agent, message, text } => {
                    self.texts.entry(agent).or_default().push((message, text));
                }
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
        let texts = self.texts.remove(&agent).unwrap_or_default();
        lane.push_back(Batch { texts, record, then: Vec::new() });
        if lane.len() == 1 {
            self.start_save(agent);
        }
    }

    fn start_save(&mut self, agent: AgentId) {
        let Some(batch) = self.lanes.get_mut(&agent).and_then(VecDeque::front_mut) else { return };
        let (hands, record, texts) =
            (self.hands.clone(), batch.record.clone(), std::mem::take(&mut batch.texts));
        self.jobs.spawn(async move {
            let mut told = false;
            loop {
                let Err(reason) = keep(&hands, &texts, &record).await else { break };
                tracing::error!(%agent, reason, "a record could not be saved; tried again");
                if !std::mem::replace(&mut told, true) {
                    hands.tell(Input::SaveFailed { agent, reason }).await;
                }
                tokio::time::sleep(SAVE_AGAIN).await;
            }
            if told {
                hands.tell(Input::Degraded { agent, what: "unsaved", degraded: false }).await;
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
            tracing::error!(error = protocol::chain(&error), "the fencing of the leader could not be saved");
            self.unsaved_fencing = Some(fencing);
            return;
        }
        self.unsaved_fencing = None;
        self.fencing.send_replace(fencing);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            // They have gone their own way in `spread`.
            Effect::KeepText { .. } | Effect::Save(_) | Effect::SaveFencing(_) => {}
            Effect::Report(report) => {
                self.reported.insert(report.agent, report.seq);
                self.hands.report(report);
            }
            Effect::Event { agent, name, fact } => self.hands.note(self.hands.now(), agent, name, fact),
            // The record may have been saved only after the core had given the start up.
            Effect::Create { agent, launch }
                if self.core.agent(agent).is_none_or(|agent| {
                    agent.stage != hostd_core::Stage::Creating || agent.record.launch != launch
                }) => {}
            // While the record was saved a dialog may have opened, or the program have been frozen.
            Effect::Type { agent, message }
                if self.core.agent(agent).is_none_or(|agent| !agent.may_type(message)) =>
            {
                self.take(Input::Typed { agent, message, outcome: TypedOutcome::NotTyped });
            }
            effect @ (Effect::Create { .. }
            | Effect::Type { .. }
            | Effect::AskTyped { .. }
            | Effect::ForgetText { .. }
            | Effect::Freeze(_)
            | Effect::Thaw(_)
            | Effect::SetLimits(_)
            | Effect::Rename(_)
            | Effect::Collect(_)
            | Effect::Weigh(_)
            | Effect::Remove { .. }
            | Effect::CallOff(_)
            | Effect::Terminate(_)
            | Effect::Kill(_)
            | Effect::AskLease { .. }
            | Effect::SetLease { .. }
            | Effect::Forget(_)) => self.job(effect),
        }
    }

    /// Work on the machine; its outcome comes back as an input.
    fn job(&mut self, effect: Effect) {
        let agent = effect_agent(&effect).and_then(|agent| self.core.agent(agent));
        let Some(record) = agent.map(|agent| agent.record.clone()) else { return };
        let hands = self.hands.clone();
        self.jobs.spawn(async move {
            hands.carry_out(effect, record).await;
            Done::Nothing
        });
    }

    fn digest(&mut self, answer: oneshot::Sender<Vec<DigestRow>>) {
        let rows = self.core.digest(&self.reported);
        let hands = self.hands.clone();
        self.jobs.spawn(async move {
            let _ = answer.send(hands.measure(rows).await);
            Done::Nothing
        });
    }
}

fn effect_agent(effect: &Effect) -> Option<AgentId> {
    match effect {
        Effect::Save(record) => Some(record.agent),
        Effect::SaveFencing(_) => None,
        Effect::CallOff(agent)
        | Effect::Terminate(agent)
        | Effect::Kill(agent)
        | Effect::Freeze(agent)
        | Effect::Thaw(agent)
        | Effect::SetLimits(agent)
        | Effect::Rename(agent)
        | Effect::Forget(agent)
        | Effect::Weigh(agent)
        | Effect::Collect(agent) => Some(*agent),
        Effect::Create { agent, .. }
        | Effect::Remove { agent, .. }
        | Effect::KeepText { agent, .. }
        | Effect::Type { agent, .. }
        | Effect::AskTyped { agent, .. }
        | Effect::ForgetText { agent, .. }
        | Effect::AskLease { agent, .. }
        | Effect::SetLease { agent, .. }
        | Effect::Event { agent, .. } => Some(*agent),
        Effect::Report(report) => Some(report.agent),
    }
}

/// A record, after the texts that it names.
async fn keep<H: Hands>(
    hands: &H,
    texts: &[(MessageId, MessageText)],
    record: &AgentRecord,
) -> Result<(), String> {
    for (message, text) in texts {
        hands.keep_text(record.agent, *message, text).await?;
    }
    hands.save(record).await
}

/// A job that panicked is a defect of ours; its agent is looked at again by the next life.
async fn past(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn finished(done: Result<Done, tokio::task::JoinError>) -> Done {
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "a job broke off");
        Done::Nothing
    })
}
