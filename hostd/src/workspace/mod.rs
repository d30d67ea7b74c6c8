//! Workspaces of agents: an isolated checkout in milliseconds, its results brought home, and its
//! removal. One place for all git of a host.
//!
//! ```text
//! resolve ─> prepare ─> (the agent works) ─> collect ─> holds_only_copy ─> remove
//!                           │ unmount, remount    └─> fresh_checkout (verification), land, diff
//! ```
//!
//! The person's repository gets refs under `refs/phalanx/` and, by `land`, one branch; its index,
//! files, stash and configuration are never touched, and no program of a repository is ever run.
//! An agent works in a git repository of its own that borrows the person's objects.
//! Leaves to others: which base, when to collect, whether work may be lost, running the agent.

mod base;
mod brought;
mod checkout;
mod error;
mod git;
mod kept;
mod manifest;
mod names;
mod overlay;
mod prepare;
mod refs;
mod remove;
mod repository;
mod result;
mod source;

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use base::{Bench, Damage, Preparation, PreparedBase, Run, RunError, UnusedBase, left_over};
pub use error::{Obstacle, Result, WorkspaceError};
pub use git::User;
pub use kept::MergedRef;
pub use manifest::{Kind, Manifest};
pub use overlay::Unmounted;
pub use refs::Landed;
pub use repository::{Repository, Resolved};
pub use result::{
    Collect, Collected, CommitMode, Diff, DiffStat, Form, InProgress, Kept, OnlyCopy, Output, OutputProblem,
    Piece, RESULT_MAX, Restored, Uncommitted, Unread,
};

use error::Error;
use git::{Bounds, Git};
use manifest::Folders;
use overlay::Overlay;

#[derive(Debug, Clone)]
pub struct Options {
    /// One git process.
    pub git_limit: Duration,
    /// One call of this API, with all its git processes and its turn in queues.
    pub call_limit: Duration,
    pub git_at_once: usize,
    /// A person's `core.excludesFile`: untracked files that match are not work.
    pub excludes_file: Option<PathBuf>,
    /// Off: clones are made even where an overlay would mount.
    pub allow_overlay: bool,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            git_limit: Duration::from_secs(120),
            call_limit: Duration::from_secs(600),
            git_at_once: cores.saturating_mul(2).max(4),
            excludes_file: None,
            allow_overlay: true,
        }
    }
}

/// What this host can do, found once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub git_version: String,
    /// The reason, where overlays cannot be used.
    pub overlay: std::result::Result<(), String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Overlay where it mounts, else a clone.
    Auto,
    Overlay,
    Clone,
    Worktree,
    Plain,
}

#[derive(Debug, Clone)]
pub struct PrepareSpec {
    /// None: a plain empty folder.
    pub repo: Option<Resolved>,
    /// Without `refs/heads/`.
    pub branch: String,
    /// Who will own the files; none: whoever hostd runs as.
    pub user: Option<User>,
    pub kind: Wanted,
    /// Lies on this instead of on the bare base of the commit.
    pub prepared: Option<PreparedBase>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub path: PathBuf,
    pub kind: Kind,
    pub base_commit: Option<String>,
    pub base_tree: Option<String>,
    pub branch: Option<String>,
    pub warnings: Vec<String>,
    pub manifest: Manifest,
}

impl Workspace {
    /// The workspace that a manifest of this folder tells of.
    #[must_use]
    pub fn found(agent_dir: &Path, manifest: Manifest) -> Self {
        Self::new(&Folders::of(agent_dir), manifest)
    }

