//! Merges in a private checkout: nobody's files, index or stash are touched, and what conflicts is never committed. The
//! same wish gives the same commit, so that asking twice is harmless. Leaves to others: which work, in which order, and
//! whether the branch is moved.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::merge::{ConflictFile, MergeResult, MergeTarget, MergeWish};

use super::super::checkout::{GitDir, Head, unique};
use super::super::error::{Error, Result};
use super::super::git::{Git, is_object_id, object_id};
use super::super::repository::{self, Repository};
use super::super::{Workspaces, names, refs};
use super::compare::{Folder, squashed};
use super::transfer::bring;

/// Conflicts that are told of one merge.
const FILES_TOLD: usize = 100;

impl Workspaces {
    /// The branch that work shall go into; none given: the one that the repository's HEAD is on.
    pub async fn merge_target(&self, path: &Path, into: Option<&str>) -> Result<MergeTarget> {
        let resolved = self.resolve(path, None).await?;
        let head = resolved.head_branch;
        let branch =
            into.map(str::to_owned).or(head).ok_or(Error::DetachedHead { repo: path.to_path_buf() })?;
        let full = names::check_branch(&branch)?;
        let repository = &resolved.repository;
        let tip = refs::read(&self.git, repository, std::slice::from_ref(&full)).await?.remove(&full);
        let at = refs::checked_out_at(&self.git, repository, &full).await?;
        let dirty = match &at {
            Some(at) => repository::resolve(&self.git, &self.known, at, None).await?.dirty.unwrap_or(true),
            None => false,
        };
        let start = tip.clone().unwrap_or(resolved.commit);
        let checked_out = at.map(|at| at.display().to_string());
        Ok(MergeTarget { branch, tip, start, checked_out, dirty })
    }

    pub async fn merge(&self, repository: &Repository, wish: &MergeWish) -> Result<MergeResult> {
        self.within("merge", self.merge_now(repository, wish)).await
    }

    async fn merge_now(&self, repository: &Repository, wish: &MergeWish) -> Result<MergeResult> {
        names::check_own_ref(&wish.keep)?;
        let (git, onto, work) = (&self.git, wish.onto.as_str(), wish.work.as_str());
        for id in [onto, work] {
            if !is_object_id(id) {
                return Err(Error::BadName {
                    what: "a commit",
                    name: id.to_owned(),
                    why: "it is no full id",
                });
            }
        }
        let view = GitDir::scratch(git, &repository.object_format, &[&repository.objects()], Head::At(onto))?;
        view.take_shallow(repository)?;
        if is_there(git, view.path(), onto, work).await? {
            return Ok(MergeResult::Already);
        }
        let checkout = Folder(unique(git.scratch(), "merge")?);
        let run = |operation| git.call(operation).git_dir(view.path()).work_tree(&checkout.0).volatile();
        run("check out the branch").args(["read-tree", "--reset", "-u", onto]).ok().await?;
        let merged = run("merge")
            .dated(wish.at.0 / 1_000)
            .args(["merge", "-q", "--no-ff", "--no-verify", "--no-stat", "--no-edit", "--no-log"])
            .args(["-m", &wish.message, "--", work])
            .output()
            .await?;
        // The evidence first: what is unmerged was not merged, whatever the exit code says.
        let unmerged = run("look for conflicts").args(["ls-files", "-u", "-z"]).ok().await?;
        if !unmerged.is_empty() {
            return Ok(MergeResult::Conflict { files: conflicts(&unmerged) });
        }
        merged.checked("merge")?;
        let ask = async |name: &str| -> Result<String> {
            const OPERATION: &str = "find the merged commit";
            let call = git.call(OPERATION).git_dir(view.path()).args(["rev-parse", "--verify", name]);
            object_id(OPERATION, &call.ok().await?)
        };
        let commit = ask("HEAD").await?;
        if commit == onto || ask("HEAD^{tree}").await? == ask(&format!("{onto}^{{tree}}")).await? {
            return Ok(MergeResult::Already);
        }
        bring(git, view.path(), repository, std::slice::from_ref(&commit), &[onto, work]).await?;
        refs::ensure(git, repository, &[(wish.keep.clone(), commit.clone())], "phalanx: merged").await?;
        Ok(MergeResult::Merged { commit })
    }
}

/// Whether the branch has the work: its commits, others with the same effect each, or one with the effect of all.
async fn is_there(git: &Git, view: &Path, onto: &str, work: &str) -> Result<bool> {
    let call = || git.call("look for what is merged").git_dir(view);
    if call().args(["merge-base", "--is-ancestor", work, onto]).output().await?.status.success() {
        return Ok(true);
    }
    let base = call().args(["merge-base", onto, work]).output().await?;
    let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
    if !is_object_id(&base) {
        return Ok(false);
    }
    let all_there = |listed: &[u8]| {
        let mut lines = listed.split(|&b| b == b'\n').filter(|line| !line.is_empty()).peekable();
        lines.peek().is_some() && lines.all(|line| line.starts_with(b"- "))
    };
    if all_there(&call().args(["cherry", onto, work, &base]).ok().await?) {
        return Ok(true);
    }
    let joined = squashed(git, view, &base, work).await?;
    Ok(all_there(&call().args(["cherry", onto, &joined, &base]).ok().await?))
}

/// `<mode> <id> <stage>\t<path>` each: stage 1 is the base, 2 the branch, 3 the work.
fn conflicts(listed: &[u8]) -> Vec<ConflictFile> {
    let mut files: BTreeMap<String, ConflictFile> = BTreeMap::new();
    for entry in listed.split(|&b| b == 0).filter(|entry| !entry.is_empty()) {
        let text = String::from_utf8_lossy(entry);
        let Some((facts, path)) = text.split_once('\t') else { continue };
        let mut facts = facts.split(' ').skip(1);
        let (id, stage) = (facts.next().map(str::to_owned), facts.next());
        let file = files.entry(path.to_owned()).or_insert_with(|| ConflictFile {
            path: path.to_owned(),
            base: None,
            ours: None,
            theirs: None,
        });
        match stage {
            Some("1") => file.base = id,
            Some("2") => file.ours = id,
            Some("3") => file.theirs = id,
            _ => {}
        }
    }
    files.into_values().take(FILES_TOLD).collect()
}
