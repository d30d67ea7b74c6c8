//! The shell of the simulated manager: writes first, one record at a time, outputs when all of a call's
//! writes are in the store; dies between any two of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manager_core::record::TASKS;
use manager_core::{AskToken, Config, Core, Effect, Input, OrderDraft, StoredRecord};
use protocol::agent::Blob;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Fencing, Generation, HostId, OrderId, TaskId};
use protocol::order::{Answer, Command, Order, Question};
use protocol::time::Timestamp;

use super::network::{Life, Mail};
use super::world::{Event, World};

/// Live agents that the simulated fleet lets a host have at once.
pub const HOST_CAP: u32 = 4;

#[derive(Default)]
pub struct Manager {
    pub core: Option<Core>,
    pub life: Life,
    wake: Option<Timestamp>,
    /// What one call of the core wants, in order.
    calls: VecDeque<Call>,
    /// Which client's request waits under which number.
    replies: BTreeMap<u64, usize>,
    asked: BTreeSet<AskToken>,
    /// Which question for a lease waits under which number.
    leases: BTreeMap<u64, LeaseAsked>,
    numbers: u64,
}

/// A host that waits for a lease, and when the manager decided about it.
struct LeaseAsked {
    machine: usize,
    from: Life,
    agent: AgentId,
    generation: Generation,
    asked_at: Timestamp,
    decided_at: u64,
}

struct Call {
    writes: VecDeque<StoredRecord>,
    outputs: Vec<Effect>,
}

/// What happens to one life of the manager; dropped when that life is over.
#[derive(Clone, Debug)]
pub enum ManagerEvent {
    /// The store acknowledges the next write.
    Stored,
    /// Nobody has answered.
    AskLost(AskToken),
    LogKept(AgentId, Option<Blob>),
    InputsKept(TaskId, Option<Blob>),
    /// A host knows a higher number.
    TakeLead(Fencing),
    Wake,
}

impl World {
    pub fn start_manager(&mut self) {
        if self.manager.core.is_some() {
            return;
        }
        self.store.fencing += 1;
        let life = self.manager.life + 1;
        self.log.say(self.now, || format!("manager starts its life {life}"));
        let mut config = Config::new(Fencing(self.store.fencing));
        config.host_cap = Some(HOST_CAP);
        let (core, quarantined) = Core::load(config, self.store.records(), Timestamp(self.now));
        // Tasks of a submission that was never whole stay behind; everything else must be usable.
        for record in quarantined.into_iter().filter(|record| record.bucket != TASKS) {
            self.oracle.broken(format!("a record of its own cannot be loaded: {record:?}"));
        }
        let numbers = self.manager.numbers;
        self.manager = Manager { core: Some(core), life, numbers, ..Manager::default() };
        for report in self.store.reports() {
            self.manager_input(Input::Report(Box::new(report)));
        }
        self.manager_input(Input::Tick);
    }

    pub fn kill_manager(&mut self) {
        if self.manager.core.take().is_some() {
            self.log.say(self.now, || "manager dies".to_owned());
            let ms = self.dice.between(200, 10_000);
            self.after(ms, Event::StartManager);
        }
    }

    fn in_manager(&mut self, ms: u64, event: ManagerEvent) {
        let life = self.manager.life;
        self.after(ms, Event::Manager(life, event));
    }

    pub fn manager_event(&mut self, life: Life, event: ManagerEvent) {
        if self.manager.life != life || self.manager.core.is_none() {
            return;
        }
        match event {
            ManagerEvent::Stored => self.next_write(),
            ManagerEvent::AskLost(token) => {
                if self.manager.asked.remove(&token) {
                    let answer = Err(WireError::new(ErrorCode::Unavailable, "no answer"));
                    self.manager_input(Input::Answered { token, answer });
                }
            }
            ManagerEvent::LogKept(agent, blob) => self.manager_input(Input::LogKept { agent, blob }),
            ManagerEvent::InputsKept(task, blob) => self.manager_input(Input::InputsKept { task, blob }),
            ManagerEvent::TakeLead(above) => {
                self.store.fencing = self.store.fencing.max(above.0 + 1);
                self.log.say(self.now, || format!("manager takes the lead above {above}"));
                self.manager_input(Input::Leads(Fencing(self.store.fencing)));
            }
            ManagerEvent::Wake => {
                self.manager.wake = None;
                self.manager_input(Input::Tick);
            }
        }
    }

