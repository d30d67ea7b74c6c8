//! Changes of agents that are there: a start after the end, standing still, name, labels, limits.
//!
//! A change is a record of a higher generation and nothing else; the one reconcile step tells the host. Accepted means
//! wanted: whether it is in force is in the agent's view.

use protocol::agent::{ResourceLimits, Role};
use protocol::api::{Change, LimitChange, Outcome, Reply, Target};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Name};
use protocol::task::Waiting;
use protocol::time::Timestamp;

use super::{Caller, check, invalid};
use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{DesiredRecord, RequestState, Wanted};
use crate::run::queue::Demand;

fn conflict(message: impl Into<String>) -> WireError {
    WireError::new(ErrorCode::Conflict, message)
}

impl Core {
    pub(super) fn change_agents(
        &mut self,
        now: Timestamp,
        caller: Caller,
        targets: Vec<Target>,
        change: &Change,
    ) {
        if let Err(error) = check::change(change, targets.len()) {
            return self.out.reply(caller.reply_to, Err(error));
        }
        let mut outcomes = Vec::with_capacity(targets.len());
        for target in targets {
            let found = self.find_agent(&target);
            let changed = match &found {
                Ok(agent) => self.change_agent(now, *agent, change),
                Err(error) => Err(error.clone()),
            };
            let (note, error) = match changed {
                Ok(note) => (note, None),
                Err(error) => (String::new(), Some(error)),
            };
            outcomes.push(Outcome { target, agent: found.ok(), error, note });
        }
        // Nothing was changed and something is only not known yet: the same key asks anew.
        let is_nothing_changed = outcomes.iter().all(|outcome| outcome.error.is_some());
        let is_unknown =
            |outcome: &Outcome| outcome.error.as_ref().is_some_and(|e| e.code == ErrorCode::Unavailable);
        let asks_anew = is_nothing_changed && outcomes.iter().any(is_unknown);
        let reply = Reply::Outcomes(outcomes);
        if asks_anew {
            return self.out.reply(caller.reply_to, Ok(reply));
        }
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    /// What it was before, in a word, or why it cannot be changed so.
    fn change_agent(&mut self, now: Timestamp, id: AgentId, change: &Change) -> Result<String, WireError> {
        self.adopt(id);
        let is_wanted_gone = self.fleet.desired(id).is_none_or(|d| d.wanted == Wanted::Destroyed);
        if self.fleet.standing(id) == Standing::Gone {
            return Err(conflict("it is destroyed"));
        }
        if is_wanted_gone {
            let message = "its host is asked to destroy it, and has not said whether it does";
            return Err(WireError::new(ErrorCode::Unavailable, message).hint("try again, or see phalanx why"));
        }
        self.forget_refused_limits(id);
        match change {
            Change::Freeze => self.freeze_agent(id),
            Change::Thaw => self.thaw_agent(id),
            Change::Start => self.start_agent(now, id),
            Change::Rename { name } => self.rename_agent(id, name),
            Change::Label { set, remove } => {
                let mut notes = Vec::new();
                self.amend(id, |desired| {
                    for (key, value) in set {
                        let before = desired.spec.labels.insert(key.clone(), value.clone());
                        notes.extend(
                            before.filter(|before| before != value).map(|was| format!("{key} was {was}")),
                        );
                    }
                    for key in remove {
                        let before = desired.spec.labels.remove(key);
                        notes.push(
                            before.map_or_else(
                                || format!("{key} was not set"),
                                |was| format!("{key} was {was}"),
                            ),
                        );
                    }
                });
                Ok(notes.join(", "))
            }
            Change::Limit(limits) => self.limit_agent(id, limits),
        }
    }

    /// It was told, and something else is wanted now.
    fn forget_refused_limits(&mut self, id: AgentId) {
        if self.fleet.desired(id).is_some_and(|desired| desired.refused_limits.is_some()) {
            self.fleet.update(id, |agent| {
                if let Some(desired) = &mut agent.desired {
                    desired.refused_limits = None;
                }
            });
            self.desired_changed(id);
        }
    }

    fn freeze_agent(&mut self, id: AgentId) -> Result<String, WireError> {
        let agent = self.fleet.agent(id);
        let is_ending = self.fleet.desired(id).is_none_or(|desired| desired.wanted != Wanted::Running);
        if self.fleet.standing(id) == Standing::Ended || is_ending {
            return Err(conflict("it has ended or is ending, so there is nothing to pause"));
        }
        let host = agent.and_then(|agent| agent.host()).and_then(|host| self.fleet.host(host));
        let facts = host.and_then(|host| host.beat.as_ref()).map(|beat| &beat.facts);
        if let Some(why) = facts.and_then(|facts| facts.cannot_freeze.as_ref()) {
            let error = conflict(format!("its host cannot freeze agents: {why}"));
            return Err(error.hint("phalanx stop ends it instead, and phalanx start runs it again"));
        }
        Ok(self.set_frozen(id, true))
    }

    fn thaw_agent(&mut self, id: AgentId) -> Result<String, WireError> {
        if self.fleet.standing(id) == Standing::Ended {
            return Err(conflict("it has ended").hint("phalanx start runs it again"));
        }
        Ok(self.set_frozen(id, false))
    }

    fn set_frozen(&mut self, id: AgentId, frozen: bool) -> String {
        let before = self.fleet.desired(id).is_some_and(|desired| desired.spec.frozen);
        self.amend(id, |desired| desired.spec.frozen = frozen);
        let already = if frozen { "it was paused already" } else { "it was not paused" };
        if before == frozen { already.to_owned() } else { String::new() }
    }

    fn start_agent(&mut self, now: Timestamp, id: AgentId) -> Result<String, WireError> {
        let (standing, observed) = (self.fleet.standing(id), self.fleet.report(id));
        let Some(desired) = self.fleet.desired(id) else { return Err(conflict("it is destroyed")) };
        if desired.spec.role != Role::Own {
            let run = desired.spec.task.as_ref().map(|link| link.run_name.clone()).unwrap_or_default();
            let error = conflict("it is an attempt of a task, which the manager starts");
            return Err(error.hint(format!("phalanx retry {run}")));
        }
        match standing {
            Standing::Ended => {}
            Standing::Live => return Err(conflict("it is alive").hint("phalanx stop ends it first")),
            Standing::Unheard | Standing::Gone => {
                return Err(WireError::new(ErrorCode::Unavailable, "its host has not said how it is")
                    .hint("try again, or see phalanx hosts"));
            }
        }
        let launch = desired.spec.launch.max(observed.map_or(1, |report| report.spec.launch));
        let (demand, host) = (Demand::of(&desired.spec.limits), desired.host.clone());
        self.place_agent(now, &demand, Some(&host))?;
        self.amend(id, |desired| {
            desired.wanted = Wanted::Running;
            desired.spec.launch = launch.saturating_add(1);
            desired.spec.frozen = false;
            (desired.grace_ms, desired.kept) = (None, false);
        });
        Ok(String::new())
    }

    fn rename_agent(&mut self, id: AgentId, name: &Name) -> Result<String, WireError> {
        let Some(desired) = self.fleet.desired(id) else { return Err(conflict("it is destroyed")) };
        let before = desired.spec.name.clone();
        if before == *name {
            return Ok("it is called so already".to_owned());
        }
        if desired.spec.role != Role::Own {
            return Err(conflict("it is an attempt of a task, which names it"));
        }
        if check::is_shaped_like_an_id(name) {
            return Err(invalid(format!("{name:?} has the shape of an id, and would be taken for one")));
        }
        if self.fleet.is_taken(name) {
            let error = conflict(format!("an agent {name:?} is there"));
            return Err(error.hint("choose another name, or destroy that agent"));
        }
        self.amend(id, |desired| desired.spec.name = name.clone());
        Ok(format!("now {name}"))
    }

    fn limit_agent(&mut self, id: AgentId, change: &LimitChange) -> Result<String, WireError> {
        let Some(desired) = self.fleet.desired(id) else { return Err(conflict("it is destroyed")) };
        let before = desired.spec.limits;
        let pick = |new: Option<u64>, old: Option<u64>| new.map_or(old, |new| Some(new).filter(|n| *n > 0));
        let after = ResourceLimits {
            memory_bytes: pick(change.memory_bytes, before.memory_bytes),
            cpu_millis: pick(change.cpu_millis, before.cpu_millis),
            pids: pick(change.pids, before.pids),
            time_ms: pick(change.time_ms, before.time_ms),
        };
        if self.fleet.agent(id).is_some_and(|agent| agent.holds_slot()) {
            self.check_room(id, &before, &after)?;
        }
        self.amend(id, |desired| desired.spec.limits = after);
        Ok(String::new())
    }

    /// What is promised to a live agent beyond what it had must be there.
    fn check_room(
        &self,
        id: AgentId,
        before: &ResourceLimits,
        after: &ResourceLimits,
    ) -> Result<(), WireError> {
        let host = self.fleet.agent(id).and_then(|agent| agent.host()).and_then(|id| self.fleet.host(id));
        let Some(host) = host.filter(|host| host.beat.is_some()) else { return Ok(()) };
        let more = |new: Option<u64>, old: Option<u64>| new.unwrap_or(0).saturating_sub(old.unwrap_or(0));
        let memory = more(after.memory_bytes, before.memory_bytes);
        if memory > host.memory_unpromised() {
            let largest_free_bytes = host.memory_unpromised();
            return Err(super::agents::no_place(&Waiting::Memory {
                wanted_bytes: memory,
                largest_free_bytes,
            }));
        }
        let cpu = more(after.cpu_millis, before.cpu_millis);
        if cpu > host.cpu_unpromised() {
            let largest_free_millis = host.cpu_unpromised();
            return Err(super::agents::no_place(&Waiting::Cpu { wanted_millis: cpu, largest_free_millis }));
        }
        Ok(())
    }

    /// Raises the generation only where something differs.
    fn amend(&mut self, id: AgentId, change: impl FnOnce(&mut DesiredRecord)) {
        let Some(before) = self.fleet.desired(id).cloned() else { return };
        let mut after = before.clone();
        change(&mut after);
        if after != before {
            self.raise(id, |desired| *desired = DesiredRecord { generation: desired.generation, ..after });
        }
    }
}
