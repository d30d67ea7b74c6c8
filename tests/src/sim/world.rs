//! The simulated world: virtual time, one queue of events, and what the laws of nature do to programs.

use std::collections::BTreeMap;

use hostd_core::{ExitCause, ExitSeen, Input, StartFacts};
use protocol::agent::Role;
use protocol::ids::{AgentId, MessageId};

use super::dice::Dice;
use super::faults::Fault;
use super::hostd::HostEvent;
use super::log::Log;
use super::machine::{Folder, Machine, Plan, Process, exit};
use super::manager::{Manager, ManagerEvent};
use super::messages::Asked;
use super::network::{Life, Mail, Network};
use super::operator::Operator;
use super::oracle::Oracle;
use super::store::Store;

/// When every world begins, ms.
pub const EPOCH_MS: u64 = 1_700_000_000_000;
/// How long most storms last, and those in which leases run out.
const STORM_MS: u64 = 90_000;
const LONG_STORM_MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub enum Event {
    Mail(Mail),
    /// Of one life of machine's hostd.
    Host(usize, Life, HostEvent),
    StartHostd(usize),
    /// Of one boot of a machine.
    Program(usize, Life, AgentId, ProgramEvent),
    /// Of one life of the manager.
    Manager(Life, ManagerEvent),
    StartManager,
    /// A client sends its request, again if it has to.
    Client(usize),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug)]
pub enum ProgramEvent {
    /// It has done its work.
    Ends,
    /// What it left running ends too.
    Emptied,
    /// Its supervisor looks at the lease.
    Lease,
    /// The judge does.
    LeaseJudged,
    /// A hostd's life asks its supervisor.
    Shim(Life, MessageId, Asked),
}

pub struct World {
    pub now: u64,
    pub dice: Dice,
    pub log: Log,
    pub network: Network,
    pub machines: Vec<Machine>,
    pub store: Store,
    pub manager: Manager,
    pub operator: Operator,
    pub oracle: Oracle,
    pub steps: u64,
    /// When faults end.
    pub storm_ms: u64,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
}

impl World {
    #[must_use]
    pub fn new(seed: u64, log: Log) -> Self {
        let mut dice = Dice::new(seed);
        let storm_ms = if dice.percent(8) { LONG_STORM_MS } else { STORM_MS };
        let hosts = dice.between(1, 3);
        let machines = (1..=hosts)
            .map(|n| {
                let clock_ms = i64::try_from(dice.between(0, 4_000)).unwrap_or(0) - 2_000;
                Machine::new(format!("h{n}").parse().unwrap(), clock_ms)
            })
            .collect();
        let mut world = Self {
            now: EPOCH_MS,
            dice,
            log,
            network: Network::in_storm(),
            machines,
            store: Store::default(),
            manager: Manager::default(),
            operator: Operator::default(),
            oracle: Oracle::default(),
            steps: 0,
            storm_ms,
            queue: BTreeMap::new(),
            queued: 0,
        };
        world.after(0, Event::StartManager);
        for m in 0..world.machines.len() {
            world.machines[m].rising = true;
            let ms = world.dice.between(0, 3_000);
            world.after(ms, Event::StartHostd(m));
        }
        world.plan_operator();
        world.plan_faults();
        world
    }

