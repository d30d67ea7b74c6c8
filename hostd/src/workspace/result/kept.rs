//! Snapshots on request: all that is in a workspace now as a commit under `refs/phalanx/snapshots/<agent>/<n>` of the
//! person's repository. The agent's HEAD, index, stash and files stay as they are; none of its hooks, filters or
//! identity is used. What a snapshot lacks is written in it. Putting one back is in `restore`.
//!
//! Never in one: sockets, FIFOs, empty folders, and the content of repositories inside the workspace. Line endings and
//! the like follow the repository's attributes, as in any commit.

use std::path::Path;

use super::super::error::{Error, Result};
use super::super::git::object_id;
use super::super::manifest::{self, Folders, Kind, Manifest};
use super::super::repository::Repository;
use super::super::{Workspaces, blocking, refs};
use super::snapshot::{Changes, View};
use super::{inspect, transfer};

/// Names of what was left out that are written down; the rest is counted.
const NAMED_MAX: usize = 50;
/// Snapshots of one agent may be taken at once; each finds a number of its own.
const NUMBERS_TRIED: u32 = 50;

const FILES: &str = "Phalanx-Files: ";
const IGNORED: &str = "Phalanx-Ignored: ";
const NOT_SAVED: &str = "Phalanx-Not-Saved: ";

/// A snapshot, as its commit tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// From 1.
    pub number: u32,
    pub ref_name: String,
    pub commit: String,
    pub tree: String,
    /// HEAD of the workspace then.
    pub head: String,
    pub at_ms: u64,
    /// Files that differed from HEAD.
    pub files: u64,
    /// Files that git was told to ignore are in it.
    pub ignored: bool,
    pub not_saved: Vec<String>,
}

/// A view of the workspace whose index holds all that a snapshot holds.
pub(super) struct Taken {
    pub(super) view: View,
    pub(super) tree: String,
    files: u64,
    not_saved: Vec<String>,
    head: String,
}

fn folder_of(agent: &str) -> String {
    format!("refs/phalanx/snapshots/{agent}")
}

impl Workspaces {
    pub(in super::super) async fn snapshot_now(
        &self,
        agent_dir: &Path,
        agent: &str,
        include_ignored: bool,
    ) -> Result<Kept> {
        let (folders, manifest) = self.repository_of(agent_dir).await?;
        let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
        let base = manifest.base_commit.as_ref().ok_or(Error::NoRepository)?;
        let taken = self.take(&folders, &manifest, include_ignored).await?;
        let mut message = format!("Snapshot of {agent}\n\n{FILES}{}\n", taken.files);
        message.push_str(&format!("{IGNORED}{}\n", if include_ignored { "included" } else { "left out" }));
        for path in &taken.not_saved {
            message.push_str(&format!("{NOT_SAVED}{}\n", path.replace('\n', "?")));
        }
        let git = &self.git;
        const OPERATION: &str = "commit a snapshot";
        let made = git
            .call(OPERATION)
            .git_dir(taken.view.scratch.path())
            .args(["commit-tree", &taken.tree, "-p", &taken.head, "-F", "-"])
            .stdin(message)
            .ok()
            .await?;
        let commit = object_id(OPERATION, &made)?;
        let tips = [commit.clone()];
        transfer::bring(git, taken.view.scratch.path(), repository, &tips, &[base.as_str()]).await?;
        let ref_name = self.name_it(repository, agent, &commit).await?;
        let all = self.kept_of(repository, agent).await?;
        let kept = all.into_iter().find(|kept| kept.ref_name == ref_name);
        // What the repository holds now, not what was meant to go there.
        kept.filter(|kept| kept.tree == taken.tree).ok_or_else(|| Error::GitAnswer {
            operation: "verify a snapshot",
            detail: format!("{ref_name} does not hold the tree {}", taken.tree),
        })
    }

    pub(in super::super) async fn snapshots_now(&self, agent_dir: &Path, agent: &str) -> Result<Vec<Kept>> {
        let manifest = manifest::required(&Folders::of(agent_dir))?;
        let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
        self.kept_of(repository, agent).await
    }

    pub(super) async fn repository_of(&self, agent_dir: &Path) -> Result<(Folders, Manifest)> {
        let folders = Folders::of(agent_dir);
        let manifest = manifest::required(&folders)?;
        if manifest.kind == Kind::Plain {
            return Err(Error::NoRepository);
        }
        self.mount_again(&folders, &manifest).await?;
        Ok((folders, manifest))
    }

