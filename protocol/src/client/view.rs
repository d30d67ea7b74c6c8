//! One agent as operators see it, whole. As a row of a list it is [`crate::row::AgentRow`].

use serde::{Deserialize, Serialize};

use crate::agent::{AgentSpec, Phase, Role};
use crate::api::Reachability;
use crate::ids::{AgentId, Generation, HostId, Region};
use crate::message::MessageView;
use crate::report::{Report, Unmet};
use crate::time::Timestamp;

/// An agent as operators see it: what is wanted beside what was last reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub id: AgentId,
    pub name: String,
    pub role: Role,
    pub region: Region,
    pub host: HostId,
    pub reachability: Reachability,
    /// CREATING until the first report.
    pub phase: Phase,
    #[serde(default)]
    pub reason: String,
    /// `running`, `stopped` or `destroyed`; `unowned` when the manager has no record of it.
    pub wanted: String,
    pub as_of: Timestamp,
    pub created_at: Timestamp,
    pub spec: AgentSpec,
    #[serde(default)]
    pub report: Option<Report>,
    #[serde(default)]
    pub last_output: Option<Timestamp>,
    #[serde(default)]
    pub memory_bytes: u64,
    #[serde(default)]
    pub cpu_ms: u64,
    /// Of what is wanted; a report of an older one was made before its host took the last change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Generation>,
    /// What of `spec` is not in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmet: Vec<Unmet>,
    /// Messages that wait to be delivered; in `show` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<MessageView>,
}
