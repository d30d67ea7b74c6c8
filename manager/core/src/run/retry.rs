//! What follows a failure: another start, or the end of the task. One durable counter of starts bounds them all; it
//! is raised before each start, so no crash gives one for free.

use protocol::ids::{AgentId, TaskId};
use protocol::task::{Failure, FailureClass, Retries, TaskState};
use protocol::time::Timestamp;

use crate::Core;
use crate::names;
use crate::record::{Feedback, TaskRecord};

/// Least wait after a failure of the infrastructure, which rarely mends at once.
const INFRASTRUCTURE_WAIT_MS: u64 = 1_000;

/// Whether the budget lets the task be started once more.
pub(super) fn has_start_left(record: &TaskRecord) -> bool {
    charges_left(record, record.uncharged)
}

fn charges_left(record: &TaskRecord, uncharged: u32) -> bool {
    record.starts.saturating_sub(uncharged) <= record.spec.retries.max.saturating_add(record.granted)
}

/// `failures` is how often it failed before; `random` is spread evenly over its range.
pub(crate) fn backoff_ms(retries: &Retries, failures: u32, random: u64) -> u64 {
    let doubled = retries.backoff_ms.saturating_mul(1_u64.checked_shl(failures).unwrap_or(u64::MAX));
    let whole = doubled.min(retries.backoff_max_ms);
    let drawn_most = u128::from(whole) * u128::from(retries.jitter_percent.min(100)) / 100;
    let drawn = drawn_most * u128::from(random) / u128::from(u64::MAX);
    let fixed = u128::from(whole) - drawn_most;
    u64::try_from(fixed + drawn).unwrap_or(whole)
}

impl Core {
    /// The last attempt failed. `log_of` is the agent whose transcript shows why.
    pub(super) fn fail_attempt(
        &mut self,
        now: Timestamp,
        id: TaskId,
        class: FailureClass,
        reason: String,
        log_of: AgentId,
    ) {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return };
        let infrastructure = class == FailureClass::Infrastructure;
        let charged = !infrastructure || record.uncharged >= self.config.uncharged_max;
        let retries = record.spec.retries.clone();
        let failures = record.starts.saturating_sub(1);
        let number = record.attempts.last().map_or(0, |attempt| attempt.number);
        let host = record.attempts.last().map(|attempt| attempt.host.clone());
        let failure = Failure { class, reason: reason.clone(), charged };
        let tried_again = if infrastructure { !charged } else { retries.on.contains(&class) };
        let left = charges_left(record, record.uncharged.saturating_add(u32::from(!charged)));
        if !(tried_again && left) {
            return self.fail_for_good(now, id, failure);
        }
        let random = names::mixed(&[id.to_string().as_bytes(), b"backoff", &number.to_be_bytes()]);
        let mut wait_ms = backoff_ms(&retries, failures, u64::try_from(random >> 64).unwrap_or(0));
        if infrastructure {
            wait_ms = wait_ms.max(INFRASTRUCTURE_WAIT_MS);
        }
        if let Some(task) = self.work.task_mut(id) {
            task.log_until = None;
        }
        self.change_task(id, |record| {
            if !charged {
                record.uncharged = record.uncharged.saturating_add(1);
            }
            record.not_before = Some(now.after_ms(wait_ms));
            // After a failure of the infrastructure the log of the failure before still stands.
            if !infrastructure && let Some(host) = host {
                record.feedback = Feedback::Wanted { agent: log_of, host };
            }
        });
        self.change_attempt(id, |attempt| attempt.failure = Some(failure));
        self.set_state(now, id, TaskState::Queued, reason);
    }

    pub(super) fn fail_for_good(&mut self, now: Timestamp, id: TaskId, failure: Failure) {
        let reason = failure.reason.clone();
        self.change_task(id, |record| record.feedback = Feedback::None);
        self.change_attempt(id, |attempt| attempt.failure = Some(failure));
        self.set_state(now, id, TaskState::Failed, reason);
    }
}
