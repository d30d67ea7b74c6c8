//! Refs of the person's repository, moved by compare-and-swap in one transaction, as the owner of
//! the repository and without its hooks. Leaves to others: bringing the objects there first.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use super::error::{Error, Result};
use super::git::{Call, Git, is_object_id};
use super::names;
use super::repository::Repository;

fn call<'a>(git: &'a Git, repository: &Repository, operation: &'static str) -> Call<'a> {
    git.call(operation).git_dir(&repository.common_dir).act_as(repository.act_as)
}

/// What the named refs point to; absent ones are left out.
pub(crate) async fn read(
    git: &Git,
    repository: &Repository,
    names: &[String],
) -> Result<BTreeMap<String, String>> {
    let listed = call(git, repository, "read refs")
        .args(["for-each-ref", "--format=%(objectname) %(refname)"])
        .args(names)
        .ok()
        .await?;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let all = listed.lines().filter_map(|line| line.split_once(' '));
    let wanted = all.filter(|(_, name)| names.is_empty() || names.iter().any(|wanted| wanted == name));
    Ok(wanted.map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
}

/// Makes each ref point to its commit, whatever it was; all or none. A repetition changes nothing.
pub(crate) async fn ensure(
    git: &Git,
    repository: &Repository,
    wanted: &[(String, String)],
    message: &str,
) -> Result<()> {
    for (name, _) in wanted {
        names::check_own_ref(name)?;
    }
    // Created blindly first: one process in the usual case.
    let zero = "0".repeat(wanted.first().map_or(40, |(_, id)| id.len()));
    let new = |(name, id): &(String, String)| (name.clone(), id.clone(), zero.clone());
    let mut refused = match swap(git, repository, &wanted.iter().map(new).collect::<Vec<_>>(), message).await
    {
        Ok(()) => return Ok(()),
        Err(error @ Error::RefRefused { .. }) => error,
        Err(error) => return Err(error),
    };
    let named: Vec<String> = wanted.iter().map(|(name, _)| name.clone()).collect();
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        clear_stale_locks(repository, &named);
        let now = read(git, repository, &named).await?;
        let moves: Vec<_> = wanted
            .iter()
            .filter(|(name, id)| now.get(name) != Some(id))
            .map(|(name, id)| (name.clone(), id.clone(), now.get(name).unwrap_or(&zero).clone()))
            .collect();
        if moves.is_empty() {
            return Ok(());
        }
        match swap(git, repository, &moves, message).await {
            Ok(()) => return Ok(()),
            Err(error @ Error::RefRefused { .. }) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// git holds the lock of one ref for milliseconds. One that is a minute old belongs to a git that
/// died with the machine, and would hold up this ref of ours for ever.
fn clear_stale_locks(repository: &Repository, names: &[String]) {
    const STALE: Duration = Duration::from_secs(60);
    for name in names {
        let lock = repository.common_dir.join(format!("{name}.lock"));
        let age = lock.symlink_metadata().and_then(|facts| facts.modified()).map(|at| at.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > STALE)) {
            tracing::warn!(lock = %lock.display(), "lock of a ref was left behind and is removed");
            let _ = std::fs::remove_file(lock);
        }
    }
}

/// One transaction of `(ref, new, old)`; the zero id as old means: must not exist.
pub(crate) async fn swap(
    git: &Git,
    repository: &Repository,
    moves: &[(String, String, String)],
    message: &str,
) -> Result<()> {
    let mut input = String::new();
    for (name, new, old) in moves {
        input.push_str(&format!("update {name}\0{new}\0{old}\0"));
    }
    let names = moves.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(", ");
    transact(git, repository, input, names, message).await
}

async fn transact(
    git: &Git,
    repository: &Repository,
    input: String,
    name: String,
    message: &str,
) -> Result<()> {
    let done = call(git, repository, "move refs")
        .args(["update-ref", "-m", message, "--stdin", "-z"])
        .stdin(input)
        .output()
        .await?;
    if done.status.success() {
        return Ok(());
    }
    if done.stderr.contains("Permission denied") || done.stderr.contains("Read-only file system") {
        return Err(Error::Permission { path: repository.common_dir.clone(), detail: done.stderr });
    }
    Err(Error::RefRefused { name, detail: done.stderr })
}

/// Drops a branch that is still at this commit and checked out nowhere; one that is elsewhere or gone stays as it is.
pub(crate) async fn drop_branch_at(
    git: &Git,
    repository: &Repository,
    full: &str,
    commit: &str,
) -> Result<()> {
    let now = read(git, repository, &[full.to_owned()]).await?.remove(full);
    if now.as_deref() != Some(commit) || checked_out_at(git, repository, full).await?.is_some() {
        return Ok(());
    }
    let input = format!("delete {full}\0{commit}\0");
    match transact(git, repository, input, full.to_owned(), "phalanx: unused").await {
        // Somebody moved it meanwhile.
        Err(Error::RefRefused { .. }) => Ok(()),
        other => other,
    }
}

/// Drops refs of ours; those already gone are fine.
pub(crate) async fn drop_all(git: &Git, repository: &Repository, names: &[String]) -> Result<()> {
    let whatever = names.iter().map(|name| (name.clone(), String::new()));
    drop_at(git, repository, &whatever.collect::<Vec<_>>()).await
}

/// Drops refs of ours that point to these commits; an empty id stands for any.
pub(crate) async fn drop_at(git: &Git, repository: &Repository, refs: &[(String, String)]) -> Result<()> {
    if refs.is_empty() {
        return Ok(());
    }
    let mut input = String::new();
    for (name, commit) in refs {
        names::check_own_ref(name)?;
        input.push_str(&format!("delete {name}\0{commit}\0"));
    }
    let names: Vec<&str> = refs.iter().map(|(name, _)| name.as_str()).collect();
    transact(git, repository, input, names.join(", "), "phalanx: dropped").await
}

/// What `land` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    Created,
    Moved,
    /// It was there already.
    Already,
}

/// Creates (`expected_old` none) or moves a branch, which must not be checked out anywhere.
pub(crate) async fn land(
    git: &Git,
    repository: &Repository,
    branch: &str,
    commit: &str,
    expected_old: Option<&str>,
) -> Result<Landed> {
    let full = names::check_branch(branch)?;
    for id in [Some(commit), expected_old].into_iter().flatten() {
        if !is_object_id(id) {
            return Err(Error::BadName { what: "a commit", name: id.to_owned(), why: "it is no full id" });
        }
    }
    let now = read(git, repository, std::slice::from_ref(&full)).await?.remove(&full);
    if now.as_deref() == Some(commit) {
        return Ok(Landed::Already);
    }
    if now.as_deref() != expected_old {
        return Err(Error::RefMoved { name: full, expected: expected_old.map(str::to_owned), found: now });
    }
    if let Some(at) = checked_out_at(git, repository, &full).await? {
        return Err(Error::CheckedOut { branch: branch.to_owned(), at });
    }
    let zero = "0".repeat(commit.len());
    let old = expected_old.unwrap_or(&zero).to_owned();
    let moved = [(full.clone(), commit.to_owned(), old)];
    match swap(git, repository, &moved, "phalanx: accepted work").await {
        Ok(()) if expected_old.is_some() => Ok(Landed::Moved),
        Ok(()) => Ok(Landed::Created),
        Err(refused @ Error::RefRefused { .. }) => {
            // Somebody was quicker, or git has a reason of its own.
            let found = read(git, repository, std::slice::from_ref(&full)).await?.remove(&full);
            match found.as_deref() {
                Some(id) if id == commit => Ok(Landed::Already),
                id if id != expected_old => {
                    Err(Error::RefMoved { name: full, expected: expected_old.map(str::to_owned), found })
                }
                _ => Err(refused),
            }
        }
        Err(error) => Err(error),
    }
}

/// The checkout that has the ref as its HEAD.
pub(crate) async fn checked_out_at(
    git: &Git,
    repository: &Repository,
    full: &str,
) -> Result<Option<PathBuf>> {
    let listed =
        call(git, repository, "list worktrees").args(["worktree", "list", "--porcelain"]).ok().await?;
    let wanted = format!("branch {full}").into_bytes();
    let mut at = None;
    let mut bare = false;
    for line in listed.split(|&b| b == b'\n') {
        if let Some(path) = line.strip_prefix(b"worktree ") {
            at = Some(PathBuf::from(OsString::from_vec(path.to_vec())));
            bare = false;
        } else if line == b"bare" {
            bare = true;
        } else if line == wanted && !bare {
            return Ok(at);
        }
    }
    Ok(None)
}
