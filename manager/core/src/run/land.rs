//! The branch of an accepted task: asked of its host until it answers. The host moves it by compare-and-swap, so
//! asking twice is harmless. A refusal is told; the work stays accepted, under its result ref.

use protocol::error::WireError;
use protocol::ids::TaskId;
use protocol::order::{Answer, Question};
use protocol::task::TaskState;
use protocol::time::Timestamp;

use super::task::Step;
use crate::Core;
use crate::effect::{AskToken, Effect};
use crate::record::Landing;
use crate::timers::Timer;

impl Core {
    /// Called when the task becomes accepted. The values of its environment are kept while its work may be verified
    /// again, merged with that of others, or rejected.
    pub(super) fn land_when_due(&mut self, id: TaskId) {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return };
        let has_commit = record
            .attempts
            .last()
            .and_then(|attempt| attempt.collected.as_ref())
            .is_some_and(|collected| collected.commit.is_some());
        let due = record.spec.repo.is_some() && has_commit;
        if !due {
            self.forget_values(id);
        }
        self.change_task(id, |record| record.landing = if due { Landing::Due } else { Landing::None });
    }

    pub(super) fn step_landing(&mut self, now: Timestamp, id: TaskId) -> Step {
        let Some(task) = self.work.task(id) else { return Step::Rests };
        match task.record.landing {
            Landing::Due => {}
            Landing::None | Landing::Done | Landing::Refused => return Step::Rests,
        }
        if task.land_at.is_some_and(|at| at > now) {
            return Step::Rests;
        }
        let attempt = task.record.attempts.last();
        let commit = attempt.and_then(|attempt| attempt.collected.as_ref()?.commit.clone());
        let (Some(attempt), Some(repo), Some(branch), Some(commit)) =
            (attempt, task.record.spec.repo.clone(), self.branch_of(&task.record), commit)
        else {
            return Step::Rests;
        };
        let host = attempt.host.clone();
        let from = task.record.landed.clone();
        let again_at = now.after_ms(self.config.ask_lost_ms);
        if let Some(task) = self.work.task_mut(id) {
            task.land_at = Some(again_at);
        }
        self.timers.set(Timer::Task(id), again_at);
        let question = Question::Land { repo, branch, commit, from };
        self.out.act(Effect::Ask { token: AskToken::Land(id), host, question });
        Step::Rests
    }

    pub(crate) fn answered(&mut self, now: Timestamp, token: AskToken, answer: Result<Answer, WireError>) {
        let id = match token {
            AskToken::Land(id) => id,
            AskToken::Merge { run, number, asked } => {
                return self.merge_answered(now, (run, number, asked), answer);
            }
        };
        let Some(task) = self.work.task(id) else { return };
        if (task.record.state, task.record.landing) != (TaskState::Accepted, Landing::Due) {
            return; // answered before
        }
        match answer {
            Ok(Answer::Landed { branch, .. }) => self.landed(id, Some(branch)),
            Ok(Answer::Done) => {
                let branch = self.branch_of(&task.record);
                self.landed(id, branch);
            }
            Ok(Answer::Refused(error)) | Err(error) => self.not_landed(now, id, &error),
            // An answer to something else says nothing about the branch: it is asked for again.
            Ok(
                Answer::Resolved(_)
                | Answer::Bytes { .. }
                | Answer::Output { .. }
                | Answer::Exited { .. }
                | Answer::Diff { .. }
                | Answer::Holdings(_)
                | Answer::Figures(_)
                | Answer::Taken(_)
                | Answer::Freed(_)
                | Answer::Snapshots(_)
                | Answer::Restored(_)
                | Answer::Screen(_)
                | Answer::Compared(_)
                | Answer::Changed(_)
                | Answer::File { .. }
                | Answer::Files(_)
                | Answer::FilePart(_)
                | Answer::MergeTarget(_)
                | Answer::MergeResult(_),
            ) => {}
        }
    }

    /// Branches that are due are asked for again now.
    pub(crate) fn land_again(&mut self, now: Timestamp) {
        let due: Vec<TaskId> = self
            .work
            .tasks()
            .filter(|task| task.record.landing == Landing::Due)
            .map(|task| task.record.id)
            .collect();
        for id in due {
            if let Some(task) = self.work.task_mut(id) {
                task.land_at = task.land_at.map(|at| at.min(now));
            }
            self.touch_task(id);
        }
    }

    /// Nobody waits for the branch any more.
    pub(crate) fn stop_landing(&mut self, id: TaskId) {
        self.timers.cancel(&Timer::Task(id));
        if let Some(task) = self.work.task_mut(id) {
            (task.land_at, task.land_wait_ms) = (None, 0);
        }
    }

    fn landed(&mut self, id: TaskId, branch: Option<String>) {
        self.timers.cancel(&Timer::Task(id));
        self.change_task(id, |record| {
            record.branch = branch;
            record.landing = Landing::Done;
        });
    }

    fn not_landed(&mut self, now: Timestamp, id: TaskId, error: &WireError) {
        if !(error.code.is_retryable() || error.code == protocol::error::ErrorCode::TimedOut) {
            self.timers.cancel(&Timer::Task(id));
            return self.change_task(id, |record| {
                record.landing = Landing::Refused;
                record.reason = format!("{}; its branch was not made: {error}", record.reason);
            });
        }
        let (first, most) = (self.config.resend_first_ms, self.config.resend_max_ms);
        if let Some(task) = self.work.task_mut(id) {
            task.land_wait_ms = task.land_wait_ms.saturating_mul(2).clamp(first, most);
            let at = now.after_ms(task.land_wait_ms);
            task.land_at = Some(at);
            self.timers.set(Timer::Task(id), at);
        }
    }
}
