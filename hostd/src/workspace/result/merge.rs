//! Merges in git folders of ours: nobody's files, index or stash are touched, and what conflicts is never committed. The
//! same wish gives the same commit, so that asking twice is harmless. Leaves to others: which work, in which order, and
//! whether the branch is moved.

use std::collections::BTreeMap;
use std::path::Path;

use protocol::merge::{ConflictFile, MergeResult, MergeTarget, MergeWish, MovedBranch, RecordedBranch};

use super::super::checkout::{GitDir, Head, unique};
use super::super::error::{Error, Result};
use super::super::git::{Git, is_object_id, object_id};
use super::super::repository::{self, Repository};
use super::super::{Workspaces, names, refs};
use super::compare::{Folder, squashed};
use super::submodules;
use super::transfer::bring;

/// Conflicts that are told of one merge.
const FILES_TOLD: usize = 100;
/// Later commits that are told of one branch.
const COMMITS_TOLD: usize = 5;
/// The first git that merges without a checkout.
const MERGE_TREE: (u32, u32) = (2, 38);

impl Workspaces {
    /// The branch that work shall go into; none given: the one that the repository's HEAD is on. `recorded` are those
    /// whose later commits are told.
    pub async fn merge_target(
        &self,
        path: &Path,
        into: Option<&str>,
        recorded: &[RecordedBranch],
    ) -> Result<MergeTarget> {
        let (_, resolved) = repository::look_up(&self.git, &self.known, path, None).await?;
        let head = resolved.head_branch;
        let branch =
            into.map(str::to_owned).or(head).ok_or(Error::DetachedHead { repo: path.to_path_buf() })?;
        let full = names::check_branch(&branch)?;
        let branch = full.strip_prefix("refs/heads/").unwrap_or(&branch).to_owned();
        let repository = &resolved.repository;
        let tip = refs::read(&self.git, repository, std::slice::from_ref(&full)).await?.remove(&full);
        let at = refs::checked_out_at(&self.git, repository, &full).await?;
        let dirty = match &at {
            // Not known is not clean.
            Some(at) => repository::has_changes(&self.git, &self.known, at).await.unwrap_or(true),
            None => false,
        };
        let moved = self.moved(repository, tip.as_deref(), recorded).await?;
        let start = tip.clone().unwrap_or(resolved.commit);
        let checked_out = at.map(|at| at.display().to_string());
        Ok(MergeTarget { branch, tip, start, checked_out, dirty, moved })
    }

    /// Branches with commits that are neither in the recorded work nor in the branch that it goes into.
    async fn moved(
        &self,
        repository: &Repository,
        into: Option<&str>,
        recorded: &[RecordedBranch],
    ) -> Result<Vec<MovedBranch>> {
        let mut moved = Vec::new();
        if recorded.is_empty() {
            return Ok(moved);
        }
        let named =
            recorded.iter().map(|row| names::check_branch(&row.branch)).collect::<Result<Vec<_>>>()?;
        let tips = refs::read(&self.git, repository, &named).await?;
        for (row, full) in recorded.iter().zip(&named) {
            let Some(tip) = tips.get(full).filter(|tip| **tip != row.commit && is_object_id(&row.commit))
            else {
                continue;
            };
            let view = GitDir::scratch(
                &self.git,
                &repository.object_format,
                &[&repository.objects()],
                Head::At(tip),
            )?;
            view.take_shallow(repository)?;
            let without: Vec<String> =
                [Some(row.commit.as_str()), into].into_iter().flatten().map(|id| format!("^{id}")).collect();
            let call = || self.git.call("look for later commits").git_dir(view.path());
            let count = call().args(["rev-list", "--count", tip]).args(&without).ok().await?;
            let commits = String::from_utf8_lossy(&count).trim().parse().unwrap_or(0);
            if commits == 0 {
                continue;
            }
            let most = format!("--max-count={COMMITS_TOLD}");
            let listed =
                call().args(["log", "--format=%h %s", &most, tip]).args(&without).args(["--"]).ok().await?;
            let shown = String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect();
            moved.push(MovedBranch { branch: row.branch.clone(), tip: tip.clone(), commits, shown });
        }
        Ok(moved)
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
        let base =
            git.call("find the base").git_dir(view.path()).args(["merge-base", onto, work]).output().await?;
        let base = String::from_utf8_lossy(&base.stdout).trim().to_owned();
        if is_object_id(&base) {
            let sides = (base.as_str(), work);
            let unknown = submodules::unknown_commits(git, repository, view.path(), sides).await?;
            if !unknown.is_empty() {
                return Err(Error::UnknownSubmodules { what: unknown.join(", ") });
            }
        }
        let combined = if git.is_at_least(MERGE_TREE) {
            in_objects(git, view.path(), onto, work).await?
        } else {
            in_checkout(git, view.path(), onto, work).await?
        };
        let tree = match combined {
            Combined::Tree(tree) => tree,
            Combined::Conflict(unmerged) => {
                return Ok(MergeResult::Conflict { files: conflicts(&unmerged) });
            }
        };
        let call = || git.call("commit the merge").git_dir(view.path()).volatile();
        let before = call().args(["rev-parse", "--verify", &format!("{onto}^{{tree}}")]).ok().await?;
        if tree == object_id("commit the merge", &before)? {
            return Ok(MergeResult::Already);
        }
        let made = call()
            .dated(wish.at.0 / 1_000)
            .args(["commit-tree", &tree, "-p", onto, "-p", work, "-F", "-"])
            .stdin(format!("{}\n", wish.message.trim()))
            .ok()
            .await?;
        let commit = object_id("commit the merge", &made)?;
        bring(git, view.path(), repository, std::slice::from_ref(&commit), &[onto, work]).await?;
        if !wish.dry_run {
            refs::ensure(git, repository, &[(wish.keep.clone(), commit.clone())], "phalanx: merged").await?;
        }
        Ok(MergeResult::Merged { commit })
    }
}

