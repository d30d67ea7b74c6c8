//! Prepared bases: in the base of a commit programs are run once (dependencies are put in), for all that start from it.
//!
//! ```text
//! preparing/<random>/{tree, tmp} ──programs──▶ git folder as before ──▶ on disk ──▶ bases/<repository>/<commit>+<digest>
//! ```
//!
//! Who asks for one that is being made waits with the others, and they share the outcome; a failure is kept for nobody
//! who comes later. When the last of them has gone, the work is broken off. What git tracks must come out as the commit
//! has it; all else is named in the base's facts, so that it never counts as the work of an agent.
//! Leaves to others: how the programs are run and what they may use.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use sha2::{Digest, Sha256};

use super::super::checkout::{self, Fill};
use super::super::error::{At, Error, Result};
use super::super::git::{Git, User};
use super::super::repository::Repository;
use super::super::{blocking, remove};
use super::{
    Base, Bases, DAMAGED, Extra, Facts, MADE_AT_MOST, Origin, finish, is_as_committed, name_of, seal,
};

/// Below the state of hostd.
const FOLDER: &str = "preparing";
const SALT: &str = ".salt";
/// Most changed files that an error names.
const NAMED: usize = 10;

type Outcome = std::result::Result<Arc<Base>, Arc<Error>>;

/// Bases that are being prepared.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<PathBuf, WeakShared<BoxFuture<'static, Outcome>>>>);

impl std::fmt::Debug for Flights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flights")
    }
}

/// Where the programs run.
#[derive(Debug, Clone)]
pub struct Bench {
    pub tree: PathBuf,
    /// For temporary files; gone afterwards.
    pub scratch: PathBuf,
    /// Names this one preparation; a hostd that is killed leaves the name to the next.
    pub id: String,
}

/// Runs the programs to their end; an error is why they did not all succeed, and what they printed.
pub type Run = Box<dyn FnOnce(Bench) -> BoxFuture<'static, std::result::Result<(), RunError>> + Send>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError {
    pub why: String,
    pub log: Vec<u8>,
}

/// What is to be prepared.
pub struct Preparation {
    /// Everything that the outcome may depend on beside commit and owner.
    pub identity: Vec<u8>,
    pub run: Run,
}

/// A base to start from; as long as it is held it is not taken away.
#[derive(Debug, Clone)]
pub struct PreparedBase(pub(crate) Arc<Base>);

