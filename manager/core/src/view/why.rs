//! `why`: the state, the reason and the remedy, in words, for an agent, a task or a run.

use protocol::api::{Reachability, Reason};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Name, RunId, TaskId};
use protocol::task::{TaskState, TaskView, Waiting};
use protocol::time::Timestamp;

use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{Landing, Wanted};
use crate::view::doing::{live_words, work_words};

/// What a waiting task waits for, and what a person can do about it.
pub(crate) fn waiting_words(now: Timestamp, waiting: &Waiting) -> (String, &'static str) {
    match waiting {
        Waiting::Turn { ahead: 0 } => (String::from("it is next"), ""),
        Waiting::Turn { ahead } => (format!("{ahead} tasks go before it"), ""),
        Waiting::Dependencies { on } => {
            let names: Vec<&str> = on.iter().map(Name::as_str).collect();
            (format!("it waits for {} to be accepted", names.join(", ")), "")
        }
        Waiting::Backoff { until } => {
            (format!("it is tried again in {} s", until.ms_since(now).div_ceil(1_000)), "")
        }
        Waiting::RunCap { cap } => {
            (format!("the run may have {cap} live at once, and has"), "phalanx scale RUN N")
        }
        Waiting::HostCap { cap } => {
            (format!("every host has the {cap} live agents it may have"), "wait, stop agents, or add a host")
        }
        Waiting::LabelCap { label, cap, of_run: true } => (
            format!("the run may have {cap} live at once with the label {label}, and has"),
            "wait, or phalanx scale RUN --cap LABEL=N",
        ),
        Waiting::LabelCap { label, cap, of_run: false } => (
            format!("{cap} with the label {label} may be live at once in this installation, and are"),
            "wait, or phalanx config set limits.labels, then phalanx down and up",
        ),
        Waiting::NoHost => (String::from("no host is heard"), "phalanx hosts; phalanx doctor"),
        Waiting::Memory { wanted_bytes, largest_free_bytes } => (
            format!(
                "it asks for {wanted_bytes} bytes of memory; the most that a host has unpromised is \
                 {largest_free_bytes}"
            ),
            "wait, lower --memory, or add a host",
        ),
        Waiting::Cpu { wanted_millis, largest_free_millis } => (
            format!(
                "it asks for {wanted_millis} thousandths of a core; the most that a host has unpromised is \
                 {largest_free_millis}"
            ),
            "wait, lower --cpu, or add a host",
        ),
        Waiting::DiskShare { host } => (
            format!("the disk of {host} is used over the share at which it takes no more agents"),
            "destroy agents that are not needed, or free the disk",
        ),
        Waiting::Unknown => (String::from("for a reason that this build does not know"), ""),
    }
}

impl Core {
    /// `target` is an agent, a run, a task's id, `RUN/TASK` or `RUN/TASK#ATTEMPT`.
    ///
    /// # Errors
    /// Nothing is called so.
    pub fn why(&self, now: Timestamp, target: &str) -> Result<Vec<Reason>, WireError> {
        if let Some((run, task)) = target.split_once('/') {
            let run = self.find_run(run)?;
            return match (self.find_task_in(run, task), self.find_agent(target)) {
                (Ok(task), _) => Ok(self.why_task(now, task)),
                (Err(_), Ok(agent)) => Ok(self.why_agent(now, agent)),
                (Err(unknown), Err(_)) => Err(unknown),
            };
        }
        if let Some(task) = target.parse::<TaskId>().ok().filter(|id| self.work.task(*id).is_some()) {
            return Ok(self.why_task(now, task));
        }
        match (self.find_agent(target), self.find_run(target)) {
            (Ok(agent), _) => Ok(self.why_agent(now, agent)),
            (Err(_), Ok(run)) => Ok(self.why_run(now, run)),
            (Err(agent), Err(run)) => match (agent.code, run.code, self.find_task(target)) {
                (ErrorCode::NotFound, ErrorCode::NotFound, Ok(task)) => Ok(self.why_task(now, task)),
                (ErrorCode::NotFound, ErrorCode::NotFound, Err(_)) => {
                    let message = format!("no agent, run or task {target:?}");
                    Err(WireError::new(ErrorCode::NotFound, message).hint("phalanx ls; phalanx runs"))
                }
                (ErrorCode::NotFound, _, _) => Err(run),
                (_, _, _) => Err(agent),
            },
        }
    }

