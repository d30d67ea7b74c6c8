//! One try: followed by its agent's reports until nothing more is to be expected, then judged once.
//!
//! An end alone is not enough: what the program left running must be gone and its work collected. What the judge does
//! not know is the infrastructure's fault, never success and never the agent's.

use protocol::agent::{End, EndCause};
use protocol::ids::TaskId;
use protocol::report::{Collected, Report};
use protocol::task::{Accept, Failure, FailureClass, TaskState};
use protocol::time::Timestamp;

use super::task::Step;
use crate::Core;
use crate::fleet::agent::Standing;

/// What became of a try or of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Somebody stopped it: not to be tried again by itself.
    ByHand,
    Bad {
        class: FailureClass,
        reason: String,
    },
}

impl Verdict {
    fn bad(class: FailureClass, reason: impl ToString) -> Self {
        Self::Bad { class, reason: reason.to_string() }
    }
}

/// By the end alone.
pub(crate) fn judge_end(end: &End) -> Verdict {
    match end.cause {
        EndCause::Exited if end.code == Some(0) => Verdict::Good,
        EndCause::Exited | EndCause::Signalled => Verdict::bad(FailureClass::Agent, end),
        EndCause::Requested => Verdict::ByHand,
        EndCause::TimeLimit | EndCause::OutOfMemory => Verdict::bad(FailureClass::Limit, end),
        EndCause::StartFailed => match end.step {
            Some(step) if !step.is_infrastructure() => Verdict::bad(FailureClass::Start, end),
            Some(_) | None => Verdict::bad(FailureClass::Infrastructure, end),
        },
        // A lease that was not renewed: the line or this manager was away, whatever the program did.
        EndCause::Lease | EndCause::SupervisorLost | EndCause::Rebooted | EndCause::Unknown => {
            Verdict::bad(FailureClass::Infrastructure, end)
        }
    }
}

/// By the end and by what was collected.
fn judge(report: Option<&Report>, needs_commit: bool) -> Verdict {
    let Some(report) = report else {
        return Verdict::bad(FailureClass::Infrastructure, "it never reached its host");
    };
    let Some(end) = &report.end else {
        return Verdict::bad(FailureClass::Infrastructure, "its workspace is gone and no end is known");
    };
    match judge_end(end) {
        Verdict::Good => {}
        verdict @ (Verdict::ByHand | Verdict::Bad { .. }) => return verdict,
    }
    let Some(collected) = &report.collected else {
        return Verdict::bad(FailureClass::Infrastructure, "its work was not collected");
    };
    if let Some(why) = &collected.failed {
        let reason = format!("its work cannot be collected: {why}");
        let by_content = collected.failed_by_content;
        let class = if by_content { FailureClass::Agent } else { FailureClass::Infrastructure };
        return Verdict::bad(class, reason);
    }
    if needs_commit && collected.commit.is_none() {
        return Verdict::bad(FailureClass::Infrastructure, "no commit was recorded");
    }
    if !collected.problems.is_empty() {
        return Verdict::bad(FailureClass::Agent, collected.problems.join("; "));
    }
    Verdict::Good
}

/// Whether it left nothing: neither commits nor files, neither outputs nor a result. `false` where that is not known.
fn changed_nothing(collected: &Collected) -> bool {
    let base = collected.base_commit.as_ref();
    base.is_some()
        && collected.commit.as_ref() == base
        && collected.uncommitted.is_none()
        && collected.left_out.is_empty()
        && collected.outputs.is_empty()
        && collected.result.is_none()
}

/// What a person should know of an attempt beside how it ended.
fn remarks(collected: &Collected) -> String {
    let mut words = String::new();
    if changed_nothing(collected) {
        words.push_str("; no change");
    }
    if !collected.unknown_submodules.is_empty() {
        let unknown = collected.unknown_submodules.join(", ");
        words.push_str(&format!(
            "; it cannot be merged: your repository does not have the commit of {unknown}"
        ));
    }
    words.push_str(&escaped(collected));
    words
}

/// Work that went into the person's repository instead of the workspace, or what somebody else did there meanwhile.
fn escaped(collected: &Collected) -> String {
    if collected.source_moved.is_empty() {
        return String::new();
    }
    let moved = collected.source_moved.join(", ");
    format!("; its source repository changed while it ran, not by Phalanx: {moved}")
}

impl Core {
    /// Of the last attempt, to be added to the reason of the task's state.
    pub(super) fn remarks_of(&self, id: TaskId) -> String {
        let attempt = self.work.task(id).and_then(|task| task.record.attempts.last());
        attempt.and_then(|attempt| attempt.collected.as_ref()).map(remarks).unwrap_or_default()
    }

