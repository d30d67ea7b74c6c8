//! Runs and tasks as rows, as JSON, and what their end means for the exit code.

use protocol::api::Reason;
use protocol::ids::Name;
use protocol::task::{Attempt, Decision, RunView, TaskState, TaskView, Waiting};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::error::exit;
use super::super::output::progress::count;
use super::super::output::render::Listed;
use super::super::output::table::some_of;
use super::super::output::when::{age, date};
use manager_plan::notify::asked::written;
use manager_plan::runfile::units::{human_duration, human_size};

/// States in which a task's work was taken.
pub const TAKEN: &[TaskState] = &[TaskState::Accepted, TaskState::Merged];

pub struct RunRow {
    pub view: RunView,
    pub now: Timestamp,
}

/// 0 all accepted, 7 some, 8 none.
pub fn exit_of(run: &RunView) -> u8 {
    match count(run, TAKEN) {
        taken if taken == run.total => exit::OK,
        0 => exit::NONE_ACCEPTED,
        _ => exit::SOME_ACCEPTED,
    }
}

/// Nothing more happens without a person.
pub fn is_over(run: &RunView) -> bool {
    let resting = [
        TaskState::Accepted,
        TaskState::Merged,
        TaskState::Rejected,
        TaskState::Failed,
        TaskState::Cancelled,
        TaskState::Review,
    ];
    // Without a task in review all may be final while a branch is still being made: the run ends after that.
    run.ended_at.is_some()
        || (!run.spec.open && count(run, &[TaskState::Review]) > 0 && count(run, &resting) == run.total)
}

/// `3 accepted, 1 failed`, in the order of the states.
pub fn counts(run: &RunView) -> String {
    let known = TaskState::ALL.iter().map(|state| state.as_str());
    let parts: Vec<String> = known
        .filter_map(|state| Some((state, run.counts.get(state).filter(|count| **count > 0)?)))
        .map(|(state, count)| format!("{count} {}", state.to_lowercase()))
        .collect();
    if parts.is_empty() { "no tasks".to_owned() } else { parts.join(", ") }
}

#[derive(Serialize, JsonSchema)]
pub struct RunDocument<'a> {
    #[serde(flatten)]
    view: &'a RunView,
    name: &'a Name,
    /// Tasks whose work was taken, merged ones too.
    accepted: u64,
    /// Nothing more happens without a person.
    over: bool,
}

impl Listed for RunRow {
    const KIND: &'static str = "RunList";
    const HEADER: &'static [&'static str] = &["RUN", "TASKS", "STATE", "AGE", "TOOK"];
    const WIDE: &'static [&'static str] = &["ID", "PARALLEL", "LABELS", "NOTIFY"];

    type Document<'a>
        = RunDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> RunDocument<'_> {
        RunDocument {
            view: &self.view,
            name: &self.view.spec.name,
            accepted: count(&self.view, TAKEN),
            over: is_over(&self.view),
        }
    }

    fn name(&self) -> String {
        self.view.spec.name.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let view = &self.view;
        let until = view.ended_at.unwrap_or(self.now);
        let mut cells = vec![
            view.spec.name.to_string(),
            view.total.to_string(),
            counts(view),
            age(self.now, view.submitted_at),
            human_duration(until.ms_since(view.submitted_at)),
        ];
        if wide {
            let labels = view.spec.labels.iter().map(|(key, value)| format!("{key}={value}"));
            cells.extend([
                view.id.to_string(),
                view.spec.max_parallel.map(|cap| cap.to_string()).unwrap_or_default(),
                labels.collect::<Vec<_>>().join(","),
                view.spec.notify.iter().map(written).collect::<Vec<_>>().join(" "),
            ]);
        }
        cells
    }
}

pub struct TaskRow {
    pub view: TaskView,
    pub now: Timestamp,
}

