//! What goes wrong during a storm, beside the network: deaths of each process, cuts, reboots.

use protocol::ids::AgentId;

use super::machine::Process;
use super::world::{Event, World};

#[derive(Clone, Debug)]
pub enum Fault {
    KillHostd(usize),
    KillManager,
    /// The bus forgets under which number its manager led, which is started anew.
    ForgetLead,
    Cut(usize),
    CutFor(usize, u64),
    Mend(usize),
    Reboot(usize),
    /// The supervisor of some live agent is killed.
    KillShim(usize),
    /// All is well from now on.
    Calm,
}

impl World {
    pub fn plan_faults(&mut self) {
        let machines = self.machines.len();
        let count = self.dice.between(3, 14);
        for _ in 0..count {
            let at = self.dice.between(1_000, self.storm_ms - 1_000);
            let m = self.dice.index(machines);
            let fault = match self.dice.below(13) {
                0..=2 => Fault::KillHostd(m),
                3..=5 => Fault::KillManager,
                12 => Fault::ForgetLead,
                6..=7 => Fault::Cut(m),
                8 => Fault::Reboot(m),
                _ => Fault::KillShim(m),
            };
            self.after(at, Event::Fault(fault));
        }
        if self.is_long() {
            // Long enough for leases to run out.
            for m in 0..machines {
                let (at, chance) = (self.dice.between(1_000, 300_000), self.dice.percent(60));
                if chance {
                    self.after(at, Event::Fault(Fault::CutFor(m, 600_000)));
                }
            }
        }
        self.after(self.storm_ms, Event::Fault(Fault::Calm));
    }

    pub fn strike(&mut self, fault: Fault) {
        self.log.say(self.now, || format!("FAULT {fault:?}"));
        match fault {
            Fault::KillHostd(m) => {
                let rise_in = self.dice.between(200, 20_000);
                self.kill_hostd(m, rise_in);
            }
            Fault::KillManager => self.kill_manager(),
            Fault::ForgetLead => {
                self.store.fencing = 0;
                self.kill_manager();
            }
            Fault::Cut(m) => {
                let ms = self.dice.between(1_000, 40_000);
                self.strike(Fault::CutFor(m, ms));
            }
            Fault::CutFor(m, ms) => {
                self.network.cut(m);
                self.after(ms, Event::Fault(Fault::Mend(m)));
            }
            Fault::Mend(m) => self.network.mend(m),
            Fault::Reboot(m) => {
                let rise_in = self.dice.between(2_000, 20_000);
                self.kill_hostd(m, rise_in);
                self.machines[m].boot += 1;
                for agent in self.live_agents(m) {
                    self.lose(m, agent);
                }
            }
            Fault::KillShim(m) => {
                let live = self.live_agents(m);
                let which = self.dice.index(live.len());
                if let Some(agent) = live.get(which) {
                    self.lose(m, *agent);
                }
            }
            Fault::Calm => {
                self.network.stormy = false;
                self.network.mend_all();
            }
        }
    }

    fn live_agents(&self, m: usize) -> Vec<AgentId> {
        let folders = &self.machines[m].folders;
        folders.iter().filter(|(_, folder)| folder.is_live()).map(|(agent, _)| *agent).collect()
    }

    /// The agent's processes are gone and no exit record was written.
    fn lose(&mut self, m: usize, agent: AgentId) {
        if let Some(folder) = self.machines[m].folders.get_mut(&agent) {
            folder.process = Process::Lost;
        }
        self.ended(m, agent);
    }
}