/// What an earlier hostd was preparing when it ended.
#[must_use]
pub fn left_over(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

pub(super) fn open(state: &Path) -> Result<PathBuf> {
    let folder = state.join(FOLDER);
    if folder.symlink_metadata().is_ok() {
        remove::remove_tree(&folder)?;
    }
    std::fs::create_dir_all(&folder).at("made", &folder)?;
    // A program of another user passes through to what is his, whose name nobody can guess.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o711)).at("closed", &folder)?;
    Ok(folder)
}

/// Made once, kept beside the bases.
pub(super) fn salt(bases: &Path) -> Result<[u8; 32]> {
    let path = bases.join(SALT);
    if let Ok(Ok(salt)) = std::fs::read(&path).map(<[u8; 32]>::try_from) {
        return Ok(salt);
    }
    let mut salt = [0; 32];
    getrandom::fill(&mut salt)
        .map_err(|error| Error::io("named", &path, std::io::Error::other(error.to_string())))?;
    std::fs::write(&path, salt).at("written", &path)?;
    Ok(salt)
}

impl Bases {
    pub(crate) async fn prepared(
        self: &Arc<Self>,
        git: &Arc<Git>,
        repository: &Repository,
        commit: &str,
        owner: Option<User>,
        preparation: Preparation,
    ) -> Result<PreparedBase> {
        let Preparation { identity, run } = preparation;
        let digest = Sha256::new().chain_update(self.salt).chain_update(&identity).finalize();
        let digest = data_encoding::HEXLOWER.encode(&digest);
        let bare = name_of(repository, commit, owner).into_os_string().into_string();
        let bare = bare.map_err(|_| Error::Interrupted { operation: "name a base" })?;
        let name = PathBuf::from(format!("{bare}+{}", digest.get(..16).unwrap_or(&digest)));
        let flight = {
            let interrupted = |_| Error::Interrupted { operation: "find a base" };
            let mut flights = self.flights.0.lock().map_err(interrupted)?;
            match flights.get(&name).and_then(WeakShared::upgrade) {
                Some(flight) => flight,
                None => {
                    let (bases, git, key) = (Arc::clone(self), Arc::clone(git), name.clone());
                    let (repository, commit) = (repository.clone(), commit.to_owned());
                    let work = async move {
                        let outcome =
                            bases.find_or_prepare(&git, &repository, &commit, owner, &key, run).await;
                        // Who comes from now on finds the base, or tries again.
                        if let Ok(mut flights) = bases.flights.0.lock() {
                            flights.remove(&key);
                        }
                        outcome.map_err(Arc::new)
                    };
                    let flight: Shared<BoxFuture<'static, Outcome>> = work.boxed().shared();
                    if let Some(weak) = flight.downgrade() {
                        flights.insert(name.clone(), weak);
                    }
                    flight
                }
            }
        };
        flight.await.map(PreparedBase).map_err(Error::NotPrepared)
    }

    async fn find_or_prepare(
        &self,
        git: &Git,
        repository: &Repository,
        commit: &str,
        owner: Option<User>,
        name: &Path,
        run: Run,
    ) -> Result<Arc<Base>> {
        let mut run = Some(run);
        for _ in 0..MADE_AT_MOST {
            let cell = self.cell(name)?;
            let base = cell.get_or_try_init(async || match self.find(git, commit, name).await? {
                Some(base) => Ok(base),
                None => {
                    let changes = || Error::BaseChanges { path: self.folder.join(name) };
                    let run = run.take().ok_or_else(changes)?;
                    self.prepare(git, repository, commit, owner, name, run).await
                }
            });
            let base = Arc::clone(base.await?);
            if base.is_whole().await {
                return Ok(base);
            }
            self.discard_damaged(git, name, &cell).await?;
        }
        Err(Error::BaseChanges { path: self.folder.join(name) })
    }

    /// One that was prepared before, whoever asked for it.
    pub(crate) async fn prepared_before(&self, git: &Git, commit: &str, name: &Path) -> Result<Arc<Base>> {
        let cell = self.cell(name)?;
        let base = cell.get_or_try_init(async || {
            let gone = || Error::PreparedBaseGone { path: self.folder.join(name) };
            self.find(git, commit, name).await?.ok_or_else(gone)
        });
        base.await.map(Arc::clone)
    }

    async fn prepare(
        &self,
        git: &Git,
        repository: &Repository,
        commit: &str,
        owner: Option<User>,
        name: &Path,
        run: Run,
    ) -> Result<Arc<Base>> {
        let path = self.folder.join(name);
        let lent = self.lend(git, repository, commit).await?;
        self.set_aside(&path, DAMAGED)?;
        let unfinished = Unfinished::new(&self.preparing)?;
        let top = &unfinished.0;
        let (tree, scratch, kept) = (top.join("tree"), top.join("tmp"), top.join("git"));
        for folder in [&tree, &scratch] {
            std::fs::create_dir(folder).at("made", folder)?;
            checkout::give(folder, owner)?;
        }
        let fill = Fill { owner, lent: &lent, warm: true };
        let warnings = checkout::make(git, repository, commit, &tree, &fill).await?;
        let git_dir = tree.join(".git");
        let (from, to) = (git_dir.clone(), kept.clone());
        blocking("keep a git folder", move || copy_tree(&from, &to)).await?;
        checkout::give(top, owner)?;
        std::fs::set_permissions(top, PermissionsExt::from_mode(0o700)).at("closed", top)?;
        let id = top.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bench = Bench { tree: tree.clone(), scratch: scratch.clone(), id };
        run(bench).await.map_err(|RunError { why, log }| Error::PrepareFailed { why, log })?;
        // Settings, hooks and refs that a program left there would be those of every agent.
        let (at, theirs) = (top.clone(), git_dir.clone());
        blocking("take a git folder back", move || {
            if at.symlink_metadata().is_ok() {
                lchown(&at, Some(nix::unistd::geteuid().as_raw()), None).at("handed over", &at)?;
            }
            remove::remove_tree(&theirs)?;
            remove::remove_tree(&scratch)?;
            std::fs::rename(&kept, &theirs).at("renamed", &kept)
        })
        .await?;
        let changed = changed(git, &tree, commit).await?;
        if !changed.is_empty() {
            return Err(Error::PrepareChanged { files: changed });
        }
        let extra = extra(git, &tree).await?;
        let facts = Facts {
            version: 1,
            repository: repository.clone(),
            commit: commit.to_owned(),
            warnings,
            extra,
            seal: None,
        };
        let (at, excludes) = (tree.clone(), facts.extra.excludes.clone());
        let seal = blocking("seal a base", move || {
            checkout::exclude(&at.join(".git"), &excludes)?;
            seal::of(&at)
        })
        .await?;
        if !is_as_committed(git, &tree, commit).await {
            return Err(Error::BaseChanges { path });
        }
        seal.settles().await;
        let seal = seal.digest;
        let facts = Facts { seal: Some(seal.clone()), ..facts };
        let (at, target) = (top.clone(), path.clone());
        let facts = blocking("finish a base", move || {
            // Unlike a bare checkout, what programs made cannot be checked after a power cut.
            let folder = std::fs::File::open(&at).at("opened", &at)?;
            rustix::fs::syncfs(&folder).map_err(std::io::Error::from).at("synced", &at)?;
            let parent = target.parent().unwrap_or(&target);
            std::fs::create_dir_all(parent).at("made", parent)?;
            finish(&at, &target, &facts)?;
            std::fs::File::open(parent).and_then(|folder| folder.sync_all()).at("synced", parent)?;
            Ok(facts)
        })
        .await?;
        Ok(Arc::new(Base::of(name, path.join("tree"), facts, seal, Origin::MadeNow)))
    }
}

/// Taken away when it does not become a base.
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(parent: &Path) -> Result<Self> {
        checkout::unique(parent, "prepare").map(Self)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.0.symlink_metadata().is_ok()
            && let Err(error) = remove::remove_tree(&self.0)
        {
            tracing::warn!(error = protocol::chain(&error), "what was prepared in vain is taken away later");
        }
    }
}