    pub fn manager_mail(&mut self, mail: Mail) {
        match mail {
            Mail::Heartbeat { heartbeat, .. } => self.manager_input(Input::Heartbeat(heartbeat)),
            Mail::Watched { report } => self.manager_input(Input::Report(report)),
            Mail::Answer { to, token, answer, .. } => {
                if to == self.manager.life && self.manager.asked.remove(&token) {
                    self.manager_input(Input::Answered { token, answer: Ok(answer) });
                }
            }
            Mail::Request { action } => {
                self.manager.numbers += 1;
                let reply_to = self.manager.numbers;
                self.manager.replies.insert(reply_to, action);
                let request = Box::new(self.operator.actions[action].request.clone());
                let seed = self.dice.bits();
                self.manager_input(Input::Client { reply_to, request, seed });
            }
            Mail::LeaseAsked { machine, from, agent, generation, asked_at } => {
                self.manager.numbers += 1;
                let reply_to = self.manager.numbers;
                let decided_at = self.now;
                let asked = LeaseAsked { machine, from, agent, generation, asked_at, decided_at };
                self.manager.leases.insert(reply_to, asked);
                let host = self.machines[machine].host.clone();
                self.manager_input(Input::LeaseAsked { reply_to, host, agent, generation });
            }
            Mail::Order { .. }
            | Mail::AskReports { .. }
            | Mail::Ask { .. }
            | Mail::Put { .. }
            | Mail::PutAcked { .. }
            | Mail::LeaseGiven { .. }
            | Mail::Reply { .. } => {}
        }
    }

    pub fn manager_input(&mut self, input: Input) {
        let now = Timestamp(self.now);
        let Some(core) = self.manager.core.as_mut() else { return };
        let mut call = Call { writes: VecDeque::new(), outputs: Vec::new() };
        for effect in core.handle(now, input) {
            match effect {
                Effect::Write(record) if call.outputs.is_empty() => call.writes.push_back(record),
                Effect::Write(record) => {
                    self.oracle.broken(format!("{}.{} is written after outputs", record.bucket, record.key));
                }
                Effect::Seal { .. } => {}
                Effect::Unwritable { bucket, key, reason } => {
                    self.oracle.broken(format!("{bucket}.{key} cannot be written: {reason}"));
                }
                output => call.outputs.push(output),
            }
        }
        let deadline = core.deadline();
        let idle = self.manager.calls.is_empty();
        if idle && call.writes.is_empty() {
            self.release(call.outputs);
        } else if !(call.writes.is_empty() && call.outputs.is_empty()) {
            self.manager.calls.push_back(call);
            if idle {
                let ms = self.dice.between(1, 10);
                self.in_manager(ms, ManagerEvent::Stored);
            }
        }
        if let Some(at) = deadline.filter(|at| self.manager.wake.is_none_or(|wake| *at < wake)) {
            self.manager.wake = Some(at);
            self.in_manager(at.ms_since(now), ManagerEvent::Wake);
        }
    }

    fn next_write(&mut self) {
        if self.network.stormy && self.dice.below(1_000) < 4 {
            return self.kill_manager();
        }
        let Some(call) = self.manager.calls.front_mut() else { return };
        if let Some(record) = call.writes.pop_front() {
            self.log.say(self.now, || format!("manager wrote {}.{}", record.bucket, record.key));
            self.store.write(record);
        }
        let life = self.manager.life;
        while self.manager.calls.front().is_some_and(|call| call.writes.is_empty()) {
            let Some(call) = self.manager.calls.pop_front() else { break };
            self.release(call.outputs);
            if self.manager.core.is_none() || self.manager.life != life {
                return;
            }
        }
        if !self.manager.calls.is_empty() {
            let ms = self.dice.between(1, 10);
            self.in_manager(ms, ManagerEvent::Stored);
        }
    }

