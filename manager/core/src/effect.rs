//! Everything the manager can ask of its shell. The order within one answer is part of the contract: first
//! [`Effect::Seal`] and [`Effect::Write`], in the order in which they must become durable; then everything else,
//! which the shell releases only when all of those are acknowledged. The core's memory may so run ahead of the store,
//! but nobody has seen it.

use std::fmt;

use protocol::agent::Environment;
use protocol::api::Reply;
use protocol::error::WireError;
use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, HostId, Incarnation, Region, RunId, TaskId};
use protocol::order::{Command, Question};
use protocol::task::TaskInput;
use protocol::time::Timestamp;

use crate::record::StoredRecord;

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep these values sealed under the owner's key. Comes before the write that makes the owner exist.
    Seal {
        owner: EnvironmentOwner,
        environment: Environment,
    },
    /// Put (or, with no value, delete) one key. After a crash a prefix of the writes of one call may be in the
    /// store; every such prefix loads into a state that goes on rightly.
    Write(StoredRecord),
    /// A record could not be encoded; nothing of this call may be released. A defect of this crate.
    Unwritable {
        bucket: &'static str,
        key: String,
        reason: String,
    },
    Reply {
        to: u64,
        result: Result<Reply, WireError>,
    },
    /// The answer to an [`crate::Input::LeaseAsked`]: the length in ms, which the host counts from before it asked.
    /// How long the agent may live by it is in the record that is written before.
    Lease {
        to: u64,
        result: Result<u64, WireError>,
    },
    /// A host knows a higher number than the one led under, so that it takes no order: take the lead above it, and say
    /// so by [`crate::Input::Leads`]. Comes again with each heartbeat of such a host.
    Lead {
        above: Fencing,
    },
    /// To be given an id, signed and published. May be lost: it is sent again until a report shows it.
    Order(OrderDraft),
    /// To be asked of a host, and answered by [`crate::Input::Answered`]. May be asked again under the same token.
    Ask {
        token: AskToken,
        host: HostId,
        question: Question,
    },
    /// The whole reports of these agents, please; they come as reports.
    AskReports {
        host: HostId,
        agents: Vec<AgentId>,
    },
    /// Store the tail (≤ 64 KiB) of this transcript as a blob; answered by [`crate::Input::LogKept`].
    KeepLog {
        agent: AgentId,
        host: HostId,
    },
    /// Store what the tasks before this one left, as JSON; answered by [`crate::Input::InputsKept`].
    KeepInputs {
        task: TaskId,
        inputs: Vec<TaskInput>,
    },
    /// One of the manager's own facts; `name` is the label of what it is about. Phases of agents are the hosts'
    /// facts and are published by them.
    Event {
        name: String,
        fact: Fact,
    },
    /// Nobody needs these values any more.
    ForgetEnvironment(EnvironmentOwner),
    /// A view of this subject differs from before; for those who wait or follow.
    Changed(Subject),
}

/// An order without an id and a signature, which are the shell's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderDraft {
    pub region: Region,
    pub host: HostId,
    pub incarnation: Incarnation,
    pub fencing: Fencing,
    /// In the host's time.
    pub expires: Timestamp,
    pub command: Command,
}

/// Joins an answer to what was asked. Stays meaningful over a restart of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AskToken {
    /// The branch of an accepted task.
    Land(TaskId),
    /// A step of the merge of a run, with that merge's number and the count of its questions.
    Merge { run: RunId, number: u32, asked: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Agent(AgentId),
    Run(RunId),
    Host(HostId),
}

/// Whose values an agent's environment is: its own, or its task's, which every attempt and verification shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EnvironmentOwner {
    Agent(AgentId),
    Task(TaskId),
}

impl fmt::Display for EnvironmentOwner {
    /// The key under which the values are kept: safe as a KV key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(agent) => write!(f, "agent.{agent}"),
            Self::Task(task) => write!(f, "task.{task}"),
        }
    }
}
