//! What takes space, on a host and on the bus, and what of it may go.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, HostId, RunId};
use crate::time::Timestamp;

/// One thing that takes space on a host.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HouseItem {
    /// Of an agent that is there: what it wrote, without the base below an overlay. Goes with the agent.
    Workspace { agent: AgentId },
    /// What an agent that is there has printed. Goes to the archive with it.
    Transcript { agent: AgentId },
    /// Declared outputs of an agent that is there.
    Outputs { agent: AgentId },
    /// What is kept of a destroyed agent: transcript, outputs, end.
    Archive { agent: AgentId },
    /// A base that no workspace lies on.
    Base { path: String },
    /// A ref of ours in a person's repository whose work is in his own refs.
    Ref { repo: String, name: String, commit: String },
    /// The cgroup of an agent that has ended; nothing is in it. This one and those below are told only to who asks for
    /// kinds that were added since.
    Group { agent: AgentId },
    /// What an ended agent had for people to look at.
    Session { agent: AgentId },
    /// A socket that nobody listens on any more.
    Socket { path: String },
    /// Records of a run that is over, of its tasks, attempts and merge. Held by the manager, on no host.
    Run { run: RunId },
    /// A prompt, log or input on the bus that no record names. This one and the next are told only to who asks for
    /// blobs.
    Blob { name: String },
    /// What is left on the bus of one that was never brought to its end.
    Cut { name: String },
}

/// How much it takes, and since when nothing needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    pub item: HouseItem,
    /// The label of an agent, a commit; for people.
    pub label: String,
    pub bytes: u64,
    /// In the host's time: the end of an agent, the making of a base, the date of a commit.
    pub since: Timestamp,
    /// Why it cannot go.
    #[serde(default)]
    pub kept: Option<String>,
}

/// What became of one thing that was to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    pub item: HouseItem,
    /// 0 when it was gone already.
    pub bytes: u64,
    /// Why it is still there.
    #[serde(default)]
    pub kept: Option<String>,
}

/// What the bus keeps of one kind of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamUse {
    pub name: String,
    pub bytes: u64,
    /// Beyond it, the oldest go, or new ones are refused.
    pub most_bytes: u64,
    pub messages: u64,
    /// What nothing names of it. `None`: nobody asked, or all of it is needed by its nature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unnamed_bytes: Option<u64>,
}

/// A host that did not say what it holds.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unheard {
    pub host: HostId,
    pub error: crate::error::WireError,
}
