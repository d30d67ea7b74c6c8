//! All agents of one host: which orders count, what is saved, what is reported.

use std::collections::BTreeMap;

use protocol::agent::{AgentSpec, Phase, StartStep};
use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, Generation, HostId, Incarnation, Region, Seq};
use protocol::message::{MessageText, Typing};
use protocol::order::{Command, Discard, Order};
use protocol::report::{DigestRow, Report, TranscriptFacts};
use protocol::time::Timestamp;

use crate::agent::{Agent, Stage};
use crate::effect::Effect;
use crate::input::{Found, Input};
use crate::record::{AgentRecord, MessageEntry, MessageLedger, RECORD_VERSION, Wanted};

/// Twice as long as any order is worth something.
const FORGET_AFTER_MS: u64 = 60_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub region: Region,
    pub host: HostId,
    /// One life of the daemon: max(stored + 1, wall ms at the start).
    pub incarnation: Incarnation,
    /// Highest fencing that a leader has shown so far.
    pub fencing: Fencing,
    /// No agent is taken while the disk is fuller than this.
    pub disk_share_max_percent: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    config: Config,
    fencing: Fencing,
    seq: Seq,
    disk_used_percent: u64,
    agents: BTreeMap<AgentId, Agent>,
}

impl Core {
    #[must_use]
    pub fn new(config: Config) -> Self {
        let fencing = config.fencing;
        Self { config, fencing, seq: Seq(0), disk_used_percent: 0, agents: BTreeMap::new() }
    }

    #[must_use]
    pub fn agents(&self) -> &BTreeMap<AgentId, Agent> {
        &self.agents
    }