    /// The whole workspace in an index of ours.
    pub(super) async fn take(
        &self,
        folders: &Folders,
        manifest: &Manifest,
        include_ignored: bool,
    ) -> Result<Taken> {
        let git = &self.git;
        let (at, facts) = (folders.clone(), manifest.clone());
        let found = blocking("look at a workspace", move || inspect::look(&at, &facts)).await?;
        let view = View::open(git, folders, manifest, &found).await?;
        let mut changes: Changes = view.changes(git, folders).await?.unwrap_or_default();
        let mut list = view.call(git, folders, "look for ignored files");
        list = list.args(["ls-files", "-z", "--others", "--ignored", "--exclude-standard"]);
        if !include_ignored {
            list = list.args(["--directory"]);
        }
        let ignored = list.ok().await?;
        let ignored = ignored.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        let (mut left_out, mut more) = (std::mem::take(&mut changes.not_saved), 0_usize);
        for path in ignored {
            if include_ignored && !path.ends_with(b"/") {
                changes.add(path);
                changes.files += 1;
            } else if left_out.len() < NAMED_MAX {
                left_out.push(String::from_utf8_lossy(path).into_owned());
            } else {
                more += 1;
            }
        }
        if more > 0 {
            left_out.push(format!("and {more} more"));
        }
        let tree = view.tree(git, folders, &changes).await?;
        Ok(Taken { view, tree, files: changes.files, not_saved: left_out, head: found.head })
    }

    /// Under the next free number.
    async fn name_it(&self, repository: &Repository, agent: &str, commit: &str) -> Result<String> {
        let zero = "0".repeat(commit.len());
        let mut number = self.kept_of(repository, agent).await?.last().map_or(1, |kept| kept.number + 1);
        let last = number.saturating_add(NUMBERS_TRIED);
        loop {
            let name = format!("{}/{number}", folder_of(agent));
            super::super::names::check_own_ref(&name)?;
            let new = [(name.clone(), commit.to_owned(), zero.clone())];
            match refs::swap(&self.git, repository, &new, "phalanx: snapshot").await {
                Ok(()) => return Ok(name),
                Err(Error::RefRefused { .. }) if number < last => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// By number.
    pub(super) async fn kept_of(&self, repository: &Repository, agent: &str) -> Result<Vec<Kept>> {
        let format = "--format=%(refname)%00%(objectname)%00%(tree)%00%(parent)%00%(committerdate:unix)%00%(contents)%00%00";
        let listed = self
            .git
            .call("read snapshots")
            .git_dir(&repository.common_dir)
            .act_as(repository.act_as)
            .args(["for-each-ref", format, &folder_of(agent)])
            .ok()
            .await?;
        let text = String::from_utf8_lossy(&listed).into_owned();
        let mut all: Vec<Kept> = text.split("\0\0\n").filter_map(parse).collect();
        all.sort_by_key(|kept| kept.number);
        Ok(all)
    }
}

/// One of ours; anything else under that name is left out.
fn parse(entry: &str) -> Option<Kept> {
    let mut fields = entry.splitn(6, '\0');
    let ref_name = fields.next()?.to_owned();
    let number = ref_name.rsplit('/').next()?.parse().ok()?;
    let (commit, tree) = (fields.next()?.to_owned(), fields.next()?.to_owned());
    let (head, seconds) = (fields.next()?.to_owned(), fields.next()?.parse::<u64>().ok()?);
    let message = fields.next()?;
    let said = |key: &'static str| message.lines().filter_map(move |line| line.strip_prefix(key));
    Some(Kept {
        number,
        ref_name,
        commit,
        tree,
        head,
        at_ms: seconds.saturating_mul(1000),
        files: said(FILES).next().and_then(|files| files.parse().ok()).unwrap_or(0),
        ignored: said(IGNORED).next() == Some("included"),
        not_saved: said(NOT_SAVED).map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_back_as_its_commit_tells_it() {
        let entry = "refs/phalanx/snapshots/a/12\x00c\x00t\x00h\x001700000000\x00Snapshot of a\n\nPhalanx-Files: 3\nPhalanx-Ignored: included\nPhalanx-Not-Saved: x/\n";
        let kept = parse(entry).unwrap();
        assert_eq!((kept.number, kept.files, kept.ignored, kept.at_ms), (12, 3, true, 1_700_000_000_000));
        assert_eq!((kept.head.as_str(), kept.not_saved), ("h", vec!["x/".to_owned()]));
        for other in
            ["", "refs/phalanx/snapshots/a/x\x00c\x00t\x00h\x001\x00m", "refs/phalanx/snapshots/a/1\0c"]
        {
            assert_eq!(parse(other), None);
        }
    }
}
