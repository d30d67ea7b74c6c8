//! What holds whatever comes in, in whatever order: a host is fed random orders, outcomes, time and restarts.

use std::collections::{BTreeMap, BTreeSet};

use crate::host::{self, agent_id, exit, facts, killed, plain_spec, spec};
use hostd_core::{
    Activity, AgentRecord, Core, Effect, Evidence, ExitCause, ExitSeen, Found, Input, LimitsRead, Removal,
    Stage, Wanted,
};
use proptest::prelude::*;
use protocol::agent::{AgentSpec, End, ResourceLimits, StartStep};
use protocol::ids::{AgentId, Fencing, Generation, Incarnation, OrderId, Seq};
use protocol::order::{Command, Discard, Order};
use protocol::report::{Collected, Life, SessionFacts};
use protocol::signals::Dialog;
use protocol::time::Timestamp;

/// One thing that happens to the host.
#[derive(Clone, Debug)]
enum Step {
    Order {
        agent: u64,
        kind: u8,
        generation: u64,
        fencing: u64,
        flaw: u8,
        grace_ms: u64,
        form: u8,
    },
    Outcome {
        agent: u64,
        kind: u8,
        detail: u8,
    },
    Pass {
        ms: u64,
    },
    /// A new hostd on the same disk; what it finds of an agent that it cannot know is drawn from `found`.
    Restart {
        found: Vec<u8>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3_u64, 0..5_u8, 1..9_u64, 2..5_u64, 0..12_u8, 0..20_000_u64, 0..12_u8).prop_map(
            |(agent, kind, generation, fencing, flaw, grace_ms, form)| Step::Order {
                agent, kind, generation, fencing, flaw, grace_ms, form,
            }
        ),
        10 => (0..3_u64, 0..24_u8, 0..5_u8)
            .prop_map(|(agent, kind, detail)| Step::Outcome { agent, kind, detail }),
        3 => (0..40_000_u64).prop_map(|ms| Step::Pass { ms }),
        1 => prop::collection::vec(0..7_u8, 3).prop_map(|found| Step::Restart { found }),
    ]
}

/// A host, its disk, and what was ever promised about each agent.
struct Watched {
    core: Core,
    now: Timestamp,
    disk: BTreeMap<AgentId, AgentRecord>,
    seq: Seq,
    /// Each start has its number.
    created: BTreeSet<(AgentId, u32)>,
    never_again: BTreeSet<(AgentId, u32)>,
    ends: BTreeMap<(AgentId, u32), End>,
    /// The highest start that an order named.
    ordered: BTreeMap<AgentId, u32>,
    destroyed: BTreeSet<AgentId>,
}

