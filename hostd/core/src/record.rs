//! What a host keeps of an agent on its disk, so that any later hostd decides the same.

use protocol::agent::{AgentSpec, End};
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
}

impl AgentRecord {
    /// The deadline that the supervisor is started with. It counts from the acceptance of the order, which lies
    /// before the order's `expires`: from there the manager can tell when the agent is gone at the latest, however
    /// long its start took.
    #[must_use]
    pub fn first_lease_until(&self) -> Option<Timestamp> {
        self.spec.lease_ms.map(|length_ms| self.created_at.after_ms(length_ms))
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
