//! What is stored: one record per agent, run, task, message and answered request, under keys that hold ids only.
//!
//! Values are named MessagePack with a version. Fields are only added, with a default; an older build ignores those
//! it does not know. A record that cannot be read, or has a higher version, is kept as it is and named: see
//! [`Quarantined`]. Buckets and keys: `desired.<agent>`, `runs.<run>`, `tasks.<run>.<task>`, `outbox.<message>` and
//! `requests.<base32hex of the key>`, where the first token is the bucket.

use data_encoding::BASE32HEX_NOPAD;
use protocol::agent::{AgentSpec, Blob};
use protocol::api::{Reply, Target};
use protocol::codec;
use protocol::error::WireError;
use protocol::ids::{AgentId, Generation, HostId, MessageId, Name, Region, RequestKey, RunId, TaskId};
use protocol::message::{MessageState, Typing};
use protocol::order::Discard;
use protocol::task::{Attempt, Decision, RunSpec, TaskSpec, TaskState};
use protocol::time::Timestamp;
use serde::de::DeserializeOwned;

use crate::merge::MergeRecord;
use serde::{Deserialize, Serialize};

pub const DESIRED: &str = "desired";
pub const RUNS: &str = "runs";
pub const TASKS: &str = "tasks";
pub const OUTBOX: &str = "outbox";
pub const REQUESTS: &str = "requests";

/// The version this build writes into every record.
pub const RECORD_VERSION: u32 = 1;

/// One key of one bucket; no value means that the key is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub bucket: &'static str,
    pub key: String,
    pub value: Option<Vec<u8>>,
}

/// A stored record that this build cannot use. It stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub bucket: &'static str,
    pub key: String,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    Running,
    Stopped,
    Destroyed,
}

impl Wanted {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Destroyed => "destroyed",
        }
    }
}

/// The request that made a thing: kept in the thing's own record, so that both are there or neither.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub key: RequestKey,
    /// SHA-256 of the request without the values of its environment.
    pub digest: String,
}

/// What shall be of one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesiredRecord {
    pub v: u32,
    pub region: Region,
    pub host: HostId,
    pub generation: Generation,
    pub wanted: Wanted,
    pub discard: Discard,
    pub spec: AgentSpec,
    pub created_at: Timestamp,
    /// Grace of the stop, where it differs from the spec's.
    #[serde(default)]
    pub grace_ms: Option<u64>,
    /// No order of it was ever handed out: nothing of it exists.
    #[serde(default)]
    pub void: bool,
    /// The host refused to destroy it since it holds the only copy of work; not asked again by itself.
    #[serde(default)]
    pub kept: bool,
    /// Of one that is wanted destroyed: it was to stop anyway, and a refusal does not change that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stops_anyway: bool,
    /// Why its host refused the limits that were wanted last; those in force are wanted since. Told until the next change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_limits: Option<String>,
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Until then the leases that it was given may keep it alive, its first one and a tenth included; raised before
    /// an order or an answer that gives more leaves. `None`: it runs without one, or nobody knows under which.
    #[serde(default)]
    pub lease_until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    pub v: u32,
    pub id: RunId,
    pub spec: RunSpec,
    pub submitted_at: Timestamp,
    /// In the order of submission.
    pub tasks: Vec<TaskId>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub origin: Option<Origin>,
    /// The last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRecord>,
    /// The request that added the last tasks: in the same record as they are, so that it is never carried out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Origin>,
}

/// The failing log for the next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feedback {
    #[default]
    None,
    /// To be had from this agent's transcript.
    Wanted {
        agent: AgentId,
        host: HostId,
    },
    Kept {
        blob: Blob,
    },
}

