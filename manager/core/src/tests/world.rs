//! A world for tests: a core, a store, and hosts that keep the rules of an order (incarnation, generation, tombstones).

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::{AgentSpec, Blob, End, EndCause, Environment, Phase};
use protocol::api::{Mutation, Reply, SubmitRun};
use protocol::error::WireError;
use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, HostId, Incarnation, Region, RequestKey, RunId, Seq, TaskId};
use protocol::message::{MessageFacts, MessageState};
use protocol::order::{Answer, Command, Discard, Question};
use protocol::report::{Collected, DigestRow, Heartbeat, HostFacts, Life, Report, Usage};
use protocol::task::{RunSpec, SubmitTask, TaskInput, TaskSpec, TaskState, TaskView};
use protocol::time::Timestamp;

pub(super) use super::agents::program::{Program, tombstone};
pub(super) use super::specs::*;
use crate::fleet::agent::Standing;
use crate::{AskToken, Config, Core, Effect, Input, OrderDraft, RowLog, StoredRecord};

pub(super) fn host_id(name: &str) -> HostId {
    name.parse().unwrap()
}

pub(super) fn region() -> Region {
    "hub".parse().unwrap()
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) incarnation: Incarnation,
    pub(super) seq: Seq,
    pub(super) programs: BTreeMap<AgentId, Program>,
    pub(super) facts: HostFacts,
    /// Nothing goes in or out.
    pub(super) is_cut_off: bool,
    pub(super) clock_ahead_ms: u64,
}

impl Host {
    pub(super) fn live(&self) -> usize {
        self.programs.values().filter(|program| program.starts > 0 && program.end.is_none()).count()
    }
}

pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Timestamp,
    pub(super) hosts: BTreeMap<HostId, Host>,
    pub(super) stored: BTreeMap<(&'static str, String), Vec<u8>>,
    pub(super) replies: BTreeMap<u64, Vec<Result<Reply, WireError>>>,
    pub(super) asked: Vec<(AskToken, Question)>,
    pub(super) logs: Vec<AgentId>,
    pub(super) inputs: Vec<Vec<TaskInput>>,
    pub(super) loses_inputs: bool,
    pub(super) orders: Vec<OrderDraft>,
    pub(super) events: Vec<Fact>,
    pub(super) reports_asked: Vec<Vec<AgentId>>,
    pub(super) sealed: BTreeSet<String>,
    pub(super) drops_orders: bool,
    /// The highest number that the hosts know.
    pub(super) fencing: Fencing,
    pub(super) leases: BTreeMap<u64, Result<u64, WireError>>,
    pub(super) next: u64,
    pub(super) rows: RowLog,
}

pub(super) fn config() -> Config {
    Config::new(Fencing(7))
}

impl World {
    pub(super) fn with(config: Config, hosts: &[&str]) -> Self {
        let now = Timestamp(1_000_000);
        let (core, aside) = Core::load(config, Vec::new(), now);
        assert_eq!(aside, Vec::new());
        let mut world = Self {
            rows: RowLog::new(1, &core, now),
            core,
            now,
            hosts: BTreeMap::new(),
            stored: BTreeMap::new(),
            replies: BTreeMap::new(),
            asked: Vec::new(),
            logs: Vec::new(),
            inputs: Vec::new(),
            loses_inputs: false,
            orders: Vec::new(),
            events: Vec::new(),
            reports_asked: Vec::new(),
            sealed: BTreeSet::new(),
            drops_orders: false,
            fencing: Fencing(7),
            leases: BTreeMap::new(),
            next: 0,
        };
        for name in hosts {
            world.add_host(name);
        }
        world
    }

    pub(super) fn new() -> Self {
        Self::with(config(), &["one"])
    }

    pub(super) fn add_host(&mut self, name: &str) {
        let facts = HostFacts {
            cpus: 4,
            memory_total_bytes: 8 << 30,
            disk_total_bytes: 100,
            disk_free_bytes: 50,
            disk_share_max_percent: 85,
            ..HostFacts::default()
        };
        let host = Host {
            incarnation: Incarnation(1),
            seq: Seq(0),
            programs: BTreeMap::new(),
            facts,
            is_cut_off: false,
            clock_ahead_ms: 0,
        };
        self.hosts.insert(host_id(name), host);
        self.beat(name);
    }

    pub(super) fn beat(&mut self, name: &str) {
        self.beat_with(name, None);
    }

