//! The shell of a simulated hostd: feeds the real core and carries out what it asks, with delays, and with
//! deaths between any two effects.

use std::collections::BTreeMap;

use hostd_core::{Config, Core, Effect, ExitCause, Input, Obstacle, Removal, Stage};
use protocol::agent::StartStep;
use protocol::ids::{AgentId, Incarnation, Seq};
use protocol::order::Discard;
use protocol::report::{Heartbeat, HostFacts, Report};
use protocol::time::Timestamp;

use super::machine::{Folder, Process, exit};
use super::messages::Asked;
use super::network::{Life, Mail};
use super::world::{Event, World};

pub struct Hostd {
    pub core: Core,
    pub life: Life,
    wake: Option<Timestamp>,
    /// Reports that the bus has not acknowledged; a newer one of the same agent takes the place.
    unacked: BTreeMap<AgentId, Box<Report>>,
    last: BTreeMap<AgentId, Seq>,
    /// Effects that wait for a record that could not be saved.
    held: BTreeMap<AgentId, Vec<Effect>>,
    beats: u64,
}

/// What happens to one life of a hostd; dropped when that life is over.
#[derive(Clone, Debug)]
pub enum HostEvent {
    Input(Box<Input>),
    Job(Job),
    /// Facts of this agent's processes have changed.
    Observe(AgentId),
    PutAgain(AgentId, Seq),
    SaveAgain(AgentId),
    Beat,
    Wake,
}

#[derive(Clone, Debug)]
pub enum Job {
    Make(AgentId, u32),
    Freeze(AgentId, bool),
    SetLimits(AgentId),
    Terminate(AgentId),
    Kill(AgentId),
    Collect(AgentId),
    Weigh(AgentId),
    Remove(AgentId, Discard),
}

const HEARTBEAT_MS: u64 = 2_000;

impl World {
    pub fn start_hostd(&mut self, m: usize) {
        let now = self.now;
        let machine = &mut self.machines[m];
        machine.rising = false;
        machine.lives += 1;
        let clock = machine.clock(now);
        machine.incarnation = Incarnation((machine.incarnation.0 + 1).max(clock.0));
        let config = Config {
            region: "hub".parse().unwrap(),
            host: machine.host.clone(),
            incarnation: machine.incarnation,
            fencing: machine.fencing,
            disk_share_max_percent: 85,
        };
        let life = machine.lives;
        machine.hostd = Some(Hostd {
            core: Core::new(config),
            life,
            wake: None,
            unacked: BTreeMap::new(),
            last: BTreeMap::new(),
            held: BTreeMap::new(),
            beats: 0,
        });
        let boot = machine.boot;
        let folders: Vec<_> =
            machine.folders.values().map(|f| (Box::new(f.record.clone()), f.found(boot))).collect();
        self.log.say(now, || format!("h{m} hostd starts its life {life}"));
        for (record, found) in folders {
            self.host_input(m, life, Input::Found { record, found });
        }
        self.in_host(m, life, 1, HostEvent::Beat);
    }

    pub fn kill_hostd(&mut self, m: usize, rise_in: u64) {
        let machine = &mut self.machines[m];
        if machine.hostd.take().is_some() && !machine.rising {
            machine.rising = true;
            self.log.say(self.now, || format!("h{m} hostd dies"));
            self.after(rise_in, Event::StartHostd(m));
        }
    }

    pub fn in_host(&mut self, m: usize, life: Life, ms: u64, event: HostEvent) {
        self.after(ms, Event::Host(m, life, event));
    }

    fn hostd(&mut self, m: usize, life: Life) -> Option<&mut Hostd> {
        self.machines[m].hostd.as_mut().filter(|hostd| hostd.life == life)
    }

    pub fn host_event(&mut self, m: usize, life: Life, event: HostEvent) {
        if self.hostd(m, life).is_none() {
            return;
        }
        match event {
            HostEvent::Input(input) => {
                let started = match *input {
                    Input::Started { agent, .. } => Some(agent),
                    _ => None,
                };
                self.host_input(m, life, *input);
                if let Some(agent) = started {
                    self.in_host(m, life, 1, HostEvent::Observe(agent));
                }
            }
            HostEvent::Job(job) => self.host_job(m, life, job),
            HostEvent::Observe(agent) => self.host_observes(m, life, agent),
            HostEvent::PutAgain(agent, seq) => {
                let Some(hostd) = self.hostd(m, life) else { return };
                if let Some(report) = hostd.unacked.get(&agent).filter(|report| report.seq == seq).cloned() {
                    self.put(m, life, report);
                }
            }
            HostEvent::SaveAgain(agent) => {
                let Some(hostd) = self.hostd(m, life) else { return };
                let effects = hostd.held.remove(&agent).unwrap_or_default();
                self.carry_out(m, life, effects);
                self.host_input(m, life, Input::Degraded { agent, what: "unsaved", degraded: false });
            }
            HostEvent::Beat => self.beat(m, life),
            HostEvent::Wake => {
                if let Some(hostd) = self.hostd(m, life) {
                    hostd.wake = None;
                }
                self.host_input(m, life, Input::Tick);
            }
        }
    }