/// Tracked files that are not as the commit has them.
async fn changed(git: &Git, tree: &Path, commit: &str) -> Result<Vec<String>> {
    let run = |operation| git.call(operation).git_dir(&tree.join(".git")).work_tree(tree).volatile();
    run("check a base").args(["update-index", "-q", "--refresh"]).output().await?;
    let listed = run("check a base")
        .args(["diff-index", "--name-only", "-z", "--ignore-submodules=all", commit, "--"])
        .ok()
        .await?;
    let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.take(NAMED).map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// What is there and not tracked.
async fn extra(git: &Git, tree: &Path) -> Result<Extra> {
    let list = async |more: &[&str]| -> Result<Vec<Vec<u8>>> {
        let call = git.call("look at a base").git_dir(&tree.join(".git")).work_tree(tree);
        let listed = call.args(["ls-files", "--others", "--directory", "-z"]).args(more).ok().await?;
        let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    };
    let mut extra = Extra::default();
    for name in list(&[]).await? {
        let plain = name.strip_suffix(b"/").unwrap_or(&name);
        let Ok(plain) = std::str::from_utf8(plain) else {
            let why = format!("it left {:?}, whose name is not UTF-8", String::from_utf8_lossy(&name));
            return Err(Error::PrepareFailed { why, log: Vec::new() });
        };
        extra.paths.push(PathBuf::from(plain));
    }
    // Git keeps no empty folder: what an agent puts into one is its work.
    for name in list(&["--no-empty-directory"]).await? {
        match pattern(&name) {
            Some(line) => extra.excludes.push(line),
            None => {
                let why = format!("it left {:?}: a name with a line break", String::from_utf8_lossy(&name));
                return Err(Error::PrepareFailed { why, log: Vec::new() });
            }
        }
    }
    Ok(extra)
}

/// A line that matches this path alone (gitignore(5)).
pub(crate) fn pattern(name: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(name).ok()?;
    if text.contains(['\n', '\r']) {
        return None;
    }
    let mut line = String::from("/");
    for letter in text.chars() {
        if matches!(letter, '\\' | '*' | '?' | '[' | ' ') {
            line.push('\\');
        }
        line.push(letter);
    }
    Some(line)
}

/// Copies what was prepared into a checkout of its own. What is there already stays.
pub(crate) fn copy_extra(base: &Base, to: &Path) -> Result<()> {
    for path in &base.extra.paths {
        let target = to.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).at("made", parent)?;
        }
        copy_tree(&base.tree.join(path), &target)?;
    }
    Ok(())
}