    fn release(&mut self, outputs: Vec<Effect>) {
        for effect in outputs {
            match effect {
                Effect::Reply { to, result } => {
                    if let Some(action) = self.manager.replies.remove(&to) {
                        self.manager_answers(action, &result);
                        self.send(Mail::Reply { action, result });
                    } else {
                        self.oracle.broken(format!("request {to} is answered twice, or was never asked"));
                    }
                }
                Effect::Lease { to, result } => match (self.manager.leases.remove(&to), result) {
                    (Some(asked), Ok(ms)) => {
                        let LeaseAsked { machine, from, agent, generation, asked_at, decided_at } = asked;
                        self.grant_lease(agent, decided_at, ms);
                        self.send(Mail::LeaseGiven { machine, to: from, agent, generation, asked_at, ms });
                    }
                    (Some(_), Err(_)) => {}
                    (None, _) => self.oracle.broken(format!("lease question {to} is answered twice")),
                },
                Effect::Order(draft) => self.send_order(draft),
                Effect::Lead { above } => {
                    let ms = self.dice.between(5, 2_000);
                    self.in_manager(ms, ManagerEvent::TakeLead(above));
                }
                Effect::Ask { token, host, question } => {
                    self.manager.asked.insert(token);
                    self.in_manager(4_000, ManagerEvent::AskLost(token));
                    if let Some(machine) = self.machine_of(&host) {
                        let from = self.manager.life;
                        self.send(Mail::Ask { machine, from, token, question });
                    }
                }
                Effect::AskReports { host, agents } => {
                    if let Some(machine) = self.machine_of(&host) {
                        self.send(Mail::AskReports { machine, agents });
                    }
                }
                Effect::KeepLog { agent, .. } => {
                    let ms = self.dice.between(10, 3_000);
                    let blob = self.dice.percent(80).then(|| Blob { sha256: "a".repeat(64), bytes: 10 });
                    self.in_manager(ms, ManagerEvent::LogKept(agent, blob));
                }
                Effect::KeepInputs { task, inputs } => {
                    let ms = self.dice.between(10, 8_000);
                    let bytes = u64::try_from(inputs.len()).unwrap_or(u64::MAX);
                    let blob = self.dice.percent(80).then(|| Blob { sha256: "b".repeat(64), bytes });
                    self.in_manager(ms, ManagerEvent::InputsKept(task, blob));
                }
                Effect::Event { .. } | Effect::ForgetEnvironment(_) | Effect::Changed(_) => {}
                Effect::Seal { .. } | Effect::Write(_) | Effect::Unwritable { .. } => {}
            }
        }
    }

    fn send_order(&mut self, draft: OrderDraft) {
        let Some(machine) = self.machine_of(&draft.host) else { return };
        self.log.say(self.now, || {
            let (agent, generation) = (draft.command.agent(), draft.command.generation());
            format!("manager orders {} {agent} g{generation} of h{machine}", draft.command.verb())
        });
        if let Command::Ensure { agent, spec, .. } = &draft.command
            && let Some(ms) = spec.lease_ms
        {
            // The first lease counts from the acceptance, which is not after the order's end.
            let expires = self.machines[machine].world_time(draft.expires);
            self.grant_lease(*agent, expires, ms);
        }
        let order = Order {
            id: OrderId::from_parts(self.now, self.dice.bits()),
            region: draft.region,
            host: draft.host,
            incarnation: draft.incarnation,
            fencing: draft.fencing,
            expires: draft.expires,
            command: draft.command,
        };
        self.send(Mail::Order { machine, order: Box::new(order) });
    }

    pub fn machine_of(&self, host: &HostId) -> Option<usize> {
        self.machines.iter().position(|machine| machine.host == *host)
    }

    /// What a host says to a question that its core has no part in.
    pub fn host_answers(&mut self, question: &Question) -> Answer {
        match question {
            Question::Land { branch, commit, .. } => {
                self.oracle.landed.insert(branch.clone(), commit.clone());
                Answer::Landed { branch: branch.clone(), commit: commit.clone() }
            }
            Question::Resolve { .. }
            | Question::Read { .. }
            | Question::Follow { .. }
            | Question::Report { .. }
            | Question::Exec { .. }
            | Question::Diff { .. }
            | Question::Survey { .. }
            | Question::Free { .. }
            | Question::Snapshot { .. }
            | Question::Screen { .. }
            | Question::Compare { .. }
            | Question::ListFiles { .. }
            | Question::ReadFile { .. }
            | Question::WriteFile { .. }
            | Question::MakeNode { .. }
            | Question::MergeLook { .. }
            | Question::Merge(_)
            | Question::Advance { .. }
            | Question::Figures { .. }
            | Question::ExecOpen { .. }
            | Question::ExecInput { .. }
            | Question::ExecEnd { .. }
            | Question::More { .. } => Answer::Done,
        }
    }
}
