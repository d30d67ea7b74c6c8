//! What a person says of finished work. Accepted work lands as verified work does. Rejected work is tried again: the
//! rejection grants one start beyond the budget, durably, and its comment is the feedback of that attempt. A branch
//! that is in the repository already stays as it is until the next acceptance.

use protocol::api::{COMMENT_LIMIT, DecideTasks, Outcome, PROMPT_LIMIT, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{Name, TaskId};
use protocol::task::{Accept, Decision, TaskState, Verdict};
use protocol::time::Timestamp;

use super::{Caller, invalid};
use crate::Core;
use crate::effect::{Effect, EnvironmentOwner};
use crate::record::{Feedback, Landing, RequestState};

impl Core {
    pub(super) fn decide_tasks(&mut self, now: Timestamp, caller: Caller, decide: DecideTasks) {
        if let Err(error) = check(&decide) {
            return self.out.reply(caller.reply_to, Err(error));
        }
        let outcomes = decide.tasks.iter().map(|target| {
            let found = self.find_task(target);
            let done = found.and_then(|id| self.decide_task(now, id, &decide));
            Outcome { target: target.clone(), agent: None, error: done.err(), note: String::new() }
        });
        let reply = Reply::Outcomes(outcomes.collect());
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    fn decide_task(&mut self, now: Timestamp, id: TaskId, decide: &DecideTasks) -> Result<(), WireError> {
        self.may_be_decided(id, decide.verdict)?;
        let attempts = self.work.task(id).map(|task| &task.record.attempts);
        let attempt = attempts.and_then(|attempts| attempts.last()).map_or(0, |attempt| attempt.number);
        let decision = Decision {
            verdict: decide.verdict,
            attempt,
            by: decide.by.clone(),
            at: now,
            comment: decide.comment.clone(),
        };
        let said = decide.comment.lines().next().unwrap_or_default();
        let words = if said.is_empty() { String::new() } else { format!(": {said}") };
        let by = &decide.by;
        self.change_task(id, |record| record.decisions.push(decision));
        match decide.verdict {
            Verdict::Accepted => self.accept(now, id, format!("accepted by {by}{words}")),
            Verdict::Rejected => {
                self.leave_branch(id);
                let feedback = decide.feedback.clone().map_or(Feedback::None, |blob| Feedback::Kept { blob });
                self.change_task(id, |record| {
                    record.granted = record.granted.saturating_add(1);
                    record.not_before = None;
                    record.unverified = false;
                    record.feedback = feedback;
                });
                self.set_state(now, id, TaskState::Queued, format!("rejected by {by}{words}"));
            }
            Verdict::RejectedForGood | Verdict::Unknown => {
                self.leave_branch(id);
                self.set_state(now, id, TaskState::Rejected, format!("rejected by {by}{words}"));
            }
        }
        Ok(())
    }

    /// What was accepted has a branch, or is getting one: it is told of and left alone. The next acceptance may move
    /// it from there.
    fn leave_branch(&mut self, id: TaskId) {
        let Some(task) = self.work.task(id) else { return };
        let last = task.record.attempts.last();
        let commit = last.and_then(|attempt| attempt.collected.as_ref()?.commit.clone());
        let asked_for = match task.record.landing {
            Landing::Due | Landing::Done => true,
            Landing::None | Landing::Refused => false,
        };
        if asked_for {
            self.stop_landing(id);
            self.change_task(id, |record| {
                record.landing = Landing::None;
                record.landed = commit;
            });
        }
    }

    fn may_be_decided(&self, id: TaskId, verdict: Verdict) -> Result<(), WireError> {
        let record = self.work.task(id).map(|task| &task.record);
        let record = record.ok_or_else(|| WireError::new(ErrorCode::NotFound, "the task is gone"))?;
        let conflict = |message: String| Err(WireError::new(ErrorCode::Conflict, message));
        match (record.state, verdict) {
            (TaskState::Review, _) if record.cancel => conflict(String::from("the task is being cancelled")),
            (TaskState::Review, _) => Ok(()),
            (TaskState::Accepted, Verdict::Rejected)
                if record.spec.has_environment && record.spec.repo.is_none() =>
            {
                let message = "the values of its environment were forgotten when it was accepted";
                Err(WireError::new(ErrorCode::Conflict, message).hint("add --final, and submit it anew"))
            }
            (TaskState::Accepted, Verdict::Rejected | Verdict::RejectedForGood)
                if self.is_being_merged(id) =>
            {
                conflict(String::from("the task is being merged"))
            }
            (TaskState::Accepted, Verdict::Rejected | Verdict::RejectedForGood) => self.nothing_stands_on(id),
            (TaskState::Queued | TaskState::Assigned | TaskState::Running | TaskState::Verifying, _) => {
                let message = format!("the task is {}: its work is not finished", record.state);
                Err(WireError::new(ErrorCode::Conflict, message).hint("phalanx why shows what it waits for"))
            }
            (
                state @ (TaskState::Accepted
                | TaskState::Merged
                | TaskState::Rejected
                | TaskState::Failed
                | TaskState::Cancelled
                | TaskState::Unknown),
                _,
            ) => conflict(format!("the task is {state}")),
        }
    }

    /// What began with this work holds it, or was made of it: taken back here it would come in by the other.
    fn nothing_stands_on(&self, id: TaskId) -> Result<(), WireError> {
        let run = self.work.task(id).and_then(|task| self.work.run(task.record.run));
        let run = run.map(|run| run.record.spec.name.to_string()).unwrap_or_default();
        let stands = |child: &TaskId| {
            let task = self.work.task(*child)?;
            let follows = task.record.spec.depends_on.iter().any(|name| self.is_called(id, name));
            let is_taken = match task.record.state {
                TaskState::Assigned
                | TaskState::Running
                | TaskState::Verifying
                | TaskState::Review
                | TaskState::Accepted
                | TaskState::Merged
                | TaskState::Unknown => true,
                TaskState::Queued | TaskState::Rejected | TaskState::Failed | TaskState::Cancelled => false,
            };
            (follows && is_taken).then(|| (task.record.spec.name.to_string(), task.record.state))
        };
        let children = self.work.task(id).map(|task| task.children.clone()).unwrap_or_default();
        let standing: Vec<(String, TaskState)> = children.iter().filter_map(stands).collect();
        if standing.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = standing.iter().map(|(name, _)| name.as_str()).collect();
        let message = format!("other tasks began with its work: {}", names.join(", "));
        let hint = match standing.iter().find(|(_, state)| *state != TaskState::Merged) {
            Some((name, TaskState::Review | TaskState::Accepted)) => {
                format!("take those back first: phalanx reject --final {run}/{name}")
            }
            Some((name, _)) => format!("take those back first: phalanx cancel {run}/{name}"),
            None => "they are merged: what is in the branch has to be reverted there".to_owned(),
        };
        Err(WireError::new(ErrorCode::Conflict, message).hint(hint))
    }

    fn is_called(&self, id: TaskId, name: &Name) -> bool {
        self.work.task(id).is_some_and(|task| task.record.spec.name == *name)
    }

    /// Work that is neither to be tried again nor brought in needs no values any more.
    pub(crate) fn forget_values(&mut self, id: TaskId) {
        if self.work.task(id).is_some_and(|task| task.record.spec.has_environment) {
            self.out.act(Effect::ForgetEnvironment(EnvironmentOwner::Task(id)));
        }
    }

    /// Whether a person has the last word.
    pub(crate) fn is_reviewed(&self, id: TaskId) -> bool {
        self.work.task(id).is_some_and(|task| match task.record.spec.accept {
            Accept::Review | Accept::Unknown => true,
            Accept::Verify | Accept::Exit => false,
        })
    }
}

fn check(decide: &DecideTasks) -> Result<(), WireError> {
    if decide.tasks.is_empty() {
        return Err(invalid("no task is named"));
    }
    if decide.verdict == Verdict::Unknown {
        return Err(invalid("this build does not know the verdict"));
    }
    if decide.by.is_empty() || decide.by.len() > 200 || decide.by.chars().any(char::is_control) {
        return Err(invalid("who decides has a name of 1 to 200 printable characters"));
    }
    if decide.comment.len() > COMMENT_LIMIT {
        return Err(invalid(format!("the comment is longer than {COMMENT_LIMIT} bytes")));
    }
    match &decide.feedback {
        Some(_) if decide.verdict != Verdict::Rejected => {
            Err(invalid("feedback is for a next attempt, and there is none"))
        }
        Some(blob)
            if blob.sha256.len() != 64
                || !blob.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) =>
        {
            Err(invalid("the digest of the feedback is not 64 lower-case hex digits"))
        }
        Some(blob) if blob.bytes > PROMPT_LIMIT => {
            Err(invalid(format!("the comment is longer than {PROMPT_LIMIT} bytes")))
        }
        Some(_) | None => Ok(()),
    }
}
