//! Shows that an index holds what a commit id names: objects in a repository are only as good as whoever may write
//! there, and git does not compare them with their ids when it checks them out. That files are as the index says is shown
//! by refreshing it after their times were changed, which reads each of them.

use std::path::Path;

use super::super::checkout::{GitDir, Head};
use super::super::error::{Error, Result};
use super::super::git::{Git, object_id};
use super::super::repository::Repository;

const OPERATION: &str = "check a commit against its id";

pub(crate) async fn prove(git: &Git, repository: &Repository, index: &Path, commit: &str) -> Result<()> {
    let forged = |detail: String| Error::Forged { commit: commit.to_owned(), detail };
    let view = GitDir::scratch(git, &repository.object_format, &[&repository.objects()], Head::At(commit))?;
    let call = || git.call(OPERATION).git_dir(view.path()).volatile();
    let content = call().args(["cat-file", "commit", commit]).ok().await?;
    // Literally: what git itself would not write today may be in an old history.
    let hash = call().args(["hash-object", "-t", "commit", "--literally", "--stdin"]);
    let found = object_id(OPERATION, &hash.stdin(content.clone()).ok().await?)?;
    if found != commit {
        return Err(forged(format!("its content is that of {found}")));
    }
    let named = content.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let named = String::from_utf8_lossy(named.strip_prefix(b"tree ").unwrap_or_default()).into_owned();
    // Entry by entry into an index that knows no trees: git would hand on the ids that it read.
    let listed = call().index(index).args(["ls-files", "--stage", "-z"]).ok().await?;
    call().args(["update-index", "-z", "--index-info"]).stdin(listed).ok().await?;
    let tree = object_id(OPERATION, &call().args(["write-tree", "--missing-ok"]).ok().await?)?;
    if tree != named {
        return Err(forged(format!("its files make the tree {tree}, and it names {named}")));
    }
    Ok(())
}
