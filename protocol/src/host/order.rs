//! Manager → host: orders, which change something and are idempotent, and asks, which are answered.

use serde::{Deserialize, Serialize};

use crate::agent::{AgentSpec, Environment};
use crate::compare::{CompareForm, Compared, FileChange, Sides};
use crate::exec::{ExecInput, InputTaken};
use crate::files::{FileArea, FileList, FileNode, FilePath, FilePiece, FileWrite};
use crate::house::{Freed, Holding, HouseItem};
use crate::ids::{AgentId, Fencing, Generation, HostId, Incarnation, MessageId, OrderId, Region};
use crate::merge::{MergeResult, MergeTarget, MergeWish, RecordedBranch};
use crate::message::Typing;
use crate::screen::ScreenView;
use crate::snapshot::{Restored, Snapshot, SnapshotCall};
use crate::time::Timestamp;
use crate::top::Measured;

/// A command fenced to one run of one host. Dropped unless incarnation, generation and fencing are current.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub id: OrderId,
    pub region: Region,
    pub host: HostId,
    pub incarnation: Incarnation,
    pub fencing: Fencing,
    /// In the host's time.
    pub expires: Timestamp,
    pub command: Command,
}

impl Order {
    pub const KIND: &str = "order";
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// The agent shall exist, as `spec` says, and have been started as often as `spec.launch` says. A higher
    /// generation is how name, labels, limits, `frozen` and `launch` change; all else of the spec is fixed at creation.
    Ensure { agent: AgentId, generation: Generation, spec: Box<AgentSpec> },
    /// The program shall end; the workspace stays. `spec` is there so that a host that never saw the `Ensure` can
    /// keep a tombstone and report it: a late duplicate must not start the agent.
    Stop { agent: AgentId, generation: Generation, grace_ms: u64, spec: Box<AgentSpec> },
    /// Nothing of the agent shall stay but its transcript and its end.
    Destroy { agent: AgentId, generation: Generation, discard: Discard, spec: Box<AgentSpec> },
    /// The text shall be typed once. `number` grows with each message of an agent and is never used again, so that a
    /// late double is known for ever; `sha256` is the text's, as 64 lower-case hex digits.
    Send {
        agent: AgentId,
        generation: Generation,
        message: MessageId,
        number: u64,
        sha256: String,
        typing: Box<Typing>,
    },
    /// A message that was not typed yet shall not be any more. `number` is that of its `Send`, which may come later.
    Recall { agent: AgentId, generation: Generation, message: MessageId, number: u64 },
}

impl Command {
    #[must_use]
    pub fn agent(&self) -> AgentId {
        match self {
            Self::Ensure { agent, .. }
            | Self::Stop { agent, .. }
            | Self::Destroy { agent, .. }
            | Self::Send { agent, .. }
            | Self::Recall { agent, .. } => *agent,
        }
    }

    #[must_use]
    pub fn generation(&self) -> Generation {
        match self {
            Self::Ensure { generation, .. }
            | Self::Stop { generation, .. }
            | Self::Destroy { generation, .. }
            | Self::Send { generation, .. }
            | Self::Recall { generation, .. } => *generation,
        }
    }

    /// Last token of the subject it travels on.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Ensure { .. } => "ensure",
            Self::Stop { .. } => "stop",
            Self::Destroy { .. } => "destroy",
            Self::Send { .. } => "send",
            Self::Recall { .. } => "recall",
        }
    }
}

/// Whether work that exists nowhere else may be thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discard {
    /// Refuse while the workspace holds the only copy of work.
    Keep,
    /// An operator said that it may go.
    Yes,
}

/// A question to a host, answered by [`Answer`] frames on the reply subject. Signed and fenced like an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub id: OrderId,
    pub region: Region,
    pub host: HostId,
    pub fencing: Fencing,
    pub expires: Timestamp,
    pub question: Question,
}