/// Why a task waits, in words.
pub fn waiting(waiting: &Waiting, now: Timestamp) -> String {
    match waiting {
        Waiting::Turn { ahead: 0 } => "it is next".to_owned(),
        Waiting::Turn { ahead } => format!("{ahead} are before it"),
        Waiting::Dependencies { on } => {
            format!("waits for {}", some_of(on.iter().map(|name| name.as_str())))
        }
        Waiting::Backoff { until } => format!("is tried again in {}", human_duration(until.ms_since(now))),
        Waiting::LabelCap { label, cap, .. } => format!("{cap} with label {label} are live, the most"),
        Waiting::RunCap { cap } => format!("the run has {cap} live tasks, its most"),
        Waiting::HostCap { cap } => format!("the hosts have {cap} live agents each, their most"),
        Waiting::NoHost => "no host takes tasks".to_owned(),
        Waiting::Memory { wanted_bytes, largest_free_bytes } => format!(
            "no host has {} of memory free; the largest has {}",
            human_size(*wanted_bytes),
            human_size(*largest_free_bytes)
        ),
        Waiting::Cpu { wanted_millis, largest_free_millis } => {
            format!(
                "no host has {wanted_millis} thousandths of a core free; the largest has {largest_free_millis}"
            )
        }
        Waiting::DiskShare { host } => format!("the disk of {host} is too full"),
        Waiting::Unknown => "waits for something that a newer phalanx knows".to_owned(),
    }
}

impl TaskRow {
    fn last(&self) -> Option<&Attempt> {
        self.view.attempts.last()
    }

    fn reason(&self) -> String {
        if let Some(reason) = self.view.waiting.as_ref().filter(|_| self.view.state == TaskState::Queued) {
            return waiting(reason, self.now);
        }
        if !self.view.reason.is_empty() {
            return self.view.reason.clone();
        }
        let failure = self.last().and_then(|attempt| attempt.failure.as_ref());
        failure.map(|failure| format!("{}: {}", failure.class, failure.reason)).unwrap_or_default()
    }

    fn took(&self) -> String {
        self.view.took_ms(self.now).map(human_duration).unwrap_or_default()
    }
}

#[derive(Serialize, JsonSchema)]
pub struct TaskDocument<'a> {
    #[serde(flatten)]
    view: &'a TaskView,
    name: &'a Name,
}

impl Listed for TaskRow {
    const KIND: &'static str = "TaskList";
    const HEADER: &'static [&'static str] = &["TASK", "STATE", "ATTEMPTS", "TOOK", "REASON"];
    const WIDE: &'static [&'static str] = &["ID", "HOST", "EXIT", "DIFF", "BRANCH", "COMMIT", "SAID"];

    type Document<'a>
        = TaskDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> TaskDocument<'_> {
        TaskDocument { view: &self.view, name: &self.view.spec.name }
    }

    fn name(&self) -> String {
        self.view.spec.name.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let view = &self.view;
        let collected = self.last().and_then(|attempt| attempt.collected.as_ref());
        // With `commit: auto` it is the recorded commit itself.
        let left = collected.is_some_and(|c| c.uncommitted.is_some() && c.uncommitted != c.commit);
        let inner = collected.map(|c| c.left_out.join(", ")).unwrap_or_default();
        let flags = [
            (view.unverified, "unverified".to_owned()),
            (view.landing == Some(protocol::task::Landing::Due), "its branch is being made".to_owned()),
            (left, "left uncommitted work".to_owned()),
            (!inner.is_empty(), format!("without the repository in {inner}")),
        ];
        let flags: Vec<String> =
            flags.into_iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).collect();
        let flag = if flags.is_empty() { String::new() } else { format!(" ({})", flags.join(", ")) };
        let mut cells = vec![
            view.spec.name.to_string(),
            format!("{}{flag}", view.state),
            view.attempts.len().to_string(),
            self.took(),
            self.reason(),
        ];
        if wide {
            cells.extend([
                view.id.to_string(),
                self.last().map(|attempt| attempt.host.to_string()).unwrap_or_default(),
                self.last()
                    .and_then(|attempt| attempt.end.as_ref())
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                collected
                    .map(|c| format!("{} files +{} -{}", c.files, c.insertions, c.deletions))
                    .unwrap_or_default(),
                view.branch.clone().unwrap_or_default(),
                collected.and_then(|c| c.commit.clone()).unwrap_or_default(),
                view.decisions.last().map(said).unwrap_or_default(),
            ]);
        }
        cells
    }
}

