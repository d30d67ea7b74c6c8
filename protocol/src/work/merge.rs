//! Bringing accepted work into a branch: what a host is asked for it, and how far it is.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, HostId, Name, RunId, TaskId};
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// The branch that work is to be brought into, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeTarget {
    pub branch: String,
    /// `None`: there is none yet.
    #[serde(default)]
    pub tip: Option<String>,
    /// Where it begins: its tip, or the repository's HEAD for a new one.
    pub start: String,
    /// The checkout of a person that is on it.
    #[serde(default)]
    pub checked_out: Option<String>,
    /// That checkout has changes that are in no commit, or it is not known.
    #[serde(default)]
    pub dirty: bool,
    /// Of the branches that were asked about: those that have commits which are in neither the recorded work nor this
    /// branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<MovedBranch>,
}

/// The branch of a task, and the commit that was recorded for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedBranch {
    pub branch: String,
    pub commit: String,
}

/// The branch of a task that got commits after its acceptance.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedBranch {
    pub branch: String,
    pub tip: String,
    /// How many commits of it are not merged.
    pub commits: u64,
    /// The first of them, newest first, each as a short id and a subject.
    #[serde(default)]
    pub shown: Vec<String>,
}

/// One merge in a private checkout of the host. The same wish gives the same commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeWish {
    pub repo: String,
    pub onto: String,
    pub work: String,
    pub message: String,
    /// Date of the commit.
    pub at: Timestamp,
    /// Ref of ours that keeps the commit.
    pub keep: String,
    /// Nothing is kept: the commit is only looked at. A host that does not know this keeps it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeResult {
    Merged {
        commit: String,
    },
    /// All of it is there: as commits, or as other commits with the same effect.
    Already,
    Conflict {
        files: Vec<ConflictFile>,
    },
}

/// A file that both sides changed. Ids of blobs; `None` where a side has no such file.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictFile {
    pub path: String,
    #[serde(default)]
    pub base: Option<String>,
    #[serde(default)]
    pub ours: Option<String>,
    #[serde(default)]
    pub theirs: Option<String>,
}

wire_enum!(
    /// How a merge as a whole stands.
    MergeState {
        UnderWay = "under-way",
        Done = "done",
        /// The branch was not moved.
        Refused = "refused",
    }
);

wire_enum!(
    /// What became of one task's work.
    MergeOutcome {
        Waiting = "waiting",
        Verifying = "verifying",
        Merged = "merged",
        Already = "already-there",
        Conflict = "conflict",
        /// It does not verify on top of what was merged before it.
        Red = "red",
        /// A task that it depends on was left out.
        LeftOut = "left-out",
        Failed = "failed",
    }
);

impl MergeOutcome {
    /// The branch has it, or would.
    #[must_use]
    pub const fn is_in(self) -> bool {
        matches!(self, Self::Merged | Self::Already)
    }

    #[must_use]
    pub const fn is_out(self) -> bool {
        matches!(self, Self::Conflict | Self::Red | Self::LeftOut | Self::Failed)
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRow {
    pub task: TaskId,
    pub name: Name,
    /// The recorded commit.
    pub commit: String,
    #[serde(default)]
    pub branch: Option<String>,
    pub outcome: MergeOutcome,
    #[serde(default)]
    pub reason: String,
    /// The merge commit, or the tip that had it already.
    #[serde(default)]
    pub merged: Option<String>,
    /// Verifies the merged commit; its transcript is the log.
    #[serde(default)]
    pub agent: Option<AgentId>,
    #[serde(default)]
    pub files: Vec<ConflictFile>,
    /// Its branch moved after its acceptance: what it got since is not merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<MovedBranch>,
}

/// A merge as operators see it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeView {
    pub run: RunId,
    pub run_name: Name,
    /// Counts the merges of a run.
    pub number: u32,
    pub by: String,
    pub host: HostId,
    pub repo: String,
    /// Empty until the host has said.
    pub into: String,
    pub dry_run: bool,
    pub verify: bool,
    pub state: MergeState,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub remedy: String,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// The branch before and after.
    #[serde(default)]
    pub from: Option<String>,
    #[serde(default)]
    pub to: Option<String>,
    /// Times that the branch moved meanwhile, so that it was begun anew.
    #[serde(default)]
    pub rounds: u32,
    /// Which verification of all that was merged is under way, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checking: Option<String>,
    /// In the order in which they are merged.
    pub rows: Vec<MergeRow>,
}