    fn why_agent(&self, now: Timestamp, id: AgentId) -> Vec<Reason> {
        let (Some(agent), Some(view)) = (self.fleet.agent(id), self.agent_view(now, id)) else {
            return Vec::new();
        };
        let report = agent.observed.as_deref();
        let wanted = agent.desired.as_ref().map(|desired| desired.wanted);
        let ended = report.and_then(|report| report.end.as_ref());
        let (why, remedy) = match (agent.standing(), wanted) {
            (Standing::Unheard, _) => {
                (String::from("its order is sent until the host reports it"), "phalanx hosts")
            }
            (Standing::Live, Some(Wanted::Stopped)) => {
                (String::from("it was told to end and has not ended yet"), "")
            }
            (Standing::Live | Standing::Ended, Some(Wanted::Destroyed)) => {
                (String::from("its host was told to destroy it and has not said so yet"), "phalanx hosts")
            }
            (Standing::Live, Some(Wanted::Running)) => live_words(now, &view),
            (Standing::Live, None) => (
                String::from("it is reported, but this manager has no record of it: it is left alone"),
                "phalanx stop or destroy takes it over",
            ),
            (Standing::Ended, Some(Wanted::Running | Wanted::Stopped) | None) => {
                (ended.map(ToString::to_string).unwrap_or_default(), "")
            }
            (Standing::Gone, _) => (String::from("only its transcript and its end are left"), ""),
        };
        let subject = format!("agent {}", view.name);
        let mut reasons = vec![Reason {
            subject: subject.clone(),
            state: view.phase.to_string(),
            why,
            remedy: remedy.to_owned(),
        }];
        let holds = report.map(|report| report.holds.join(", ")).unwrap_or_default();
        if agent.desired.as_ref().is_some_and(|desired| desired.kept) && !holds.is_empty() {
            reasons.push(Reason {
                subject,
                state: view.phase.to_string(),
                why: format!("it was not destroyed since it holds the only copy of work: {holds}"),
                remedy: String::from("phalanx destroy --discard"),
            });
        }
        match view.reachability {
            Reachability::Fresh => {}
            Reachability::Late | Reachability::Lost | Reachability::Unknown => reasons.push(Reason {
                subject: format!("host {}", view.host),
                state: view.reachability.to_string(),
                why: String::from("what is shown is what it said last; its agents may well go on"),
                remedy: String::from("phalanx hosts; is hostd running there?"),
            }),
        }
        reasons
    }

    fn why_task(&self, now: Timestamp, id: TaskId) -> Vec<Reason> {
        let Some(view) = self.task_view(now, id) else { return Vec::new() };
        let mut reasons = vec![task_reason(now, &view)];
        let record = self.work.task(id).map(|task| &task.record);
        if record.is_some_and(|record| record.landing == Landing::Due) {
            reasons.push(Reason {
                subject: format!("task {}", view.spec.name),
                state: view.state.to_string(),
                why: String::from("its branch is asked for and not there yet"),
                remedy: String::from("phalanx hosts"),
            });
        }
        let at_work = view.state.is_live().then(|| view.attempts.last()).flatten().map(|attempt| {
            attempt.verification.as_ref().map_or(attempt.agent, |check| {
                check.base_agent.filter(|_| check.passed == Some(false)).unwrap_or(check.agent)
            })
        });
        if let Some(agent) = at_work {
            reasons.extend(self.why_agent(now, agent));
        }
        reasons
    }

    /// The run, then its open and failed tasks; those that only wait for their turn are counted, not listed.
    fn why_run(&self, now: Timestamp, id: RunId) -> Vec<Reason> {
        const LISTED: usize = 20;
        let Some(run) = self.run_view(id) else { return Vec::new() };
        let counts: Vec<String> =
            run.counts.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let (state, remedy) = match (run.ended_at, run.spec.open) {
            (Some(_), _) => ("over", String::new()),
            (None, true) => ("open: more tasks may come", format!("phalanx run --resume {id} closes it")),
            (None, false) => ("under way", String::new()),
        };
        let mut reasons = vec![Reason {
            subject: format!("run {}", run.spec.name),
            state: state.to_owned(),
            why: counts.join(", "),
            remedy,
        }];
        let told = self.tasks(now, id).into_iter().filter(|task| match task.state {
            TaskState::Accepted | TaskState::Merged => false,
            TaskState::Queued => !matches!(task.waiting, Some(Waiting::Turn { ahead }) if ahead > 0),
            TaskState::Assigned
            | TaskState::Running
            | TaskState::Verifying
            | TaskState::Review
            | TaskState::Rejected
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Unknown => true,
        });
        reasons.extend(told.take(LISTED).map(|task| task_reason(now, &task)));
        reasons
    }
}

/// The log of what went wrong last, and how it is done again.
fn look_and_retry(view: &TaskView) -> String {
    let again = format!("phalanx retry {} {}", view.run, view.id);
    let Some(last) = view.attempts.last() else { return again };
    let failed = last.verification.as_ref().filter(|check| check.passed == Some(false));
    let log = failed.map_or(last.agent, |check| check.agent);
    format!("phalanx logs {log}; then: {again}")
}

fn task_reason(now: Timestamp, view: &TaskView) -> Reason {
    let failed;
    let (why, remedy) = match (view.state, &view.waiting) {
        (TaskState::Queued, Some(waiting)) => {
            let (words, remedy) = waiting_words(now, waiting);
            let after =
                if view.reason.is_empty() { String::new() } else { format!(" (after: {})", view.reason) };
            (format!("{words}{after}"), remedy)
        }
        (TaskState::Failed | TaskState::Cancelled | TaskState::Rejected, _) => {
            failed = look_and_retry(view);
            (view.reason.clone(), failed.as_str())
        }
        (TaskState::Review, _) => {
            (view.reason.clone(), "phalanx diff, then phalanx accept or phalanx reject --comment TEXT")
        }
        (
            TaskState::Queued
            | TaskState::Assigned
            | TaskState::Running
            | TaskState::Verifying
            | TaskState::Accepted
            | TaskState::Merged
            | TaskState::Unknown,
            _,
        ) => (if view.reason.is_empty() { work_words(now, view) } else { view.reason.clone() }, ""),
    };
    Reason {
        subject: format!("task {}", view.spec.name),
        state: view.state.to_string(),
        why,
        remedy: remedy.to_owned(),
    }
}
