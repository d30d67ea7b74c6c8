//! Tasks that could start now, in the order in which they go: priority, then the run with the fewest live tasks,
//! then submission. Tasks that ask for the same are one lane, so that what does not fit is passed over at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::ResourceLimits;
use protocol::ids::{RunId, TaskId};

use super::caps::CapSet;

/// What a task must find unpromised on a host. 0 is no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    pub memory_bytes: u64,
    pub cpu_millis: u64,
}

impl Demand {
    #[must_use]
    pub fn of(limits: &ResourceLimits) -> Self {
        Self { memory_bytes: limits.memory_bytes.unwrap_or(0), cpu_millis: limits.cpu_millis.unwrap_or(0) }
    }
}

/// One task that could start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ready {
    pub priority: Reverse<i32>,
    pub run: RunId,
    pub demand: Demand,
    pub caps: CapSet,
    /// Place in its run.
    pub place: u32,
    pub task: TaskId,
}

impl Ready {
    fn asks(&self) -> Asks {
        (self.demand, self.caps)
    }
}

/// What tasks of one lane have in common.
pub(crate) type Asks = (Demand, CapSet);
/// Tasks of one run that ask for the same, in the order of submission.
pub(crate) type Lane = BTreeSet<(u32, TaskId)>;
/// Lanes of each run.
pub(crate) type Level = BTreeMap<RunId, BTreeMap<Asks, Lane>>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    levels: BTreeMap<Reverse<i32>, Level>,
    ready: BTreeMap<TaskId, Ready>,
}

impl Queue {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    #[must_use]
    pub fn contains(&self, task: TaskId) -> bool {
        self.ready.contains_key(&task)
    }

    /// True when it was not there before.
    pub fn insert(&mut self, ready: Ready) -> bool {
        if self.ready.contains_key(&ready.task) {
            return false;
        }
        self.ready.insert(ready.task, ready);
        let level = self.levels.entry(ready.priority).or_default();
        let lanes = level.entry(ready.run).or_default();
        lanes.entry(ready.asks()).or_default().insert((ready.place, ready.task))
    }

    pub fn remove(&mut self, task: TaskId) {
        let Some(ready) = self.ready.remove(&task) else { return };
        let Some(level) = self.levels.get_mut(&ready.priority) else { return };
        let Some(lanes) = level.get_mut(&ready.run) else { return };
        if let Some(lane) = lanes.get_mut(&ready.asks()) {
            lane.remove(&(ready.place, task));
            if lane.is_empty() {
                lanes.remove(&ready.asks());
            }
        }
        if lanes.is_empty() {
            level.remove(&ready.run);
        }
        if level.is_empty() {
            self.levels.remove(&ready.priority);
        }
    }

    /// Highest priority first.
    pub(crate) fn levels(&self) -> impl Iterator<Item = &Level> {
        self.levels.values()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Ready> {
        self.ready.values()
    }

    /// Runs with a task in the queue.
    pub(crate) fn runs(&self) -> BTreeSet<RunId> {
        self.levels.values().flat_map(|level| level.keys().copied()).collect()
    }
}