impl Watched {
    fn new() -> Self {
        Self {
            core: Core::new(host::config(Incarnation(1))),
            now: Timestamp(100_000),
            disk: BTreeMap::new(),
            seq: Seq(0),
            created: BTreeSet::new(),
            never_again: BTreeSet::new(),
            ends: BTreeMap::new(),
            ordered: BTreeMap::new(),
            destroyed: BTreeSet::new(),
        }
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::Order { agent, kind, generation, fencing, flaw, grace_ms, form } => {
                let agent = agent_id(*agent);
                let generation = Generation(*generation);
                let spec = Box::new(spec_of(*form));
                let most = self.ordered.entry(agent).or_default();
                *most = (*most).max(spec.launch);
                let command = match kind {
                    0..=2 => Command::Ensure { agent, generation, spec },
                    3 => Command::Stop { agent, generation, grace_ms: *grace_ms, spec },
                    _ => {
                        let discard = if grace_ms.is_multiple_of(2) { Discard::Keep } else { Discard::Yes };
                        Command::Destroy { agent, generation, discard, spec }
                    }
                };
                let config = host::config(self.core.incarnation());
                let incarnation = if *flaw == 0 { Incarnation(0) } else { config.incarnation };
                let expires = if *flaw == 1 { Timestamp(1) } else { self.now.after_ms(30_000) };
                let order = Order {
                    id: OrderId::from_parts(0, 0),
                    region: config.region,
                    host: config.host,
                    incarnation,
                    fencing: Fencing(*fencing),
                    expires,
                    command,
                };
                let counts = *flaw > 1 && order.fencing >= self.core.fencing();
                let before = self.core.clone();
                self.give(Input::Order { order: Box::new(order), epoch: "e".repeat(32) })?;
                prop_assert!(counts || before == self.core, "an order that does not count changed something");
                Ok(())
            }
            Step::Outcome { agent, kind, detail } => {
                let agent = agent_id(*agent);
                let launch = self.core.agent(agent).map_or(1, |agent| agent.record.launch);
                let input = outcome((agent, launch), *kind, *detail, self.now);
                self.give(input)
            }
            Step::Pass { ms } => self.pass(*ms),
            Step::Restart { found } => self.restart(found),
        }
    }

    fn pass(&mut self, ms: u64) -> Result<(), TestCaseError> {
        let until = self.now.after_ms(ms);
        let mut ticks = 0;
        while let Some(at) = self.core.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.give(Input::Tick)?;
            let next = self.core.deadline();
            prop_assert!(next.is_none_or(|next| next > self.now), "a tick does not use up its deadline");
            ticks += 1;
            prop_assert!(ticks < 3_000, "ticks without end");
        }
        self.now = until;
        Ok(())
    }

    fn restart(&mut self, found: &[u8]) -> Result<(), TestCaseError> {
        self.core = Core::new(host::config(self.core.incarnation().next()));
        self.seq = Seq(0);
        self.created.clear();
        for (place, record) in self.disk.clone().into_values().enumerate() {
            let found = found_of(&record, found.get(place).copied().unwrap_or(0));
            let may_create = found == Found::NeverStarted;
            let start = (record.agent, record.launch);
            self.give(Input::Found { record: Box::new(record), found })?;
            prop_assert!(may_create || !self.created.contains(&start), "started although something ran");
            // From here on an order may not create it: it is known.
            self.created.insert(start);
        }
        Ok(())
    }

    fn give(&mut self, input: Input) -> Result<(), TestCaseError> {
        let effects = self.core.handle(self.now, input);
        for effect in &effects {
            self.watch(effect)?;
        }
        for (id, agent) in self.core.agents() {
            let end = agent.record.end.as_ref();
            prop_assert_eq!(end.is_some(), !agent.stage.is_live(), "{:?}", agent);
            let start = (*id, agent.record.launch);
            if let Some(end) = end {
                let first = self.ends.entry(start).or_insert_with(|| end.clone());
                prop_assert_eq!(first, end, "an end changed");
            } else {
                prop_assert!(!self.ends.contains_key(&start), "an ended agent lives again");
            }
            let is_destroyed = agent.stage == Stage::Destroyed;
            prop_assert!(is_destroyed || !self.destroyed.contains(id), "a destroyed agent came back");
            if is_destroyed {
                self.destroyed.insert(*id);
            }
        }
        Ok(())
    }

    fn watch(&mut self, effect: &Effect) -> Result<(), TestCaseError> {
        match effect {
            Effect::Save(record) => {
                if record.stop_requested || record.end.is_some() {
                    self.never_again.insert((record.agent, record.launch));
                }
                self.disk.insert(record.agent, (**record).clone());
            }
            Effect::Create { agent, launch } => {
                self.is_saved(*agent)?;
                prop_assert_eq!(*launch, self.record(*agent).launch);
                let start = (*agent, *launch);
                prop_assert!(!self.never_again.contains(&start), "a stopped or ended agent is started");
                prop_assert!(self.created.insert(start), "started twice");
                prop_assert!(*launch <= self.ordered.get(agent).copied().unwrap_or(0), "started unasked");
            }
            Effect::Freeze(agent) => {
                self.is_saved(*agent)?;
                let record = self.record(*agent);
                prop_assert!(record.spec.frozen && !record.stop_requested, "frozen unasked");
            }
            Effect::Thaw(agent) | Effect::SetLimits(agent) | Effect::Rename(agent) => {
                self.is_saved(*agent)?
            }
            Effect::CallOff(agent) | Effect::Terminate(agent) => {
                self.is_saved(*agent)?;
                prop_assert!(self.record(*agent).stop_requested);
            }
            Effect::Kill(agent) => {
                let record = self.record(*agent);
                prop_assert!(record.stop_requested || record.end.is_some(), "killed unasked");
            }
            Effect::Collect(agent) => {
                self.is_saved(*agent)?;
                prop_assert!(self.record(*agent).end.is_some(), "collected before its end");
            }
            Effect::Weigh(agent) => {
                self.is_saved(*agent)?;
                let record = self.record(*agent);
                prop_assert!(record.end.is_none() && !record.stop_requested, "too late to be let be");
                prop_assert_eq!(record.wanted, Wanted::Destroyed { discard: Discard::Keep });
            }
            Effect::Remove { agent, discard } => {
                self.is_saved(*agent)?;
                let record = self.record(*agent);
                prop_assert!(record.end.is_some() && record.collected.is_some());
                prop_assert_eq!(record.wanted, Wanted::Destroyed { discard: *discard });
            }
            Effect::Report(report) => {
                self.is_saved(report.agent)?;
                prop_assert!(report.seq > self.seq, "seq must grow");
                self.seq = report.seq;
                prop_assert_eq!(report.phase.is_ended(), report.end.is_some());
                let destroyed = self.destroyed.contains(&report.agent);
                prop_assert!(!destroyed || report.life == Life::Destroyed);
            }
            Effect::Forget(agent) => {
                prop_assert!(self.destroyed.contains(agent), "forgotten while it is there")
            }
            Effect::Type { agent, .. } | Effect::AskTyped { agent, .. } => self.is_saved(*agent)?,
            Effect::SaveFencing(_)
            | Effect::KeepText { .. }
            | Effect::ForgetText { .. }
            | Effect::AskLease { .. }
            | Effect::SetLease { .. }
            | Effect::Event { .. } => {}
        }
        Ok(())
    }

    fn record(&self, agent: AgentId) -> &AgentRecord {
        &self.core.agent(agent).unwrap().record
    }

    /// What is being done or told follows from what the disk holds by now.
    fn is_saved(&self, agent: AgentId) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.disk.get(&agent), Some(self.record(agent)), "not saved before it has effects");
        Ok(())
    }
}

