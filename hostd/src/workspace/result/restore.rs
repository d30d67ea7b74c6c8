//! Puts a snapshot's files back into a workspace that stands still. What is there is kept in a snapshot first; what the
//! snapshot does not know of stays where it is; what is in no snapshot at all is never written over.
//!
//! The agent's HEAD and index stay as they are: the files differ from them as they did, or do now.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::checkout::{self, GitDir, Head};
use super::super::error::{At, Error, Result};
use super::super::git::{Git, object_id};
use super::super::manifest::{self, Folders, Kind};
use super::super::{Workspaces, blocking};
use super::kept::Kept;

/// What became of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    pub from: Kept,
    /// What was there before.
    pub before: Kept,
    pub written: u64,
    pub deleted: u64,
    /// Files that the snapshot does not know of, and which therefore stay.
    pub left: Vec<String>,
}

/// One path in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    old_mode: String,
    old_id: String,
    status: u8,
    path: Vec<u8>,
}

impl Workspaces {
    pub(in super::super) async fn restore_now(
        &self,
        agent_dir: &Path,
        agent: &str,
        number: u32,
    ) -> Result<Restored> {
        let (folders, manifest) = self.repository_of(agent_dir).await?;
        let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
        let all = self.kept_of(repository, agent).await?;
        let from = all.into_iter().find(|kept| kept.number == number).ok_or_else(|| Error::BadName {
            what: "a snapshot",
            name: number.to_string(),
            why: "this agent has none of that number",
        })?;
        let before = self.snapshot_now(agent_dir, agent, from.ignored).await?;
        let git = &self.git;
        let taken = self.take(&folders, &manifest, from.ignored).await?;
        if taken.tree != before.tree {
            return Err(Error::Moving { path: folders.work.clone() });
        }
        let differences = differences(git, taken.view.scratch.path(), &before.tree, &from.tree).await?;
        let known = paths_of(git, taken.view.scratch.path(), &from.head).await?;
        let (mut left, mut target) = (Vec::new(), Vec::new());
        let mut touched = Vec::new();
        let (mut written, mut deleted) = (0, 0);
        for difference in &differences {
            let path = &difference.path;
            match difference.status {
                // Deleted then, or not there yet: only the first is the snapshot's word.
                b'D' if !known.contains(path) => {
                    let (mode, id) = (&difference.old_mode, &difference.old_id);
                    target.extend(format!("{mode} {id}\t").into_bytes());
                    target.extend(path);
                    target.push(0);
                    left.push(String::from_utf8_lossy(path).into_owned());
                    continue;
                }
                b'D' => deleted += 1,
                b'A' if folders.work.join(OsStr::from_bytes(path)).symlink_metadata().is_ok() => {
                    let path = String::from_utf8_lossy(path).into_owned();
                    return Err(Error::InTheWay { path, before: before.number });
                }
                _ => written += 1,
            }
            touched.extend(path);
            touched.push(0);
        }
        let tree = wanted_tree(git, taken.view.scratch.path(), &from.tree, target).await?;
        let call = |operation| taken.view.call(git, &folders, operation);
        // Our index holds exactly what is there, and what is in the way was looked for: nothing is lost by force.
        call("put the files back").args(["read-tree", "--reset", "-u", &tree]).ok().await?;
        self.own(&folders, manifest.user, &touched)?;
        // Read from the disk again: what is there must be what was meant.
        const VERIFY: &str = "verify the restored files";
        call(VERIFY).args(["update-index", "-q", "--really-refresh"]).output().await?;
        if !touched.is_empty() {
            let update = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
            call(VERIFY).args(update).stdin(touched).ok().await?;
        }
        let now = object_id(VERIFY, &call(VERIFY).args(["write-tree"]).ok().await?)?;
        if now != tree {
            let detail =
                format!("the files are {now}, not {tree}; what was there is snapshot {}", before.number);
            return Err(Error::GitAnswer { operation: VERIFY, detail });
        }
        Ok(Restored { from, before, written, deleted, left })
    }

