//! Views of runs and tasks.

use std::collections::BTreeMap;

use protocol::ids::{RequestKey, RunId, TaskId};
use protocol::notify::Told;
use protocol::task::{RunSpec, RunView, TaskState, TaskView, Waiting};
use protocol::time::Timestamp;

use crate::Core;
use crate::record::{Feedback, Landing, TaskRecord};
use crate::run::placement::Depth;
use crate::run::task::Dependencies;
use crate::run::{Run, Task};

impl Core {
    /// Oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<RunView> {
        self.work.runs().map(view).collect()
    }

    #[must_use]
    pub fn run_view(&self, id: RunId) -> Option<RunView> {
        self.work.run(id).map(view)
    }

    /// Runs that go on, with the hooks that they ask for.
    pub fn asking(&self) -> impl Iterator<Item = (RunId, &RunSpec)> {
        let open = self.work.runs().map(|run| &run.record).filter(|record| record.ended_at.is_none());
        open.filter(|record| !record.spec.notify.is_empty()).map(|record| (record.id, &record.spec))
    }

    /// The hooks that a run asks for; `None`: there is no such run.
    #[must_use]
    pub fn told(&self, id: RunId) -> Option<&[Told]> {
        self.work.run(id).map(|run| run.record.spec.notify.as_slice())
    }

    /// Whether a request of this key was taken: its answer is fixed.
    #[must_use]
    pub fn has_answered(&self, key: &RequestKey) -> bool {
        self.requests.find(key).is_some()
    }

    /// The last merge of a run.
    #[must_use]
    pub fn merge_view(&self, id: RunId) -> Option<protocol::merge::MergeView> {
        Some(self.work.run(id)?.record.merge.as_ref()?.view.clone())
    }

    /// Tasks of a run in the order of submission, each with why it waits.
    #[must_use]
    pub fn tasks(&self, now: Timestamp, run: RunId) -> Vec<TaskView> {
        let Some(run) = self.work.run(run) else { return Vec::new() };
        let tasks = run.record.tasks.iter().filter_map(|id| self.work.task(*id));
        if run.count(&[TaskState::Queued]) == 0 {
            return tasks.map(|task| task_view(run, task, None)).collect();
        }
        let reasons = self.plan_now(now, Depth::Reasons).waiting;
        tasks.map(|task| task_view(run, task, self.waiting(now, &task.record, &reasons))).collect()
    }

    #[must_use]
    pub fn task_view(&self, now: Timestamp, id: TaskId) -> Option<TaskView> {
        let task = self.work.task(id)?;
        let run = self.work.run(task.record.run)?;
        let reasons = if self.work.queue.contains(id) {
            self.plan_now(now, Depth::Reasons).waiting
        } else {
            BTreeMap::new()
        };
        Some(task_view(run, task, self.waiting(now, &task.record, &reasons)))
    }

    /// Why a queued task waits; `reasons` are the plan's.
    pub(crate) fn waiting(
        &self,
        now: Timestamp,
        record: &TaskRecord,
        reasons: &BTreeMap<TaskId, Waiting>,
    ) -> Option<Waiting> {
        if record.state != TaskState::Queued {
            return None;
        }
        match self.dependencies(record) {
            Dependencies::Open(on) => return Some(Waiting::Dependencies { on }),
            Dependencies::Failed(name) => return Some(Waiting::Dependencies { on: vec![name] }),
            Dependencies::Accepted => {}
        }
        if let Some(until) = record.not_before.filter(|until| *until > now) {
            return Some(Waiting::Backoff { until });
        }
        let log_until = self.work.task(record.id).and_then(|task| task.log_until);
        match (&record.feedback, log_until) {
            (Feedback::Wanted { .. }, Some(until)) => return Some(Waiting::Backoff { until }),
            (Feedback::Wanted { .. }, None) | (Feedback::None | Feedback::Kept { .. }, _) => {}
        }
        Some(reasons.get(&record.id).cloned().unwrap_or(Waiting::Turn { ahead: 0 }))
    }
}

fn view(run: &Run) -> RunView {
    let counts = run.counts.iter().filter(|(_, count)| **count > 0);
    RunView {
        id: run.record.id,
        spec: run.record.spec.clone(),
        submitted_at: run.record.submitted_at,
        ended_at: run.record.ended_at,
        counts: counts.map(|(state, count)| (state.to_string(), *count)).collect(),
        total: u64::try_from(run.record.tasks.len()).unwrap_or(u64::MAX),
    }
}

fn task_view(run: &Run, task: &Task, waiting: Option<Waiting>) -> TaskView {
    let record = &task.record;
    TaskView {
        id: record.id,
        run: record.run,
        run_name: run.record.spec.name.clone(),
        spec: record.spec.clone(),
        state: record.state,
        waiting,
        reason: record.reason.clone(),
        unverified: record.unverified,
        attempts: record.attempts.clone(),
        branch: record.branch.clone(),
        landing: match record.landing {
            Landing::None => None,
            Landing::Due => Some(protocol::task::Landing::Due),
            Landing::Done => Some(protocol::task::Landing::Made),
            Landing::Refused => Some(protocol::task::Landing::Refused),
        },
        submitted_at: record.submitted_at,
        ended_at: record.ended_at,
        decisions: record.decisions.clone(),
    }
}
