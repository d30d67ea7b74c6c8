//! What can be changed of agents that are there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// What can be changed of agents that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Processes stand still; memory and workspace stay as they are.
    Freeze,
    Thaw,
    /// An ended agent runs once more, in its workspace and transcript.
    Start,
    Rename {
        name: Name,
    },
    Label {
        set: BTreeMap<String, String>,
        remove: Vec<String>,
    },
    Limit(LimitChange),
}

/// `None` keeps a limit as it is, 0 takes it away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitChange {
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    #[serde(default)]
    pub cpu_millis: Option<u64>,
    #[serde(default)]
    pub pids: Option<u64>,
    #[serde(default)]
    pub time_ms: Option<u64>,
}
