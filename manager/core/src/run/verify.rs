//! Verification: the task's own programs in a fresh checkout of the recorded commit, on the host that has it, as an
//! agent of its own. The work's agent can reach neither the checkout nor the definition.
//!
//! ```text
//!  commit ──pass──▶ accepted, or a person's to say
//!    │ fail
//!    ├── commit is the base ──▶ failed
//!    └── base ──pass or fail──▶ failed, and says whether the base fails too
//! ```
//! What infrastructure ends is started again within a bound, never charged, never a verdict.

use protocol::agent::{AgentSpec, Checkout, CheckoutKind, Role};
use protocol::ids::{AgentId, TaskId};
use protocol::report::Isolation;
use protocol::task::{Attempt, Failure, FailureClass, TaskState, Verification};
use protocol::time::Timestamp;

use super::attempt::{Verdict, judge_end};
use super::task::Step;
use crate::Core;
use crate::names;
use crate::record::TaskRecord;

/// Which commit is being verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Commit,
    Base,
}

impl Side {
    const fn purpose(self) -> &'static str {
        match self {
            Self::Commit => "verify",
            Self::Base => "base",
        }
    }
}

impl Core {
    pub(super) fn start_verification(&mut self, now: Timestamp, id: TaskId) {
        let Some(attempt) = self.work.task(id).and_then(|task| task.record.attempts.last()) else { return };
        let Some(commit) = attempt.collected.as_ref().and_then(|collected| collected.commit.clone()) else {
            return;
        };
        let agent = names::task_agent(now, id, attempt.number, Side::Commit.purpose(), 0);
        self.change_attempt(id, |attempt| {
            attempt.verification = Some(Verification {
                agent,
                commit,
                end: None,
                passed: None,
                base_agent: None,
                base_passed: None,
                restarts: 0,
                isolated: None,
            });
        });
        self.want_task_agent(now, id, agent);
    }

