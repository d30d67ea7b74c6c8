//! What can be changed of an agent that is there: name, labels, limits, and whether it stands still.
//!
//! An order of a higher generation says what is wanted; [`Agent::settle`] compares it with what is in force, by level,
//! and asks for one step at a time. What the machine refuses is told as unmet. Starts are in `launch`.

use protocol::agent::{AgentSpec, ResourceLimits};
use protocol::ids::Generation;
use protocol::report::Unmet;
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::LimitsRead;
use crate::record::Wanted;

/// A freeze that did not come about is tried again after this: a process in the kernel may hold it up.
const FREEZE_AGAIN_MS: u64 = 5_000;

pub(super) const FROZEN: &str = "frozen";
pub(super) const LIMITS: &str = "limits";
pub(super) const LAUNCH: &str = "launch";

impl Agent {
    /// The agent shall be as the order says. An order that was taken before changes nothing.
    pub fn ensure(&mut self, generation: Generation, spec: &AgentSpec) -> Vec<Effect> {
        if generation <= self.record.generation {
            return Vec::new();
        }
        if self.is_weighed_first() {
            // It was refused before, and the order that it was refused for has come twice.
            self.record.wanted = Wanted::Running;
        }
        let effects = self.take_settings(generation, spec);
        self.take_launch(spec.launch);
        self.record.spec.frozen = spec.frozen;
        effects
    }

    /// Name, labels and limits of a newer order of any kind.
    pub fn take_settings(&mut self, generation: Generation, spec: &AgentSpec) -> Vec<Effect> {
        if generation <= self.record.generation {
            return Vec::new();
        }
        self.record.generation = generation;
        self.unmet.clear();
        self.freeze_at = None;
        let record = &mut self.record;
        record.spec.labels.clone_from(&spec.labels);
        if record.spec.limits != spec.limits {
            // Until the machine has taken the new ones, those before are in force.
            let before = record.limits.take().unwrap_or(record.spec.limits);
            record.spec.limits = spec.limits;
            record.limits = self.stage.is_live().then_some(before);
        }
        if record.spec.name == spec.name {
            return Vec::new();
        }
        record.spec.name = spec.name.clone();
        if self.stage.is_live() { vec![Effect::Rename(record.agent)] } else { Vec::new() }
    }

    /// The next step towards what is wanted, if one is due.
    pub(crate) fn settle(&mut self, now: Timestamp, disk_is_full: Option<&str>) -> Vec<Effect> {
        match self.stage {
            Stage::Running | Stage::Draining => self.settle_running(now),
            Stage::Ended => self.launch_if_wanted(now, disk_is_full),
            Stage::Creating | Stage::Collecting | Stage::Removing | Stage::Destroyed => Vec::new(),
        }
    }

    fn settle_running(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        let wants_frozen = self.record.spec.frozen && !self.is_stopping();
        self.freeze_at = self.freeze_at.filter(|at| *at > now);
        if wants_frozen != self.facts.frozen && !self.is_freezing && self.freeze_at.is_none() {
            self.is_freezing = true;
            let agent = self.record.agent;
            effects.push(if wants_frozen { Effect::Freeze(agent) } else { Effect::Thaw(agent) });
        }
        // What was refused is not tried again by itself: the person was told so.
        if self.record.limits.is_some() && !self.is_limiting && !self.unmet.contains_key(LIMITS) {
            self.is_limiting = true;
            effects.push(Effect::SetLimits(self.record.agent));
        }
        effects
    }

    /// The kernel says whether its processes stand still; `failed` is why it is not as it was asked for.
    pub fn frozen(&mut self, now: Timestamp, frozen: bool, failed: Option<String>) -> Vec<Effect> {
        self.is_freezing = false;
        if !self.stage.is_live() {
            return Vec::new();
        }
        self.facts.frozen = frozen;
        match failed {
            Some(why) => {
                self.unmet.insert(FROZEN, why);
                self.freeze_at = Some(now.after_ms(FREEZE_AGAIN_MS));
            }
            None => {
                self.unmet.remove(FROZEN);
            }
        }
        Vec::new()
    }

    /// What became of limits that were to be set; `refused` is why they are not in force, and those before are.
    pub fn limits_set(
        &mut self,
        limits: ResourceLimits,
        read: LimitsRead,
        refused: Option<String>,
    ) -> Vec<Effect> {
        self.is_limiting = false;
        if !self.stage.is_live() {
            return Vec::new();
        }
        self.facts.enforced = read.enforced;
        self.facts.degraded = read.degraded;
        let is_wanted = limits == self.record.spec.limits;
        match refused {
            None => self.record.limits = (!is_wanted).then_some(limits),
            Some(why) if is_wanted => {
                self.unmet.insert(LIMITS, why);
            }
            // Others are wanted by now; they are tried next.
            Some(_) => {}
        }
        Vec::new()
    }

    /// An ended program stands still no more, and nothing is enforced on it.
    pub(super) fn forget_settings(&mut self) {
        self.facts.frozen = false;
        (self.is_freezing, self.is_limiting, self.freeze_at) = (false, false, None);
        self.record.limits = None;
        self.unmet.remove(FROZEN);
        self.unmet.remove(LIMITS);
    }

    pub(super) fn freeze_due_at(&self) -> Option<Timestamp> {
        self.freeze_at.filter(|_| matches!(self.stage, Stage::Running | Stage::Draining))
    }

    /// The spec as it is in force.
    pub(crate) fn spec_in_force(&self) -> AgentSpec {
        AgentSpec {
            frozen: self.facts.frozen,
            launch: self.record.launch,
            limits: self.record.limits.unwrap_or(self.record.spec.limits),
            ..self.record.spec.clone()
        }
    }

    pub(crate) fn unmet(&self) -> Vec<Unmet> {
        let told =
            |(what, why): (&&'static str, &String)| Unmet { what: (*what).to_owned(), why: why.clone() };
        self.unmet.iter().map(told).collect()
    }
}