    pub fn host_input(&mut self, m: usize, life: Life, input: Input) {
        let clock = self.machines[m].clock(self.now);
        let Some(hostd) = self.hostd(m, life) else { return };
        let effects = hostd.core.handle(clock, input);
        self.carry_out(m, life, effects);
        let Some(hostd) = self.hostd(m, life) else { return };
        let deadline = hostd.core.deadline();
        if let Some(at) = deadline.filter(|at| hostd.wake.is_none_or(|wake| *at < wake)) {
            hostd.wake = Some(at);
            let ms = at.ms_since(clock);
            self.in_host(m, life, ms, HostEvent::Wake);
        }
    }

    fn carry_out(&mut self, m: usize, life: Life, effects: Vec<Effect>) {
        for effect in effects {
            let agent = agent_of(&effect);
            let storm = self.network.stormy;
            if storm && self.dice.below(1_000) < 3 {
                let rise_in = self.dice.between(300, 8_000);
                return self.kill_hostd(m, rise_in);
            }
            let Some(hostd) = self.machines[m].hostd.as_mut().filter(|hostd| hostd.life == life) else {
                return;
            };
            if let Some(held) = agent.and_then(|agent| hostd.held.get_mut(&agent)) {
                held.push(effect);
                continue;
            }
            if let Effect::Save(record) = &effect
                && storm
                && self.dice.below(1_000) < 5
            {
                let agent = record.agent;
                hostd.held.insert(agent, vec![effect]);
                self.log.say(self.now, || format!("h{m} cannot save {agent}"));
                let failed = Input::SaveFailed { agent, reason: "no space".to_owned() };
                self.in_host(m, life, 0, HostEvent::Input(Box::new(failed)));
                let again_in = self.dice.between(50, 2_000);
                self.in_host(m, life, again_in, HostEvent::SaveAgain(agent));
                continue;
            }
            self.perform(m, life, effect);
        }
    }

    fn perform(&mut self, m: usize, life: Life, effect: Effect) {
        let job = |world: &mut Self, low: u64, high: u64, job: Job| {
            let ms = world.dice.between(low, high);
            world.in_host(m, life, ms, HostEvent::Job(job));
        };
        match effect {
            Effect::Save(record) => {
                let folders = &mut self.machines[m].folders;
                let new = || Folder::new((*record).clone());
                folders.entry(record.agent).or_insert_with(new).record = (*record).clone();
            }
            Effect::SaveFencing(fencing) => self.machines[m].fencing = fencing,
            Effect::Create { agent, launch } => {
                // Its start may have been given up while its record could not be saved.
                let core = self.machines[m].hostd.as_ref().map(|hostd| &hostd.core);
                let known = core.and_then(|core| core.agent(agent));
                if known.is_some_and(|a| a.stage == Stage::Creating && a.record.launch == launch) {
                    job(self, 20, 400, Job::Make(agent, launch));
                }
            }
            Effect::Freeze(agent) => job(self, 1, 300, Job::Freeze(agent, true)),
            Effect::Thaw(agent) => job(self, 1, 300, Job::Freeze(agent, false)),
            Effect::SetLimits(agent) => job(self, 1, 300, Job::SetLimits(agent)),
            // Its machines have nothing to prepare.
            Effect::Rename(_) | Effect::CallOff(_) => {}
            Effect::Terminate(agent) => job(self, 1, 50, Job::Terminate(agent)),
            Effect::Kill(agent) => job(self, 1, 50, Job::Kill(agent)),
            Effect::Collect(agent) => job(self, 10, 400, Job::Collect(agent)),
            Effect::Weigh(agent) => job(self, 10, 200, Job::Weigh(agent)),
            Effect::Remove { agent, discard } => job(self, 10, 200, Job::Remove(agent, discard)),
            Effect::AskLease { agent, generation } => {
                let asked_at = self.machines[m].clock(self.now);
                self.send(Mail::LeaseAsked { machine: m, from: life, agent, generation, asked_at });
            }
            Effect::SetLease { agent, until } => {
                if let Some(folder) = self.machines[m].folders.get_mut(&agent) {
                    folder.lease_until = Some(until);
                }
            }
            Effect::Report(report) => {
                self.log.say(self.now, || {
                    let (agent, seq, phase) = (report.agent, report.seq, report.phase);
                    format!("h{m} reports {agent} #{seq}: {phase} {:?}", report.end.as_ref().map(|e| e.cause))
                });
                let Some(hostd) = self.hostd(m, life) else { return };
                hostd.last.insert(report.agent, report.seq);
                hostd.unacked.insert(report.agent, report.clone());
                self.put(m, life, report);
            }
            // Nobody keeps house in this world.
            Effect::Event { .. } | Effect::Forget(_) => {}
            Effect::KeepText { agent, message, .. } => self.keep_text(m, agent, message, true),
            Effect::ForgetText { agent, message } => self.keep_text(m, agent, message, false),
            Effect::Type { agent, message } => self.ask_shim(m, life, agent, message, Asked::Type),
            Effect::AskTyped { agent, message } => self.ask_shim(m, life, agent, message, Asked::Outcome),
        }
    }

