//! What a client asks of the manager, in three kinds that are one tag on the wire. A [`Mutation`] changes what the manager
//! wants and is kept: it has a key, and the core decides it. An [`Action`] is carried out at once, on a host or on the bus,
//! and leaves no record. A [`Query`] changes nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, EnumAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::agent::{AgentSpec, Blob, Environment, Phase};
use crate::change::Change;
use crate::compare::CompareForm;
use crate::exec::{ExecInput, ExecOpen, ExecTalk};
use crate::files::{FileArea, FileNode, FilePath, FileWrite};
use crate::house::HouseItem;
use crate::ids::{HostId, MessageId, RequestKey, RunId};
use crate::message::{MessageUntil, Typing};
use crate::order::Discard;
use crate::row::{RowFilter, WatchRows};
use crate::snapshot::SnapshotWish;
use crate::task::{RunSpec, SubmitTask, Verdict};
use crate::time::Timestamp;
use crate::top::TopWish;
use crate::wire::one_of::{Named, has_variant};

use super::api::{LogStart, Target, Until};

/// One request. On the wire it is the variant itself, whichever kind it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Mutation(Mutation),
    Action(Action),
    Query(Query),
}

/// Changes what the manager wants. The same key gives the first answer again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutation {
    CreateAgent(Box<CreateAgent>),
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
    SubmitRun(Box<SubmitRun>),
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
        /// `max_parallel` stays as it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_parallel: bool,
        /// Caps by label, as in a run; none: no cap for this label any more. Those that are not named stay.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        caps: BTreeMap<String, Option<u32>>,
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
    /// Forget runs that a survey showed, if they ended so long ago. What is gone already counts as done.
    FreeRuns {
        key: RequestKey,
        runs: Vec<RunId>,
        older_ms: u64,
    },
    SendMessage {
        key: RequestKey,
        targets: Vec<Target>,
        typing: Typing,
    },
    CancelMessages {
        key: RequestKey,
        messages: Vec<MessageId>,
    },
}

/// Is carried out at once and leaves no record with the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Exec {
        target: Target,
        program: Vec<String>,
        environment: Environment,
        #[serde(with = "serde_bytes")]
        stdin: Vec<u8>,
    },
    /// A piece of a blob; the last one makes the manager check the digest.
    PutBlob {
        sha256: String,
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        last: bool,
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
    /// Remove what a survey showed on the bus, if it was brought so long ago and still nothing names it. Repeatable
    /// by nature: what is gone already counts as done.
    FreeBlobs {
        items: Vec<HouseItem>,
        older_ms: u64,
    },
    /// Remove what a survey showed. Repeatable by nature: what is gone already counts as done.
    Free {
        host: HostId,
        items: Vec<HouseItem>,
        older_ms: u64,
        discard: Discard,
    },
    Snapshot(SnapshotWish),
    /// A program beside an agent: [`Item::Talk`], then its output; the reply is its end, and it ends with its client.
    ExecOpen(ExecOpen),
    ExecInput {
        to: ExecTalk,
        input: ExecInput,
    },
}

/// Changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    Status,
    Hosts,
    ListAgents(AgentFilter),
    ShowAgents {
        targets: Vec<Target>,
    },
    /// One item per agent when it is reached or can no longer be.
    WaitAgents {
        targets: Vec<Target>,
        until: Until,
    },
    /// Bytes of a transcript as items.
    Logs {
        target: Target,
        from: LogStart,
        follow: bool,
        /// Without the sealed values of its environment; refused where those are not known.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redact: bool,
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
    ResolveRepo {
        repo: String,
        base: Option<String>,
    },
    ListRuns,
    /// Run and tasks, whole.
    ShowRun {
        run: Target,
    },
    /// The run as an item at each change until it has ended.
    FollowRun {
        run: Target,
    },
    /// Explain why an agent, run or task is waiting.
    Why {
        target: Target,
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
    /// The last merge of the run as an item at each change until it is over.
    FollowMerge {
        run: Target,
    },
    /// One task, whole, named as above.
    ShowTask {
        task: Target,
    },
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
    /// The rows of a list as items, then what changes of them, without end.
    WatchRows(WatchRows),
    /// What agents take of their hosts, as items.
    Top(TopWish),
    /// The hooks that are in force, the settings being looked at anew.
    Hooks,
}

/// What may be sent as a request: a whole one, or one of a kind.
pub trait AnyRequest: Serialize {}

impl AnyRequest for Request {}

macro_rules! kinds {
    ($($kind:ident),+) => {
        $(impl AnyRequest for $kind {}

        impl From<$kind> for Request {
            fn from(request: $kind) -> Self {
                Self::$kind(request)
            }
        })+

        impl Serialize for Request {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$kind(request) => request.serialize(serializer),)+
                }
            }
        }

        impl<'de> Visitor<'de> for OfAnyKind {
            type Value = Request;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request")
            }

            fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Request, A::Error> {
                let (name, access) = data.variant::<String>()?;
                $(if has_variant::<$kind>(&name) {
                    return $kind::deserialize(Named { name, access }).map(Request::$kind);
                })+
                Err(de::Error::custom(format_args!("unknown request `{name}`")))
            }
        }
    };
}

kinds!(Mutation, Action, Query);

struct OfAnyKind;

impl<'de> Deserialize<'de> for Request {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("Request", &[], OfAnyKind)
    }
}

impl Mutation {
    /// What makes it repeatable.
    #[must_use]
    pub fn key(&self) -> &RequestKey {
        match self {
            Self::CreateAgent(create) => &create.key,
            Self::SubmitRun(submit) => &submit.key,
            Self::AddTasks(add) => &add.key,
            Self::DecideTasks(decide) => &decide.key,
            Self::MergeRun(merge) => &merge.key,
            Self::StopAgents { key, .. }
            | Self::DestroyAgents { key, .. }
            | Self::CancelRun { key, .. }
            | Self::RetryTasks { key, .. }
            | Self::ScaleRun { key, .. }
            | Self::CloseRun { key, .. }
            | Self::ChangeAgents { key, .. }
            | Self::SendMessage { key, .. }
            | Self::CancelMessages { key, .. }
            | Self::FreeRuns { key, .. } => key,
        }
    }

    /// The blobs it names, which were brought before it.
    #[must_use]
    pub fn blobs(&self) -> Vec<&Blob> {
        match self {
            Self::CreateAgent(create) => {
                let spec = &create.spec;
                [&spec.prompt, &spec.feedback, &spec.inputs].into_iter().flatten().collect()
            }
            Self::SubmitRun(submit) => {
                submit.tasks.iter().filter_map(|task| task.spec.prompt.as_ref()).collect()
            }
            Self::AddTasks(add) => add.tasks.iter().filter_map(|task| task.spec.prompt.as_ref()).collect(),
            Self::DecideTasks(decide) => decide.feedback.iter().collect(),
            Self::StopAgents { .. }
            | Self::DestroyAgents { .. }
            | Self::CancelRun { .. }
            | Self::RetryTasks { .. }
            | Self::ScaleRun { .. }
            | Self::CloseRun { .. }
            | Self::ChangeAgents { .. }
            | Self::MergeRun(_)
            | Self::SendMessage { .. }
            | Self::CancelMessages { .. }
            | Self::FreeRuns { .. } => Vec::new(),
        }
    }
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
