//! Runs and their tasks, with the indexes that keep one report from costing more than one task.
//!
//! `task` is the life of a task, `attempt` judges one try, `verify` checks a recorded commit, `retry` decides about
//! the next try, `lease` says when a lost host has lost its attempt, `land` brings the branch in, `tidy` clears away,
//! `dispatch` starts what `placement` plans from the `queue` within the `caps`, `inputs` is what a task gets of those before it.

pub(crate) mod attempt;
pub(crate) mod caps;
mod dispatch;
mod inputs;
mod land;
pub(crate) mod lease;
pub(crate) mod placement;
pub(crate) mod queue;
mod retry;
pub(crate) mod task;
mod tidy;
mod verify;

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{AgentId, HostId, Name, RunId, TaskId};
use protocol::task::TaskState;
use protocol::time::Timestamp;

use crate::record::{Landing, Origin, RunRecord, TaskRecord};
use caps::{CapSet, Caps};
use queue::Queue;

use crate::merge::{Asking, MergeRecord};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) record: RunRecord,
    pub(crate) names: BTreeMap<Name, TaskId>,
    pub(crate) counts: BTreeMap<TaskState, u64>,
    /// Each of its tasks has a record that can be read.
    pub(crate) is_whole: bool,
    /// Accepted tasks whose branch is not there yet, nor refused.
    pub(crate) landing: u64,
    /// The question of its merge that is under way.
    pub(crate) asking: Asking,
}

