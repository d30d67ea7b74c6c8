//! Host → manager: the whole observed state of one agent, and the heartbeat of a host.

use serde::{Deserialize, Serialize};

pub use crate::containment::Isolation;

use crate::agent::{AgentSpec, End, Phase};
use crate::ids::{AgentId, Fencing, Generation, HostId, Incarnation, Region, Seq};
use crate::message::MessageFacts;
use crate::signals::{Dialog, PhaseReason};
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// Never a delta. Ordered by `(incarnation, seq)`; an older one changes nothing.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub agent: AgentId,
    pub region: Region,
    pub host: HostId,
    pub incarnation: Incarnation,
    pub seq: Seq,
    pub generation: Generation,
    /// Highest fencing this host has seen.
    pub fencing: Fencing,
    pub as_of: Timestamp,
    pub phase: Phase,
    pub life: Life,
    /// What proves the phase: `process`, `screen`, `exit-record`, `job`, …
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_reason: Option<PhaseReason>,
    /// What it asks, while it is BLOCKED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialog: Option<Dialog>,
    /// Why the phase is what it is, for a person.
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub stopping: bool,
    /// The program has ended, processes that it left have not.
    #[serde(default)]
    pub draining: bool,
    /// What does not work as promised: `no-cgroup`, `disk-full`, …
    #[serde(default)]
    pub degraded: Vec<String>,
    pub spec: AgentSpec,
    pub created_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub end: Option<End>,
    #[serde(default)]
    pub workspace: Option<WorkspaceFacts>,
    #[serde(default)]
    pub session: Option<SessionFacts>,
    #[serde(default)]
    pub transcript: Option<TranscriptFacts>,
    /// Set once, after the end.
    #[serde(default)]
    pub collected: Option<Collected>,
    /// What a `destroy` without `--discard` would lose; why it was refused.
    #[serde(default)]
    pub holds: Vec<String>,
    /// Limits that the kernel reads back as in force.
    #[serde(default)]
    pub enforced: Vec<String>,
    #[serde(default)]
    pub user: String,
    /// What keeps its program off hostd's records and off other agents; `None` before its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(default)]
    pub usage: Usage,
    /// What the last order asks for and is not in force. `spec` is what is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<Unmet>,
    /// How its earlier starts ended, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<End>,
    /// Texts that were sent to it.
    #[serde(default, skip_serializing_if = "MessageFacts::is_empty")]
    pub messages: MessageFacts,
    /// What was removed with it and is in no commit: ignored files, repositories inside ignored folders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}

/// A wish that is not in force.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// `name`, `labels`, `limits`, `frozen` or `launch`.
    pub what: String,
    /// Why not, for a person; empty while it is under way.
    #[serde(default)]
    pub why: String,
}

impl Report {
    /// The value of the agent's key is a frame of this kind.
    pub const KIND: &str = "report";

    /// Place in the order of all reports of this host.
    #[must_use]
    pub fn position(&self) -> (Incarnation, Seq) {
        (self.incarnation, self.seq)
    }
}