/// The branch of an accepted task in the user's repository.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Landing {
    #[default]
    None,
    Due,
    Done,
    Refused,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub v: u32,
    pub id: TaskId,
    pub run: RunId,
    /// Place in its run.
    pub place: u32,
    pub spec: TaskSpec,
    pub state: TaskState,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub unverified: bool,
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    #[serde(default)]
    pub branch: Option<String>,
    pub submitted_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Starts since the task was submitted or last retried by hand; reserved before each start.
    #[serde(default)]
    pub starts: u32,
    /// Those of them that infrastructure ruined.
    #[serde(default)]
    pub uncharged: u32,
    /// Back-off.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    #[serde(default)]
    pub cancel: bool,
    /// How long the program then gets between the request to end and the kill, instead of the task's own grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_grace_ms: Option<u64>,
    /// Cancelled because this task of its run did not become accepted.
    #[serde(default)]
    pub blocked_by: Option<Name>,
    #[serde(default)]
    pub feedback: Feedback,
    #[serde(default)]
    pub landing: Landing,
    /// What the tasks before it left, once it was kept for the next attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Blob>,
    /// Of persons, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
    /// Starts that rejections gave beyond the budget.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub granted: u32,
    /// Where its branch is, or may be, of work that was accepted and then rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<String>,
    /// The commit that brought it into a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged: Option<String>,
    /// The bus lost its record: this one stands for it, and says nothing of what it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl TaskRecord {
    /// A new task, which waits.
    pub(crate) fn queued(now: Timestamp, id: TaskId, run: RunId, place: u32, spec: TaskSpec) -> Self {
        Self {
            v: RECORD_VERSION,
            id,
            run,
            place,
            spec,
            state: TaskState::Queued,
            reason: String::new(),
            unverified: false,
            attempts: Vec::new(),
            branch: None,
            submitted_at: now,
            ended_at: None,
            starts: 0,
            uncharged: 0,
            not_before: None,
            cancel: false,
            cancel_grace_ms: None,
            blocked_by: None,
            feedback: Feedback::None,
            landing: Landing::None,
            inputs: None,
            decisions: Vec::new(),
            granted: 0,
            landed: None,
            merged: None,
            lost: false,
        }
    }

    /// What stands for a task whose record is gone: over, since nothing more can come of it.
    pub(crate) fn lost(now: Timestamp, id: TaskId, run: RunId, place: u32) -> Option<Self> {
        let spec = TaskSpec::bare(format!("lost-{}", id.tail()).parse().ok()?);
        let reason = "the bus lost its record: what it was and what became of it is not known";
        Some(Self {
            state: TaskState::Failed,
            reason: reason.to_owned(),
            ended_at: Some(now),
            lost: true,
            ..Self::queued(now, id, run, place, spec)
        })
    }
}

/// A text to one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRecord {
    pub v: u32,
    pub id: MessageId,
    pub agent: AgentId,
    /// Its place among all messages: an agent's are delivered in this order.
    pub place: u64,
    /// Under which its host takes it, once; given before it is first sent.
    #[serde(default)]
    pub number: Option<u64>,
    pub sha256: String,
    pub bytes: u64,
    /// The beginning of its first line.
    #[serde(default)]
    pub preview: String,
    #[serde(default)]
    pub press_enter: bool,
    #[serde(default)]
    pub at_once: bool,
    /// Until it is decided.
    #[serde(default)]
    pub typing: Option<Typing>,
    pub accepted_at: Timestamp,
    pub state: MessageState,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub decided_at: Option<Timestamp>,
    #[serde(default)]
    pub turn_done_at: Option<Timestamp>,
    /// Its sender has taken it back; the host may have typed it already.
    #[serde(default)]
    pub cancel: bool,
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Place of its target in that request.
    #[serde(default)]
    pub target: u32,
}

/// One target of a `destroy` that is not decided yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenTarget {
    pub target: Target,
    /// Resolved once: by the time of a retry the name may be someone else's.
    pub found: Result<AgentId, WireError>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestState {
    /// A `destroy` whose hosts have not decided.
    Open {
        targets: Vec<OpenTarget>,
    },
    Answered {
        reply: Reply,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    pub v: u32,
    pub key: RequestKey,
    pub digest: String,
    pub at: Timestamp,
    pub state: RequestState,
}

#[must_use]
pub fn desired_key(agent: AgentId) -> String {
    agent.to_string()
}

#[must_use]
pub fn run_key(run: RunId) -> String {
    run.to_string()
}

#[must_use]
pub fn task_key(run: RunId, task: TaskId) -> String {
    format!("{run}.{task}")
}

#[must_use]
pub fn message_key(message: MessageId) -> String {
    message.to_string()
}

/// A client chooses the text of a request key, so it is encoded; reversible.
#[must_use]
pub fn request_key(key: &RequestKey) -> String {
    BASE32HEX_NOPAD.encode(key.0.as_bytes()).to_ascii_lowercase()
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// # Errors
/// Why this build cannot use the record, for a person.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let Versioned { v } =
        codec::from_bytes(bytes).map_err(|error| format!("it is no record: {}", chain(&error)))?;
    if v > RECORD_VERSION {
        return Err(format!("it has version {v}; this build reads up to {RECORD_VERSION}"));
    }
    codec::from_bytes(bytes).map_err(|error| format!("it cannot be read: {}", chain(&error)))
}

pub(crate) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, String> {
    codec::to_bytes(record).map_err(|error| chain(&error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
