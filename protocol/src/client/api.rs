//! Client ↔ manager, over the manager's Unix socket.
//!
//! Both sides begin with [`crate::codec::Hello`]. A request is a frame of kind [`REQUEST`]; it is answered by any
//! number of frames of kind [`ITEM`] and exactly one of kind [`REPLY`] or [`ERROR`], all with the request's id.
//! Every mutation has a key: the same key gives the first answer again.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::{AgentSpec, Blob, Environment, Phase};
pub use crate::change::{Change, LimitChange};
use crate::compare::{CompareForm, Comparison, FileChange};
use crate::event::Event;
use crate::exec::{ExecInput, ExecOpen, ExecTalk, InputTaken};
use crate::files::{FileArea, FileList, FileNode, FilePath, FilePiece, FileWrite};
use crate::house::{Freed, Holding, HouseItem, StreamUse, Unheard};
use crate::ids::{AgentId, HostId, MessageId, RequestKey, RunId, TaskId};
use crate::merge::MergeView;
use crate::message::{MessageView, Sent, Typing};
use crate::notify::HooksView;
use crate::order::{Discard, OutputStream, ResolvedBase};
use crate::row::{AgentRow, RowFilter, RowItem, WatchRows};
use crate::signals::PhaseReason;
use crate::snapshot::{Restored, Snapshot, SnapshotWish};
use crate::task::{RunSpec, RunView, SubmitTask, TaskView, Verdict};
use crate::time::Timestamp;
use crate::top::{TopView, TopWish};
use crate::wire_enum::wire_enum;

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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    Status,
    Hosts,
    // Agents
    CreateAgent(Box<CreateAgent>),
    ListAgents(AgentFilter),
    ShowAgents {
        targets: Vec<Target>,
    },
    /// One item per agent when it is reached or can no longer be.
    WaitAgents {
        targets: Vec<Target>,
        until: Until,
    },
    StopAgents {
        key: RequestKey,
        targets: Vec<Target>,
        grace_ms: Option<u64>,
    },
    DestroyAgents {
        key: RequestKey,
        targets: Vec<Target>,
        discard: Discard,
    },
    /// Bytes of a transcript as items.
    Logs {
        target: Target,
        from: LogStart,
        follow: bool,
    },
    Exec {
        target: Target,
        program: Vec<String>,
        environment: Environment,
        #[serde(with = "serde_bytes")]
        stdin: Vec<u8>,
    },
    /// Events as items: those since `since`, then, with `follow`, as they come.
    Events {
        since: Option<Timestamp>,
        follow: bool,
        targets: Vec<Target>,
        /// The cursor of an earlier event, to go on after it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    // Runs
    ResolveRepo {
        repo: String,
        base: Option<String>,
    },
    /// A piece of a blob; the last one makes the manager check the digest.
    PutBlob {
        sha256: String,
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        last: bool,
    },
    SubmitRun(Box<SubmitRun>),
    ListRuns,
    /// Run and tasks, whole.
    ShowRun {
        run: Target,
    },
    /// The run as an item at each change until it has ended.
    FollowRun {
        run: Target,
    },
    /// And what depends on it. What is over stays as it is, which the outcomes tell.
    CancelRun {
        key: RequestKey,
        run: Target,
        tasks: Vec<Target>,
        /// Between the request to end and the kill, instead of the task's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grace_ms: Option<u64>,
    },
    RetryTasks {
        key: RequestKey,
        run: Target,
        tasks: Vec<Target>,
    },
    /// Why an agent, run or task is not further.
    Why {
        target: Target,
    },
    /// More tasks of an open run. All of them or none.
    AddTasks(Box<AddTasks>),
    /// No more tasks come.
    CloseRun {
        key: RequestKey,
        run: Target,
    },
    /// How many tasks of a run may be live at once from now on; none: as many as hosts take.
    ScaleRun {
        key: RequestKey,
        run: Target,
        max_parallel: Option<u32>,
    },
    /// Agents as rows of a list.
    ListRows(RowFilter),
    /// What an agent's terminal shows, with up to `history` lines above.
    Capture {
        target: Target,
        history: u32,
        colours: bool,
    },
    /// What a task or agent changed: [`Item::Compared`], then its pieces. A task is `RUN/TASK`, a name in the latest
    /// run, or an id.
    Compare {
        target: Target,
        /// The last one when absent.
        attempt: Option<u32>,
        form: CompareForm,
    },
    /// Each is changed or refused on its own. Accepted means wanted; `WaitAgents` until `Applied` tells when it is so.
    ChangeAgents {
        key: RequestKey,
        targets: Vec<Target>,
        change: Change,
    },
    /// What a person says of finished tasks, each `RUN/TASK`, a name in the latest run, or an id.
    DecideTasks(Box<DecideTasks>),
    /// Accepted work of a run into a branch; answered by the merge as it begins.
    MergeRun(Box<MergeRun>),
    /// The last merge of the run as an item at each change until it is over.
    FollowMerge {
        run: Target,
    },
    /// One task, whole, named as above.
    ShowTask {
        task: Target,
    },
    // Files
    ListFiles {
        target: Target,
        area: FileArea,
        path: FilePath,
        #[serde(default, with = "serde_bytes")]
        after: Option<Vec<u8>>,
    },
    /// The whole file as pieces. With `changing`, as long as it was at first, also when it is being written.
    GetFile {
        target: Target,
        area: FileArea,
        path: FilePath,
        #[serde(default)]
        changing: bool,
    },
    /// A step of an upload, which is its key.
    PutFile {
        target: Target,
        write: FileWrite,
    },
    /// Has no key: a folder or link that is there already is what was asked for.
    MakeNode {
        target: Target,
        path: FilePath,
        node: FileNode,
    },
    /// What takes space, as items: of these agents, or of the whole fleet when there are none.
    Survey {
        targets: Vec<Target>,
        deep: bool,
        /// Also kinds that were added since, which an older client could not read.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        added: bool,
        /// Also what no record names on the bus.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        blobs: bool,
    },
    /// Take away what a survey showed on the bus, if it was brought so long ago and still nothing names it. Repeatable
    /// by nature: what is gone already counts as done.
    FreeBlobs {
        items: Vec<HouseItem>,
        older_ms: u64,
    },
    /// Forget runs that a survey showed, if they ended so long ago. What is gone already counts as done.
    FreeRuns {
        key: RequestKey,
        runs: Vec<RunId>,
        older_ms: u64,
    },
    /// Take away what a survey showed. Repeatable by nature: what is gone already counts as done.
    Free {
        host: HostId,
        items: Vec<HouseItem>,
        older_ms: u64,
        discard: Discard,
    },
    // Messages
    SendMessage {
        key: RequestKey,
        targets: Vec<Target>,
        typing: Typing,
    },
    CancelMessages {
        key: RequestKey,
        messages: Vec<MessageId>,
    },
    /// Those with these ids and of these agents (a target may be a message's id too); all that are kept where neither
    /// is named.
    ListMessages {
        targets: Vec<Target>,
        messages: Vec<MessageId>,
    },
    /// One item per message when it is there or can no longer be.
    WaitMessages {
        messages: Vec<MessageId>,
        until: MessageUntil,
    },
    Snapshot(SnapshotWish),
    /// The rows of a list as items, then what changes of them, without end.
    WatchRows(WatchRows),
    /// What agents take of their hosts, as items.
    Top(TopWish),
    /// A program beside an agent: [`Item::Talk`], then its output; the reply is its end, and it ends with its client.
    ExecOpen(ExecOpen),
    ExecInput {
        to: ExecTalk,
        input: ExecInput,
    },
    /// The hooks that are in force, the settings being looked at anew.
    Hooks,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateAgent {
    pub key: RequestKey,
    pub spec: AgentSpec,
    /// `None`: the manager places it.
    pub host: Option<HostId>,
    pub environment: Environment,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRun {
    pub key: RequestKey,
    pub run: Target,
    /// `None`: the branch that the repository's HEAD is on.
    #[serde(default)]
    pub into: Option<String>,
    /// All that are accepted when empty.
    #[serde(default)]
    pub tasks: Vec<Target>,
    /// Merge, but neither verify nor move the branch.
    #[serde(default)]
    pub dry_run: bool,
    pub verify: bool,
    /// Of the merge commits.
    #[serde(default)]
    pub message: Option<String>,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecideTasks {
    pub key: RequestKey,
    pub tasks: Vec<Target>,
    pub verdict: Verdict,
    /// The person, as this machine calls him.
    pub by: String,
    /// At most [`COMMENT_LIMIT`] bytes.
    #[serde(default)]
    pub comment: String,
    /// For the next attempt of a rejected task.
    #[serde(default)]
    pub feedback: Option<Blob>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitRun {
    pub key: RequestKey,
    pub run: RunSpec,
    pub tasks: Vec<SubmitTask>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddTasks {
    pub key: RequestKey,
    pub run: Target,
    pub tasks: Vec<SubmitTask>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFilter {
    /// Also ended attempts and destroyed agents.
    #[serde(default)]
    pub all: bool,
    /// Every pair must match.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub phases: Vec<Phase>,
    #[serde(default)]
    pub run: Option<Target>,
}

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
    /// The head of a [`Request::Compare`].
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

#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
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
