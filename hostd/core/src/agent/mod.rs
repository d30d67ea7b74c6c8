//! One agent's life.
//!
//! ```text
//!             started            program gone, others not
//!  Creating ──────────▶ Running ─────────────────────────▶ Draining
//!     │                    │ all gone, supervisor lost         │ all gone, supervisor lost
//!     │ start failed       ▼                                   │
//!     │               Collecting ◀─────────────────────────────┘
//!     │                    │ collected
//!     ▼                    ▼      destroy wanted
//!   Ended ◀──────────────Ended ─────────────────▶ Removing ──done──▶ Destroyed
//!                          ▲                          │
//!                          └──── it holds work ───────┘
//! ```
//!
//! Each method changes the state and names what must be done; saving and reporting follow from what changed and are
//! the business of [`crate::Core`].

mod end;
mod launch;
mod lease;
mod messages;
mod removal;
mod settings;
mod signals;

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::{End, EndCause, Phase, Role, StartStep};
use protocol::ids::Generation;
use protocol::report::{Life, SessionFacts, Usage};
use protocol::time::Timestamp;

use self::lease::LeaseClock;
use self::messages::Talk;
use self::signals::Seen;
use crate::effect::Effect;
use crate::input::{ExitSeen, Found, StartFacts};
use crate::record::{AgentRecord, Wanted};

/// After the kill is sent, it is sent again at this pace until the agent is gone.
const KILL_AGAIN_MS: u64 = 2_000;

/// What the programs of a verification leave behind has so long to end by itself.
const LEFT_BY_CHECKS_MS: u64 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Creating,
    Running,
    Draining,
    Collecting,
    Ended,
    Removing,
    Destroyed,
}

impl Stage {
    /// The program may be alive.
    #[must_use]
    pub fn is_live(self) -> bool {
        match self {
            Self::Creating | Self::Running | Self::Draining => true,
            Self::Collecting | Self::Ended | Self::Removing | Self::Destroyed => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    pub record: AgentRecord,
    pub stage: Stage,
    pub facts: StartFacts,
    pub started: bool,
    /// Its start waits for its base.
    pub is_preparing: bool,
    pub ready: bool,
    seen: Seen,
    pub session: Option<SessionFacts>,
    pub transcript_bytes: u64,
    pub usage: Usage,
    pub degraded: BTreeSet<&'static str>,
    /// What a removal without the operator's word would lose.
    pub holds: Vec<String>,
    /// What its removal took with it that is in no commit.
    pub gone: Vec<String>,
    /// Why the last removal or save did not work.
    pub trouble: String,
    /// The record is not the one it was created with: a save that fails may be of a later one.
    pub(crate) is_amended: bool,
    kill_at: Option<Timestamp>,
    remove_at: Option<Timestamp>,
    collecting: end::Collecting,
    lease: Option<LeaseClock>,
    /// What is wanted and not in force, and why.
    unmet: BTreeMap<&'static str, String>,
    /// A step was asked of the machine, and its outcome has not come.
    is_freezing: bool,
    is_limiting: bool,
    is_weighing: bool,
    /// After a freeze or a thaw that failed.
    freeze_at: Option<Timestamp>,
    talk: Talk,
}

impl Agent {
    /// A new agent in `Creating`; the caller asks for its creation.
    #[must_use]
    pub fn new(record: AgentRecord) -> Self {
        Self {
            record,
            stage: Stage::Creating,
            facts: StartFacts::default(),
            started: false,
            is_preparing: false,
            ready: false,
            seen: Seen::default(),
            session: None,
            transcript_bytes: 0,
            usage: Usage::default(),
            degraded: BTreeSet::new(),
            holds: Vec::new(),
            gone: Vec::new(),
            trouble: String::new(),
            is_amended: false,
            kill_at: None,
            remove_at: None,
            collecting: end::Collecting::default(),
            lease: None,
            unmet: BTreeMap::new(),
            is_freezing: false,
            is_limiting: false,
            is_weighing: false,
            freeze_at: None,
            talk: Talk::default(),
        }
    }

    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.record.end, self.stage) {
            (Some(end), _) => end.phase(),
            (None, Stage::Creating) => Phase::Creating,
            (None, Stage::Running | Stage::Draining) if self.facts.frozen => Phase::Paused,
            (None, Stage::Running) => self.running_phase(),
            (None, Stage::Draining) => Phase::Running,
            // An end is set before each of these; should it ever miss, the truth is that it is not known.
            (None, Stage::Collecting | Stage::Ended | Stage::Removing | Stage::Destroyed) => Phase::Unknown,
        }
    }

