//! Finds a person's repository from a path and turns a base name into a commit, now.
//! Writes nothing there. Leaves to others: bases, refs and every later use of the commit.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::checkout::{GitDir, Head};
use super::error::{At, Error, Result};
use super::git::{Git, User, is_object_id};

/// Where a repository lies and as whom it is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Repository {
    /// Top of the checkout; the git folder itself for a bare repository.
    pub path: PathBuf,
    /// The git folder of this checkout: differs from `common_dir` in a linked worktree.
    pub git_dir: PathBuf,
    /// Objects and refs; the key of locks and bases.
    pub common_dir: PathBuf,
    pub object_format: String,
    pub bare: bool,
    /// The owner, when hostd is root and he is not: git writes there as him.
    pub act_as: Option<User>,
}

/// A repository with the commit that an agent starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub repository: Repository,
    pub commit: String,
    pub tree: String,
    /// The branch checked out there, without `refs/heads/`; none when HEAD is detached.
    pub head_branch: Option<String>,
    /// Changes there that are in no commit, so not in a checkout; none when it could not be told.
    pub dirty: Option<bool>,
}

impl Repository {
    pub(crate) fn objects(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// The boundary of a shallow repository, which every borrower of its objects needs too.
    pub(crate) fn shallow(&self) -> Option<Vec<u8>> {
        std::fs::read(self.common_dir.join("shallow")).ok()
    }
}

/// How long the uncommitted changes of a checkout are kept: a hint for a warning, asked once per agent.
const CHANGES_KEPT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Known {
    places: Mutex<HashMap<PathBuf, (Inodes, Repository)>>,
    changes: tokio::sync::Mutex<HashMap<PathBuf, (Instant, Option<Changes>)>>,
    /// Commits of partial clones all of whose objects are there.
    whole: Mutex<HashSet<(PathBuf, String)>>,
}

/// Lines of `git status --porcelain`.
type Changes = BTreeSet<String>;

/// Device and inode of the git folder and the common folder.
type Inodes = [(u64, u64); 2];

impl Known {
    fn recall(&self, path: &Path) -> Option<Repository> {
        let places = self.places.lock().ok()?;
        let (inodes, repository) = places.get(path)?;
        (inodes_of(repository).as_ref() == Some(inodes)).then(|| repository.clone())
    }

    fn keep(&self, path: &Path, repository: &Repository) {
        // Only a top: between a sub-folder and its top another repository may appear.
        if repository.path != path {
            return;
        }
        if let (Ok(mut places), Some(inodes)) = (self.places.lock(), inodes_of(repository)) {
            places.insert(path.to_path_buf(), (inodes, repository.clone()));
        }
    }
}

fn inodes_of(repository: &Repository) -> Option<Inodes> {
    let of = |path: &Path| path.metadata().ok().map(|facts| (facts.dev(), facts.ino()));
    // A checkout whose `.git` is gone belongs to whatever lies above it.
    if !repository.bare && repository.path.join(".git").symlink_metadata().is_err() {
        return None;
    }
    Some([of(&repository.git_dir)?, of(&repository.common_dir)?])
}

/// The repository that `path` (top, sub-folder or link to one) lies in.
pub(crate) async fn locate(git: &Git, known: &Known, path: &Path) -> Result<Repository> {
    let path = real_folder(path)?;
    if let Some(repository) = known.recall(&path) {
        return Ok(repository);
    }
    let owner = owner_of(&path);
    let repository = match discover(git, &path, owner).await {
        // An owner who cannot reach the place loses nothing by files of root there.
        Err(Error::Permission { .. }) if owner.is_some() => discover(git, &path, None).await?,
        other => other?,
    };
    known.keep(&path, &repository);
    Ok(repository)
}

fn real_folder(path: &Path) -> Result<PathBuf> {
    if !path.is_absolute() {
        return Err(Error::RelativePath { path: path.to_path_buf() });
    }
    let real = std::fs::canonicalize(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Error::PathMissing { path: path.to_path_buf() },
        std::io::ErrorKind::NotADirectory => Error::NotAFolder { path: path.to_path_buf() },
        _ => Error::io("reached", path, source),
    })?;
    if !real.is_dir() {
        return Err(Error::NotAFolder { path: path.to_path_buf() });
    }
    std::fs::read_dir(&real).at("read", &real)?;
    Ok(real)
}

