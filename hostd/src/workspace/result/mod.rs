//! What an agent leaves behind: commits brought to the person's repository, uncommitted work kept
//! as a commit, outputs and the result file copied, and the question whether anything would be lost.
//! Leaves to others: judging the work, and when to ask.

mod aside;
mod compare;
mod diff;
mod inner;
mod inspect;
mod kept;
mod merge;
mod only_copy;
mod outputs;
mod restore;
mod snapshot;
mod submodules;
mod transfer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub use compare::{Form, Piece};
pub use diff::{Diff, DiffStat};
pub(super) use diff::{stat as diff_stat, text as diff_text, view};
pub use inspect::{InProgress, Unread};
pub(super) use inspect::{open_beneath, read_beneath};
pub use kept::Kept;
pub use only_copy::OnlyCopy;
pub use outputs::{Output, OutputProblem, RESULT_MAX};
pub use restore::Restored;

use super::error::{At, Error, Result};
use super::manifest::{self, Folders, Kind, Manifest};
use super::{Workspaces, blocking, names, refs};

/// Who commits what the agent left uncommitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitMode {
    /// The agent's own commits are the result; the rest is kept beside it.
    Agent,
    /// The result is everything that is there.
    Auto,
}

#[derive(Debug, Clone)]
pub struct Collect {
    /// `refs/phalanx/<run>/<task>/<n>`; uncommitted work of mode `Agent` goes to `…-uncommitted`.
    pub ref_name: String,
    pub commit_mode: CommitMode,
    /// The commit that was recorded under `ref_name` before. It stays there, whatever became of the workspace since:
    /// others hold it for what was verified. Work that differs from it goes to `…-later`.
    pub recorded: Option<String>,
    /// Of the commit that holds uncommitted work.
    pub message: String,
    /// Paths and patterns below the workspace.
    pub outputs: Vec<String>,
    /// Where copies of outputs go.
    pub outputs_dir: PathBuf,
    /// All outputs together.
    pub outputs_limit_bytes: u64,
    pub result: Option<PathBuf>,
}

/// Work that was in no commit of the agent's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncommitted {
    pub commit: String,
    /// The ref that keeps it.
    pub ref_name: String,
    pub files: u64,
    pub untracked: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    /// What `ref_name` points to; none in a plain folder.
    pub head_commit: Option<String>,
    pub base_commit: Option<String>,
    pub ref_name: Option<String>,
    /// Where HEAD is, when it is not on the branch that the workspace was made with.
    pub branch_drift: Option<String>,
    pub uncommitted: Option<Uncommitted>,
    /// Repositories inside the workspace, whose content no commit here can hold.
    pub not_saved: Vec<String>,
    pub in_progress: Vec<InProgress>,
    /// From the base to `head_commit`.
    pub diff: DiffStat,
    /// Submodules that the work moves to commits which the person's repository does not have.
    pub unknown_submodules: Vec<String>,
    /// What else moved in the source repository since the workspace was made, one line each.
    pub source_moved: Vec<String>,
    pub result: Option<std::result::Result<Vec<u8>, Unread>>,
    pub outputs: Vec<Output>,
    pub output_problems: Vec<OutputProblem>,
}

/// What git has to say, before files are looked at.
#[derive(Debug, Default)]
struct Work {
    head: String,
    drift: Option<String>,
    uncommitted: Option<Uncommitted>,
    not_saved: Vec<String>,
    in_progress: Vec<InProgress>,
    diff: DiffStat,
    unknown_submodules: Vec<String>,
}

const COMPARE: &str = "compare with what was recorded";

/// Tree and parents of a commit; `None` where it is not there.
async fn work_of(call: super::git::Call<'_>, commit: &str) -> Result<Option<String>> {
    let shown =
        call.args(["log", "-1", "--no-show-signature", "--format=%T %P", commit, "--"]).output().await?;
    Ok(shown.status.success().then(|| String::from_utf8_lossy(&shown.stdout).trim().to_owned()))
}

impl Workspaces {
    pub(super) async fn collect_now(&self, agent_dir: &Path, wanted: &Collect) -> Result<Collected> {
        names::check_own_ref(&wanted.ref_name)?;
        let folders = Folders::of(agent_dir);
        let manifest = manifest::required(&folders)?;
        self.mount_again(&folders, &manifest).await.map_err(|error| unless_away(&manifest, error))?;
        let work = match manifest.kind {
            Kind::Plain => None,
            Kind::Overlay | Kind::Clone | Kind::Worktree => {
                let collected = self.collect_commits(&folders, &manifest, wanted).await;
                Some(collected.map_err(|error| unless_away(&manifest, error))?)
            }
        };
        let source_moved = self
            .source_moved(agent_dir, &manifest)
            .await
            .unwrap_or_else(|error| vec![format!("it could not be compared: {}", protocol::chain(&error))]);
        let (wanted, top) = (wanted.clone(), folders.work.clone());
        let ref_name = work.is_some().then(|| wanted.ref_name.clone());
        let (result, (outputs, output_problems)) = blocking("copy outputs", move || {
            let result = wanted.result.as_deref().map(|name| outputs::result(&top, name)).transpose()?;
            let list = outputs::Wanted {
                patterns: &wanted.outputs,
                into: &wanted.outputs_dir,
                limit_bytes: wanted.outputs_limit_bytes,
            };
            Ok((result, outputs::collect(&top, &list)?))
        })
        .await?;
        let head_commit = work.as_ref().map(|work| work.head.clone());
        let work = work.unwrap_or_default();
        Ok(Collected {
            head_commit,
            base_commit: manifest.base_commit,
            ref_name,
            branch_drift: work.drift,
            uncommitted: work.uncommitted,
            not_saved: work.not_saved,
            in_progress: work.in_progress,
            diff: work.diff,
            unknown_submodules: work.unknown_submodules,
            source_moved,
            result,
            outputs,
            output_problems,
        })
    }

