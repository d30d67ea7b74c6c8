//! When the core wants to be woken, and for what. One entry per purpose: setting it again moves it.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{AgentId, HostId, RequestKey, RunId, TaskId};
use protocol::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// What was loaded is to be looked at.
    Loaded,
    /// A host becomes late or lost.
    Host(HostId),
    /// Reports that a host may be asked for again.
    Reports(HostId),
    /// An order was not seen to be carried out.
    Resend(AgentId),
    /// An order of a message was not seen to be carried out.
    Message(AgentId),
    /// The oldest decided message is forgotten.
    Messages,
    /// Someone waits for a `destroy`.
    Destroy(RequestKey),
    /// A back-off, a log or a branch of a task.
    Task(TaskId),
    /// A question of a merge.
    Merge(RunId),
    /// The oldest kept answer expires.
    Requests,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Timestamp, Timer)>,
    by_timer: BTreeMap<Timer, Timestamp>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Timestamp) {
        if let Some(old) = self.by_timer.insert(timer.clone(), at) {
            self.by_time.remove(&(old, timer.clone()));
        }
        self.by_time.insert((at, timer));
    }

    pub(crate) fn cancel(&mut self, timer: &Timer) {
        if let Some(old) = self.by_timer.remove(timer) {
            self.by_time.remove(&(old, timer.clone()));
        }
    }

    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one timer whose time has come.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<Timer> {
        let (at, timer) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (at, timer) = (*at, timer.clone());
        self.by_time.remove(&(at, timer.clone()));
        self.by_timer.remove(&timer);
        Some(timer)
    }
}