/// Who said what of which attempt, and when.
fn said(decision: &Decision) -> String {
    let comment = decision.comment.lines().next().unwrap_or_default();
    let comment = if comment.is_empty() { String::new() } else { format!(": {comment}") };
    let (verdict, attempt) = (decision.verdict, decision.attempt);
    format!("{verdict} #{attempt} by {} at {}{comment}", decision.by, date(decision.at))
}

pub struct ReasonRow(pub Reason);

impl Listed for ReasonRow {
    const KIND: &'static str = "ReasonList";
    const HEADER: &'static [&'static str] = &["SUBJECT", "STATE", "WHY", "TRY"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = &'a Reason
    where
        Self: 'a;

    fn document(&self) -> &Reason {
        &self.0
    }

    fn name(&self) -> String {
        self.0.subject.clone()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        vec![self.0.subject.clone(), self.0.state.clone(), self.0.why.clone(), self.0.remedy.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::{AgentId, RunId, TaskId};
    use protocol::task::RunSpec;
    use std::collections::BTreeMap;

    fn run(counts: &[(&str, u64)]) -> RunView {
        RunView {
            id: RunId::from_parts(1, 1),
            spec: RunSpec {
                name: "r".parse().unwrap(),
                max_parallel: None,
                labels: BTreeMap::new(),
                caps: BTreeMap::new(),
                notify: Vec::new(),
                open: false,
            },
            submitted_at: Timestamp(0),
            ended_at: None,
            counts: counts.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect(),
            total: counts.iter().map(|(_, count)| count).sum(),
        }
    }

    #[test]
    fn the_exit_code_says_all_some_or_none() {
        assert_eq!(exit_of(&run(&[("ACCEPTED", 2), ("MERGED", 1)])), 0);
        assert_eq!(exit_of(&run(&[("ACCEPTED", 2), ("FAILED", 1)])), 7);
        assert_eq!(exit_of(&run(&[("FAILED", 1), ("REVIEW", 1)])), 8);
    }

    #[test]
    fn looking_at_work_and_merging_it_is_no_time_that_a_task_took() {
        let task = |state: &str, ended_at: Option<u64>| -> TaskView {
            let attempt = serde_json::json!({
                "number": 1, "agent": AgentId::from_parts(1, 1), "host": "h", "assigned_at": 10, "ended_at": 50,
                "verification": {
                    "agent": AgentId::from_parts(1, 2), "commit": "c",
                    "end": {"cause": "exited", "code": 0, "at": 70},
                },
            });
            serde_json::from_value(serde_json::json!({
                "id": TaskId::from_parts(1, 3), "run": RunId::from_parts(1, 1), "run_name": "r",
                "spec": {"name": "t", "program": ["true"], "grace_ms": 1, "accept": "exit", "commit": "auto"},
                "state": state, "attempts": [attempt], "submitted_at": 5, "ended_at": ended_at,
            }))
            .unwrap()
        };
        let now = Timestamp(1_000);
        for (state, ended_at, wanted) in [
            ("REVIEW", None, 60),
            ("ACCEPTED", Some(200), 60),
            ("MERGED", Some(900), 60),
            ("FAILED", Some(80), 70),
            ("QUEUED", None, 990),
        ] {
            assert_eq!(task(state, ended_at).took_ms(now), Some(wanted), "{state}");
        }
    }

    #[test]
    fn a_run_that_only_a_person_moves_is_over() {
        assert!(is_over(&run(&[("ACCEPTED", 1), ("REVIEW", 1)])));
        assert!(!is_over(&run(&[("ACCEPTED", 1), ("QUEUED", 1)])));
        assert_eq!(counts(&run(&[("FAILED", 1), ("ACCEPTED", 2)])), "2 accepted, 1 failed");
    }
}
