//! A host, and the whole installation, as operators see them, and why something in it is waiting.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::Reachability;
use crate::ids::{HostId, Region};
use crate::report::HostFacts;
use crate::time::Timestamp;

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostView {
    pub region: Region,
    pub host: HostId,
    pub reachability: Reachability,
    pub last_seen: Timestamp,
    pub clock_offset_ms: i64,
    pub build: String,
    pub facts: HostFacts,
    pub live_agents: u64,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    pub build: String,
    pub started_at: Timestamp,
    pub now: Timestamp,
    pub fencing: u64,
    /// Records that wait for the bus; above 0 for long means that the bus is away.
    pub unwritten: u64,
    pub bus_connected: bool,
    pub hosts: Vec<HostView>,
    pub agents: BTreeMap<String, u64>,
    pub runs: u64,
    pub queued_tasks: u64,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub subject: String,
    pub state: String,
    pub why: String,
    /// What a person can do; empty when nothing is needed.
    #[serde(default)]
    pub remedy: String,
}
