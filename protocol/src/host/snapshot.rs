//! Snapshots of a workspace: asked of its host, kept in the repository, told to clients.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotCall {
    /// Once more each time it is asked: nothing is lost by a repetition.
    Take {
        include_ignored: bool,
    },
    List,
    /// Takes one more first. The agent must stand still or have ended.
    Restore {
        number: u32,
    },
}

/// A client's: asked of the agent's host. A repetition takes one more and loses nothing, so it has no key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotWish {
    pub target: crate::api::Target,
    pub call: SnapshotCall,
}

/// All that was in a workspace but what it names.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// From 1, for each agent.
    pub number: u32,
    /// The ref of the repository that keeps it.
    pub ref_name: String,
    pub commit: String,
    pub tree: String,
    /// HEAD of the workspace then; the commit lies on it.
    pub head: String,
    /// Path of the repository on the host.
    pub repo: String,
    pub at: Timestamp,
    /// Files that differed from HEAD.
    pub files: u64,
    /// Files that git is told to ignore are in it.
    pub ignored: bool,
    /// What was there and is not in it.
    #[serde(default)]
    pub not_saved: Vec<String>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub from: Snapshot,
    /// What was there before.
    pub before: Snapshot,
    pub written: u64,
    pub deleted: u64,
    /// Files that the snapshot does not know of stay.
    #[serde(default)]
    pub left: Vec<String>,
}