    fn new(folders: &Folders, manifest: Manifest) -> Self {
        Self {
            path: folders.work.clone(),
            kind: manifest.kind,
            base_commit: manifest.base_commit.clone(),
            base_tree: manifest.base_tree.clone(),
            branch: manifest.branch.clone(),
            warnings: manifest.warnings.clone(),
            manifest,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Something still used the workspace: it is detached and goes when that ends.
    pub unmounted_lazily: bool,
}

/// All workspaces of a host. Cheap calls may run at once; per agent, one at a time.
#[derive(Debug)]
pub struct Workspaces {
    state: PathBuf,
    options: Options,
    git: Arc<Git>,
    overlay: std::result::Result<Overlay, String>,
    bases: Arc<base::Bases>,
    known: repository::Known,
    locks: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>,
    /// Held over a look and the mount that follows: two mounts of one upper layer would spoil it.
    mounting: Arc<Mutex<()>>,
}

impl Workspaces {
    /// `state` is hostd's own folder; agents' folders are in its `agents`.
    pub async fn new(state: &Path, options: Options) -> Result<Self> {
        let bounds = Bounds { at_once: options.git_at_once.max(1), limit: options.git_limit };
        let git = Git::find(state, options.excludes_file.clone(), bounds).await?;
        let folder = state.to_path_buf();
        let allowed = options.allow_overlay;
        let scratch = git.scratch().to_path_buf();
        let (overlay, bases) = blocking("open the workspaces", move || {
            // Left by a hostd that was killed.
            let _ = std::fs::remove_dir_all(scratch);
            let overlay = if allowed {
                Overlay::probe(&folder)
            } else {
                Err("switched off by configuration".to_owned())
            };
            Ok((overlay, base::Bases::open(&folder)?))
        })
        .await?;
        let (known, locks, mounting) = (repository::Known::default(), Mutex::default(), Arc::default());
        let (git, bases) = (Arc::new(git), Arc::new(bases));
        Ok(Self { state: state.to_path_buf(), options, git, overlay, bases, known, locks, mounting })
    }

    pub fn facts(&self) -> Facts {
        let overlay = self.overlay.as_ref().map(|_| ()).map_err(Clone::clone);
        Facts { git_version: self.git.version.clone(), overlay }
    }

    /// The repository that a path lies in.
    pub async fn locate(&self, path: &Path) -> Result<Repository> {
        self.within("find the repository", repository::locate(&self.git, &self.known, path)).await
    }

    /// The commit that `base` (HEAD when none) names now.
    pub async fn resolve(&self, path: &Path, base: Option<&str>) -> Result<Resolved> {
        self.within("look up the base", repository::resolve(&self.git, &self.known, path, base)).await
    }

    /// Makes `agent_dir/work`. Idempotent; `agent_dir` must exist.
    pub async fn prepare(&self, agent_dir: &Path, spec: &PrepareSpec) -> Result<Workspace> {
        self.within("prepare a workspace", self.prepare_now(agent_dir, spec)).await
    }

    /// A checkout of any commit of the repository with a detached HEAD, for verification. It costs
    /// least when `resolved` is the base that the commit was made from.
    pub async fn fresh_checkout(
        &self,
        dir: &Path,
        resolved: &Resolved,
        commit: &str,
        user: Option<User>,
        prepared: Option<&PreparedBase>,
    ) -> Result<Workspace> {
        self.within("make a fresh checkout", self.fresh_now(dir, resolved, commit, user, prepared)).await
    }

    /// Copies files that git does not track from the person's checkout into a workspace that nobody has used yet.
    pub async fn bring(&self, agent_dir: &Path, resolved: &Resolved, wanted: &[String]) -> Result<Workspace> {
        self.within("copy files into a workspace", self.bring_now(agent_dir, resolved, wanted)).await
    }

    /// The base of a commit in which programs were run, once for all who ask for the same. Takes as long as they take:
    /// whoever runs them sets the limit.
    pub async fn prepared_base(
        &self,
        resolved: &Resolved,
        user: Option<User>,
        preparation: Preparation,
    ) -> Result<PreparedBase> {
        self.bases.prepared(&self.git, &resolved.repository, &resolved.commit, user, preparation).await
    }

    /// Mounts an overlay again, as after a reboot or a stop of everything; nothing to do for other kinds.
    pub async fn remount(&self, agent_dir: &Path) -> Result<Workspace> {
        self.within("mount a workspace again", async {
            let folders = Folders::of(agent_dir);
            let manifest = manifest::required(&folders)?;
            self.mount_again(&folders, &manifest).await?;
            Ok(Workspace::new(&folders, manifest))
        })
        .await
    }

    /// Takes an overlay's mount away, unless something uses it; [`Workspaces::remount`] brings it back. Whether
    /// nothing is mounted now. No call for the same agent may be under way.
    pub async fn unmount(&self, agent_dir: &Path) -> Result<bool> {
        let work = Folders::of(agent_dir).work;
        let done = blocking("unmount a workspace", move || {
            if overlay::is_mounted(&work)? { overlay::unmount_unused(&work) } else { Ok(true) }
        });
        self.within("unmount a workspace", done).await
    }

    /// Whether an overlay is mounted there.
    pub fn is_mounted(&self, agent_dir: &Path) -> Result<bool> {
        overlay::is_mounted(&Folders::of(agent_dir).work)
    }

    /// What `prepare` recorded; none where there is no whole workspace.
    pub fn manifest(&self, agent_dir: &Path) -> Result<Option<Manifest>> {
        manifest::read(&Folders::of(agent_dir))
    }

    /// Brings results home. May be repeated; the agent's files, index and refs stay as they are.
    pub async fn collect(&self, agent_dir: &Path, wanted: &Collect) -> Result<Collected> {
        self.within("collect results", self.collect_now(agent_dir, wanted)).await
    }

    /// Whether removing the workspace would lose work; `collected` names what was saved of it.
    pub async fn holds_only_copy(&self, agent_dir: &Path, collected: Option<&Collected>) -> OnlyCopy {
        let look = async { Ok(self.only_copy_now(agent_dir, collected).await) };
        match self.within("look for unsaved work", look).await {
            Ok(answer) => answer,
            Err(error) => OnlyCopy::Unknown(protocol::chain(&error)),
        }
    }

    /// The same of a workspace whose agent is alive: what its end would not bring home, with these outputs declared.
    pub async fn would_lose(&self, agent_dir: &Path, outputs: &[String]) -> OnlyCopy {
        let look = async { Ok(self.only_copy_at_its_end(agent_dir, outputs).await) };
        match self.within("look for work that cannot be kept", look).await {
            Ok(answer) => answer,
            Err(error) => OnlyCopy::Unknown(protocol::chain(&error)),
        }
    }

    /// Ignored files, and folders of such, that go with the workspace: what is in no commit and was never to be.
    pub async fn not_kept(&self, agent_dir: &Path) -> Result<Vec<String>> {
        self.within("look for ignored files", self.not_kept_now(agent_dir)).await
    }

    /// Keeps all that is in the workspace now under the next number of this agent.
    pub async fn snapshot(&self, agent_dir: &Path, agent: &str, include_ignored: bool) -> Result<Kept> {
        self.within("take a snapshot", self.snapshot_now(agent_dir, agent, include_ignored)).await
    }

    pub async fn snapshots(&self, agent_dir: &Path, agent: &str) -> Result<Vec<Kept>> {
        self.within("read snapshots", self.snapshots_now(agent_dir, agent)).await
    }

    /// Puts a snapshot's files back, after one more was taken. Nothing of the agent may run meanwhile.
    pub async fn restore(&self, agent_dir: &Path, agent: &str, number: u32) -> Result<Restored> {
        self.within("restore a snapshot", self.restore_now(agent_dir, agent, number)).await
    }

    /// Lays a snapshot over a new checkout of the commit that it was taken on, before the agent is started.
    pub async fn lay(&self, agent_dir: &Path, commit: &str) -> Result<()> {
        self.within("lay a snapshot over a checkout", self.lay_now(agent_dir, commit)).await
    }

    /// Takes the workspace away, whatever is in it. Not there is success; leftovers are an error.
    /// A linked worktree's branch stays in the repository.
    pub async fn remove(&self, agent_dir: &Path) -> Result<Removed> {
        self.within("remove a workspace", self.remove_now(agent_dir)).await
    }

    /// Creates (`expected_old` none) or moves a branch of the person's, by compare-and-swap.
    pub async fn land(
        &self,
        repository: &Repository,
        branch: &str,
        commit: &str,
        expected_old: Option<&str>,
    ) -> Result<Landed> {
        self.within("land a branch", async {
            let lock = self.lock_of(repository)?;
            let _turn = lock.lock().await;
            refs::land(&self.git, repository, branch, commit, expected_old).await
        })
        .await
    }

    /// Drops refs under `refs/phalanx/`.
    pub async fn drop_refs(&self, repository: &Repository, refs: &[String]) -> Result<()> {
        self.within("drop refs", refs::drop_all(&self.git, repository, refs)).await
    }

    /// Drops refs under `refs/phalanx/` that still point to these commits; all or none.
    pub async fn drop_refs_at(&self, repository: &Repository, refs: &[(String, String)]) -> Result<()> {
        self.within("drop refs", refs::drop_at(&self.git, repository, refs)).await
    }

    pub async fn diff_stat(&self, repository: &Repository, from: &str, to: &str) -> Result<DiffStat> {
        self.within("count changed lines", async {
            let view = result::view(&self.git, repository, to)?;
            result::diff_stat(&self.git, view.path(), from, to).await
        })
        .await
    }

    /// A patch with binary parts, at most `limit` bytes of it.
    pub async fn diff(&self, repository: &Repository, from: &str, to: &str, limit: usize) -> Result<Diff> {
        self.within("show a difference", result::diff_text(&self.git, repository, from, to, limit)).await
    }

    /// Is called with each base that was changed by somebody else; it is made anew. To be set once.
    pub fn on_damage(&self, tell: impl Fn(&Damage) + Send + Sync + 'static) {
        self.bases.on_damage(tell);
    }

    /// Bases that no workspace lies on.
    pub fn unused_bases(&self) -> Result<Vec<UnusedBase>> {
        self.bases.unused(&self.state.join("agents"))
    }

    /// Removes one of them, after looking again.
    pub async fn discard_base(&self, base: &UnusedBase) -> Result<()> {
        let agents = self.state.join("agents");
        self.within("remove a base", self.bases.discard(&self.git, &agents, base)).await
    }

    /// Held only for what git cannot do twice at once in one repository.
    fn lock_of(&self, repository: &Repository) -> Result<Arc<tokio::sync::Mutex<()>>> {
        let mut locks =
            self.locks.lock().map_err(|_| Error::Interrupted { operation: "lock the repository" })?;
        Ok(Arc::clone(locks.entry(repository.common_dir.clone()).or_default()))
    }

    async fn within<T>(&self, operation: &'static str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let limit = self.options.call_limit;
        tokio::time::timeout(limit, work).await.map_err(|_| Error::TimedOut { operation, limit })?
    }
}

/// Runs file work where it may block. A time limit on top ends the waiting, not the work.
async fn blocking<T, F>(operation: &'static str, work: F) -> Result<T>
where
    F: FnOnce() -> Result<T> + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Interrupted { operation })?
}