/// Root writes as the owner of a place; anybody else can only be himself.
fn owner_of(path: &Path) -> Option<User> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let facts = path.metadata().ok()?;
    (facts.uid() != 0).then(|| (facts.uid(), facts.gid()))
}

async fn discover(git: &Git, path: &Path, act_as: Option<User>) -> Result<Repository> {
    const OPERATION: &str = "find the repository";
    let output = git
        .call(OPERATION)
        .folder(path)
        .act_as(act_as)
        .args(["rev-parse", "--is-bare-repository", "--git-dir", "--git-common-dir"])
        // Last, since it fails where there is no checkout, after the others are printed.
        .args(["--show-object-format", "--show-toplevel"])
        .output()
        .await
        .map_err(|error| match error {
            Error::GitStart { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Error::Permission { path: path.to_path_buf(), detail: source.to_string() }
            }
            other => other,
        })?;
    let lines: Vec<&[u8]> = output.stdout.split(|&b| b == b'\n').filter(|line| !line.is_empty()).collect();
    let [bare, git_dir, common_dir, format, rest @ ..] = lines.as_slice() else {
        if output.stderr.contains("not a git repository") {
            return Err(Error::NotARepository { path: path.to_path_buf() });
        }
        if output.stderr.contains("Permission denied") || output.stderr.contains("cannot access") {
            return Err(Error::Permission { path: path.to_path_buf(), detail: output.stderr });
        }
        output.checked(OPERATION)?;
        return Err(Error::GitAnswer { operation: OPERATION, detail: "too few lines".to_owned() });
    };
    let full = |bytes: &[u8]| {
        let joined = path.join(std::ffi::OsString::from_vec(bytes.to_vec()));
        std::fs::canonicalize(&joined).at("reached", &joined)
    };
    let (git_dir, common_dir) = (full(git_dir)?, full(common_dir)?);
    let top = match rest {
        [top] => Some(full(top)?),
        _ => None,
    };
    let bare = *bare == b"true";
    Ok(Repository {
        path: top.unwrap_or_else(|| common_dir.clone()),
        git_dir,
        object_format: String::from_utf8_lossy(format).into_owned(),
        bare,
        // Who owns the git folder decides: the checkout of a shared one may be another's.
        act_as: act_as.and_then(|_| owner_of(&common_dir)),
        common_dir,
    })
}

/// The commit that `base` (HEAD when none) names at this moment, and whether the checkout has more than that.
pub(crate) async fn resolve(git: &Git, known: &Known, path: &Path, base: Option<&str>) -> Result<Resolved> {
    let (head, mut resolved) = look_up(git, known, path, base).await?;
    resolved.dirty = match head {
        Some(head) if !resolved.repository.bare => dirty(git, known, &resolved.repository, &head).await,
        _ => Some(false),
    };
    Ok(resolved)
}