impl Run {
    /// Attempts and verifications that hold a slot: a task has at most one of them.
    pub(crate) fn live(&self) -> u32 {
        let live =
            self.counts.iter().filter(|(state, _)| state.is_live()).map(|(_, count)| *count).sum::<u64>();
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Every task is final, and every branch that was promised is there: who waits for the run may use them.
    pub(crate) fn is_over(&self) -> bool {
        self.landing == 0
            && !self.record.spec.open
            && self.counts.iter().all(|(state, count)| *count == 0 || state.is_final())
    }

    pub(crate) fn count(&self, states: &[TaskState]) -> u64 {
        states.iter().filter_map(|state| self.counts.get(state)).sum()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub(crate) record: TaskRecord,
    /// Tasks that depend on it.
    pub(crate) children: Vec<TaskId>,
    /// What it counts against while it is live.
    pub(crate) caps: CapSet,
    /// Attempts and verifications, the gone ones too.
    pub(crate) agents: BTreeSet<AgentId>,
    /// The next attempt goes without the log after this; set when the log was asked for.
    pub(crate) log_until: Option<Timestamp>,
    /// What the tasks before it left is asked for again after this; set when it was asked for.
    pub(crate) inputs_until: Option<Timestamp>,
    /// When the branch is asked for again, and the wait before the time after that.
    pub(crate) land_at: Option<Timestamp>,
    pub(crate) land_wait_ms: u64,
}

impl Task {
    fn new(record: TaskRecord, caps: CapSet) -> Self {
        let mut agents = BTreeSet::new();
        for attempt in &record.attempts {
            agents.insert(attempt.agent);
            if let Some(verification) = &attempt.verification {
                agents.insert(verification.agent);
                agents.extend(verification.base_agent);
            }
        }
        Self {
            record,
            children: Vec::new(),
            caps,
            agents,
            log_until: None,
            inputs_until: None,
            land_at: None,
            land_wait_ms: 0,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Work {
    runs: BTreeMap<RunId, Run>,
    tasks: BTreeMap<TaskId, Task>,
    by_agent: BTreeMap<AgentId, TaskId>,
    pub(crate) queue: Queue,
    pub(crate) caps: Caps,
    /// Tasks whose record names an agent that has none: a crash fell between the two writes.
    pub(crate) torn: BTreeSet<TaskId>,
    /// Where the last placement went, for placing in turn.
    pub(crate) last_host: Option<HostId>,
}

impl Work {
    /// No work yet, and the caps of the installation on what comes.
    pub(crate) fn within(caps: Caps) -> Self {
        Self { caps, ..Self::default() }
    }

    pub(crate) fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    pub(crate) fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    pub(crate) fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&id)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    pub(crate) fn run_mut(&mut self, id: RunId) -> Option<&mut Run> {
        self.runs.get_mut(&id)
    }

    pub(crate) fn task_of_agent(&self, agent: AgentId) -> Option<TaskId> {
        self.by_agent.get(&agent).copied()
    }

    pub(crate) fn link(&mut self, agent: AgentId, id: TaskId) {
        self.by_agent.insert(agent, id);
        if let Some(task) = self.tasks.get_mut(&id) {
            task.agents.insert(agent);
        }
    }

    /// A whole run with those of its tasks that are there.
    pub(crate) fn insert(&mut self, record: RunRecord, records: Vec<TaskRecord>) {
        // The agent that verifies a merge belongs to the task whose work is merged.
        let merging = record.merge.as_ref().and_then(MergeRecord::verifies);
        let (names, counts) = (BTreeMap::new(), BTreeMap::new());
        let is_whole = records.len() >= record.tasks.len();
        let mut run = Run { record, names, counts, is_whole, landing: 0, asking: Asking::default() };
        self.extend(&mut run, records);
        if let Some((agent, task)) = merging {
            self.link(agent, task);
        }
        self.runs.insert(run.record.id, run);
    }

    /// More tasks of a run; its record names them.
    pub(crate) fn add(&mut self, id: RunId, records: Vec<TaskRecord>, added: Origin) {
        let Some(mut run) = self.runs.remove(&id) else { return };
        run.record.tasks.extend(records.iter().map(|task| task.id));
        run.record.added = Some(added);
        self.extend(&mut run, records);
        self.runs.insert(id, run);
    }

    fn extend(&mut self, run: &mut Run, records: Vec<TaskRecord>) {
        run.names.extend(records.iter().map(|task| (task.spec.name.clone(), task.id)));
        let mut children: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
        for task in records {
            *run.counts.entry(task.state).or_insert(0) += 1;
            run.landing += u64::from(task.landing == Landing::Due);
            let parents = task.spec.depends_on.iter().chain(&task.spec.after);
            for parent in parents.filter_map(|name| run.names.get(name)) {
                children.entry(*parent).or_default().push(task.id);
            }
            let id = task.id;
            // A run's labels are those of its tasks, but where they say otherwise.
            let mut labels = run.record.spec.labels.clone();
            labels.extend(task.spec.labels.clone());
            let caps = self.caps.set_of(run.record.id, &run.record.spec.caps, &labels);
            if task.state.is_live() {
                self.caps.take(caps);
            }
            let task = Task::new(task, caps);
            self.by_agent.extend(task.agents.iter().map(|agent| (*agent, id)));
            self.tasks.insert(id, task);
        }
        for (parent, dependents) in children {
            if let Some(task) = self.tasks.get_mut(&parent) {
                task.children.extend(dependents);
            }
        }
    }

    /// The caps of a run are others from now on: its tasks count against those.
    pub(crate) fn recap(&mut self, id: RunId, caps: BTreeMap<String, u32>) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.record.spec.caps = caps;
        let (caps, labels) = (run.record.spec.caps.clone(), run.record.spec.labels.clone());
        for (label, most) in &caps {
            self.caps.set_most(id, label, *most);
        }
        for task in run.record.tasks.clone() {
            let Some(task) = self.tasks.get_mut(&task) else { continue };
            let mut labels = labels.clone();
            labels.extend(task.record.spec.labels.clone());
            let before = std::mem::replace(&mut task.caps, self.caps.set_of(id, &caps, &labels));
            if task.record.state.is_live() {
                self.caps.give_back(before);
                self.caps.take(task.caps);
            }
            // It is queued by its caps; looked at again, it goes in under the new ones.
            self.queue.remove(task.record.id);
        }
    }

    /// Takes a run out that is over, with its tasks: none of them is queued or counts against a cap.
    pub(crate) fn remove(&mut self, id: RunId) -> Option<(RunRecord, Vec<TaskId>)> {
        let run = self.runs.remove(&id)?;
        for task in &run.record.tasks {
            for agent in self.tasks.remove(task).map(|task| task.agents).unwrap_or_default() {
                self.by_agent.remove(&agent);
            }
        }
        let tasks = run.record.tasks.clone();
        Some((run.record, tasks))
    }

    /// Moves a task from one state's count to another's.
    pub(crate) fn count_move(&mut self, id: TaskId, from: TaskState, to: TaskState) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (run, caps) = (task.record.run, task.caps);
        match (from.is_live(), to.is_live()) {
            (false, true) => self.caps.take(caps),
            (true, false) => self.caps.give_back(caps),
            (true, true) | (false, false) => {}
        }
        if let Some(run) = self.runs.get_mut(&run) {
            if let Some(count) = run.counts.get_mut(&from) {
                *count = count.saturating_sub(1);
            }
            *run.counts.entry(to).or_insert(0) += 1;
        }
    }
}