    #[must_use]
    pub fn life(&self) -> Life {
        if self.stage == Stage::Destroyed { Life::Destroyed } else { Life::Present }
    }

    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stage.is_live() && self.record.stop_requested
    }

    /// The earliest moment at which [`Agent::tick`] has work.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let lease = self.lease.filter(|_| self.stage.is_live()).map(|lease| lease.ask_at);
        [
            self.kill_at,
            self.remove_at,
            self.collecting.again_at,
            lease,
            self.freeze_due_at(),
            self.talk_deadline(),
            self.doubted_until(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The agent as this hostd found it at its start.
    pub fn adopt(&mut self, now: Timestamp, found: Found) -> Vec<Effect> {
        self.is_amended = true;
        if self.record.removed || found == Found::Archived {
            self.stage = Stage::Destroyed;
            self.record.removed = true;
            return Vec::new();
        }
        if self.record.end.is_some() {
            self.take_facts_of(&found);
            return self.after_end();
        }
        match found {
            Found::Archived => Vec::new(),
            Found::NeverStarted if self.record.wanted == Wanted::Running => {
                // Its manager may have moved the task by now.
                if self.record.first_lease_until().is_some_and(|until| until <= now) {
                    let detail = "its lease ran out before it was started".to_owned();
                    return self.start_failed(now, StartStep::Host, detail);
                }
                vec![Effect::Create { agent: self.record.agent, launch: self.record.launch }]
            }
            Found::NeverStarted => {
                let end = End {
                    cause: EndCause::Requested,
                    code: None,
                    signal: None,
                    step: None,
                    detail: "asked to stop before it was started".to_owned(),
                    at: now,
                };
                self.end_without_work(end)
            }
            Found::Alive { facts, exited } => {
                self.set_facts(*facts);
                self.stage = Stage::Running;
                self.ready = !self.waits_for_ready();
                // How much of the lease is left is not known: ask at once.
                self.start_lease(now);
                let mut effects = self.stop_if_wanted(now);
                if let Some(exit) = exited {
                    effects.extend(self.exited(now, exit));
                }
                effects
            }
            Found::Ended { exit, facts } => {
                self.set_facts(*facts);
                self.end_by(&exit)
            }
            Found::Lost { detail, facts } => {
                self.set_facts(*facts);
                self.end_unless_requested(EndCause::SupervisorLost, detail, now)
            }
            Found::Rebooted { facts } => {
                self.set_facts(*facts);
                self.end_unless_requested(EndCause::Rebooted, "the host was started anew".to_owned(), now)
            }
        }
    }

    fn take_facts_of(&mut self, found: &Found) {
        match found {
            Found::Alive { facts, .. }
            | Found::Ended { facts, .. }
            | Found::Lost { facts, .. }
            | Found::Rebooted { facts } => self.set_facts((**facts).clone()),
            Found::NeverStarted | Found::Archived => {}
        }
        if let Found::Ended { exit, .. } = found {
            self.transcript_bytes = exit.transcript_bytes;
            self.usage = exit.usage.clone();
        }
    }

    fn set_facts(&mut self, facts: StartFacts) {
        self.started = facts.started_at != Timestamp::default();
        self.facts = facts;
    }

    pub fn stop(&mut self, now: Timestamp, generation: Generation, grace_ms: u64) -> Vec<Effect> {
        self.record.generation = generation;
        match self.record.wanted {
            Wanted::Running => {
                self.record.wanted = Wanted::Stopped { grace_ms };
                self.stop_if_wanted(now)
            }
            // Asked again: only a shorter grace is news.
            Wanted::Stopped { grace_ms: before } if grace_ms < before => {
                self.record.wanted = Wanted::Stopped { grace_ms };
                self.kill_at = self.kill_at.map(|at| at.min(now.after_ms(grace_ms)));
                Vec::new()
            }
            Wanted::Stopped { .. } | Wanted::Destroyed { .. } => Vec::new(),
        }
    }

    fn stop_if_wanted(&mut self, now: Timestamp) -> Vec<Effect> {
        if self.is_weighed_first() {
            return self.weigh();
        }
        let grace_ms = match self.record.wanted {
            Wanted::Running => return Vec::new(),
            Wanted::Stopped { grace_ms } => grace_ms,
            Wanted::Destroyed { .. } => self.record.spec.grace_ms,
        };
        match self.stage {
            Stage::Running | Stage::Draining => self.terminate(now, grace_ms),
            // The start is on its way: its outcome comes, and the stop follows it. A base may take long.
            Stage::Creating => {
                self.record.stop_requested = true;
                self.call_off()
            }
            Stage::Collecting | Stage::Ended | Stage::Removing | Stage::Destroyed => Vec::new(),
        }
    }

    fn terminate(&mut self, now: Timestamp, grace_ms: u64) -> Vec<Effect> {
        self.record.stop_requested = true;
        self.kill_at = Some(now.after_ms(grace_ms));
        vec![Effect::Terminate(self.record.agent)]
    }

    pub fn preparing(&mut self) -> Vec<Effect> {
        self.is_preparing = self.stage == Stage::Creating;
        if self.record.stop_requested { self.call_off() } else { Vec::new() }
    }

    fn call_off(&self) -> Vec<Effect> {
        if self.is_preparing { vec![Effect::CallOff(self.record.agent)] } else { Vec::new() }
    }

    pub fn started(&mut self, now: Timestamp, facts: StartFacts) -> Vec<Effect> {
        match self.stage {
            Stage::Creating => {
                self.stage = Stage::Running;
                self.is_preparing = false;
                self.set_facts(facts);
                self.ready = !self.waits_for_ready();
                self.start_lease(now.after_ms(self.lease_pace_ms()));
                self.stop_if_wanted(now)
            }
            Stage::Running | Stage::Draining => Vec::new(),
            // The start had been given up (its record could not be saved, its supervisor was lost): what was
            // reported as ended must not live on.
            Stage::Collecting | Stage::Ended | Stage::Removing | Stage::Destroyed => {
                vec![Effect::Kill(self.record.agent)]
            }
        }
    }

    pub fn start_failed(&mut self, now: Timestamp, step: StartStep, detail: String) -> Vec<Effect> {
        match self.stage {
            Stage::Creating => {
                self.is_preparing = false;
                // Called off while its base was prepared: as asked.
                let (cause, step) = if self.record.stop_requested && step == StartStep::Prepare {
                    (EndCause::Requested, None)
                } else {
                    (EndCause::StartFailed, Some(step))
                };
                self.end_without_work(End { cause, code: None, signal: None, step, detail, at: now })
            }
            Stage::Running
            | Stage::Draining
            | Stage::Collecting
            | Stage::Ended
            | Stage::Removing
            | Stage::Destroyed => Vec::new(),
        }
    }

    pub fn exited(&mut self, now: Timestamp, exit: ExitSeen) -> Vec<Effect> {
        if exit.launch != self.record.launch {
            return Vec::new();
        }
        match self.stage {
            Stage::Creating | Stage::Running => {
                self.stage = Stage::Draining;
                self.forget_signals();
                self.started = true;
                self.usage = exit.usage;
                self.transcript_bytes = exit.transcript_bytes;
                // Asked to stop: what the program left behind is not waited for.
                if !self.record.stop_requested {
                    // The programs of a verification have said all: what they left may end by itself, not hold it up.
                    if self.record.spec.role == Role::Verify {
                        self.kill_at = Some(now.after_ms(LEFT_BY_CHECKS_MS));
                    }
                    return Vec::new();
                }
                self.kill_at = Some(now.after_ms(KILL_AGAIN_MS));
                vec![Effect::Kill(self.record.agent)]
            }
            Stage::Draining | Stage::Collecting | Stage::Ended | Stage::Removing | Stage::Destroyed => {
                Vec::new()
            }
        }
    }

    pub fn ended(&mut self, exit: &ExitSeen) -> Vec<Effect> {
        let is_of_this_start = exit.launch == self.record.launch;
        if self.stage.is_live() && is_of_this_start { self.end_by(exit) } else { Vec::new() }
    }

    pub fn supervisor_lost(&mut self, now: Timestamp, launch: u32, detail: String) -> Vec<Effect> {
        if !self.stage.is_live() || launch != self.record.launch {
            return Vec::new();
        }
        self.end_unless_requested(EndCause::SupervisorLost, detail, now)
    }

    pub fn degraded(&mut self, what: &'static str, degraded: bool) {
        if degraded {
            self.degraded.insert(what);
        } else {
            self.degraded.remove(what);
        }
    }

    pub fn tick(&mut self, now: Timestamp) -> Vec<Effect> {
        self.trust_the_prompt(now);
        let mut effects = Vec::new();
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = self.stage.is_live().then(|| now.after_ms(KILL_AGAIN_MS));
            if self.stage.is_live() {
                effects.push(Effect::Kill(self.record.agent));
            }
        }
        if self.remove_at.is_some_and(|at| at <= now) && self.stage == Stage::Removing {
            effects.extend(self.remove_if_wanted());
        }
        effects.extend(self.collect_if_due(now));
        let pace_ms = self.lease_pace_ms();
        if let Some(lease) = self.lease.as_mut().filter(|lease| self.stage.is_live() && lease.ask_at <= now) {
            lease.ask_at = now.after_ms(pace_ms);
            effects.push(Effect::AskLease { agent: self.record.agent, generation: self.record.generation });
        }
        effects
    }
}
