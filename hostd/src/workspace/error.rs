//! What can go wrong with a workspace, told so that a person can mend it.
//! Leaves to others: retry policy, exit codes and the wire form of an error.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub type Result<T> = std::result::Result<T, WorkspaceError>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    #[error("no git on PATH; install git 2.30 or newer")]
    GitMissing,
    #[error("git {found} is too old; 2.30 or newer is needed")]
    GitTooOld { found: String },
    #[error("{} is not an absolute path", path.display())]
    RelativePath { path: PathBuf },
    #[error("{} does not exist", path.display())]
    PathMissing { path: PathBuf },
    #[error("{} is not a folder", path.display())]
    NotAFolder { path: PathBuf },
    #[error("{} may not be read or written: {detail}", path.display())]
    Permission { path: PathBuf, detail: String },
    #[error("{} is not in a git repository; `git init` and a first commit make it one", path.display())]
    NotARepository { path: PathBuf },
    #[error("the repository {} has no commit yet; commit something first", repo.display())]
    EmptyRepository { repo: PathBuf },
    #[error("HEAD of {} is on no branch; name one to bring the work into", repo.display())]
    DetachedHead { repo: PathBuf },
    #[error("`{base}` names no commit in {}", repo.display())]
    UnknownBase { base: String, repo: PathBuf },
    #[error("`{base}` matches more than one commit in {}; give more digits", repo.display())]
    AmbiguousBase { base: String, repo: PathBuf },
    #[error("{name:?} is not usable as {what}: {why}")]
    BadName { what: &'static str, name: String, why: &'static str },
    #[error("overlay was asked for but cannot be mounted here: {reason}")]
    OverlayUnavailable { reason: String },
    #[error("this hostd runs as uid {ours} and cannot make a workspace for uid {wanted}")]
    OtherUser { ours: u32, wanted: u32 },
    #[error("a worktree for uid {wanted} cannot be made in a repository of uid {owner}")]
    WorktreeUser { owner: u32, wanted: u32 },
    #[error("the agent folder {} has no workspace", agent_dir.display())]
    NoWorkspace { agent_dir: PathBuf },
    #[error("{} holds a workspace for something else: {detail}", agent_dir.display())]
    OtherWorkspace { agent_dir: PathBuf, detail: String },
    #[error("the manifest {} cannot be used: {detail}", path.display())]
    BadManifest { path: PathBuf, detail: String },
    #[error("the workspace {} has no git repository that may be used: {detail}", path.display())]
    WorkspaceTampered { path: PathBuf, detail: String },
    #[error(
        "the repository does not have the commit of {what}; commit it there, or fetch it there, and merge again"
    )]
    UnknownSubmodules { what: String },
    #[error("the workspace {} holds what no repository takes: {detail}", path.display())]
    BadContent { path: PathBuf, detail: String },
    #[error("the repository {} is away", path.display())]
    RepositoryAway {
        path: PathBuf,
        #[source]
        source: Box<WorkspaceError>,
    },
    #[error(
        "{} is a partial clone without {missing} of the objects of commit {commit}; `git -C {} archive -o /dev/null {commit}` fetches them",
        repo.display(), repo.display()
    )]
    PartialClone { repo: PathBuf, commit: String, missing: usize },
    #[error("the workspace has no repository")]
    NoRepository,
    #[error("{} changed while it was read; stop or pause the agent first", path.display())]
    Moving { path: PathBuf },
    #[error(
        "{path} is in no snapshot and would be written over; keep it elsewhere (what was there before is snapshot {before})"
    )]
    InTheWay { path: String, before: u32 },
    #[error("branch `{branch}` is checked out in {}", at.display())]
    CheckedOut { branch: String, at: PathBuf },
    #[error(
        "`{name}` is at {}, not at {}",
        found.as_deref().unwrap_or("nothing"),
        expected.as_deref().unwrap_or("nothing")
    )]
    RefMoved { name: String, expected: Option<String>, found: Option<String> },
    #[error("`{name}` cannot be written: {detail}")]
    RefRefused { name: String, detail: String },
    #[error("the checkout of {commit} did not come out as recorded: {detail}")]
    WrongCheckout { commit: String, detail: String },
    #[error(
        "the objects of commit {commit} are not what their ids say: {detail}; `git fsck` in the repository names them"
    )]
    Forged { commit: String, detail: String },
    #[error("{} is changed by somebody each time that it is made", path.display())]
    BaseChanges { path: PathBuf },
    #[error("{} could not be removed whole; left: {}", path.display(), left.join(", "))]
    Leftovers { path: PathBuf, left: Vec<String> },
    #[error(
        "{name:?} was written to {} while the workspace was not mounted there; move it elsewhere and try again",
        path.display()
    )]
    Covered { path: PathBuf, name: String },
    #[error("base {} is in use", path.display())]
    BaseInUse { path: PathBuf },
    #[error("git could not {operation} (exit {status}): {stderr}")]
    Git { operation: &'static str, status: String, stderr: String },
    #[error("git could not be started to {operation}")]
    GitStart {
        operation: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("git wrote more than {limit} bytes while it was to {operation}")]
    GitTooMuch { operation: &'static str, limit: usize },
    #[error("git's answer makes no sense while it was to {operation}: {detail}")]
    GitAnswer { operation: &'static str, detail: String },
    #[error("not done within {} s: {operation}", limit.as_secs())]
    TimedOut { operation: &'static str, limit: Duration },
    #[error("cut off by the end of hostd: {operation}")]
    Interrupted { operation: &'static str },
    #[error("its base could not be prepared")]
    NotPrepared(#[source] std::sync::Arc<WorkspaceError>),
    #[error("{why}")]
    PrepareFailed {
        why: String,
        /// What the programs printed, the last part of it where it was long.
        log: Vec<u8>,
    },
    #[error(
        "the programs changed what is committed: {}; let them leave it as it is (`npm ci`, not `npm install`)",
        files.join(", ")
    )]
    PrepareChanged { files: Vec<String> },
    #[error("{} is gone or damaged, and what was prepared in it with it", path.display())]
    PreparedBaseGone { path: PathBuf },
    #[error("{} could not be {operation}", path.display())]
    Io {
        /// A participle: "read", "made", "mounted".
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Its name within this module.
pub(crate) use WorkspaceError as Error;

/// Whether trying the same again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// Something that is away comes back.
    Outside,
    Unclear,
    /// What the agent left in its workspace; the same again.
    Content,
    /// What hostd wrote of the workspace; the same again.
    Record,
}

impl WorkspaceError {
    #[must_use]
    pub fn obstacle(&self) -> Obstacle {
        match self {
            Self::RepositoryAway { .. } => Obstacle::Outside,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => Obstacle::Outside,
            Self::Git { stderr, .. } if stderr.contains("No space left on device") => Obstacle::Outside,
            Self::WorkspaceTampered { .. } | Self::BadContent { .. } | Self::GitTooMuch { .. } => {
                Obstacle::Content
            }
            Self::NoWorkspace { .. }
            | Self::BadManifest { .. }
            | Self::NoRepository
            | Self::BadName { .. } => Obstacle::Record,
            _ => Obstacle::Unclear,
        }
    }

    /// An object that a repository should have and has not: it will not be there the next time either.
    #[must_use]
    pub fn is_of_a_missing_object(&self) -> bool {
        const SAID: &[&str] = &[
            "unable to read sha1 file",
            "unable to read tree",
            "unable to read ",
            "bad object",
            "missing blob",
            "missing tree",
            "Could not read ",
            "lazy fetching disabled",
            "not a valid object",
            "promisor remote",
        ];
        match self {
            Self::PartialClone { .. } => true,
            Self::Git { stderr, .. } => SAID.iter().any(|said| stderr.contains(said)),
            _ => false,
        }
    }

    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            return Self::Permission {
                path: path.to_path_buf(),
                detail: format!("not {operation}: {source}"),
            };
        }
        Self::Io { operation, path: path.to_path_buf(), source }
    }

    pub(crate) fn tampered(path: &Path, detail: impl Into<String>) -> Self {
        Self::WorkspaceTampered { path: path.to_path_buf(), detail: detail.into() }
    }
}

/// Puts operation and path to an I/O error.
pub(crate) trait At<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::io(operation, path, e))
    }
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|e| Error::io(operation, path, e.into()))
    }
}