    pub(super) fn step_attempt(&mut self, now: Timestamp, id: TaskId) -> Step {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return Step::Rests };
        let (state, cancel, grace_ms) = (record.state, record.cancel, record.cancel_grace_ms);
        let Some(attempt) = record.attempts.last() else { return Step::Rests };
        let (agent, started_at) = (attempt.agent, attempt.started_at);
        if cancel {
            self.want_stopped(agent, grace_ms);
        }
        let report = self.fleet.report(agent);
        let report_started_at = report.and_then(|report| report.started_at);
        if started_at.is_none() && report_started_at.is_some() {
            self.change_attempt(id, |attempt| attempt.started_at = report_started_at);
        }
        if self.fleet.agent(agent).is_some_and(|agent| agent.is_settled()) {
            return self.end_attempt(now, id);
        }
        if self.has_lost_its_lease(now, id, agent) {
            return self.lose_attempt(now, id, agent);
        }
        match state {
            TaskState::Assigned if report_started_at.is_some() => {
                self.set_state(now, id, TaskState::Running, String::new());
            }
            TaskState::Assigned
            | TaskState::Running
            | TaskState::Queued
            | TaskState::Verifying
            | TaskState::Review
            | TaskState::Accepted
            | TaskState::Merged
            | TaskState::Rejected
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Unknown => {}
        }
        Step::Rests
    }

    fn end_attempt(&mut self, now: Timestamp, id: TaskId) -> Step {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return Step::Rests };
        let Some(agent) = record.attempts.last().map(|attempt| attempt.agent) else { return Step::Rests };
        let report = self.fleet.report(agent);
        let verdict = judge(report, record.spec.repo.is_some());
        let (accept, cancel) = (record.spec.accept, record.cancel);
        let needs_change = record.spec.needs_change && accept != Accept::Review;
        let end = report.and_then(|report| report.end.clone());
        let collected = report.and_then(|report| report.collected.clone());
        let is_out_of_reach = collected.as_ref().is_some_and(|collected| collected.failed.is_some());
        let void = self.fleet.standing(agent) == Standing::Gone && end.is_none();
        let ended_at = end.as_ref().filter(|_| !void).map_or(now, |end| end.at);
        self.change_attempt(id, |attempt| {
            attempt.ended_at = Some(ended_at);
            attempt.end = end;
            attempt.collected = collected;
        });
        if cancel {
            return self.cancelled(now, id);
        }
        let left = self.work.task(id).and_then(|task| task.record.attempts.last()?.collected.as_ref());
        let verdict = match verdict {
            Verdict::Good if needs_change && left.is_some_and(changed_nothing) => {
                let escaped = left.map(escaped).unwrap_or_default();
                let reason = format!("it changed nothing (allow_no_change: true accepts that){escaped}");
                Verdict::bad(FailureClass::Agent, reason)
            }
            Verdict::Good | Verdict::ByHand => verdict,
            Verdict::Bad { class, reason } => {
                Verdict::Bad { class, reason: format!("{reason}{}", left.map(escaped).unwrap_or_default()) }
            }
        };
        match verdict {
            Verdict::Good => self.judge_work(now, id, accept),
            Verdict::ByHand => self.fail_for_good(
                now,
                id,
                Failure {
                    class: FailureClass::Agent,
                    reason: String::from("stopped by hand"),
                    charged: true,
                },
            ),
            // The host has tried for long. The program has done its work: a second time would cost as much again.
            Verdict::Bad { class, reason } if class.is_infrastructure() && is_out_of_reach => {
                self.fail_for_good(now, id, Failure { class, reason, charged: false });
            }
            Verdict::Bad { class, reason } => self.fail_attempt(now, id, class, reason, agent),
        }
        Step::Moved
    }

    /// The program says that it is done; who says that the work is good?
    fn judge_work(&mut self, now: Timestamp, id: TaskId, accept: Accept) {
        match accept {
            Accept::Verify => {
                self.set_state(now, id, TaskState::Verifying, String::new());
                self.start_verification(now, id);
            }
            Accept::Exit => {
                self.change_task(id, |record| record.unverified = true);
                self.accept(now, id, String::from("exit 0, unverified"));
            }
            Accept::Review if self.has_verify(id) => {
                self.set_state(now, id, TaskState::Verifying, String::new());
                self.start_verification(now, id);
            }
            Accept::Review | Accept::Unknown => {
                let reason = format!("waits for a person{}", self.remarks_of(id));
                self.set_state(now, id, TaskState::Review, reason);
            }
        }
    }
}
