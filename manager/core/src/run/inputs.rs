//! What a task gets of the tasks that it waits for: a list of what each left, kept as a blob before its first attempt,
//! and, where it says so, the commit of one of them to start from.

use protocol::agent::Blob;
use protocol::ids::{Name, TaskId};
use protocol::task::TaskInput;
use protocol::time::Timestamp;

use crate::Core;
use crate::effect::Effect;
use crate::names;
use crate::record::TaskRecord;

/// After a blob that could not be stored, or an answer that never came.
const AGAIN_MS: u64 = 5_000;

impl Core {
    /// Asks for the list to be kept, where the task waited for others; the time until which it waits for that.
    pub(super) fn ask_inputs(&mut self, now: Timestamp, id: TaskId) -> Option<Timestamp> {
        let record = &self.work.task(id)?.record;
        let waits_for_none = record.spec.depends_on.is_empty() && record.spec.after.is_empty();
        if waits_for_none || record.inputs.is_some() {
            return None;
        }
        let inputs: Vec<TaskInput> = record
            .spec
            .depends_on
            .iter()
            .chain(&record.spec.after)
            .filter_map(|name| self.task_named(record, name))
            .map(left_by)
            .collect();
        let task = self.work.task_mut(id)?;
        match task.inputs_until {
            Some(until) if until > now => Some(until),
            Some(_) | None => {
                task.inputs_until = Some(now.after_ms(AGAIN_MS));
                self.out.act(Effect::KeepInputs { task: id, inputs });
                task.inputs_until
            }
        }
    }

    pub(crate) fn inputs_kept(&mut self, now: Timestamp, id: TaskId, blob: Option<Blob>) {
        // Without them it would start on less than it was promised: asked again when the time is over.
        let Some(blob) = blob else { return };
        let Some(task) = self.work.task_mut(id).filter(|task| task.record.inputs.is_none()) else { return };
        task.inputs_until = None;
        self.change_task(id, |record| record.inputs = Some(blob));
        self.advance(now, id);
    }

    /// The commit that an attempt starts from.
    pub(super) fn base_of(&self, record: &TaskRecord) -> Option<String> {
        let parent = record.spec.base_from.as_ref().and_then(|name| self.task_named(record, name));
        parent.and_then(commit_of).or_else(|| record.spec.base_commit.clone())
    }

    /// Where a checkout of its work costs least. What was prepared is found with the commit that it was prepared for.
    pub(super) fn near_of(&self, record: &TaskRecord) -> Option<String> {
        match &record.spec.prepare {
            Some(_) => self.base_of(record),
            None => record.spec.base_commit.clone(),
        }
    }

    fn task_named(&self, of: &TaskRecord, name: &Name) -> Option<&TaskRecord> {
        let id = self.work.run(of.run)?.names.get(name)?;
        self.work.task(*id).map(|task| &task.record)
    }
}

fn commit_of(record: &TaskRecord) -> Option<String> {
    record.attempts.last()?.collected.as_ref()?.commit.clone()
}

fn left_by(record: &TaskRecord) -> TaskInput {
    let attempt = record.attempts.last();
    let collected = attempt.and_then(|attempt| attempt.collected.as_ref());
    let has_commit = collected.is_some_and(|collected| collected.commit.is_some());
    TaskInput {
        task: record.spec.name.clone(),
        id: record.id,
        state: record.state,
        reason: record.reason.clone(),
        unverified: record.unverified,
        commit: collected.and_then(|collected| collected.commit.clone()),
        base_commit: collected.and_then(|collected| collected.base_commit.clone()),
        result_ref: attempt
            .filter(|_| has_commit)
            .map(|attempt| names::result_ref(record.run, record.id, attempt.number)),
        branch: record.branch.clone(),
        result: collected.and_then(|collected| collected.result.clone()),
        outputs: collected.map(|collected| collected.outputs.clone()).unwrap_or_default(),
    }
}