    /// Lays a snapshot over the fresh checkout of the commit that it was taken on. Repeatable until it is whole.
    pub(in super::super) async fn lay_now(&self, agent_dir: &Path, commit: &str) -> Result<()> {
        let folders = Folders::of(agent_dir);
        let mut manifest = manifest::required(&folders)?;
        if manifest.snapshot.as_deref() == Some(commit) {
            return Ok(());
        }
        let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
        let base = manifest.base_commit.clone().ok_or(Error::NoRepository)?;
        let git = &self.git;
        let objects = repository.objects();
        let scratch = GitDir::scratch(git, &repository.object_format, &[&objects], Head::At(&base))?;
        scratch.take_shallow(repository)?;
        let git_dir = manifest.worktree_git_dir.clone().unwrap_or_else(|| folders.work.join(".git"));
        scratch.take_index(&git_dir)?;
        git.call("lay the snapshot over the checkout")
            .git_dir(scratch.path())
            .work_tree(&folders.work)
            .args(["read-tree", "--reset", "-u", commit])
            .ok()
            .await?;
        let top = if manifest.kind == Kind::Overlay { folders.upper.clone() } else { folders.work.clone() };
        manifest.snapshot = Some(commit.to_owned());
        blocking("write the manifest", move || {
            checkout::give_all(&top, manifest.user)?;
            manifest::write(&folders, &manifest)
        })
        .await
    }

    /// What git wrote belongs to the agent's user. Nothing of the agent runs, so no link can come between.
    fn own(&self, folders: &Folders, user: Option<super::super::git::User>, paths: &[u8]) -> Result<()> {
        if user.is_none() {
            return Ok(());
        }
        let top = std::fs::canonicalize(&folders.work).at("reached", &folders.work)?;
        for path in paths.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let path = folders.work.join(OsStr::from_bytes(path));
            let parent = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
            if path.symlink_metadata().is_err() || parent.is_none_or(|parent| !parent.starts_with(&top)) {
                continue;
            }
            let mut at = path.as_path();
            while at != folders.work {
                checkout::give(at, user)?;
                let Some(above) = at.parent() else { break };
                at = above;
            }
        }
        Ok(())
    }
}

async fn differences(git: &Git, git_dir: &Path, from: &str, to: &str) -> Result<Vec<Difference>> {
    let listed = git
        .call("compare with the snapshot")
        .git_dir(git_dir)
        .args(["diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", from, to])
        .ok()
        .await?;
    Ok(parse(&listed))
}

/// `:oldmode newmode oldid newid STATUS\0path\0` (git-diff-tree(1)).
fn parse(listed: &[u8]) -> Vec<Difference> {
    let mut fields = listed.split(|&byte| byte == 0);
    let mut found = Vec::new();
    while let (Some(head), Some(path)) = (fields.next().filter(|head| !head.is_empty()), fields.next()) {
        let head = String::from_utf8_lossy(head).into_owned();
        let mut words = head.trim_start_matches(':').split(' ');
        let old_mode = words.next().unwrap_or_default().to_owned();
        let old_id = words.nth(1).unwrap_or_default().to_owned();
        let status = words.nth(1).and_then(|status| status.bytes().next()).unwrap_or(b'X');
        found.push(Difference { old_mode, old_id, status, path: path.to_vec() });
    }
    found
}

async fn paths_of(git: &Git, git_dir: &Path, commit: &str) -> Result<BTreeSet<Vec<u8>>> {
    let listed = git
        .call("read the snapshot's HEAD")
        .git_dir(git_dir)
        .args(["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit])
        .ok()
        .await?;
    Ok(listed.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The snapshot's tree with what stays beside it.
async fn wanted_tree(git: &Git, git_dir: &Path, tree: &str, left: Vec<u8>) -> Result<String> {
    const OPERATION: &str = "join the snapshot with what stays";
    let index = git_dir.join("wanted.index");
    let call = || git.call(OPERATION).git_dir(git_dir).index(&index).volatile();
    call().args(["read-tree", tree]).ok().await?;
    if !left.is_empty() {
        call().args(["update-index", "-z", "--index-info"]).stdin(left).ok().await?;
    }
    object_id(OPERATION, &call().args(["write-tree"]).ok().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_read_with_any_path() {
        let listed = b":100644 000000 aa 00 D\0a b\nc\0:000000 100755 00 bb A\0\xff\0";
        let found = parse(listed);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].status, found[0].path.as_slice(), found[0].old_id.as_str()),
            (b'D', &b"a b\nc"[..], "aa")
        );
        assert_eq!((found[1].status, found[1].old_mode.as_str()), (b'A', "000000"));
        assert!(parse(b"").is_empty());
    }
}