impl Ask {
    pub const KIND: &str = "ask";
    /// Last token of the subject it travels on.
    pub const VERB: &str = "ask";
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Which commit is `base` of `repo`?
    Resolve {
        repo: String,
        base: Option<String>,
    },
    /// Bytes of a transcript from `offset`.
    Read {
        agent: AgentId,
        offset: u64,
        max: u64,
    },
    /// Ship the transcript at once until `until`.
    Follow {
        agent: AgentId,
        until: Timestamp,
    },
    /// The whole reports of these agents, again.
    Report {
        agents: Vec<AgentId>,
    },
    /// Run a program beside the agent, in its workspace and limits.
    Exec {
        agent: AgentId,
        program: Vec<String>,
        environment: Environment,
        #[serde(with = "serde_bytes")]
        stdin: Vec<u8>,
    },
    /// Make `branch` of `repo` point to `commit`, by compare-and-swap.
    Land {
        repo: String,
        branch: String,
        commit: String,
        /// Where it may be before: at an earlier attempt's work, which was rejected after it was accepted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
    },
    /// The difference between two commits of `repo`.
    Diff {
        repo: String,
        from: String,
        to: String,
    },
    /// What an agent's terminal shows, or showed at its end, with up to `history` lines above.
    Screen {
        agent: AgentId,
        history: u32,
        colours: bool,
    },
    /// What differs, of any size, in pieces.
    Compare {
        what: Compared,
        form: CompareForm,
    },
    /// The reader of the answer to ask `talk` takes so many pieces more.
    More {
        talk: OrderId,
        pieces: u32,
    },
    /// Entries of a folder, those after `after`, or the one of what is no folder.
    ListFiles {
        agent: AgentId,
        area: FileArea,
        path: FilePath,
        #[serde(default, with = "serde_bytes")]
        after: Option<Vec<u8>>,
    },
    /// A piece of a file; refused when it has another version by now.
    ReadFile {
        agent: AgentId,
        area: FileArea,
        path: FilePath,
        offset: u64,
        max: u64,
        #[serde(default)]
        version: Option<String>,
    },
    WriteFile {
        agent: AgentId,
        write: FileWrite,
    },
    MakeNode {
        agent: AgentId,
        path: FilePath,
        node: FileNode,
    },
    /// What takes space: of these agents, or of the whole host when there are none. `deep`: also whether each may go,
    /// for which git is asked.
    Survey {
        agents: Vec<AgentId>,
        deep: bool,
        /// Also kinds that were added since, which an older manager could not read.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        added: bool,
    },
    /// Take these away: only what has been without use for so long, and looked at again. What is gone already counts as
    /// done. `discard`: also outputs, which may exist nowhere else.
    Free {
        items: Vec<HouseItem>,
        older_ms: u64,
        discard: Discard,
    },
    /// The branch that work shall go into.
    MergeLook {
        repo: String,
        into: Option<String>,
        /// Asked whether they moved since. A host that does not know this says nothing of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        recorded: Vec<RecordedBranch>,
    },
    Merge(Box<MergeWish>),
    /// Move `branch` from where it was (`None`: it was not there) to `commit`.
    Advance {
        repo: String,
        branch: String,
        commit: String,
        from: Option<String>,
    },
    /// Snapshots of its workspace. Taking and restoring touch files and refs, never what is known of the agent.
    Snapshot {
        agent: AgentId,
        call: SnapshotCall,
    },
    /// What these agents take of the host now.
    Figures {
        agents: Vec<AgentId>,
    },
    /// As [`Question::Exec`], with input in pieces, and output no faster than the reader takes it: [`Question::More`]
    /// grants pieces and is a sign of the reader's life. Without one for half a minute the program is ended.
    ExecOpen {
        agent: AgentId,
        program: Vec<String>,
        environment: Environment,
        input: bool,
    },
    /// More standard input for the program that the ask `talk` has opened.
    ExecInput {
        talk: OrderId,
        input: ExecInput,
    },
    /// Nobody waits for the program any more: it is ended.
    ExecEnd {
        talk: OrderId,
    },
}

/// One frame of an answer; the last one is `Done` or `Refused`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Resolved(ResolvedBase),
    /// `length` is the transcript's at this moment; a read past a trimmed range starts later than asked.
    Bytes {
        offset: u64,
        length: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        ended: bool,
    },
    Output {
        stream: OutputStream,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
    Landed {
        branch: String,
        commit: String,
    },
    Diff {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        whole: bool,
    },
    Done,
    Refused(crate::error::WireError),
    Screen(Box<ScreenView>),
    /// The head of the answer to [`Question::Compare`].
    Compared(Sides),
    Changed(Vec<FileChange>),
    File {
        name: String,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Files(FileList),
    FilePart(FilePiece),
    /// Some of what a host holds; more follow until `Done`.
    Holdings(Vec<Holding>),
    /// One for each item, in their order.
    Freed(Vec<Freed>),
    /// Also the answer to an [`Question::Advance`] of a branch that has moved.
    MergeTarget(MergeTarget),
    MergeResult(MergeResult),
    Snapshots(Vec<Snapshot>),
    Restored(Box<Restored>),
    /// Of some of the agents; more follow until `Done`.
    Figures(Vec<Measured>),
    Taken(InputTaken),
}

impl Answer {
    pub const KIND: &str = "answer";
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// A repository and the commit that a base means now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedBase {
    /// Absolute path of its top folder, or of the bare repository.
    pub repo: String,
    pub commit: String,
    /// The checkout has changes that are not in the commit.
    pub dirty: bool,
}
