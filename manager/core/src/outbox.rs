//! Gathers what one call wants, so that a record that changed three times is written once and before anything else.

use std::collections::BTreeSet;

use protocol::api::Reply;
use protocol::error::WireError;
use protocol::ids::{AgentId, MessageId, RequestKey, RunId, TaskId};

use crate::effect::{Effect, Subject};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outbox {
    pub(crate) seals: Vec<Effect>,
    pub(crate) tasks: BTreeSet<TaskId>,
    pub(crate) runs: BTreeSet<RunId>,
    pub(crate) desired: BTreeSet<AgentId>,
    pub(crate) messages: BTreeSet<MessageId>,
    pub(crate) requests: BTreeSet<RequestKey>,
    /// Runs whose records go, and those of their tasks.
    pub(crate) gone_runs: Vec<(RunId, Vec<TaskId>)>,
    pub(crate) acts: Vec<Effect>,
    pub(crate) changed: BTreeSet<Subject>,
}

impl Outbox {
    pub(crate) fn seal(&mut self, effect: Effect) {
        self.seals.push(effect);
    }

    /// The task's record is to be written.
    pub(crate) fn task(&mut self, id: TaskId) {
        self.tasks.insert(id);
    }

    pub(crate) fn run(&mut self, id: RunId) {
        self.runs.insert(id);
    }

    pub(crate) fn desired(&mut self, id: AgentId) {
        self.desired.insert(id);
    }

    pub(crate) fn message(&mut self, id: MessageId) {
        self.messages.insert(id);
    }

    pub(crate) fn request(&mut self, key: RequestKey) {
        self.requests.insert(key);
    }

    pub(crate) fn gone_run(&mut self, id: RunId, tasks: Vec<TaskId>) {
        for task in &tasks {
            self.tasks.remove(task);
        }
        self.runs.remove(&id);
        self.gone_runs.push((id, tasks));
    }

    pub(crate) fn act(&mut self, effect: Effect) {
        self.acts.push(effect);
    }

    pub(crate) fn reply(&mut self, to: u64, result: Result<Reply, WireError>) {
        self.acts.push(Effect::Reply { to, result });
    }

    pub(crate) fn changed(&mut self, subject: Subject) {
        self.changed.insert(subject);
    }
}