    fn put(&mut self, m: usize, life: Life, report: Box<Report>) {
        self.in_host(m, life, 1_500, HostEvent::PutAgain(report.agent, report.seq));
        self.send(Mail::Put { machine: m, from: life, report });
    }

    pub fn put_acked(&mut self, m: usize, life: Life, agent: AgentId, position: (Incarnation, Seq)) {
        let Some(hostd) = self.hostd(m, life) else { return };
        if hostd.unacked.get(&agent).is_some_and(|report| report.position() == position) {
            hostd.unacked.remove(&agent);
        }
    }

    fn beat(&mut self, m: usize, life: Life) {
        let machine = &mut self.machines[m];
        let now = machine.clock(self.now);
        let Some(hostd) = machine.hostd.as_mut() else { return };
        hostd.beats += 1;
        let with_digest = hostd.beats % 3 == 1;
        let heartbeat = Heartbeat {
            region: "hub".parse().unwrap(),
            host: machine.host.clone(),
            incarnation: hostd.core.incarnation(),
            fencing: hostd.core.fencing(),
            now,
            build: "sim".to_owned(),
            facts: HostFacts {
                cpus: 8,
                memory_total_bytes: 1 << 36,
                memory_available_bytes: 1 << 36,
                disk_total_bytes: 1 << 40,
                disk_free_bytes: 1 << 39,
                boot_id: machine.boot.to_string(),
                disk_share_max_percent: 85,
                ..HostFacts::default()
            },
            digest: with_digest.then(|| hostd.core.digest(&hostd.last)),
        };
        self.send(Mail::Heartbeat { machine: m, heartbeat: Box::new(heartbeat) });
        self.in_host(m, life, HEARTBEAT_MS, HostEvent::Beat);
    }

    fn host_job(&mut self, m: usize, life: Life, job: Job) {
        let storm = self.network.stormy;
        let clock = self.machines[m].clock(self.now);
        match job {
            Job::Make(agent, launch) => self.make(m, life, agent, launch),
            Job::Freeze(agent, wanted) => self.freeze(m, life, agent, wanted),
            Job::SetLimits(agent) => {
                let Some(hostd) = self.hostd(m, life) else { return };
                let Some(limits) = hostd.core.agent(agent).map(|agent| agent.record.spec.limits) else {
                    return;
                };
                let refused = (storm && self.dice.percent(10)).then(|| "it holds more".to_owned());
                let input = Input::LimitsSet { agent, limits, read: Default::default(), refused };
                let ms = self.dice.between(1, 50);
                self.in_host(m, life, ms, HostEvent::Input(Box::new(input)));
            }
            Job::Terminate(agent) => self.terminate(m, agent),
            Job::Kill(agent) => {
                if let Some(folder) = self.machines[m].folders.get_mut(&agent) {
                    folder.kill(clock, ExitCause::Program);
                }
                self.ended(m, agent);
            }
            Job::Collect(agent) => {
                let fails = storm && self.dice.percent(5);
                let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
                let input = if fails {
                    let reason = "the repository is busy".to_owned();
                    Input::CollectFailed { agent, obstacle: Obstacle::Outside, reason }
                } else {
                    Input::Collected { agent, collected: Box::new(folder.collect()) }
                };
                let ms = self.dice.between(1, 50);
                self.in_host(m, life, ms, HostEvent::Input(Box::new(input)));
            }
            Job::Weigh(agent) => {
                // Most of it is brought home at the end; some cannot be.
                let keeps = storm && self.dice.percent(30);
                let holds =
                    if keeps { vec!["a repository of its own in inner/".to_owned()] } else { Vec::new() };
                let ms = self.dice.between(1, 50);
                self.in_host(m, life, ms, HostEvent::Input(Box::new(Input::Weighed { agent, holds })));
            }
            Job::Remove(agent, discard) => {
                let fails = storm && self.dice.percent(5);
                let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
                let outcome = if fails {
                    Removal::Failed { reason: "busy".to_owned() }
                } else if folder.only_copy.is_some() && discard == Discard::Keep {
                    Removal::Refused { holds: vec!["commits that exist nowhere else".to_owned()] }
                } else {
                    let live = folder.is_live();
                    folder.archived = true;
                    let lost = folder.only_copy.take();
                    self.removed(agent, live, lost);
                    Removal::Done { collected: None, gone: Vec::new() }
                };
                let ms = self.dice.between(1, 50);
                self.in_host(m, life, ms, HostEvent::Input(Box::new(Input::Removed { agent, outcome })));
            }
        }
    }

