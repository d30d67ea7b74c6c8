//! What a host keeps of an agent on its disk, so that any later hostd decides the same.

use protocol::agent::{AgentSpec, End, ResourceLimits, first_launch};
use protocol::ids::{AgentId, Generation};
use protocol::order::Discard;
use protocol::report::Collected;
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

pub const RECORD_VERSION: u32 = 1;

/// `agent.json` in the agent's folder. Fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub version: u32,
    pub agent: AgentId,
    pub generation: Generation,
    pub wanted: Wanted,
    pub spec: AgentSpec,
    pub created_at: Timestamp,
    /// 32 hex digits: identity of the transcript.
    pub epoch: String,
    /// Once it is asked to stop, an end is `requested` whatever the program makes of it.
    #[serde(default)]
    pub stop_requested: bool,
    #[serde(default)]
    pub end: Option<End>,
    #[serde(default)]
    pub collected: Option<Collected>,
    #[serde(default)]
    pub removed: bool,
    /// How often it was started, the current or last time included; `spec.launch` is how often it shall be.
    #[serde(default = "first_launch", skip_serializing_if = "is_first")]
    pub launch: u32,
    /// When the order for that start was taken; `None`: with the one that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched_at: Option<Timestamp>,
    /// The limits in force while those of the spec are not, or not known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceLimits>,
    /// How earlier starts ended, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<End>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_first(launch: &u32) -> bool {
    *launch == first_launch()
}

impl AgentRecord {
    /// The deadline that the supervisor is started with. It counts from the acceptance of the order, which lies
    /// before the order's `expires`: from there the manager can tell when the agent is gone at the latest, however
    /// long its start took.
    #[must_use]
    pub fn first_lease_until(&self) -> Option<Timestamp> {
        let taken_at = self.launched_at.unwrap_or(self.created_at);
        self.spec.lease_ms.map(|length_ms| taken_at.after_ms(length_ms))
    }
}

/// What the last order asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    Running,
    Stopped { grace_ms: u64 },
    Destroyed { discard: Discard },
}
