//! Leases: what lets a task go on elsewhere when its host is lost.
//!
//! ```text
//!  Ensure leaves ───▶ record: until = expiry + length + 10 %   (the host counts from when it takes the order)
//!  host asks, is current ───▶ record: until = now + length + 10 % ───▶ answer: length
//!  host lost and now > until ───▶ the attempt has ended, whatever is said of it later; the task is queued again
//! ```
//! The agent's supervisor enforces the host's side, so that nothing of the attempt is alive when it is ended here. An
//! agent without a lease is never taken for ended because its host is silent. Verifications have the lease of their
//! task too: work whose check is lost with its host is done again elsewhere.

use protocol::agent::Role;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Generation, HostId, TaskId};
use protocol::task::FailureClass;
use protocol::time::Timestamp;

use super::task::Step;
use crate::Core;
use crate::effect::Effect;
use crate::fleet::agent::Standing;
use crate::load::agents_in_use;
use crate::record::Wanted;
use crate::timers::Timer;

/// When a lease that is given at `from` is surely over: a tenth is for clocks that run apart.
pub(crate) fn over_at(from: Timestamp, length_ms: u64) -> Timestamp {
    from.after_ms(length_ms.saturating_add(length_ms / 10))
}

impl Core {
    pub(crate) fn lease_asked(
        &mut self,
        now: Timestamp,
        to: u64,
        host: &HostId,
        agent: AgentId,
        generation: Generation,
    ) {
        let result = self.length_for(host, agent, generation);
        if result.is_ok() {
            self.raise_lease(agent, now);
        }
        let result = result.map_err(|why| WireError::new(ErrorCode::Denied, why));
        self.out.act(Effect::Lease { to, result });
    }

    /// The length for an agent that is wanted to run on: the current one of its task, as this host has it.
    fn length_for(&self, host: &HostId, id: AgentId, generation: Generation) -> Result<u64, &'static str> {
        let leased = self
            .fleet
            .desired(id)
            .filter(|desired| desired.host == *host)
            .and_then(|desired| Some((desired, desired.spec.lease_ms?)));
        let Some((desired, length_ms)) = leased else {
            return Err("it is no agent of this host that runs under a lease");
        };
        if desired.wanted != Wanted::Running || desired.generation != generation {
            return Err("it is not wanted to run any more");
        }
        match self.fleet.standing(id) {
            Standing::Unheard | Standing::Live => {}
            Standing::Ended | Standing::Gone => return Err("it has ended"),
        }
        let current = match desired.spec.role {
            Role::Own => true,
            Role::Attempt | Role::Verify | Role::Unknown => self
                .work
                .task_of_agent(id)
                .and_then(|task| self.work.task(task))
                .is_some_and(|task| agents_in_use(&task.record).contains(&id)),
        };
        if current { Ok(length_ms) } else { Err("its attempt is over") }
    }

    /// From now on it may live by a lease that is given at `from`. Never takes back what was given before.
    pub(crate) fn raise_lease(&mut self, id: AgentId, from: Timestamp) {
        let Some(desired) = self.fleet.desired(id) else { return };
        let Some(until) = desired.spec.lease_ms.map(|length_ms| over_at(from, length_ms)) else { return };
        if desired.lease_until.is_some_and(|known| known >= until) {
            return;
        }
        self.fleet.update(id, |agent| {
            if let Some(desired) = &mut agent.desired {
                desired.lease_until = Some(until);
            }
        });
        self.out.desired(id);
    }

    /// Whether the agent that the task waits for has surely ended, its host being lost. Looks again when that may
    /// become so.
    pub(super) fn has_lost_its_lease(&mut self, now: Timestamp, task: TaskId, agent: AgentId) -> bool {
        let Some(at) = self.surely_over_at(task, agent) else { return false };
        if at <= now {
            return true;
        }
        self.timers.set(Timer::Task(task), at);
        false
    }

    /// If its host is not heard until then. `None`: it has no lease, or its record cannot be read.
    fn surely_over_at(&self, task: TaskId, agent: AgentId) -> Option<Timestamp> {
        let (until, host) = match self.fleet.desired(agent) {
            Some(desired) => (desired.lease_until?, self.fleet.host(&desired.host)),
            // Its record was never written, so no order of it has left.
            None if self.work.torn.contains(&task) => {
                let length_ms = self.work.task(task)?.record.spec.move_after_ms?;
                (over_at(self.loaded_at, length_ms), None)
            }
            None => return None,
        };
        // This manager may have been away itself: a host gets as long to be heard as one that was heard just then.
        let heard_at = host.and_then(|host| host.beat.as_ref()).map_or(self.loaded_at, |beat| beat.heard_at);
        Some(until.after_ms(1).max(heard_at.after_ms(self.config.lost_after_ms)))
    }

    /// The current attempt has ended with its host or its verification; nothing that is reported of it later counts.
    pub(super) fn lose_attempt(&mut self, now: Timestamp, id: TaskId, agent: AgentId) -> Step {
        self.want_stopped(agent, None);
        self.change_attempt(id, |attempt| {
            attempt.ended_at.get_or_insert(now);
        });
        if self.work.task(id).is_some_and(|task| task.record.cancel) {
            return self.cancelled(now, id);
        }
        let reason = String::from("host lost, lease over");
        self.fail_attempt(now, id, FailureClass::Infrastructure, reason, agent);
        Step::Moved
    }
}