fn spec_of(form: u8) -> AgentSpec {
    let base = match form % 4 {
        0 => spec(),
        1 => AgentSpec { lease_ms: Some(1_000), ..spec() },
        2 => AgentSpec { signals: Some(Box::default()), ..plain_spec() },
        _ => AgentSpec { ready_text: Some("> ".into()), ..plain_spec() },
    };
    let limits = ResourceLimits { pids: Some(u64::from(form) + 1), ..ResourceLimits::default() };
    AgentSpec { launch: 1 + u32::from(form / 3), frozen: form.is_multiple_of(2), limits, ..base }
}

fn exit_of(detail: u8) -> ExitSeen {
    match detail {
        0 => exit(0),
        1 => killed(9),
        2 => ExitSeen { cause: ExitCause::Start(StartStep::Exec), ..exit(126) },
        3 => ExitSeen { cause: ExitCause::Supervisor, ..exit(0) },
        _ => ExitSeen { cause: ExitCause::Lease, ..killed(9) },
    }
}

fn outcome((agent, launch): (AgentId, u32), kind: u8, detail: u8, now: Timestamp) -> Input {
    let exit_of = |detail| ExitSeen { launch, ..exit_of(detail) };
    match kind {
        0 | 1 => Input::Started { agent, facts: Box::new(facts()) },
        2 => Input::StartFailed { agent, step: StartStep::Workspace, detail: "no".into() },
        3 => Input::Ready { agent },
        4 => {
            let session = SessionFacts { folder: "f".into(), socket: "s".into(), session: "$1".into() };
            Input::Session { agent, session }
        }
        5 => Input::Exited { agent, exit: exit_of(detail) },
        6 | 7 => Input::Ended { agent, exit: exit_of(detail) },
        8 => Input::SupervisorLost { agent, launch, detail: "gone".into() },
        9 => Input::Collected { agent, collected: Box::new(Collected::default()) },
        10 if detail == 0 => {
            let obstacle = hostd_core::Obstacle::Unclear;
            Input::CollectFailed { agent, obstacle, reason: "busy".into() }
        }
        10 => Input::Collected { agent, collected: Box::new(Collected::default()) },
        11 => Input::Removed {
            agent,
            outcome: match detail {
                0 => Removal::Refused { holds: vec!["work".into()] },
                1 => Removal::Failed { reason: "busy".into() },
                _ => Removal::Done { collected: None, gone: Vec::new() },
            },
        },
        12 => Input::Degraded { agent, what: "no-cgroup", degraded: detail == 0 },
        13 => Input::Lease { agent, generation: Generation(1), asked_at: now, length_ms: 1_000 },
        15 => Input::Ended { agent, exit: ExitSeen { launch: launch - 1, ..exit_of(detail) } },
        16 | 17 => {
            let failed = (detail == 0).then(|| "a disk stands still".to_owned());
            Input::Frozen { agent, frozen: detail.is_multiple_of(2), failed }
        }
        18 => {
            let limits = ResourceLimits { pids: Some(u64::from(detail)), ..ResourceLimits::default() };
            let refused = (detail == 0).then(|| "it holds more".to_owned());
            Input::LimitsSet { agent, limits, read: LimitsRead::default(), refused }
        }
        14 => Input::SaveFailed { agent, reason: "full".into() },
        19 => {
            let activity = match detail {
                0 => Activity::Idle,
                1 => Activity::Asking(Dialog::default()),
                2 => Activity::Busy,
                _ => Activity::Unknown,
            };
            Input::Signalled { agent, activity, evidence: Evidence::Screen }
        }
        20 => Input::Preparing { agent },
        21 | 22 => {
            let holds = if detail == 0 { vec!["work".to_owned()] } else { Vec::new() };
            Input::Weighed { agent, holds }
        }
        _ => Input::Disk { used_percent: if detail == 0 { 99 } else { 10 } },
    }
}

/// What can be found beside this record: a removed folder is an archive, a recorded end was no life.
fn found_of(record: &AgentRecord, choice: u8) -> Found {
    let facts = Box::new(facts());
    match choice {
        _ if record.removed => Found::Archived,
        0 | 1 => Found::Alive { facts, exited: None },
        2 => Found::Alive { facts, exited: Some(exit(1)) },
        3 => Found::Ended { exit: exit(0), facts },
        4 => Found::Lost { detail: "x".into(), facts },
        5 => Found::Rebooted { facts },
        _ => Found::NeverStarted,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_host_keeps_its_promises_whatever_comes(steps in prop::collection::vec(step(), 1..80)) {
        let mut watched = Watched::new();
        for step in &steps {
            watched.take(step)?;
        }
    }
}
