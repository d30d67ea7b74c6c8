//! What no ref of a workspace leads to, and no file holds: commits that only a reflog, FETCH_HEAD or ORIG_HEAD names, and
//! what was staged and then changed again. It is brought home under a ref of its own with the rest.
//! Leaves to others: commits on refs and in the stash, which are the agent's to show.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::blocking;
use super::super::error::{At, Result};
use super::super::git::{Git, is_object_id, object_id};
use super::super::manifest::{Folders, Manifest};
use super::inspect::{self, Found};
use super::snapshot::{Changes, View};

/// Commits, with what was staged as one. To be asked for before anything is added to the view's index.
pub(super) async fn find(
    git: &Git,
    view: &View,
    folders: &Folders,
    manifest: &Manifest,
    found: &Found,
    changes: Option<&Changes>,
) -> Result<BTreeSet<String>> {
    let (git_dir, shared) = (found.git_dir.clone(), manifest.worktree_git_dir.is_some());
    let mut logged = blocking("read the logs of a workspace", move || {
        let mut logged = logged(&git_dir)?;
        if !shared {
            let refs: BTreeSet<String> = inspect::all_refs(&git_dir)?.into_values().collect();
            logged.retain(|id| !refs.contains(id));
        }
        Ok(logged)
    })
    .await?;
    logged.remove(&found.head);
    if let Some(base) = &manifest.base_commit {
        logged.remove(base);
    }
    let mut tips = BTreeSet::new();
    if !logged.is_empty() {
        const OPERATION: &str = "look for commits that only a log names";
        // What a log names may have been pruned since.
        let asked: String = logged.iter().map(|id| format!("{id}^{{commit}}\n")).collect();
        let call = git.call(OPERATION).git_dir(view.scratch.path());
        let answer = call.args(["cat-file", "--batch-check=%(objectname)"]).stdin(asked).ok().await?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        tips.extend(answer.lines().filter(|line| is_object_id(line)).map(str::to_owned));
    }
    if changes.is_some_and(|changes| changes.staged) {
        tips.extend(staged(git, view, folders, manifest, found).await?);
    }
    Ok(tips)
}

/// The index as a commit. The same index makes the same commit.
async fn staged(
    git: &Git,
    view: &View,
    folders: &Folders,
    manifest: &Manifest,
    found: &Found,
) -> Result<Option<String>> {
    const OPERATION: &str = "keep what was staged";
    let tree = object_id(OPERATION, &view.call(git, folders, OPERATION).args(["write-tree"]).ok().await?)?;
    if tree == view.head_tree(git).await? {
        return Ok(None);
    }
    let made = git
        .call(OPERATION)
        .git_dir(view.scratch.path())
        .dated(manifest.created_at_ms / 1000)
        .args(["commit-tree", &tree, "-p", &found.head, "-m", "Staged, and changed again since"])
        .ok()
        .await?;
    object_id(OPERATION, &made).map(Some)
}

/// One commit that leads to all of these that nothing else leads to; none where there are none.
pub(super) async fn join(
    git: &Git,
    view: &View,
    manifest: &Manifest,
    tips: &BTreeSet<String>,
    known: &BTreeSet<String>,
) -> Result<Option<String>> {
    if tips.is_empty() {
        return Ok(None);
    }
    const OPERATION: &str = "keep what only a log names";
    let asked: String = tips.iter().map(|id| format!("{id}\n")).collect();
    let asked = known.iter().fold(asked, |asked, id| asked + &format!("^{id}\n"));
    let listed = git
        .call(OPERATION)
        .git_dir(view.scratch.path())
        // The person may have lost what a ref of his names; that is no reason to lose this too.
        .args(["rev-list", "--parents", "--ignore-missing", "--stdin"])
        .stdin(asked)
        .ok()
        .await?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let (mut open, mut parents) = (BTreeSet::new(), BTreeSet::new());
    for line in listed.lines() {
        let mut ids = line.split(' ');
        open.extend(ids.next());
        parents.extend(ids);
    }
    let ends: Vec<&str> = open.difference(&parents).copied().collect();
    if ends.is_empty() {
        return Ok(None);
    }
    let tree = view.head_tree(git).await?;
    let mut args = vec!["commit-tree", &tree];
    for end in &ends {
        args.extend(["-p", end]);
    }
    args.extend(["-m", "Commits that only logs of the workspace named, and what was only staged"]);
    let call = git.call(OPERATION).git_dir(view.scratch.path()).dated(manifest.created_at_ms / 1000);
    object_id(OPERATION, &call.args(args).ok().await?).map(Some)
}

/// Every commit that a log of HEAD or of a branch has seen, and what was fetched last.
fn logged(git_dir: &Path) -> Result<BTreeSet<String>> {
    const MOST: u64 = 16 * 1024 * 1024;
    let mut found = BTreeSet::new();
    let mut read = |name: &Path, columns: usize| -> Result<()> {
        let Some(bytes) = inspect::read_beneath(git_dir, name, MOST)?.ok() else { return Ok(()) };
        for line in String::from_utf8_lossy(&bytes).lines() {
            let ids = line.split([' ', '\t']).take(columns).filter(|id| is_object_id(id));
            found.extend(ids.filter(|id| id.bytes().any(|digit| digit != b'0')).map(str::to_owned));
        }
        Ok(())
    };
    for name in ["FETCH_HEAD", "ORIG_HEAD"] {
        read(Path::new(name), 1)?;
    }
    let mut open = vec![PathBuf::from("logs")];
    while let Some(folder) = open.pop() {
        let full = git_dir.join(&folder);
        let plain = full.symlink_metadata().is_ok_and(|facts| facts.is_dir());
        let Some(entries) = plain.then(|| std::fs::read_dir(&full).ok()).flatten() else { continue };
        for entry in entries {
            let entry = entry.at("read", &full)?;
            let path = folder.join(entry.file_name());
            if entry.file_type().at("read", &full)?.is_dir() {
                open.push(path);
            } else if path != Path::new("logs/refs/stash") {
                read(&path, 2)?;
            }
        }
    }
    Ok(found)
}
