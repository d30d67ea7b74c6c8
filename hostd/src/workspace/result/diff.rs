//! Differences between commits, read through a git folder of ours: no external diff, textconv or
//! attribute driver of the repository is run.

use std::path::Path;

use super::super::checkout::{GitDir, Head};
use super::super::error::Result;
use super::super::git::Git;
use super::super::repository::Repository;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DiffStat {
    pub files: u64,
    pub insertions: u64,
    pub deletions: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff {
    pub bytes: Vec<u8>,
    /// There is more than the limit let through.
    pub truncated: bool,
}

/// Counts lines; a binary file counts as a file without lines. `view` sees both commits.
pub(crate) async fn stat(git: &Git, view: &Path, from: &str, to: &str) -> Result<DiffStat> {
    if from == to {
        return Ok(DiffStat::default());
    }
    let listed = git
        .call("count changed lines")
        .git_dir(view)
        .args(["diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"])
        .args(["--end-of-options", from, to])
        .ok()
        .await?;
    let mut stat = DiffStat::default();
    for entry in listed.split(|&b| b == 0).filter(|entry| !entry.is_empty()) {
        let mut columns = entry.splitn(3, |&b| b == b'\t').map(|column| {
            std::str::from_utf8(column).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
        });
        stat.files += 1;
        stat.insertions += columns.next().unwrap_or(0);
        stat.deletions += columns.next().unwrap_or(0);
    }
    Ok(stat)
}

pub(crate) async fn text(
    git: &Git,
    repository: &Repository,
    from: &str,
    to: &str,
    limit: usize,
) -> Result<Diff> {
    let view = view(git, repository, to)?;
    let output = git
        .call("show a difference")
        .git_dir(view.path())
        .args(["diff-tree", "-r", "-p", "-M", "--binary", "--no-ext-diff", "--no-textconv", "--no-color"])
        .args(["--end-of-options", from, to])
        .first_bytes(limit)
        .output()
        .await?;
    let truncated = output.truncated;
    Ok(Diff { bytes: output.checked("show a difference")?, truncated })
}

/// A git folder of ours over the person's objects.
pub(crate) fn view(git: &Git, repository: &Repository, head: &str) -> Result<GitDir> {
    let view = GitDir::scratch(git, &repository.object_format, &[&repository.objects()], Head::At(head))?;
    view.take_shallow(repository)?;
    Ok(view)
}
