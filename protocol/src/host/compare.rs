//! What differs between two states of a repository: asked of a host, shown to a client.
//!
//! A host answers in pieces and waits for the reader: it sends [`WINDOW`] pieces, and more as
//! [`crate::order::Question::More`] asks for them, so that a difference of any size fills no memory on its way.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, HostId, TaskId};
use crate::wire_enum::wire_enum;

/// Pieces that a host sends before it waits to be asked for more.
pub const WINDOW: u32 = 32;
/// Largest piece.
pub const PIECE: usize = 256 << 10;
/// Changed files in one piece.
pub const FILES_IN_PIECE: usize = 500;

/// The two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// Full ids of commits of a repository.
    Commits { repo: String, from: String, to: String },
    /// The base of an agent's workspace, and all that is in it now, uncommitted and untracked files too.
    Workspace { agent: AgentId },
}

wire_enum!(
    /// How a difference is told.
    CompareForm {
        /// One patch, as `git diff --binary` writes it.
        Patch = "patch",
        /// A [`FileChange`] per file.
        Files = "files",
        /// A file per commit that `git am` takes; of commits only.
        Mail = "mail",
    }
);

wire_enum!(
    /// What became of a file.
    FileStatus {
        Added = "added",
        Modified = "modified",
        Deleted = "deleted",
        Renamed = "renamed",
        Copied = "copied",
        /// Another kind of thing under the same name: a link, a submodule.
        TypeChanged = "type-changed",
    }
);

/// One file that differs. Paths are bytes: git knows no other rule for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Where it was before, of a renamed or copied one.
    #[serde(default)]
    pub old_path: Option<serde_bytes::ByteBuf>,
    pub status: FileStatus,
    /// `None` for a binary file.
    #[serde(default)]
    pub insertions: Option<u64>,
    #[serde(default)]
    pub deletions: Option<u64>,
}

/// The head of a host's answer: the two sides as they are now.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sides {
    /// Commit.
    pub from: String,
    /// Commit; `None` for a workspace, whose uncommitted files are in none.
    #[serde(default)]
    pub to: Option<String>,
    /// What a difference cannot show, such as a repository within the workspace.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The head of the manager's answer: what was compared.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// Name of the task or agent.
    pub name: String,
    #[serde(default)]
    pub task: Option<TaskId>,
    #[serde(default)]
    pub attempt: Option<u32>,
    pub agent: AgentId,
    pub host: HostId,
    pub sides: Sides,
}