    /// A world in which hosts are away for longer than leases last.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.storm_ms > STORM_MS
    }

    /// Within what the fleet settles after the storm: what was held up, and the programs' own work.
    #[must_use]
    pub fn settle_ms(&self) -> u64 {
        if self.is_long() { 7_200_000 } else { 240_000 }
    }

    pub fn after(&mut self, ms: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now + ms, self.queued), event);
    }

    pub fn send(&mut self, mail: Mail) {
        if !self.network.carries(&mail) {
            return;
        }
        for ms in self.network.copies(&mut self.dice) {
            self.after(ms, Event::Mail(mail.clone()));
        }
    }

    /// Lets everything happen up to `until`, or up to the first broken promise.
    pub fn run_until(&mut self, until: u64) {
        while self.oracle.is_content() {
            match self.queue.first_key_value() {
                Some(((at, _), _)) if *at <= until => {}
                Some(_) | None => break,
            }
            let Some(((at, _), event)) = self.queue.pop_first() else { break };
            self.now = at;
            self.steps += 1;
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Mail(mail) => self.arrive(mail),
            Event::Host(m, life, event) => self.host_event(m, life, event),
            Event::StartHostd(m) => {
                if self.machines[m].rising {
                    self.start_hostd(m);
                }
            }
            Event::Program(m, boot, agent, event) => {
                if self.machines[m].boot == boot {
                    self.program_event(m, agent, event);
                }
            }
            Event::Manager(life, event) => self.manager_event(life, event),
            Event::StartManager => self.start_manager(),
            Event::Client(action) => self.client_sends(action),
            Event::Fault(fault) => self.strike(fault),
        }
    }

    fn arrive(&mut self, mail: Mail) {
        if !self.network.carries(&mail) {
            return;
        }
        match mail {
            Mail::Order { machine, order } => {
                let Some(life) = self.machines[machine].hostd.as_ref().map(|hostd| hostd.life) else {
                    return;
                };
                self.log.say(self.now, || {
                    let (agent, generation) = (order.command.agent(), order.command.generation());
                    format!("h{machine} gets {} {agent} g{generation}", order.command.verb())
                });
                let epoch = format!("{:032x}", self.dice.bits());
                self.host_input(machine, life, Input::Order { order, epoch });
            }
            Mail::AskReports { machine, agents } => {
                let Some(life) = self.machines[machine].hostd.as_ref().map(|hostd| hostd.life) else {
                    return;
                };
                for agent in agents {
                    self.host_input(machine, life, Input::ReportAgain { agent });
                }
            }
            Mail::LeaseGiven { machine, to, agent, generation, asked_at, ms } => {
                let input = Input::Lease { agent, generation, asked_at, length_ms: ms };
                self.host_input(machine, to, input);
            }
            Mail::Put { machine, from, report } => {
                let (agent, position) = (report.agent, report.position());
                self.store.put_report((*report).clone());
                self.send(Mail::PutAcked { machine, to: from, agent, position });
                self.send(Mail::Watched { report });
            }
            Mail::PutAcked { machine, to, agent, position } => self.put_acked(machine, to, agent, position),
            Mail::Ask { machine, from, token, question } => {
                let answer = self.host_answers(&question);
                self.send(Mail::Answer { machine, to: from, token, answer });
            }
            mail @ (Mail::Heartbeat { .. }
            | Mail::Watched { .. }
            | Mail::Answer { .. }
            | Mail::LeaseAsked { .. }
            | Mail::Request { .. }) => self.manager_mail(mail),
            Mail::Reply { action, result } => self.client_hears(action, result),
        }
    }

    /// The supervisor executes the program.
    pub fn spawn(&mut self, m: usize, agent: AgentId) -> Option<StartFacts> {
        let now = self.now;
        let machine = &mut self.machines[m];
        let (clock, boot) = (machine.clock(now), machine.boot);
        let Some(folder) = machine.folders.get_mut(&agent) else {
            self.oracle.broken(format!("{agent} is started without a record"));
            return None;
        };
        let is_first = folder.process == Process::Never;
        let is_next = !folder.is_live() && folder.launch < folder.record.launch;
        if !(is_first || is_next) || folder.archived {
            self.oracle.broken(format!("{agent} is started a second time"));
            return None;
        }
        folder.process = Process::Running;
        folder.launch = folder.record.launch;
        folder.frozen = false;
        folder.boot = boot;
        folder.started_at = clock;
        folder.lease_until = folder.record.first_lease_until();
        let plan = Plan::of(&folder.record.spec);
        let facts = folder.facts();
        let lease_ms = folder.lease_until.map(|until| until.ms_since(clock));
        self.log.say(now, || format!("h{m} runs {agent}"));
        self.started(m, agent);
        if let Some(ms) = plan.work_ms {
            self.after(ms, Event::Program(m, boot, agent, ProgramEvent::Ends));
        }
        if let Some(ms) = lease_ms {
            self.after(ms, Event::Program(m, boot, agent, ProgramEvent::Lease));
            self.after(0, Event::Program(m, boot, agent, ProgramEvent::LeaseJudged));
        }
        Some(facts)
    }

    fn program_event(&mut self, m: usize, agent: AgentId, event: ProgramEvent) {
        if let ProgramEvent::Shim(life, message, asked) = event {
            return self.shim_answers(m, life, agent, message, asked);
        }
        let clock = self.machines[m].clock(self.now);
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        match event {
            ProgramEvent::Ends => {
                if folder.process == Process::Running && folder.frozen {
                    let boot = self.machines[m].boot;
                    self.after(1_000, Event::Program(m, boot, agent, ProgramEvent::Ends));
                } else if folder.process == Process::Running {
                    let code = i32::from(!Plan::of(&folder.record.spec).succeeds);
                    self.program_ends(m, agent, exit(ExitCause::Program, Some(code), None, clock));
                }
            }
            ProgramEvent::Emptied => {
                if let Process::Left(exit) = folder.process.clone() {
                    folder.process = Process::Over(exit);
                    self.ended(m, agent);
                }
            }
            ProgramEvent::LeaseJudged => {
                if folder.is_live() {
                    let boot = self.machines[m].boot;
                    self.check_leases(m);
                    self.after(1_000, Event::Program(m, boot, agent, ProgramEvent::LeaseJudged));
                }
            }
            // Taken above.
            ProgramEvent::Shim(..) => {}
            ProgramEvent::Lease => {
                let Some(until) = folder.lease_until.filter(|_| folder.is_live()) else { return };
                if until <= clock {
                    folder.kill(clock, ExitCause::Lease);
                    self.ended(m, agent);
                } else {
                    let boot = self.machines[m].boot;
                    let ms = until.ms_since(clock);
                    self.after(ms, Event::Program(m, boot, agent, ProgramEvent::Lease));
                }
            }
        }
    }

    /// The program has ended; what it left behind may live on.
    pub fn program_ends(&mut self, m: usize, agent: AgentId, seen: ExitSeen) {
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        let plan = Plan::of(&folder.record.spec);
        let seen = ExitSeen { launch: folder.launch, ..seen };
        match plan.leaves_ms {
            Some(ms) => {
                folder.process = Process::Left(seen);
                let boot = self.machines[m].boot;
                self.after(ms, Event::Program(m, boot, agent, ProgramEvent::Emptied));
                self.tell_hostd(m, agent);
            }
            None => {
                folder.process = Process::Over(seen);
                self.ended(m, agent);
            }
        }
    }

    /// All processes of an agent are gone: its work lies in its workspace, and who watches sees it.
    pub fn ended(&mut self, m: usize, agent: AgentId) {
        let Some(folder) = self.machines[m].folders.get_mut(&agent) else { return };
        if folder.is_live() || folder.process == Process::Never {
            return;
        }
        leave_work(folder);
        let process = folder.process.clone();
        self.log.say(self.now, || format!("h{m} {agent} is gone: {process:?}"));
        self.oracle_ended(m, agent);
        self.tell_hostd(m, agent);
    }

    fn tell_hostd(&mut self, m: usize, agent: AgentId) {
        if let Some(life) = self.machines[m].hostd.as_ref().map(|hostd| hostd.life) {
            let ms = self.dice.between(1, 60);
            self.in_host(m, life, ms, HostEvent::Observe(agent));
        }
    }
}

fn leave_work(folder: &mut Folder) {
    let spec = &folder.record.spec;
    if folder.record.collected.is_some() || folder.archived || spec.checkout.is_none() {
        return;
    }
    if spec.role != Role::Verify && folder.only_copy.is_none() {
        let succeeded = matches!(&folder.process, Process::Over(exit) if exit.code == Some(0));
        let quality = if succeeded && Plan::of(spec).is_good { "good" } else { "bad" };
        folder.only_copy = Some(format!("{quality}-{}", folder.record.agent));
    }
}