    pub(super) fn beat_with(&mut self, name: &str, digest: Option<Vec<DigestRow>>) {
        let host = &self.hosts[&host_id(name)];
        if host.is_cut_off {
            return;
        }
        let heartbeat = Heartbeat {
            region: region(),
            host: host_id(name),
            incarnation: host.incarnation,
            fencing: self.fencing,
            now: self.now.after_ms(host.clock_ahead_ms),
            build: String::from("test"),
            facts: host.facts.clone(),
            digest,
        };
        self.input(Input::Heartbeat(Box::new(heartbeat)));
    }

    /// Lets time pass in steps, with heartbeats and the core's own deadlines.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now.after_ms(ms);
        while self.now < end {
            let next = self.core.deadline().unwrap_or(end).max(self.now.after_ms(1));
            self.now = next.min(self.now.after_ms(2_000)).min(end);
            self.watch_leases();
            self.input(Input::Tick);
            for name in self.hosts.keys().cloned().collect::<Vec<_>>() {
                self.beat(name.as_str());
            }
        }
    }

    pub(super) fn restart_manager(&mut self) {
        let stored = self
            .stored
            .iter()
            .map(|((bucket, key), value)| StoredRecord {
                bucket,
                key: key.clone(),
                value: Some(value.clone()),
            })
            .collect();
        let (core, aside) = Core::load(self.core.config.clone(), stored, self.now);
        assert_eq!(aside, Vec::new());
        self.core = core;
        self.rows = RowLog::new(2, &self.core, self.now);
        for (id, host) in self.hosts.clone() {
            for agent in host.programs.keys() {
                self.input(Input::Report(Box::new(self.report_of(&id, *agent))));
            }
        }
        self.pass(1);
    }

    pub(super) fn restart_host(&mut self, name: &str) {
        let host = self.hosts.get_mut(&host_id(name)).unwrap();
        host.incarnation = host.incarnation.next();
        host.seq = Seq(0);
        self.beat(name);
        for agent in self.hosts[&host_id(name)].programs.keys().copied().collect::<Vec<_>>() {
            self.report(agent);
        }
    }

    /// Gives an input, checks the order of the effects, and lets the world act on them.
    pub(super) fn input(&mut self, input: Input) {
        let effects = self.core.handle(self.now, input);
        let first_act = effects.iter().position(|effect| !is_durable(effect)).unwrap_or(effects.len());
        assert!(effects[first_act..].iter().all(|effect| !is_durable(effect)), "writes come first");
        for effect in effects {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Seal { owner, .. } => {
                self.sealed.insert(owner.to_string());
            }
            Effect::ForgetEnvironment(owner) => {
                self.sealed.remove(&owner.to_string());
            }
            Effect::Write(StoredRecord { bucket, key, value: Some(value) }) => {
                self.stored.insert((bucket, key), value);
            }
            Effect::Write(StoredRecord { bucket, key, value: None }) => {
                self.stored.remove(&(bucket, key));
            }
            Effect::Unwritable { reason, .. } => panic!("{reason}"),
            Effect::Lease { to, result } => {
                assert!(self.leases.insert(to, result).is_none(), "one answer");
            }
            Effect::Reply { to, result } => self.replies.entry(to).or_default().push(result),
            Effect::Order(draft) => {
                self.orders.push(draft.clone());
                if !self.drops_orders {
                    self.obey(draft);
                }
            }
            Effect::Lead { above } => self.input(Input::Leads(Fencing(above.0 + 1))),
            Effect::Ask { token, question, .. } => self.asked.push((token, question)),
            Effect::AskReports { agents, .. } => self.reports_asked.push(agents),
            Effect::KeepLog { agent, .. } => self.logs.push(agent),
            Effect::KeepInputs { task, inputs } => {
                self.inputs.push(inputs);
                if !self.loses_inputs {
                    let blob = Some(Blob { sha256: "b".repeat(64), bytes: 1 });
                    self.input(Input::InputsKept { task, blob });
                }
            }
            Effect::Event { fact, .. } => self.events.push(fact),
            Effect::Changed(subject) => self.rows.note(&self.core, self.now, &subject),
        }
    }

    /// As hostd does it: other incarnations and older generations are dropped, what was never seen is buried.
    pub(super) fn obey(&mut self, draft: OrderDraft) {
        let now = self.now;
        let Some(host) = self.hosts.get_mut(&draft.host) else { return };
        let expired = draft.expires < now.after_ms(host.clock_ahead_ms) || draft.fencing < self.fencing;
        if host.is_cut_off || draft.incarnation != host.incarnation || expired {
            return;
        }
        let (agent, generation) = (draft.command.agent(), draft.command.generation());
        if host.programs.get(&agent).is_some_and(|known| generation < known.generation) {
            return;
        }
        let requested = |host_now| end(EndCause::Requested, None, host_now);
        match draft.command {
            Command::Ensure { spec, .. } => {
                if let Some(program) = host.programs.get_mut(&agent) {
                    program.take(generation, &spec);
                }
                host.programs.entry(agent).or_insert_with(|| Program {
                    generation,
                    end: None,
                    draining: false,
                    collected: None,
                    destroyed: false,
                    starts: 1,
                    work: Vec::new(),
                    holds: Vec::new(),
                    unmet: Vec::new(),
                    refuses: None,
                    is_old: false,
                    lease_until: spec.lease_ms.map(|ms| now.after_ms(ms)),
                    messages: MessageFacts::default(),
                    types: MessageState::Delivered,
                    spec: *spec,
                });
            }
            command @ (Command::Send { .. } | Command::Recall { .. }) => {
                match host.programs.get_mut(&agent) {
                    Some(program) => program.take_message(now, &command),
                    None => return,
                }
            }
            Command::Stop { spec, .. } => {
                let wanted = spec.clone();
                let program = host.programs.entry(agent).or_insert_with(|| tombstone(*spec, generation));
                program.take(generation, &AgentSpec { launch: 1, frozen: false, ..*wanted });
                if program.end.is_none() {
                    program.end = Some(requested(now));
                    program.collected = Some(collected(None));
                }
            }
            Command::Destroy { spec, discard, .. } => {
                let program = host.programs.entry(agent).or_insert_with(|| tombstone(*spec, generation));
                program.generation = generation;
                program.holds.clear();
                if !program.work.is_empty() && discard == Discard::Keep {
                    program.holds = program.work.clone();
                    return self.report(agent);
                }
                if program.end.is_none() {
                    program.end = Some(requested(now));
                    program.collected = Some(collected(None));
                }
                program.destroyed = true;
            }
        }
        self.report(agent);
    }

    pub(super) fn host_of(&self, agent: AgentId) -> HostId {
        let (id, _) = self.hosts.iter().find(|(_, host)| host.programs.contains_key(&agent)).unwrap();
        id.clone()
    }

    pub(super) fn program(&mut self, agent: AgentId) -> &mut Program {
        let host = self.host_of(agent);
        self.hosts.get_mut(&host).unwrap().programs.get_mut(&agent).unwrap()
    }

    pub(super) fn report_of(&self, host_id: &HostId, agent: AgentId) -> Report {
        let host = &self.hosts[host_id];
        let program = &host.programs[&agent];
        Report {
            agent,
            region: region(),
            host: host_id.clone(),
            incarnation: host.incarnation,
            seq: host.seq,
            generation: program.generation,
            fencing: self.fencing,
            as_of: self.now,
            phase: program.end.as_ref().map_or(Phase::Running, End::phase),
            life: if program.destroyed { Life::Destroyed } else { Life::Present },
            source: String::from("process"),
            phase_reason: None,
            dialog: None,
            reason: String::new(),
            stopping: false,
            draining: program.draining,
            degraded: Vec::new(),
            spec: program.spec.clone(),
            created_at: self.now,
            started_at: (program.starts > 0).then_some(self.now),
            ready: true,
            end: program.end.clone(),
            workspace: None,
            session: None,
            transcript: None,
            collected: program.collected.clone(),
            holds: program.holds.clone(),
            enforced: Vec::new(),
            user: String::new(),
            isolation: None,
            usage: Usage::default(),
            unmet: program.unmet.clone(),
            earlier: Vec::new(),
            messages: program.messages.clone(),
            gone: Vec::new(),
        }
    }

    pub(super) fn report(&mut self, agent: AgentId) {
        let id = self.host_of(agent);
        let host = self.hosts.get_mut(&id).unwrap();
        host.seq = host.seq.next();
        if !host.is_cut_off {
            let report = self.report_of(&id, agent);
            self.input(Input::Report(Box::new(report)));
        }
    }

    pub(super) fn finish(&mut self, agent: AgentId, end: End, collected: Collected) {
        let program = self.program(agent);
        program.end = Some(end);
        program.collected = Some(collected);
        self.report(agent);
    }

    pub(super) fn exit(&mut self, agent: AgentId, code: i32) {
        let commit = self.program(agent).spec.checkout.is_some().then_some(WORK);
        let end = end(EndCause::Exited, Some(code), self.now);
        self.finish(agent, end, collected(commit));
    }

    // Clients

    pub(super) fn request(&mut self, request: Mutation) -> u64 {
        self.next += 1;
        let (reply_to, seed) = (self.next, u128::from(self.next) << 64 | 0x5eed);
        self.input(Input::Client { reply_to, request: Box::new(request), seed });
        reply_to
    }

    pub(super) fn ask(&mut self, request: Mutation) -> Result<Reply, WireError> {
        let id = self.request(request);
        self.answer(id).expect("answered at once")
    }

    pub(super) fn answer(&self, id: u64) -> Option<Result<Reply, WireError>> {
        let replies = self.replies.get(&id)?;
        assert_eq!(replies.len(), 1, "exactly one reply");
        replies.first().cloned()
    }

    pub(super) fn key(&mut self) -> RequestKey {
        self.next += 1;
        RequestKey(format!("key {}", self.next))
    }

    pub(super) fn create(&mut self, name: &str) -> Result<AgentId, WireError> {
        let key = self.key();
        let create = create(key, name);
        let reply = self.ask(Mutation::CreateAgent(Box::new(create)))?;
        let Reply::Accepted { agent } = reply else { panic!("{reply:?}") };
        Ok(agent)
    }

    pub(super) fn stop(&mut self, target: &str) -> Reply {
        let key = self.key();
        self.ask(Mutation::StopAgents { key, targets: vec![target.to_owned()], grace_ms: None }).unwrap()
    }

    pub(super) fn destroy(&mut self, target: &str, discard: Discard) -> u64 {
        let key = self.key();
        self.request(Mutation::DestroyAgents { key, targets: vec![target.to_owned()], discard })
    }

    pub(super) fn submit(&mut self, run: RunSpec, tasks: Vec<TaskSpec>) -> Result<RunId, WireError> {
        let key = self.key();
        let tasks =
            tasks.into_iter().map(|spec| SubmitTask { spec, environment: Environment::default() }).collect();
        let reply = self.ask(Mutation::SubmitRun(Box::new(SubmitRun { key, run, tasks })))?;
        let Reply::Submitted { run, .. } = reply else { panic!("{reply:?}") };
        Ok(run)
    }

    pub(super) fn cancel(&mut self, run: RunId, tasks: &[&str]) -> Reply {
        let key = self.key();
        let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
        self.ask(Mutation::CancelRun { key, run: run.to_string(), tasks, grace_ms: None }).unwrap()
    }

    pub(super) fn retry(&mut self, run: RunId, tasks: &[&str]) -> Reply {
        let key = self.key();
        let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
        self.ask(Mutation::RetryTasks { key, run: run.to_string(), tasks }).unwrap()
    }

    pub(super) fn task(&self, run: RunId, name: &str) -> TaskView {
        let tasks = self.core.tasks(self.now, run);
        tasks.into_iter().find(|task| task.spec.name.as_str() == name).unwrap()
    }

    pub(super) fn state(&self, run: RunId, name: &str) -> TaskState {
        self.task(run, name).state
    }

    /// The agent that works on a task now: its attempt, its verification, or that of the base.
    pub(super) fn at_work(&self, run: RunId, name: &str) -> AgentId {
        let task = self.task(run, name);
        let attempt = task.attempts.last().expect("it was started");
        attempt.verification.as_ref().map_or(attempt.agent, |check| check.base_agent.unwrap_or(check.agent))
    }

    pub(super) fn land(&mut self, task: TaskId, answer: Result<Answer, WireError>) {
        self.input(Input::Answered { token: AskToken::Land(task), answer });
    }

    pub(super) fn standing(&self, agent: AgentId) -> Standing {
        self.core.fleet.standing(agent)
    }

    /// What is stored is what the core would store: nothing was forgotten to be written.
    pub(super) fn check_store(&self) {
        let kept: BTreeMap<_, _> = self
            .core
            .records()
            .into_iter()
            .map(|record| ((record.bucket, record.key), record.value.unwrap()))
            .collect();
        assert_eq!(kept.keys().collect::<Vec<_>>(), self.stored.keys().collect::<Vec<_>>());
        assert!(kept == self.stored, "a change was not written");
    }
}

fn is_durable(effect: &Effect) -> bool {
    matches!(effect, Effect::Write(_) | Effect::Seal { .. })
}