/// A name that is a branch as well as a tag means the branch, as it does to `git switch`; `refs/tags/NAME` names the tag.
pub(crate) async fn look_up(
    git: &Git,
    known: &Known,
    path: &Path,
    base: Option<&str>,
) -> Result<(Option<String>, Resolved)> {
    if let Some(base) = base {
        check_base_name(base)?;
    }
    let repository = locate(git, known, path).await?;
    let named = base.unwrap_or("HEAD");
    let answer = git
        .call("look up the base commit")
        .git_dir(&repository.git_dir)
        .act_as(repository.act_as)
        .args(["cat-file", "--batch-check"])
        // On standard input a name can be no option.
        .stdin(
            [
                "HEAD^{commit}",
                &format!("refs/heads/{named}^{{commit}}"),
                &format!("refs/heads/{named}^{{tree}}"),
            ]
            .into_iter()
            .chain([&*format!("{named}^{{commit}}"), &*format!("{named}^{{tree}}")])
            .fold(String::new(), |lines, name| lines + name + "\n"),
        )
        .ok()
        .await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let mut lines = answer.lines();
    let head = found_object(lines.next());
    let branch = (found_object(lines.next()), found_object(lines.next()));
    let commit_line = lines.next();
    let anything = (found_object(commit_line), found_object(lines.next()));
    let is_branch = named != "HEAD" && branch.0.is_some();
    let found = if is_branch { branch } else { anything };
    if let (Some(commit), None) = &found {
        return Err(partial(&repository, commit, 1));
    }
    let (Some(commit), Some(tree)) = found else {
        return Err(match base {
            None => Error::EmptyRepository { repo: repository.path },
            Some(base) if commit_line.is_some_and(|line| line.ends_with(" ambiguous")) => {
                Error::AmbiguousBase { base: base.to_owned(), repo: repository.path }
            }
            Some(_) if head.is_none() && !has_refs(git, &repository).await? => {
                Error::EmptyRepository { repo: repository.path }
            }
            Some(base) => Error::UnknownBase { base: base.to_owned(), repo: repository.path },
        });
    };
    check_whole(git, known, &repository, &commit).await?;
    let head_branch = head_branch(git, &repository).await?;
    Ok((head, Resolved { repository, commit, tree, head_branch, dirty: None }))
}

/// Whether files that git tracks differ from the commit. Untracked files are in no branch and hold nothing up.
pub(crate) async fn has_changes(git: &Git, known: &Known, path: &Path) -> Result<bool> {
    let (head, resolved) = look_up(git, known, path, None).await?;
    match head {
        Some(head) if !resolved.repository.bare => {
            let changes = look_for_changes(git, &resolved.repository, &head, "--untracked-files=no").await?;
            Ok(!changes.is_empty())
        }
        _ => Ok(false),
    }
}

fn partial(repository: &Repository, commit: &str, missing: usize) -> Error {
    Error::PartialClone { repo: repository.path.clone(), commit: commit.to_owned(), missing }
}

/// In a partial clone objects may be missing, and no agent could fetch them: its repository knows the person's folder,
/// not the server that promised them (git's Documentation/technical/partial-clone).
async fn check_whole(git: &Git, known: &Known, repository: &Repository, commit: &str) -> Result<()> {
    if !has_promises(repository) {
        return Ok(());
    }
    let key = (repository.common_dir.clone(), commit.to_owned());
    if known.whole.lock().is_ok_and(|whole| whole.contains(&key)) {
        return Ok(());
    }
    let listed = git
        .call("look for missing objects")
        .git_dir(&repository.common_dir)
        .act_as(repository.act_as)
        .args(["rev-list", "--objects", "--missing=print", &format!("{commit}^{{tree}}")])
        .ok()
        .await?;
    let missing = listed.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"?")).count();
    if missing > 0 {
        return Err(partial(repository, commit, missing));
    }
    if let Ok(mut whole) = known.whole.lock() {
        whole.insert(key);
    }
    Ok(())
}

/// Whether some pack came from a server that keeps back what was not asked for.
fn has_promises(repository: &Repository) -> bool {
    let packs = std::fs::read_dir(repository.objects().join("pack")).into_iter().flatten().flatten();
    packs.into_iter().any(|pack| pack.path().extension().is_some_and(|kind| kind == "promisor"))
}

fn check_base_name(base: &str) -> Result<()> {
    let why = if base.is_empty() {
        "it is empty"
    } else if base.starts_with('-') {
        "it starts with `-`"
    } else if base.chars().any(char::is_control) {
        "it holds a control character"
    } else {
        return Ok(());
    };
    Err(Error::BadName { what: "a base", name: base.to_owned(), why })
}

/// `<id> <type> <size>` is a find; `<name> missing` and the like are not.
fn found_object(line: Option<&str>) -> Option<String> {
    let mut words = line?.split(' ');
    let (id, kind, size, end) = (words.next()?, words.next()?, words.next()?, words.next());
    let found = is_object_id(id) && matches!(kind, "commit" | "tree") && size.parse::<u64>().is_ok();
    (found && end.is_none()).then(|| id.to_owned())
}

