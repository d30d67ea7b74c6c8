//! Commits of submodules that work points to: of no use to anybody while the person's own submodule does not have them.
//! Leaves to others: refusing what points nowhere.

use std::path::{Path, PathBuf};

use super::super::error::Result;
use super::super::git::{Git, is_object_id};
use super::super::repository::Repository;

const OPERATION: &str = "look at submodules";
/// The mode of an entry that is a commit of another repository (gitformat-index(5)).
const GITLINK: &str = "160000";

/// One line for each submodule that `to` moves, since `from`, to a commit that its repository does not have.
pub(super) async fn unknown_commits(
    git: &Git,
    repository: &Repository,
    view: &Path,
    (from, to): (&str, &str),
) -> Result<Vec<String>> {
    let listed = git
        .call(OPERATION)
        .git_dir(view)
        .args(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--end-of-options", from, to])
        .ok()
        .await?;
    let text = String::from_utf8_lossy(&listed).into_owned();
    let mut words = text.split('\0');
    let mut unknown = Vec::new();
    while let (Some(facts), Some(path)) = (words.next(), words.next()) {
        let mut facts = facts.trim_start_matches(':').split(' ');
        let (_, mode, _, id) = (facts.next(), facts.next(), facts.next(), facts.next());
        let (Some(GITLINK), Some(id)) = (mode, id.filter(|id| is_object_id(id))) else { continue };
        if !has_commit(git, repository, path, id).await? {
            let short: String = id.chars().take(12).collect();
            unknown.push(format!("submodule {path} at {short}"));
        }
    }
    Ok(unknown)
}

async fn has_commit(git: &Git, repository: &Repository, path: &str, id: &str) -> Result<bool> {
    for git_dir in places(repository, path) {
        let call = git.call(OPERATION).git_dir(&git_dir).act_as(repository.act_as);
        if call.args(["cat-file", "-e", &format!("{id}^{{commit}}")]).output().await?.status.success() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the person's repository of a submodule may lie: as its checkout says, or as git names it by default.
fn places(repository: &Repository, path: &str) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if !repository.bare {
        let top = repository.path.join(path);
        let link = top.join(".git");
        match std::fs::read_to_string(&link) {
            Ok(text) => places.extend(text.trim().strip_prefix("gitdir: ").map(|place| top.join(place))),
            Err(_) => places.push(link),
        }
    }
    places.push(repository.common_dir.join("modules").join(path));
    places.retain(|place| place.join("objects").is_dir());
    places
}