    async fn collect_commits(
        &self,
        folders: &Folders,
        manifest: &Manifest,
        wanted: &Collect,
    ) -> Result<Work> {
        let (Some(repository), Some(base)) = (&manifest.repository, &manifest.base_commit) else {
            return Err(Error::NoRepository);
        };
        let (git, name) = (&self.git, &wanted.ref_name);
        let (at, facts) = (folders.clone(), manifest.clone());
        if blocking("look at a workspace", move || Ok(inspect::is_untouched(&at, &facts))).await? {
            refs::ensure(git, repository, &[(name.clone(), base.clone())], "phalanx: no change").await?;
            return Ok(Work { head: base.clone(), ..Work::default() });
        }
        self.leave_damaged_base(folders, manifest).await?;
        let (at, facts) = (folders.clone(), manifest.clone());
        let found = blocking("look at a workspace", move || inspect::look(&at, &facts)).await?;
        let view = snapshot::View::open(git, folders, manifest, &found).await?;
        let changes = view.changes(git, folders).await?;
        let aside = aside::find(git, &view, folders, manifest, &found, changes.as_ref()).await;
        let saved = match &changes {
            Some(changes) => view.commit(git, folders, changes, &wanted.message).await?,
            None => None,
        };
        let mut saved = saved;
        let mut head = match (wanted.commit_mode, &saved) {
            (CommitMode::Auto, Some(commit)) => commit.clone(),
            _ => found.head.clone(),
        };
        let later = format!("{name}-later");
        let mut name = name;
        if let Some(recorded) = wanted.recorded.as_ref().filter(|recorded| **recorded != head) {
            let made = work_of(git.call(COMPARE).git_dir(view.scratch.path()), &head).await?;
            let before = work_of(
                git.call(COMPARE).git_dir(&repository.common_dir).act_as(repository.act_as),
                recorded,
            )
            .await?;
            if made.is_some() && made == before {
                // The same, committed anew.
                saved = saved.map(|commit| if commit == head { recorded.clone() } else { commit });
                head.clone_from(recorded);
            } else {
                name = &later;
            }
        }
        let mut moves = vec![(name.clone(), head.clone())];
        let mut tips = vec![head.clone()];
        let changes = changes.unwrap_or_default();
        let uncommitted = saved.map(|commit| {
            let own_ref = commit != head;
            let ref_name = if own_ref { format!("{name}-uncommitted") } else { name.clone() };
            if own_ref {
                moves.push((ref_name.clone(), commit.clone()));
                tips.push(commit.clone());
            }
            Uncommitted { commit, ref_name, files: changes.files, untracked: changes.untracked }
        });
        let aside = match aside {
            Ok(aside) => self.joined(&view, manifest, &found, &aside).await,
            Err(error) => Err(error),
        };
        match aside {
            Ok(None) => {}
            Ok(Some(commit)) => {
                moves.push((format!("{name}-unreached"), commit.clone()));
                tips.push(commit);
            }
            // The work itself is not held up by that: a removal looks again, and says what it would lose.
            Err(error) => {
                let error = protocol::chain(&error);
                tracing::warn!(error, "what only logs of a workspace name is not brought home");
            }
        }
        tips.retain(|tip| Some(tip) != wanted.recorded.as_ref());
        if tips.iter().any(|tip| tip != base) {
            transfer::bring(git, view.scratch.path(), repository, &tips, &[base]).await?;
        }
        refs::ensure(git, repository, &moves, "phalanx: collected").await?;
        let brought = self::view(git, repository, &head)?;
        let diff = diff_stat(git, brought.path(), base, &head).await?;
        let unknown_submodules =
            submodules::unknown_commits(git, repository, brought.path(), (base, &head)).await?;
        let drift = found.drift;
        Ok(Work {
            head,
            drift,
            uncommitted,
            not_saved: changes.not_saved,
            in_progress: found.in_progress,
            diff,
            unknown_submodules,
        })
    }
}

impl Workspaces {
    /// What only logs and index of a workspace lead to, as one commit.
    async fn joined(
        &self,
        view: &snapshot::View,
        manifest: &Manifest,
        found: &inspect::Found,
        aside: &BTreeSet<String>,
    ) -> Result<Option<String>> {
        if aside.is_empty() {
            return Ok(None);
        }
        let mut known = only_copy::outside(&self.git, manifest).await?;
        known.extend(only_copy::tips(manifest, found)?);
        aside::join(&self.git, view, manifest, aside, &known).await
    }
}

/// Without its repository nothing can be said of a workspace, whatever git said.
fn unless_away(manifest: &Manifest, error: Error) -> Error {
    let Some(repository) = &manifest.repository else { return error };
    let is_there = ["HEAD", "objects"].iter().all(|name| repository.common_dir.join(name).exists());
    if is_there {
        return error;
    }
    Error::RepositoryAway { path: repository.path.clone(), source: Box::new(error) }
}

/// Whether a folder has anything in it.
fn first_entry(folder: &Path) -> Result<Option<PathBuf>> {
    let mut entries = std::fs::read_dir(folder).at("read", folder)?;
    entries.next().transpose().at("read", folder).map(|entry| entry.map(|entry| entry.path()))
}