    #[must_use]
    pub fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.agents.get(&agent)
    }

    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.config.incarnation
    }

    #[must_use]
    pub fn fencing(&self) -> Fencing {
        self.fencing
    }

    /// When the next [`Input::Tick`] has work.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.agents.values().filter_map(Agent::deadline).min()
    }

    pub fn handle(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        match input {
            Input::Order { order, epoch } => self.order(now, *order, epoch),
            Input::Found { record, found } => {
                let agent = record.agent;
                if self.agents.contains_key(&agent) {
                    return Vec::new();
                }
                self.agents.insert(agent, Agent::new(*record));
                // A new incarnation reports everything once: its manager may have missed anything.
                self.change(now, agent, true, |agent| agent.adopt(now, found))
            }
            Input::SaveFailed { agent, reason } => self.save_failed(now, agent, &reason),
            Input::Started { agent, facts } => self.change(now, agent, false, |a| a.started(now, *facts)),
            Input::Preparing { agent } => self.change(now, agent, false, Agent::preparing),
            Input::StartFailed { agent, step, detail } => {
                self.change(now, agent, false, |a| a.start_failed(now, step, detail))
            }
            Input::Ready { agent } => self.change(now, agent, false, |a| {
                a.ready = a.ready || a.stage.is_live();
                Vec::new()
            }),
            Input::Signalled { agent, activity, evidence } => {
                self.change(now, agent, false, |a| a.signalled(now, activity, evidence))
            }
            Input::Session { agent, session } => self.change(now, agent, false, |a| {
                a.session = Some(session);
                Vec::new()
            }),
            Input::Exited { agent, exit } => self.change(now, agent, false, |a| a.exited(now, exit)),
            Input::Ended { agent, exit } => self.change(now, agent, false, |a| a.ended(&exit)),
            Input::SupervisorLost { agent, launch, detail } => {
                self.change(now, agent, false, |a| a.supervisor_lost(now, launch, detail))
            }
            Input::Frozen { agent, frozen, failed } => {
                self.change(now, agent, false, |a| a.frozen(now, frozen, failed))
            }
            Input::LimitsSet { agent, limits, read, refused } => {
                self.change(now, agent, false, |a| a.limits_set(limits, read, refused))
            }
            Input::Collected { agent, collected } => {
                self.change(now, agent, false, |a| a.collected(*collected))
            }
            Input::CollectFailed { agent, obstacle, reason } => {
                self.change(now, agent, false, |a| a.collect_failed(now, obstacle, reason))
            }
            Input::Weighed { agent, holds } => self.change(now, agent, false, |a| a.weighed(now, holds)),
            Input::Removed { agent, outcome } => self.change(now, agent, false, |a| a.removed(now, outcome)),
            Input::Degraded { agent, what, degraded } => self.change(now, agent, false, |a| {
                a.degraded(what, degraded);
                Vec::new()
            }),
            Input::Lease { agent, generation, asked_at, length_ms } => {
                self.change(now, agent, false, |a| a.lease(generation, asked_at, length_ms))
            }
            Input::Typed { agent, message, outcome } => {
                self.change(now, agent, false, |a| a.typed(now, message, outcome))
            }
            Input::Disk { used_percent } => {
                self.disk_used_percent = used_percent;
                Vec::new()
            }
            Input::ReportAgain { agent } => self.change(now, agent, true, |_| Vec::new()),
            Input::Forget { agent } if self.may_be_forgotten(now, agent) => vec![Effect::Forget(agent)],
            Input::Forget { .. } => Vec::new(),
            Input::Forgotten { agent } => {
                if self.agents.get(&agent).is_some_and(|agent| agent.stage == Stage::Destroyed) {
                    self.agents.remove(&agent);
                }
                Vec::new()
            }
            Input::Tick => {
                let due: Vec<AgentId> = self
                    .agents
                    .iter()
                    .filter(|(_, agent)| agent.deadline().is_some_and(|at| at <= now))
                    .map(|(id, _)| *id)
                    .collect();
                due.into_iter().flat_map(|agent| self.change(now, agent, false, |a| a.tick(now))).collect()
            }
        }
    }

    fn may_be_forgotten(&self, now: Timestamp, id: AgentId) -> bool {
        self.agents.get(&id).is_some_and(|agent| {
            agent.stage == Stage::Destroyed && may_be_forgotten(&agent.record, self.config.incarnation, now)
        })
    }

    fn order(&mut self, now: Timestamp, order: Order, epoch: String) -> Vec<Effect> {
        let for_us = order.host == self.config.host
            && order.region == self.config.region
            && order.incarnation == self.config.incarnation;
        if !for_us || order.fencing < self.fencing || order.expires < now {
            return Vec::new();
        }
        let mut effects = Vec::new();
        if order.fencing > self.fencing {
            self.fencing = order.fencing;
            effects.push(Effect::SaveFencing(self.fencing));
        }
        let agent = order.command.agent();
        let known = self.agents.get(&agent).map(|agent| agent.record.generation);
        if known.is_some_and(|known| order.command.generation() < known) {
            return effects;
        }
        effects.extend(match order.command {
            Command::Ensure { agent, generation, spec } => match known {
                None => self.create(now, agent, generation, *spec, epoch),
                // A newer one changes it; of the same one the manager evidently missed what became of it.
                Some(_) => self.change(now, agent, true, |a| a.ensure(generation, &spec)),
            },
            Command::Stop { agent, generation, grace_ms, spec } => match known {
                None => self.bury(now, agent, generation, *spec, Wanted::Stopped { grace_ms }, epoch),
                Some(_) => self.change(now, agent, true, |a| {
                    let mut effects = a.take_settings(generation, &spec);
                    effects.extend(a.stop(now, generation, grace_ms));
                    effects
                }),
            },
            Command::Destroy { agent, generation, discard, spec } => match known {
                None => self.bury(now, agent, generation, *spec, Wanted::Destroyed { discard }, epoch),
                Some(_) => self.change(now, agent, true, |a| a.destroy(now, generation, discard)),
            },
            Command::Send { agent, message, number, sha256, typing, .. } => {
                let Typing { text, press_enter, at_once, each_line } = *typing;
                let entry = MessageEntry {
                    sha256,
                    press_enter,
                    at_once,
                    each_line,
                    ..MessageEntry::new(message, number, now)
                };
                self.send(now, agent, entry, text)
            }
            // Of an agent that is not here there is nothing to take back, nor will there be: its `Send` is dropped.
            Command::Recall { agent, message, number, .. } => {
                self.change(now, agent, true, |a| a.recall(now, message, number))
            }
        });
        effects
    }

    /// A text for an agent that is here; one that is not was never reported, so none is sent to it.
    fn send(
        &mut self,
        now: Timestamp,
        agent: AgentId,
        entry: MessageEntry,
        text: MessageText,
    ) -> Vec<Effect> {
        let is_news = self.agents.get(&agent).is_some_and(|known| known.takes_message(entry.number));
        if !is_news {
            return self.change(now, agent, true, |_| Vec::new());
        }
        let mut effects = Vec::new();
        if self.agents.get(&agent).is_some_and(|known| known.stage.is_live()) {
            effects.push(Effect::KeepText { agent, message: entry.message, text });
        }
        effects.extend(self.change(now, agent, true, |agent| {
            agent.send(entry);
            Vec::new()
        }));
        effects
    }

    fn create(
        &mut self,
        now: Timestamp,
        id: AgentId,
        generation: Generation,
        spec: AgentSpec,
        epoch: String,
    ) -> Vec<Effect> {
        let record = new_record(now, id, generation, spec, Wanted::Running, epoch);
        let name = record.spec.name.to_string();
        let full = self.disk_is_full();
        let launch = record.launch;
        self.agents.insert(id, Agent::new(record.clone()));
        let fact = Fact::AgentPhase { agent: id, phase: Phase::Creating, end: None, reason: None };
        let mut effects = vec![Effect::Save(Box::new(record)), Effect::Event { agent: id, name, fact }];
        effects.extend(self.change(now, id, true, |agent| match full {
            Some(detail) => agent.start_failed(now, StartStep::Host, detail),
            None => vec![Effect::Create { agent: id, launch }],
        }));
        effects
    }

    /// Why no agent is started now, if none is.
    fn disk_is_full(&self) -> Option<String> {
        let (used, max) = (self.disk_used_percent, self.config.disk_share_max_percent);
        (used > max).then(|| {
            format!("the disk is {used} % full, over the share of {max} %; free space with `phalanx destroy`")
        })
    }

    /// An agent that is to be gone before it ever was here: a tombstone, so that a late `Ensure` does not start it.
    fn bury(
        &mut self,
        now: Timestamp,
        id: AgentId,
        generation: Generation,
        spec: AgentSpec,
        wanted: Wanted,
        epoch: String,
    ) -> Vec<Effect> {
        let record = new_record(now, id, generation, spec, wanted, epoch);
        self.agents.insert(id, Agent::new(record));
        self.change(now, id, true, |agent| agent.adopt(now, Found::NeverStarted))
    }

    /// An agent whose record cannot be kept is not started: after a crash nobody would know of it. Once a later
    /// record is on its way, the first may be on the disk and the start under way: its outcome comes.
    fn save_failed(&mut self, now: Timestamp, id: AgentId, reason: &str) -> Vec<Effect> {
        let detail = format!("cannot save its record: {reason}");
        self.change(now, id, false, |agent| {
            agent.degraded("unsaved", true);
            if agent.stage == Stage::Creating && !agent.is_amended {
                agent.start_failed(now, StartStep::Host, detail)
            } else {
                Vec::new()
            }
        })
    }

    /// Lets `act` change an agent, then derives what follows: save first, then the acts, then report and event.
    fn change(
        &mut self,
        now: Timestamp,
        id: AgentId,
        report_anyway: bool,
        act: impl FnOnce(&mut Agent) -> Vec<Effect>,
    ) -> Vec<Effect> {
        let full = self.disk_is_full();
        let Some(agent) = self.agents.get_mut(&id) else { return Vec::new() };
        let before = agent.clone();
        let mut acts = act(agent);
        // Before a next start: what was meant for one that has ended is decided.
        acts.extend(agent.talk(now));
        acts.extend(agent.settle(now, full.as_deref()));
        acts.extend(agent.talk(now));
        let mut effects = Vec::new();
        if agent.record != before.record {
            agent.is_amended = true;
            effects.push(Effect::Save(Box::new(agent.record.clone())));
        }
        effects.extend(acts);
        let shown_before = self.report_of(&before, now, Seq(0));
        let Some(agent) = self.agents.get(&id) else { return effects };
        let shown = self.report_of(agent, now, Seq(0));
        if report_anyway || shown != shown_before {
            let fact = fact_of(&before, agent);
            let name = agent.record.spec.name.to_string();
            self.seq = self.seq.next();
            effects.push(Effect::Report(Box::new(Report { seq: self.seq, ..shown })));
            if let Some(fact) = fact {
                effects.push(Effect::Event { agent: id, name, fact });
            }
        }
        effects
    }

    /// The whole report of an agent as of `now`.
    fn report_of(&self, agent: &Agent, now: Timestamp, seq: Seq) -> Report {
        let record = &agent.record;
        let reason = if agent.trouble.is_empty() {
            record.end.as_ref().map_or_else(|| agent.phase_words(), |end| end.detail.clone())
        } else {
            agent.trouble.clone()
        };
        let degraded = agent
            .facts
            .degraded
            .iter()
            .cloned()
            .chain(agent.degraded.iter().map(|what| (*what).to_owned()))
            .collect();
        let source = match agent.stage {
            Stage::Creating | Stage::Collecting | Stage::Removing => "job",
            Stage::Running => agent.running_source(),
            Stage::Draining => "process",
            Stage::Ended | Stage::Destroyed => "exit-record",
        };
        Report {
            agent: record.agent,
            region: self.config.region.clone(),
            host: self.config.host.clone(),
            incarnation: self.config.incarnation,
            seq,
            generation: record.generation,
            fencing: self.fencing,
            as_of: now,
            phase: agent.phase(),
            life: agent.life(),
            source: source.to_owned(),
            phase_reason: agent.phase_reason(),
            dialog: agent.dialog().cloned(),
            reason,
            stopping: agent.is_stopping(),
            draining: agent.stage == Stage::Draining,
            degraded,
            spec: agent.spec_in_force(),
            created_at: record.created_at,
            started_at: agent.started.then_some(agent.facts.started_at),
            ready: agent.ready,
            end: record.end.clone(),
            workspace: agent.facts.workspace.clone(),
            session: agent.session.clone(),
            transcript: Some(TranscriptFacts { epoch: record.epoch.clone(), bytes: agent.transcript_bytes }),
            collected: record.collected.clone(),
            holds: agent.holds.clone(),
            enforced: agent.facts.enforced.clone(),
            user: agent.facts.user.clone(),
            isolation: agent.facts.isolation,
            usage: agent.usage.clone(),
            unmet: agent.unmet(),
            earlier: record.earlier.clone(),
            messages: agent.message_facts(),
            gone: agent.gone.clone(),
        }
    }

    /// What a digest says of each agent that is not destroyed; the shell adds activity.
    #[must_use]
    pub fn digest(&self, last: &BTreeMap<AgentId, Seq>) -> Vec<DigestRow> {
        self.agents
            .values()
            .filter(|agent| agent.stage != Stage::Destroyed)
            .map(|agent| DigestRow {
                agent: agent.record.agent,
                seq: last.get(&agent.record.agent).copied().unwrap_or_default(),
                incarnation: self.config.incarnation,
                phase: agent.phase(),
                last_output: None,
                cpu_ms: agent.usage.cpu_ms,
                memory_bytes: 0,
                transcript_bytes: agent.transcript_bytes,
            })
            .collect()
    }
}