wire_enum!(
    /// Whether there is anything of the agent on the host.
    Life {
        Present = "present",
        /// Only transcript and end are left.
        Destroyed = "destroyed",
    }
);

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceFacts {
    pub path: String,
    /// `overlay`, `clone`, `worktree` or `plain`.
    pub kind: String,
    #[serde(default)]
    pub repo: Option<String>,
    #[serde(default)]
    pub base_commit: Option<String>,
    #[serde(default)]
    pub base_tree: Option<String>,
    #[serde(default)]
    pub branch: Option<String>,
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Where people attach: a tmux server's socket folder and name, and a session id.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    pub folder: String,
    pub socket: String,
    pub session: String,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptFacts {
    /// 32 hex digits, drawn when the agent's folder was made.
    pub epoch: String,
    pub bytes: u64,
}

/// What an agent left, brought to its repository.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// The recorded commit.
    #[serde(default)]
    pub commit: Option<String>,
    #[serde(default)]
    pub base_commit: Option<String>,
    #[serde(default)]
    pub result_ref: Option<String>,
    /// Commit on the side ref with what was not committed.
    #[serde(default)]
    pub uncommitted: Option<String>,
    /// That side ref; none where the commit is the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncommitted_ref: Option<String>,
    /// Repositories inside the workspace: their files are in no commit of it, and stay where they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Detached or on another branch than it was given.
    #[serde(default)]
    pub branch_drift: Option<String>,
    #[serde(default)]
    pub files: u64,
    #[serde(default)]
    pub insertions: u64,
    #[serde(default)]
    pub deletions: u64,
    /// The `result:` file, where it was asked for and is valid JSON.
    #[serde(default)]
    pub result: Option<String>,
    /// Why the result or an output is missing or wrong.
    #[serde(default)]
    pub problems: Vec<String>,
    #[serde(default)]
    pub outputs: Vec<Output>,
    /// Submodules that the work moves to commits which nobody but the workspace has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_submodules: Vec<String>,
    /// What moved in its source repository while it ran and was not moved by the host, one line each: its HEAD,
    /// branches, tags, stash and changed files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub source_moved: Vec<String>,
    /// Why nothing can be collected, after it was tried again: never success, and no reason to run the program again.
    #[serde(default)]
    pub failed: Option<String>,
    /// The content of the workspace is why, so the failure is the agent's and not the machine's. An older reader takes
    /// every such failure for the machine's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed_by_content: bool,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Core NATS, every 2 s, never stored; every third one carries the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    pub region: Region,
    pub host: HostId,
    pub incarnation: Incarnation,
    pub fencing: Fencing,
    /// The host's clock, so that `expires` can be given in it.
    pub now: Timestamp,
    pub build: String,
    pub facts: HostFacts,
    #[serde(default)]
    pub digest: Option<Vec<DigestRow>>,
}

impl Heartbeat {
    pub const KIND: &str = "heartbeat";
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub cpus: u32,
    pub memory_total_bytes: u64,
    pub memory_available_bytes: u64,
    pub disk_total_bytes: u64,
    pub disk_free_bytes: u64,
    /// 1-minute load average × 100.
    pub load_percent: u64,
    pub boot_id: String,
    pub cgroups: String,
    pub overlay: bool,
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// The share of the disk over which no agent is taken, percent.
    pub disk_share_max_percent: u64,
    /// What does not work on this host.
    #[serde(default)]
    pub degraded: Vec<String>,
    /// Why agents cannot be frozen here, with what mends it; `None` where they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_freeze: Option<String>,
    /// Whom hostd runs as; empty from an older one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Why agents cannot run as another user than `user` here; `None` where they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cannot_change_user: Option<String>,
}

/// One agent in a digest: enough to see that a report was missed, and how quiet it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestRow {
    pub agent: AgentId,
    pub seq: Seq,
    pub incarnation: Incarnation,
    pub phase: Phase,
    #[serde(default)]
    pub last_output: Option<Timestamp>,
    #[serde(default)]
    pub cpu_ms: u64,
    #[serde(default)]
    pub memory_bytes: u64,
    #[serde(default)]
    pub transcript_bytes: u64,
}

/// Host → manager requests on `rpc.<region>.<host>.<method>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostRequest {
    /// Values of an agent's environment.
    Environment { agent: AgentId },
    /// A piece of a blob.
    BlobPart { sha256: String, offset: u64, max: u64 },
    /// A longer lease for an agent.
    RenewLease { agent: AgentId, generation: Generation },
}

impl HostRequest {
    pub const KIND: &str = "host-request";

    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Environment { .. } => "environment",
            Self::BlobPart { .. } => "blob",
            Self::RenewLease { .. } => "lease",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostReply {
    Environment(crate::agent::Environment),
    BlobPart {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        total: u64,
    },
    Lease {
        length_ms: u64,
    },
    Refused(crate::error::WireError),
}

impl HostReply {
    pub const KIND: &str = "host-reply";
}
