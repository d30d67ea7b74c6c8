//! Client ↔ manager, over the manager's Unix socket.
//!
//! Both sides begin with [`crate::codec::Hello`]. A request is a frame of kind [`REQUEST`]; it is answered by any
//! number of frames of kind [`ITEM`] and exactly one of kind [`REPLY`] or [`ERROR`], all with the request's id.
//! Every mutation has a key: the same key gives the first answer again.

use serde::{Deserialize, Serialize};

use crate::agent::Phase;
pub use crate::change::{Change, LimitChange};
use crate::compare::{Comparison, FileChange};
use crate::event::Event;
use crate::exec::{ExecTalk, InputTaken};
use crate::files::{FileList, FilePiece};
use crate::house::{Freed, Holding, StreamUse, Unheard};
use crate::ids::{AgentId, HostId, RunId, TaskId};
use crate::merge::MergeView;
use crate::message::{MessageView, Sent};
use crate::notify::HooksView;
use crate::order::{OutputStream, ResolvedBase};
use crate::row::{AgentRow, RowItem};
use crate::signals::PhaseReason;
use crate::snapshot::{Restored, Snapshot};
use crate::task::{RunView, TaskView};
use crate::time::Timestamp;
use crate::top::TopView;
use crate::wire_enum::wire_enum;

pub use super::request::{
    Action, AddTasks, AgentFilter, AnyRequest, CreateAgent, DecideTasks, MergeRun, Mutation, Query, Request,
    SubmitRun,
};
pub use crate::message::MessageUntil;
pub use crate::screen::AgentScreen;
pub use crate::status::{HostView, Reason, StatusView};
pub use crate::view::AgentView;

pub const REQUEST: &str = "request";
pub const ITEM: &str = "item";
pub const REPLY: &str = "reply";
/// Body: [`crate::error::WireError`].
pub const ERROR: &str = "error";

/// Version of every JSON document that the command line prints.
pub const SCHEMA_VERSION: u32 = 1;
/// Largest prompt.
pub const PROMPT_LIMIT: u64 = 8 << 20;
/// Longest comment that is kept with a task.
pub const COMMENT_LIMIT: usize = 4 << 10;

/// `NAME`, `NAME@HOST` or an id, as a person wrote it.
pub type Target = String;

/// What a `wait` waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Until {
    /// The program was executed and, where its profile says so, is ready; or the agent has ended.
    Started,
    Phase(Phase),
    Ended,
    Destroyed,
    /// What was last asked for is in force, or its host has said why not.
    Applied,
    /// A phase that is due to this.
    PhaseFor(Phase, PhaseReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogStart {
    Offset(u64),
    /// The last so many lines.
    Tail(u64),
    Since(Timestamp),
}

/// One frame of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Item {
    Agent(Box<AgentView>),
    /// `offset` is the place of the first byte; a jump is a gap that the transcript no longer has.
    Log {
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Output {
        stream: OutputStream,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Event(Box<Event>),
    Run(Box<RunView>),
    /// The head of a [`Query::Compare`].
    Compared(Box<Comparison>),
    Changed(Vec<FileChange>),
    /// A piece of a file that the client may write; pieces of one file follow each other.
    File {
        name: String,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    FilePart(FilePiece),
    /// Some of what a host holds.
    Holdings {
        host: HostId,
        holdings: Vec<Holding>,
    },
    /// Some of what the manager holds itself.
    OwnHoldings(Vec<Holding>),
    Merge(Box<MergeView>),
    Message(Box<MessageView>),
    Rows(RowItem),
    Top(Box<TopView>),
    Talk(ExecTalk),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The end of a stream, or a mutation that has nothing more to say.
    Done,
    Status(Box<StatusView>),
    Hosts(Vec<HostView>),
    /// The agent exists from now on; its start is under way.
    Accepted {
        agent: AgentId,
    },
    Agents {
        agents: Vec<AgentView>,
        as_of: Timestamp,
    },
    /// One outcome per target, in their order.
    Outcomes(Vec<Outcome>),
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
    Resolved(ResolvedBase),
    Submitted {
        run: RunId,
        tasks: Vec<TaskId>,
    },
    Runs(Vec<RunView>),
    Run {
        run: Box<RunView>,
        tasks: Vec<TaskView>,
    },
    Why(Vec<Reason>),
    /// The manager has the blob.
    Stored,
    Rows {
        rows: Vec<AgentRow>,
        as_of: Timestamp,
    },
    Screen(Box<AgentScreen>),
    Task(Box<TaskView>),
    Files(FileList),
    /// The end of a survey: what the bus keeps, and hosts that did not answer.
    Surveyed {
        streams: Vec<StreamUse>,
        unheard: Vec<Unheard>,
    },
    Freed(Vec<Freed>),
    Merge(Box<MergeView>),
    /// One per target, in their order: each is durable and will be delivered once, or told as not delivered or unknown.
    Sent(Vec<Sent>),
    Messages {
        messages: Vec<MessageView>,
        as_of: Timestamp,
    },
    Snapshots(Vec<Snapshot>),
    Restored(Box<Restored>),
    Taken(InputTaken),
    Hooks(Box<HooksView>),
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub target: Target,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// `None`: accepted.
    #[serde(default)]
    pub error: Option<crate::error::WireError>,
    /// What it was before, where that is worth a word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

wire_enum!(
    /// How well a host can be heard.
    Reachability {
        Fresh = "fresh",
        Late = "late",
        Lost = "lost",
    }
);