async fn has_refs(git: &Git, repository: &Repository) -> Result<bool> {
    let refs = git
        .call("list refs")
        .git_dir(&repository.git_dir)
        .act_as(repository.act_as)
        .args(["for-each-ref", "--count=1"])
        .ok()
        .await?;
    Ok(!refs.is_empty())
}

async fn head_branch(git: &Git, repository: &Repository) -> Result<Option<String>> {
    let path = repository.git_dir.join("HEAD");
    let head = std::fs::read(&path).at("read", &path)?;
    let mut head = String::from_utf8_lossy(&head).trim().to_owned();
    // What stands in for HEAD where refs are kept as a table.
    if head == "ref: refs/heads/.invalid" {
        let output = git
            .call("read HEAD")
            .git_dir(&repository.git_dir)
            .act_as(repository.act_as)
            .args(["symbolic-ref", "-q", "HEAD"])
            .output()
            .await?;
        head = format!("ref: {}", String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(head.strip_prefix("ref: refs/heads/").map(str::to_owned))
}

async fn dirty(git: &Git, known: &Known, repository: &Repository, head: &str) -> Option<bool> {
    changes(git, known, repository, head).await.map(|changes| !changes.is_empty())
}

/// How old an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// As [`CHANGES_KEPT`] says.
    Kept,
    Now,
}

/// Files of the checkout that are not as HEAD has them; `None`: there is no checkout, or it could not be told.
pub(crate) async fn status(
    git: &Git,
    known: &Known,
    repository: &Repository,
    freshness: Freshness,
) -> Option<BTreeSet<String>> {
    if repository.bare {
        return None;
    }
    let call = git.call("look up HEAD").git_dir(&repository.git_dir).act_as(repository.act_as);
    let head = call.args(["rev-parse", "--verify", "-q", "HEAD^{commit}"]).ok().await.ok()?;
    if freshness == Freshness::Now {
        known.changes.lock().await.remove(&repository.git_dir);
    }
    changes(git, known, repository, String::from_utf8_lossy(&head).trim()).await
}

/// A failure here is no reason to refuse an agent: the answer only feeds warnings.
async fn changes(git: &Git, known: &Known, repository: &Repository, head: &str) -> Option<Changes> {
    let mut kept = known.changes.lock().await;
    if let Some((at, answer)) = kept.get(&repository.git_dir)
        && at.elapsed() < CHANGES_KEPT
    {
        return answer.clone();
    }
    let answer = match look_for_changes(git, repository, head, "--untracked-files=normal").await {
        Ok(changes) => Some(changes),
        Err(error) => {
            tracing::debug!(repo = %repository.path.display(), error = protocol::chain(&error), "uncommitted changes not known");
            None
        }
    };
    kept.insert(repository.git_dir.clone(), (Instant::now(), answer.clone()));
    answer
}

/// Through a git folder of ours and a copy of the index: no filter of the repository runs, and the
/// person's index is not refreshed under his hands.
async fn look_for_changes(
    git: &Git,
    repository: &Repository,
    head: &str,
    untracked: &str,
) -> Result<Changes> {
    let scratch = GitDir::scratch(git, &repository.object_format, &[&repository.objects()], Head::At(head))?;
    scratch.take_index(&repository.git_dir)?;
    scratch.take_excludes(&repository.common_dir)?;
    let listed = git
        .call("look for uncommitted changes")
        .git_dir(scratch.path())
        .work_tree(&repository.path)
        .args(["status", "--porcelain", "-z", untracked, "--ignore-submodules=dirty"])
        .ok()
        .await?;
    Ok(String::from_utf8_lossy(&listed)
        .split('\0')
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect())
}

/// A short name that stays the same for one repository and is safe in a path.
pub(crate) fn key(repository: &Repository) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(repository.common_dir.as_os_str().as_bytes());
    let digest = data_encoding::HEXLOWER.encode(&digest);
    let name = repository.path.file_name().unwrap_or_default().to_string_lossy();
    let name = super::names::slug(name.trim_end_matches(".git"));
    format!("{name}-{}", digest.get(..16).unwrap_or(&digest))
}
