//! Refs under `refs/phalanx/` whose work is in the person's own refs too: by ancestry, or, after a squash or a rebase,
//! by the same tree or the same change. Only looks. Leaves to others: which of them may go.

use std::collections::BTreeSet;

use protocol::time::Timestamp;

use super::error::Result;
use super::git::{Call, Git};
use super::repository::Repository;
use super::{Workspaces, refs};

/// A ref that is not the only way to its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedRef {
    pub name: String,
    pub commit: String,
    /// When the commit was made.
    pub at: Timestamp,
}

/// Commits of a branch among which the same change is looked for.
const COMPARED: &str = "--max-count=2000";

impl Workspaces {
    /// The refs of ours whose work the person has. Those that keep bases are not among them.
    pub async fn merged_refs(&self, repository: &Repository) -> Result<Vec<MergedRef>> {
        self.within("look for merged refs", merged(&self.git, repository)).await
    }

    /// Whether a ref of ours is there.
    pub async fn has_ref(&self, repository: &Repository, name: &str) -> Result<bool> {
        let names = [name.to_owned()];
        let found = self.within("look for a ref", refs::read(&self.git, repository, &names)).await?;
        Ok(found.contains_key(name))
    }
}

fn call<'a>(git: &'a Git, repository: &Repository) -> Call<'a> {
    git.call("look for merged refs").git_dir(&repository.common_dir).act_as(repository.act_as)
}

async fn text(call: Call<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&call.ok().await?).into_owned())
}

async fn merged(git: &Git, repository: &Repository) -> Result<Vec<MergedRef>> {
    let format = "--format=%(objectname) %(committerdate:unix) %(refname)";
    let listed = text(call(git, repository).args(["for-each-ref", format, "refs/phalanx/"])).await?;
    let ours: Vec<MergedRef> = listed.lines().filter_map(parse).collect();
    if ours.is_empty() {
        return Ok(Vec::new());
    }
    let branches = ["for-each-ref", "--format=%(refname)", "refs/heads/", "refs/remotes/"];
    let branches = text(call(git, repository).args(branches)).await?;
    // A branch that we made for the work itself counts for ancestry, not as something it was merged into.
    let targets: Vec<&str> =
        branches.lines().filter(|name| !name.starts_with("refs/heads/phalanx/")).collect();
    let mut found = Vec::new();
    for candidate in ours {
        if is_reached(git, repository, &candidate.commit).await?
            || is_same_as_some(git, repository, &candidate.commit, &targets).await?
        {
            found.push(candidate);
        }
    }
    Ok(found)
}

fn parse(line: &str) -> Option<MergedRef> {
    let mut words = line.splitn(3, ' ');
    let (commit, at, name) = (words.next()?, words.next()?, words.next()?);
    let at = Timestamp(at.parse::<u64>().ok()?.saturating_mul(1000));
    (!name.starts_with("refs/phalanx/base/")).then(|| MergedRef {
        name: name.to_owned(),
        commit: commit.to_owned(),
        at,
    })
}

/// Whether a ref of the person's leads to the commit.
async fn is_reached(git: &Git, repository: &Repository, commit: &str) -> Result<bool> {
    let beyond = ["rev-list", "--max-count=1", commit, "--not", "--branches", "--tags", "--remotes"];
    Ok(text(call(git, repository).args(beyond)).await?.trim().is_empty())
}

/// Whether some commit of a branch, since it parted from ours, has the same tree, or makes the same change as ours as a
/// whole.
async fn is_same_as_some(git: &Git, repository: &Repository, commit: &str, targets: &[&str]) -> Result<bool> {
    let tree = text(call(git, repository).args(["rev-parse", &format!("{commit}^{{tree}}")])).await?;
    for target in targets {
        let parted = call(git, repository).args(["merge-base", commit, target]).output().await?;
        let parted = String::from_utf8_lossy(&parted.stdout).trim().to_owned();
        if parted.is_empty() {
            continue;
        }
        let range = format!("{parted}..{target}");
        let trees = text(call(git, repository).args(["log", COMPARED, "--format=%T", &range])).await?;
        if trees.lines().any(|line| line == tree.trim()) {
            return Ok(true);
        }
        let diff = call(git, repository).args(["diff-tree", "-p", &parted, commit]).ok().await?;
        let Some(ours) = patch_ids(git, repository, diff).await?.into_iter().next() else { continue };
        let log = ["log", "-p", "--no-merges", COMPARED, "--format=commit %H", &range];
        let theirs = call(git, repository).args(log).ok().await?;
        if patch_ids(git, repository, theirs).await?.contains(&ours) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Of a patch, or of each commit of a log.
async fn patch_ids(git: &Git, repository: &Repository, patches: Vec<u8>) -> Result<BTreeSet<String>> {
    let listed = text(call(git, repository).args(["patch-id", "--stable"]).stdin(patches)).await?;
    Ok(listed.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}