/// With modes, owners and times, without following links. Files are cloned where the file system can
/// (`copy_file_range(2)`), never linked: an agent that writes to one writes to its own.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let mut open = vec![(from.to_path_buf(), to.to_path_buf())];
    let mut folders = Vec::new();
    while let Some((from, to)) = open.pop() {
        let facts = from.symlink_metadata().at("read", &from)?;
        let is_there = to.symlink_metadata().ok();
        if facts.is_dir() {
            match is_there {
                Some(there) if !there.is_dir() => continue,
                Some(_) => {}
                None => {
                    std::fs::create_dir(&to).at("made", &to)?;
                    folders.push((to.clone(), facts));
                }
            }
            for entry in std::fs::read_dir(&from).at("read", &from)? {
                let name = entry.at("read", &from)?.file_name();
                open.push((from.join(&name), to.join(&name)));
            }
        } else if is_there.is_none() && facts.is_symlink() {
            let target = std::fs::read_link(&from).at("read", &from)?;
            std::os::unix::fs::symlink(target, &to).at("made", &to)?;
            like(&to, &facts)?;
        } else if is_there.is_none() && facts.is_file() {
            std::fs::copy(&from, &to).at("copied", &from)?;
            like(&to, &facts)?;
        }
        // Sockets and pipes belong to programs that have ended.
    }
    // Last, deepest first: what is put into a folder changes its time.
    folders.iter().rev().try_for_each(|(folder, facts)| like(folder, facts))
}

fn like(path: &Path, facts: &std::fs::Metadata) -> Result<()> {
    use nix::sys::stat::{UtimensatFlags, utimensat};
    use nix::sys::time::TimeSpec;
    use std::os::unix::fs::MetadataExt;
    if nix::unistd::geteuid().is_root() {
        lchown(path, Some(facts.uid()), Some(facts.gid())).at("handed over", path)?;
    }
    if !facts.is_symlink() {
        std::fs::set_permissions(path, facts.permissions()).at("opened", path)?;
    }
    let at = TimeSpec::new(facts.mtime(), facts.mtime_nsec());
    utimensat(nix::fcntl::AT_FDCWD, path, &at, &at, UtimensatFlags::NoFollowSymlink).at("dated", path)
}

/// Whether a name is that of a prepared base, and the commit in it.
pub(crate) fn commit_in(name: &Path) -> (String, bool) {
    let file = name.file_name().unwrap_or(OsStr::new(""));
    let file = String::from_utf8_lossy(file.as_bytes()).into_owned();
    let commit = file.split(['-', '+']).next().unwrap_or_default().to_owned();
    (commit, file.contains('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_its_path_and_no_other() {
        assert_eq!(pattern(b"node_modules/").as_deref(), Some("/node_modules/"));
        assert_eq!(pattern(b"a [1]*?\\ ").as_deref(), Some("/a\\ \\[1]\\*\\?\\\\\\ "));
        assert_eq!(pattern(b"two\nlines"), None);
    }

    #[test]
    fn the_name_of_a_base_tells_its_commit() {
        assert_eq!(commit_in(Path::new("k/abc")), ("abc".to_owned(), false));
        assert_eq!(commit_in(Path::new("k/abc-5-6")), ("abc".to_owned(), false));
        assert_eq!(commit_in(Path::new("k/abc-5-6+00ff")), ("abc".to_owned(), true));
    }
}
