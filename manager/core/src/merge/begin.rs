//! What may be merged, and in which order: dependencies first, then as it was submitted.

use std::collections::BTreeSet;

use protocol::api::{MergeRun, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{HostId, RunId, TaskId};
use protocol::merge::{MergeOutcome, MergeRow, MergeState, MergeView};
use protocol::task::TaskState;
use protocol::time::Timestamp;

use super::{MergeRecord, MergeStep};
use crate::Core;
use crate::client::Caller;
use crate::effect::Subject;
use crate::record::{RequestState, TaskRecord};

const MESSAGE_BYTES_MAX: usize = 4 << 10;

fn conflict(message: String) -> WireError {
    WireError::new(ErrorCode::Conflict, message)
}

fn has_passed(state: TaskState) -> bool {
    matches!(state, TaskState::Accepted | TaskState::Merged)
}

/// The recorded commit of an accepted task.
fn work_of(record: &TaskRecord) -> Option<(&HostId, &String, &String)> {
    let attempt = record.attempts.last()?;
    let commit = attempt.collected.as_ref()?.commit.as_ref()?;
    Some((&attempt.host, record.spec.repo.as_ref()?, commit))
}

impl Core {
    pub(crate) fn merge_run(&mut self, now: Timestamp, caller: Caller, wish: MergeRun) {
        let record = match self.begin_merge(now, wish) {
            Ok(record) => record,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        let run = record.view.run;
        let reply = Reply::Merge(Box::new(record.view.clone()));
        if let Some(held) = self.work.run_mut(run) {
            held.record.merge = Some(record);
            held.asking = super::Asking::default();
        }
        self.out.run(run);
        self.out.changed(Subject::Run(run));
        self.touch_merge(run);
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    fn begin_merge(&self, now: Timestamp, wish: MergeRun) -> Result<MergeRecord, WireError> {
        if wish.message.as_ref().is_some_and(|text| text.trim().is_empty() || text.len() > MESSAGE_BYTES_MAX)
        {
            return Err(crate::client::invalid(format!("a message has 1 to {MESSAGE_BYTES_MAX} bytes")));
        }
        if wish.by.is_empty() || wish.by.len() > 200 {
            return Err(crate::client::invalid("who merges has a name of 1 to 200 bytes"));
        }
        let run = self.find_run(&wish.run)?;
        let held = self.work.run(run).map(|run| &run.record);
        let held = held.ok_or_else(|| WireError::new(ErrorCode::NotFound, "the run is gone"))?;
        if held.merge.as_ref().is_some_and(|merge| !merge.is_over()) {
            return Err(conflict(String::from("a merge of this run is under way")).hint("wait for it"));
        }
        let tasks = self.tasks_to_merge(run, &wish.tasks)?;
        let (host, repo) = self.one_place(&tasks)?;
        let number = held.merge.as_ref().map_or(0, |merge| merge.view.number).saturating_add(1);
        let rows = self.in_order(&tasks).into_iter().filter_map(|id| self.merge_row(id)).collect();
        let view = MergeView {
            run,
            run_name: held.spec.name.clone(),
            number,
            by: wish.by,
            host,
            repo,
            into: wish.into.clone().unwrap_or_default(),
            dry_run: wish.dry_run,
            verify: wish.verify && !wish.dry_run,
            state: MergeState::UnderWay,
            reason: String::new(),
            remedy: String::new(),
            started_at: now,
            ended_at: None,
            from: None,
            to: None,
            rounds: 0,
            checking: None,
            rows,
        };
        Ok(MergeRecord {
            view,
            wished_into: wish.into,
            message: wish.message,
            step: MergeStep::Look,
            asked: 0,
            tip: None,
            start: String::new(),
            merged: String::new(),
            confirmed: Vec::new(),
        })
    }

    /// Those that were named must be accepted; without names all that are, and have work. What is in one branch may be
    /// brought into another one: the host says what the branch has already.
    fn tasks_to_merge(&self, run: RunId, named: &[String]) -> Result<Vec<TaskId>, WireError> {
        if named.is_empty() {
            let all = self.work.run(run).map(|run| run.record.tasks.clone()).unwrap_or_default();
            let with_work = |id: &TaskId| {
                self.work
                    .task(*id)
                    .is_some_and(|task| has_passed(task.record.state) && work_of(&task.record).is_some())
            };
            let tasks: Vec<TaskId> = all.into_iter().filter(with_work).collect();
            if tasks.is_empty() {
                let error = conflict(String::from("no task of the run is accepted and has work to merge"));
                return Err(error.hint("phalanx tasks; phalanx accept"));
            }
            return Ok(tasks);
        }
        let mut tasks = Vec::new();
        for name in named {
            let id = self.find_task_in(run, name)?;
            let record = self.work.task(id).map(|task| &task.record);
            let record = record.ok_or_else(|| WireError::new(ErrorCode::NotFound, "the task is gone"))?;
            if !has_passed(record.state) {
                return Err(conflict(format!("task {name} is {}, not ACCEPTED", record.state)));
            }
            if work_of(record).is_none() {
                return Err(conflict(format!("task {name} has no commit to merge")));
            }
            if !tasks.contains(&id) {
                tasks.push(id);
            }
        }
        Ok(tasks)
    }

    fn one_place(&self, tasks: &[TaskId]) -> Result<(HostId, String), WireError> {
        let places: BTreeSet<(HostId, String)> = tasks
            .iter()
            .filter_map(|id| work_of(&self.work.task(*id)?.record))
            .map(|(host, repo, _)| (host.clone(), repo.clone()))
            .collect();
        let count = places.len();
        let mut places = places.into_iter();
        match (places.next(), count) {
            (Some(place), 1) => Ok(place),
            (_, _) => {
                let message = format!("the work lies in {count} repositories; they are merged one by one");
                Err(conflict(message).hint("choose the tasks of one with --task"))
            }
        }
    }

    fn in_order(&self, tasks: &[TaskId]) -> Vec<TaskId> {
        let mut open: Vec<TaskId> = tasks.to_vec();
        open.sort_by_key(|id| self.work.task(*id).map_or(u32::MAX, |task| task.record.place));
        let mut ordered: Vec<TaskId> = Vec::with_capacity(open.len());
        while !open.is_empty() {
            let ready =
                open.iter().position(|id| !self.parents(*id).iter().any(|parent| open.contains(parent)));
            // The graph of a run has no circle; were there one, the order of submission would do.
            ordered.push(open.remove(ready.unwrap_or(0)));
        }
        ordered
    }

    pub(super) fn parents(&self, id: TaskId) -> Vec<TaskId> {
        let Some(record) = self.work.task(id).map(|task| &task.record) else { return Vec::new() };
        let Some(run) = self.work.run(record.run) else { return Vec::new() };
        record.spec.depends_on.iter().filter_map(|name| run.names.get(name).copied()).collect()
    }

    fn merge_row(&self, id: TaskId) -> Option<MergeRow> {
        let record = &self.work.task(id)?.record;
        let (_, _, commit) = work_of(record)?;
        Some(MergeRow {
            task: id,
            name: record.spec.name.clone(),
            commit: commit.clone(),
            branch: record.branch.clone(),
            outcome: MergeOutcome::Waiting,
            reason: String::new(),
            merged: None,
            agent: None,
            files: Vec::new(),
            moved: None,
        })
    }

    /// Whether a merge that is under way counts on the task's being accepted.
    pub(crate) fn is_being_merged(&self, id: TaskId) -> bool {
        let run = self.work.task(id).and_then(|task| self.work.run(task.record.run));
        let merge = run.and_then(|run| run.record.merge.as_ref()).filter(|merge| !merge.is_over());
        merge.is_some_and(|merge| !merge.view.dry_run && merge.view.rows.iter().any(|row| row.task == id))
    }
}
