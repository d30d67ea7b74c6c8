//! Which runs that are over may be forgotten, and the forgetting: their records and those of their tasks, attempts,
//! verifications and merge. Nothing else goes with them: refs, branches, transcripts and files of agents have bounds of
//! their own. So a run stays for as long as someone may come back to it: work that waits for a person, that was accepted
//! and is in no branch of his, and agents that are still there.

use protocol::api::Reply;
use protocol::house::{Freed, HouseItem};
use protocol::ids::{AgentId, RunId};
use protocol::task::TaskState;
use protocol::time::Timestamp;

use crate::Core;
use crate::client::Caller;
use crate::config::RunBounds;
use crate::effect::{Effect, EnvironmentOwner, Subject};
use crate::fleet::agent::Standing;
use crate::record::RequestState;
use crate::timers::Timer;

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverRun {
    pub id: RunId,
    pub name: String,
    pub ended_at: Timestamp,
    pub tasks: u64,
    /// Why its records stay, if they do.
    pub kept: Option<String>,
}

impl Core {
    /// Every run that is over, the one that ended last first.
    #[must_use]
    pub fn over_runs(&self) -> Vec<OverRun> {
        let mut over: Vec<OverRun> = self
            .work
            .runs()
            .filter(|run| run.is_over())
            .map(|run| OverRun {
                id: run.record.id,
                name: run.record.spec.name.to_string(),
                ended_at: run.record.ended_at.unwrap_or(run.record.submitted_at),
                tasks: u64::try_from(run.record.tasks.len()).unwrap_or(u64::MAX),
                kept: self.may_forget_run(run.record.id).err(),
            })
            .collect();
        over.sort_by_key(|run| std::cmp::Reverse((run.ended_at, run.id)));
        over
    }

    /// Runs beyond the number or the age of `bounds` that may go, the oldest first. Those that stay count as well.
    #[must_use]
    pub fn runs_due(&self, now: Timestamp, bounds: &RunBounds) -> Vec<OverRun> {
        let most = bounds.most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let is_old = |at: Timestamp| bounds.older_ms.is_some_and(|age| at.after_ms(age) <= now);
        let over = self.over_runs().into_iter().enumerate();
        let mut due: Vec<OverRun> = over
            .filter(|(place, run)| run.kept.is_none() && (*place >= most || is_old(run.ended_at)))
            .map(|(_, run)| run)
            .collect();
        due.reverse();
        due
    }

    /// Whether nobody needs the records of a run any more.
    ///
    /// # Errors
    /// Why they stay.
    pub fn may_forget_run(&self, id: RunId) -> Result<(), String> {
        let Some(run) = self.work.run(id) else { return Ok(()) };
        if !run.is_over() {
            return Err("it is not over".to_owned());
        }
        if run.record.merge.as_ref().is_some_and(|merge| !merge.is_over()) {
            return Err("its merge is under way".to_owned());
        }
        for task in run.record.tasks.iter().filter_map(|id| self.work.task(*id)) {
            let (record, name) = (&task.record, &task.record.spec.name);
            let collected = record.attempts.last().and_then(|attempt| attempt.collected.as_ref());
            let has_work = collected.is_some_and(|collected| {
                collected.commit.is_some() && collected.commit != collected.base_commit
            });
            if record.state == TaskState::Accepted && has_work {
                return Err(format!("the work of its task {name} is accepted and not merged"));
            }
            let is_there = |agent: &AgentId| match self.fleet.standing(*agent) {
                Standing::Gone => false,
                Standing::Unheard => self.fleet.agent(*agent).is_some(),
                Standing::Live | Standing::Ended => true,
            };
            if task.agents.iter().any(is_there) {
                return Err(format!("an agent of its task {name} is still there"));
            }
        }
        Ok(())
    }

    /// Those of these runs that are old enough and that nobody needs, go; one outcome for each. Gone is done.
    pub(crate) fn free_runs(&mut self, now: Timestamp, caller: Caller, runs: Vec<RunId>, older_ms: u64) {
        let free = |run: RunId| Freed {
            item: HouseItem::Run { run },
            bytes: 0,
            kept: self.free_run(now, run, older_ms).err(),
        };
        let outcomes = runs.into_iter().map(free).collect();
        let reply = Reply::Freed(outcomes);
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    fn free_run(&mut self, now: Timestamp, id: RunId, older_ms: u64) -> Result<(), String> {
        let ended_at = self.work.run(id).map(|run| run.record.ended_at.unwrap_or(run.record.submitted_at));
        if ended_at.is_some_and(|at| at.after_ms(older_ms) > now) {
            return Err("it is younger than asked for".to_owned());
        }
        self.may_forget_run(id)?;
        self.forget_run(id);
        Ok(())
    }

    fn forget_run(&mut self, id: RunId) {
        let Some((run, tasks)) = self.work.remove(id) else { return };
        // Its record was the answer to the requests that made it: without one, the same key would make it again.
        for origin in [&run.origin, &run.added].into_iter().flatten() {
            if self.requests.store(&origin.key) {
                self.out.request(origin.key.clone());
            }
        }
        self.timers.cancel(&Timer::Merge(id));
        self.touched.merges.remove(&id);
        for task in &tasks {
            self.timers.cancel(&Timer::Task(*task));
            self.touched.tasks.remove(task);
            self.work.torn.remove(task);
            self.out.act(Effect::ForgetEnvironment(EnvironmentOwner::Task(*task)));
        }
        self.out.gone_run(id, tasks);
        self.out.changed(Subject::Run(id));
    }
}
