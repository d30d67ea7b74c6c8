//! `workspace.json` in an agent's folder: what its workspace is made of. Written last, so its
//! presence says that the workspace is whole; without it, what lies there is rubble of a cut-off
//! `prepare`. Outside the work tree: an agent cannot edit it. Fields are only added.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::{At, Error, Result};
use super::git::User;
use super::overlay::Layers;
use super::repository::Repository;

pub(crate) const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A layer of the agent's own over an immutable base.
    Overlay,
    /// A repository of the agent's own that borrows the person's objects.
    Clone,
    /// A linked worktree of the person's repository: refs are shared with it.
    Worktree,
    /// A folder; there is no repository.
    Plain,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub version: u32,
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<Repository>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_tree: Option<String>,
    /// None: HEAD was made detached, as for verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The lower layer, below the folder of bases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<PathBuf>,
    /// The git folder of a linked worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree_git_dir: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    /// The snapshot that was laid over the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What was prepared in its base, as lines of `info/exclude`: not the agent's work, whatever it says of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepared: Vec<String>,
    pub created_at_ms: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The folders of one agent that belong to its workspace.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) agent: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) upper: PathBuf,
    pub(crate) overlay_work: PathBuf,
    pub(crate) manifest: PathBuf,
}

impl Folders {
    pub(crate) fn of(agent_dir: &Path) -> Self {
        Self {
            agent: agent_dir.to_path_buf(),
            work: agent_dir.join("work"),
            upper: agent_dir.join("upper"),
            overlay_work: agent_dir.join("ovl"),
            manifest: agent_dir.join("workspace.json"),
        }
    }

    pub(crate) fn layers(&self, lower: PathBuf) -> Layers {
        Layers {
            lower,
            upper: self.upper.clone(),
            work: self.overlay_work.clone(),
            merged: self.work.clone(),
        }
    }
}

/// None when there is none: nothing was prepared, or not to the end.
pub(crate) fn read(folders: &Folders) -> Result<Option<Manifest>> {
    let path = &folders.manifest;
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(Error::io("read", path, error)),
    };
    let bad = |detail: String| Error::BadManifest { path: path.clone(), detail };
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    if manifest.version > VERSION {
        return Err(bad(format!("version {} is newer than this hostd knows", manifest.version)));
    }
    Ok(Some(manifest))
}

pub(crate) fn required(folders: &Folders) -> Result<Manifest> {
    read(folders)?.ok_or_else(|| Error::NoWorkspace { agent_dir: folders.agent.clone() })
}

/// On disk as a whole or not at all.
pub(crate) fn write(folders: &Folders, manifest: &Manifest) -> Result<()> {
    let path = &folders.manifest;
    let bytes = serde_json::to_vec_pretty(manifest)
        .map_err(|error| Error::BadManifest { path: path.clone(), detail: error.to_string() })?;
    let new = path.with_extension("json.new");
    let mut file = std::fs::File::create(&new).at("made", &new)?;
    file.write_all(&bytes).at("written", &new)?;
    file.sync_data().at("synced", &new)?;
    std::fs::rename(&new, path).at("renamed", path)?;
    // Without it a power cut could take the name back, and with it the proof that the workspace is whole.
    std::fs::File::open(&folders.agent).and_then(|folder| folder.sync_all()).at("synced", &folders.agent)
}