    pub(super) fn step_verification(&mut self, now: Timestamp, id: TaskId) -> Step {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return Step::Rests };
        let Some(attempt) = record.attempts.last() else { return Step::Rests };
        let Some(check) = &attempt.verification else { return Step::Rests };
        let (side, agent) = match (check.passed, check.base_agent) {
            (Some(false), Some(base)) => (Side::Base, base),
            (None | Some(_), Some(_) | None) => (Side::Commit, check.agent),
        };
        let (cancel, grace_ms) = (record.cancel, record.cancel_grace_ms);
        if cancel {
            self.want_stopped(agent, grace_ms);
        }
        if !self.fleet.agent(agent).is_some_and(|agent| agent.is_settled()) {
            if !self.has_lost_its_lease(now, id, agent) {
                return Step::Rests;
            }
            if side == Side::Commit || cancel {
                return self.lose_attempt(now, id, agent);
            }
            // The commit has failed already; only whether the base fails too was to be learnt.
            self.want_stopped(agent, None);
            self.conclude_failed(now, id, "; whether the base fails too is not known");
            return Step::Moved;
        }
        if cancel {
            return self.cancelled(now, id);
        }
        let end = self.fleet.report(agent).and_then(|report| report.end.clone());
        let verdict = end.as_ref().map_or_else(
            || Verdict::Bad {
                class: FailureClass::Infrastructure,
                reason: String::from("it never reached its host"),
            },
            judge_end,
        );
        let isolated = self.is_isolated(id, agent);
        match (side, verdict) {
            (Side::Commit, Verdict::Good) => {
                self.change_check(id, |check| {
                    check.end = end;
                    check.passed = Some(true);
                    check.isolated = isolated;
                });
                let how = if isolated == Some(false) { "verified, not isolated" } else { "verified" };
                if self.is_reviewed(id) {
                    let reason = format!("{how}; waits for a person{}", self.remarks_of(id));
                    self.set_state(now, id, TaskState::Review, reason);
                } else {
                    self.accept(now, id, String::from(how));
                }
            }
            (Side::Base, Verdict::Good) => {
                self.change_check(id, |check| check.base_passed = Some(true));
                self.conclude_failed(now, id, "; the base passes");
            }
            (Side::Commit | Side::Base, Verdict::ByHand) => self.fail_for_good(
                now,
                id,
                Failure {
                    class: FailureClass::Verify,
                    reason: String::from("its verification was stopped by hand"),
                    charged: true,
                },
            ),
            (side, Verdict::Bad { class, reason }) if class.is_infrastructure() => {
                self.verify_again(now, id, side, &reason);
            }
            (Side::Commit, Verdict::Bad { .. }) => {
                self.change_check(id, |check| {
                    check.end = end;
                    check.passed = Some(false);
                });
                self.start_base(now, id);
            }
            (Side::Base, Verdict::Bad { .. }) => {
                self.change_check(id, |check| check.base_passed = Some(false));
                self.conclude_failed(now, id, "; the base fails too");
            }
        }
        Step::Moved
    }

    /// Whether neither the agent of the work nor that of the verification could write to what the verdict rests on.
    /// One that could is enough; where one of the hosts does not say, it is not known.
    fn is_isolated(&self, id: TaskId, check: AgentId) -> Option<bool> {
        let work = self.work.task(id)?.record.attempts.last()?.agent;
        let of = |agent: AgentId| match self.fleet.report(agent).and_then(|report| report.isolation) {
            Some(Isolation::User | Isolation::Namespace) => Some(true),
            Some(Isolation::None) => Some(false),
            Some(Isolation::Unknown) | None => None,
        };
        let said = [of(work), of(check)];
        if said.contains(&Some(false)) {
            return Some(false);
        }
        said.iter().all(Option::is_some).then_some(true)
    }

    /// The commit does not verify. Does the base?
    fn start_base(&mut self, now: Timestamp, id: TaskId) {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return };
        let Some((attempt, check)) = last_check(record) else { return };
        if self.started_from(record, attempt).as_ref() == Some(&check.commit) {
            return self.conclude_failed(now, id, "; it is the base itself, nothing was changed");
        }
        let agent = names::task_agent(now, id, attempt.number, Side::Base.purpose(), check.restarts);
        self.change_check(id, |check| check.base_agent = Some(agent));
        self.want_task_agent(now, id, agent);
    }

    /// As its host recorded it: a task that it builds on may have another commit by now.
    fn started_from(&self, record: &TaskRecord, attempt: &Attempt) -> Option<String> {
        let recorded = attempt.collected.as_ref().and_then(|collected| collected.base_commit.clone());
        recorded.or_else(|| self.base_of(record))
    }

    fn verify_again(&mut self, now: Timestamp, id: TaskId, side: Side, reason: &str) {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return };
        let Some((attempt, check)) = last_check(record) else { return };
        let (number, restarts, log_of) = (attempt.number, check.restarts.saturating_add(1), check.agent);
        if restarts <= self.config.verification_restarts_max {
            let agent = names::task_agent(now, id, number, side.purpose(), restarts);
            self.change_check(id, |check| {
                check.restarts = restarts;
                match side {
                    Side::Commit => check.agent = agent,
                    Side::Base => check.base_agent = Some(agent),
                }
            });
            return self.want_task_agent(now, id, agent);
        }
        match side {
            Side::Commit => {
                let reason = format!("it could not be verified: {reason}");
                self.fail_attempt(now, id, FailureClass::Infrastructure, reason, log_of);
            }
            Side::Base => self.conclude_failed(now, id, "; whether the base fails too is not known"),
        }
    }

    fn conclude_failed(&mut self, now: Timestamp, id: TaskId, about_base: &str) {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return };
        let Some((_, check)) = last_check(record) else { return };
        let end = check.end.as_ref().map(ToString::to_string).unwrap_or_default();
        let (agent, reason) = (check.agent, format!("verification failed: {end}{about_base}"));
        self.fail_attempt(now, id, FailureClass::Verify, reason, agent);
    }

    fn change_check(&mut self, id: TaskId, change: impl FnOnce(&mut Verification)) {
        self.change_attempt(id, |attempt| {
            if let Some(check) = &mut attempt.verification {
                change(check);
            }
        });
    }

    pub(crate) fn has_verify(&self, id: TaskId) -> bool {
        self.work.task(id).is_some_and(|task| !task.record.spec.verify.is_empty())
    }

    pub(crate) fn accept(&mut self, now: Timestamp, id: TaskId, reason: String) {
        self.land_when_due(id);
        let remarks = self.remarks_of(id);
        self.set_state(now, id, TaskState::Accepted, format!("{reason}{remarks}"));
    }

    pub(super) fn verify_spec(
        &self,
        record: &TaskRecord,
        attempt: &Attempt,
        agent: AgentId,
    ) -> Option<AgentSpec> {
        let check = attempt.verification.as_ref()?;
        let (side, commit) = if check.base_agent == Some(agent) {
            (Side::Base, self.started_from(record, attempt)?)
        } else {
            (Side::Commit, check.commit.clone())
        };
        let prefix = format!("{}:", side.purpose());
        self.check_spec(record, attempt.number, (&prefix, &commit), agent)
    }

    /// The task's own programs in a fresh checkout of a commit.
    pub(crate) fn check_spec(
        &self,
        record: &TaskRecord,
        number: u32,
        (prefix, commit): (&str, &str),
        agent: AgentId,
    ) -> Option<AgentSpec> {
        let task = &record.spec;
        let name = self.attempt_name(prefix, &task.name, number, agent)?;
        let mut limits = task.limits;
        limits.time_ms = task.verify_timeout_ms;
        let program = vec![String::from("/bin/sh"), String::from("-c"), names::script(&task.verify)];
        Some(AgentSpec {
            role: Role::Verify,
            task: self.link_of(record, number),
            labels: self.labels_of(record),
            limits,
            checkout: Some(Checkout {
                repo: task.repo.clone()?,
                commit: commit.to_owned(),
                branch: None,
                kind: CheckoutKind::Auto,
                result_ref: None,
                near: self.near_of(record),
                snapshot: None,
                prepare: task.prepare.clone(),
                copy: task.copy.clone(),
            }),
            has_environment: task.has_environment,
            user: task.user.clone(),
            lease_ms: task.move_after_ms,
            ..AgentSpec::own(name, program, task.grace_ms)
        })
    }
}

fn last_check(record: &TaskRecord) -> Option<(&Attempt, &Verification)> {
    let attempt = record.attempts.last()?;
    Some((attempt, attempt.verification.as_ref()?))
}
