//! Agents of which nothing is left, not even a transcript: their host has taken its last word away. Only one that was
//! reported destroyed, and that no task needs, is forgotten for it; of any other a missing report proves nothing.

use protocol::ids::AgentId;
use protocol::time::Timestamp;

use super::agent::Standing;
use crate::Core;
use crate::effect::Subject;
use crate::record::Wanted;

impl Core {
    /// Whether what is kept of an agent may go.
    ///
    /// # Errors
    /// Why it may not.
    pub fn may_forget(&self, id: AgentId) -> Result<(), String> {
        match self.fleet.standing(id) {
            Standing::Gone => {}
            Standing::Unheard if self.fleet.agent(id).is_none() => {}
            Standing::Unheard | Standing::Live | Standing::Ended => {
                return Err("it is not destroyed".to_owned());
            }
        }
        let task = self.work.task_of_agent(id).and_then(|task| self.work.task(task));
        match task {
            Some(task) if !task.record.state.is_final() => {
                Err(format!("its task {} is not over", task.record.spec.name))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Agents that ended so long ago, that no task needs, and that were never refused to be destroyed.
    #[must_use]
    pub fn ended_before(&self, now: Timestamp, age_ms: u64) -> Vec<AgentId> {
        let is_due = |id: AgentId| {
            let asked = self.fleet.desired(id).is_none_or(|desired| match desired.wanted {
                Wanted::Stopped => desired.kept,
                Wanted::Destroyed => true,
                Wanted::Running => false,
            });
            let end = self.fleet.report(id).and_then(|report| report.end.as_ref());
            let task = self.work.task_of_agent(id).and_then(|task| self.work.task(task));
            let starts_again = self.fleet.agent(id).is_some_and(|agent| agent.awaits_launch());
            !asked
                && !starts_again
                && self.fleet.standing(id) == Standing::Ended
                && end.is_some_and(|end| end.at.after_ms(age_ms) <= now)
                && task.is_none_or(|task| task.record.state.is_final())
        };
        self.fleet.agents().map(|(id, _)| id).filter(|id| is_due(*id)).collect()
    }

    pub(crate) fn forgotten(&mut self, now: Timestamp, id: AgentId) {
        if self.fleet.agent(id).is_none() || self.may_forget(id).is_err() {
            return;
        }
        let answers_a_key = self.fleet.desired(id).is_some_and(|desired| {
            desired.origin.is_some() && desired.created_at.after_ms(self.config.request_kept_ms) > now
        });
        if answers_a_key {
            // Its record is the answer to the request that made it: without it the same key would make another one.
            self.fleet.update(id, |agent| {
                agent.observed = None;
                agent.figures = None;
                if let Some(desired) = &mut agent.desired {
                    (desired.wanted, desired.void) = (Wanted::Destroyed, true);
                }
            });
        } else {
            self.fleet.remove(id);
        }
        self.out.desired(id);
        self.out.changed(Subject::Agent(id));
    }

    /// The answer to the request that made it is kept no longer.
    pub(crate) fn forget_void(&mut self, id: AgentId) {
        let void = self.fleet.agent(id).is_some_and(|agent| agent.is_void());
        if void && self.may_forget(id).is_ok() {
            self.fleet.remove(id);
            self.out.desired(id);
        }
    }
}