    fn freeze(&mut self, m: usize, life: Life, agent: AgentId, wanted: bool) {
        let fails = self.network.stormy && self.dice.percent(10);
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        if !fails {
            folder.frozen = wanted && folder.is_live();
        }
        let frozen = folder.frozen;
        let failed = (frozen != wanted).then(|| "a disk stands still".to_owned());
        let ms = self.dice.between(1, 50);
        let input = Input::Frozen { agent, frozen, failed };
        self.in_host(m, life, ms, HostEvent::Input(Box::new(input)));
    }

    fn make(&mut self, m: usize, life: Life, agent: AgentId, launch: u32) {
        if self.machines[m].folders.get(&agent).is_some_and(|folder| folder.record.launch != launch) {
            return;
        }
        let ms = self.dice.between(1, 80);
        if self.network.stormy && self.dice.percent(4) {
            let (step, detail) = (StartStep::Checkout, "no space".to_owned());
            let input = Input::StartFailed { agent, step, detail };
            return self.in_host(m, life, ms, HostEvent::Input(Box::new(input)));
        }
        let Some(facts) = self.spawn(m, agent) else { return };
        let input = Input::Started { agent, facts: Box::new(facts) };
        self.in_host(m, life, ms, HostEvent::Input(Box::new(input)));
    }

    fn host_observes(&mut self, m: usize, life: Life, agent: AgentId) {
        let twice = self.network.stormy && self.dice.percent(5);
        let Some(folder) = self.machines[m].folders.get(&agent) else { return };
        let launch = folder.launch;
        let input = match &folder.process {
            Process::Never | Process::Running => return,
            Process::Left(exit) => Input::Exited { agent, exit: exit.clone() },
            Process::Over(exit) => Input::Ended { agent, exit: exit.clone() },
            Process::Lost => {
                Input::SupervisorLost { agent, launch, detail: "its supervisor is gone".to_owned() }
            }
        };
        // Nothing is told of a program before its start was.
        if self.hostd(m, life).is_some_and(|h| h.core.agent(agent).is_some_and(|a| a.started)) {
            if twice {
                self.in_host(m, life, 20, HostEvent::Observe(agent));
            }
            self.host_input(m, life, input);
        }
    }

    /// A program was asked to end.
    fn terminate(&mut self, m: usize, agent: AgentId) {
        let clock = self.machines[m].clock(self.now);
        let obeys_with = if self.dice.percent(50) { (Some(0), None) } else { (None, Some(15)) };
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        let plan = super::machine::Plan::of(&folder.record.spec);
        // One that stands still does not hear it; it is killed after its grace.
        if folder.frozen {
            return;
        }
        if folder.process == Process::Running && !plan.ignores_term {
            let seen = exit(ExitCause::Program, obeys_with.0, obeys_with.1, clock);
            self.program_ends(m, agent, seen);
        }
    }
}

fn agent_of(effect: &Effect) -> Option<AgentId> {
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
        | Effect::ForgetText { agent, .. }
        | Effect::Type { agent, .. }
        | Effect::AskTyped { agent, .. }
        | Effect::AskLease { agent, .. }
        | Effect::SetLease { agent, .. }
        | Effect::Event { agent, .. } => Some(*agent),
        Effect::Report(report) => Some(report.agent),
    }
}
