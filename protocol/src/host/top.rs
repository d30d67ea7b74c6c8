//! What agents take of their hosts at this moment: measured when somebody looks, never kept.

use serde::{Deserialize, Serialize};

use crate::house::Unheard;
use crate::ids::AgentId;
use crate::row::{AgentRow, RowFilter};
use crate::time::Timestamp;

/// What a host measured of one agent. What it cannot measure is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    pub agent: AgentId,
    /// When, on a clock of the host that only goes forward; two of these tell the time between them.
    pub at_us: u64,
    /// Since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_as_of: Option<Timestamp>,
}

/// Asks for figures of these agents, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopWish {
    pub filter: RowFilter,
    /// Between two measurements; `None` for one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
}

/// One measurement of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopView {
    /// Figures that are not known are absent in them.
    pub rows: Vec<AgentRow>,
    /// Hosts that did not answer: of their agents no figure is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheard: Vec<Unheard>,
    pub as_of: Timestamp,
}