/// What two sides give: a tree, or what `ls-files -u -z` lists.
enum Combined {
    Tree(String),
    Conflict(Vec<u8>),
}

/// In the object store alone: its cost is that of the files that differ, not of all there are.
async fn in_objects(git: &Git, view: &Path, onto: &str, work: &str) -> Result<Combined> {
    const OPERATION: &str = "merge";
    let top = Folder(unique(git.scratch(), "merge")?);
    let call = || git.call(OPERATION).git_dir(view).work_tree(&top.0).volatile();
    // How a file is merged is read from the attributes in a checkout: of one that has nothing else.
    call().args(["read-tree", onto]).ok().await?;
    let attributes =
        call().args(["ls-files", "-z", "--", ".gitattributes", "**/.gitattributes"]).ok().await?;
    if !attributes.is_empty() {
        call().args(["checkout-index", "-q", "-z", "--stdin"]).stdin(attributes).ok().await?;
    }
    let output =
        call().args(["merge-tree", "--write-tree", "--no-messages", "-z", onto, work]).output().await?;
    let is_conflict = output.status.code() == Some(1);
    let said = if is_conflict { output.stdout } else { output.checked(OPERATION)? };
    let (tree, rest) = match said.iter().position(|&b| b == 0) {
        Some(end) => said.split_at(end),
        None => (said.as_slice(), &[][..]),
    };
    if is_conflict {
        return Ok(Combined::Conflict(rest.to_vec()));
    }
    Ok(Combined::Tree(object_id(OPERATION, tree)?))
}

/// As git before 2.38 does it: in a checkout of the whole branch.
async fn in_checkout(git: &Git, view: &Path, onto: &str, work: &str) -> Result<Combined> {
    let checkout = Folder(unique(git.scratch(), "merge")?);
    let run = |operation| git.call(operation).git_dir(view).work_tree(&checkout.0).volatile();
    run("check out the branch").args(["read-tree", "--reset", "-u", onto]).ok().await?;
    let merged = run("merge")
        .args(["merge", "-q", "--no-ff", "--no-commit", "--no-verify", "--no-stat", "--", work])
        .output()
        .await?;
    // The evidence first: what is unmerged was not merged, whatever the exit code says.
    let unmerged = run("look for conflicts").args(["ls-files", "-u", "-z"]).ok().await?;
    if !unmerged.is_empty() {
        return Ok(Combined::Conflict(unmerged));
    }
    merged.checked("merge")?;
    let tree = run("write the merged tree").args(["write-tree"]).ok().await?;
    Ok(Combined::Tree(object_id("write the merged tree", &tree)?))
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