/// While an order that makes it may still be on its way, the memory of its destruction is what keeps that from starting
/// it: orders of this life are waited out, those of earlier ones are void.
#[must_use]
pub fn may_be_forgotten(record: &AgentRecord, incarnation: Incarnation, now: Timestamp) -> bool {
    record.created_at.0 < incarnation.0 || record.created_at.after_ms(FORGET_AFTER_MS) <= now
}

fn new_record(
    now: Timestamp,
    agent: AgentId,
    generation: Generation,
    spec: AgentSpec,
    wanted: Wanted,
    epoch: String,
) -> AgentRecord {
    AgentRecord {
        launch: spec.launch,
        launched_at: None,
        limits: None,
        earlier: Vec::new(),
        version: RECORD_VERSION,
        agent,
        generation,
        wanted,
        spec,
        created_at: now,
        epoch,
        stop_requested: false,
        end: None,
        collected: None,
        removed: false,
        messages: MessageLedger::default(),
    }
}

/// The fact that a change is, if it is one.
fn fact_of(before: &Agent, after: &Agent) -> Option<Fact> {
    let agent = after.record.agent;
    if !before.record.removed && after.stage == Stage::Destroyed {
        let discarded = after.record.wanted == Wanted::Destroyed { discard: Discard::Yes };
        return Some(Fact::AgentDestroyed { agent, discarded });
    }
    if before.record.removed {
        return None; // told when it was removed
    }
    let (phase, reason) = (after.phase(), after.phase_reason());
    ((phase, reason) != (before.phase(), before.phase_reason())).then(|| Fact::AgentPhase {
        agent,
        phase,
        end: after.record.end.clone(),
        reason,
    })
}
