//! Immutable bases: one checkout per repository, commit and owner, the lower layer of overlays.
//! Made once whoever asks first, in a folder that is renamed into place when whole, and sealed. The seal is looked at
//! before each use: a base that differs (an agent of hostd's own user may reach it, a power cut may have emptied files)
//! is set aside and made anew. `prepared` makes those in which programs were run. Leaves to others: mounting, and everything that an agent does above it.

mod damage;
mod prepared;
mod proof;
mod seal;

pub use damage::Damage;
pub use prepared::{Bench, Preparation, PreparedBase, Run, RunError, left_over};
pub(crate) use prepared::{commit_in, copy_extra, pattern};
pub(crate) use proof::prove;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::checkout::{self, Fill};
use super::error::{At, Error, Result};
use super::git::{Git, User};
use super::manifest::{self, Folders, Manifest};
use super::refs;
use super::remove;
use super::repository::{self, Repository};

/// A base that is whole. While one is held, the base is not dropped.
#[derive(Debug)]
pub(crate) struct Base {
    /// Below the folder of bases: `<repository key>/<commit>[-<uid>-<gid>][+<what was prepared>]`.
    pub(crate) name: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) warnings: Vec<String>,
    pub(crate) extra: Extra,
    /// Digest of the seal that it was finished with.
    seal: String,
    origin: Origin,
    /// When the last look that found it whole began.
    looked_at: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By this hostd, from objects that were compared with their ids.
    MadeNow,
    /// On disk: whoever can write there can have written its seal as well.
    Found,
}

/// What a base is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Work,
    /// Rests on nothing that may have been written by others.
    Verification,
}

/// What a base holds beyond its commit, as the programs that prepared it left it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Extra {
    /// Relative paths that git does not track; of a folder that is new as a whole only its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) paths: Vec<PathBuf>,
    /// The same, as lines of `info/exclude`: base, and never work of an agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) excludes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Facts {
    version: u32,
    repository: Repository,
    commit: String,
    warnings: Vec<String>,
    #[serde(default, flatten)]
    extra: Extra,
    /// None in those of an older hostd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// A base, or what is left of one, that no workspace lies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedBase {
    pub path: PathBuf,
    pub commit: Option<String>,
    pub repository: Option<Repository>,
}

/// A commit whose objects the person's repository keeps for us, and what every checkout of it
/// shares. While one is held, the commit's ref is not dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Refs that a checkout shows, in packed form, as they were when the commit was first used.
    pub(crate) refs: Vec<u8>,
    /// Filled by the first checkout.
    pub(crate) warnings: OnceLock<Vec<String>>,
}

/// Made once; who comes while it is being made waits for it.
type Once<T> = Arc<OnceCell<Arc<T>>>;

#[derive(Debug)]
pub(crate) struct Bases {
    folder: PathBuf,
    /// Where programs prepare a base before it is one.
    preparing: PathBuf,
    /// Tells equal preparations from others, and tells nothing of the values that they depend on.
    salt: [u8; 32],
    cells: Mutex<HashMap<PathBuf, Once<Base>>>,
    flights: prepared::Flights,
    lent: Mutex<HashMap<(PathBuf, String), Once<Lent>>>,
    damages: damage::Damages,
}

const FACTS: &str = "base.json";
const UNFINISHED: &str = ".new";
/// Marks in the names of bases that are out of use, and may still be mounted somewhere.
const DAMAGED: &str = ".damaged";
const OLD: &str = ".old";
/// Somebody who damages each base as soon as it is made is given up on.
const MADE_AT_MOST: usize = 4;

impl Bases {
    /// What an earlier hostd did not finish is removed.
    pub(crate) fn open(state: &Path) -> Result<Self> {
        let folder = state.join("bases");
        std::fs::create_dir_all(&folder).at("made", &folder)?;
        // Agents see a base only through a mount, which needs no way to it.
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&folder, closed).at("closed", &folder)?;
        let preparing = prepared::open(state)?;
        let salt = prepared::salt(&folder)?;
        let (cells, lent) = (Mutex::default(), Mutex::default());
        let (flights, damages) = (prepared::Flights::default(), damage::Damages::default());
        let bases = Self { folder, preparing, salt, cells, flights, lent, damages };
        for path in bases.folders()? {
            if file_name(&path).starts_with(UNFINISHED) {
                remove::remove_tree(&path)?;
            }
        }
        Ok(bases)
    }

    fn cell(&self, name: &Path) -> Result<Once<Base>> {
        let mut cells = self.cells.lock().map_err(|_| Error::Interrupted { operation: "find a base" })?;
        Ok(Arc::clone(cells.entry(name.to_path_buf()).or_default()))
    }

    /// Has the person's repository keep the commit, before any object of it is borrowed: no gc of
    /// his can take it away then.
    pub(crate) async fn lend(&self, git: &Git, repository: &Repository, commit: &str) -> Result<Arc<Lent>> {
        let cell = {
            let key = (repository.common_dir.clone(), commit.to_owned());
            let mut lent = self.lent.lock().map_err(|_| Error::Interrupted { operation: "find a base" })?;
            Arc::clone(lent.entry(key).or_default())
        };
        let keep = async || {
            let keep = [(keeping_ref(commit), commit.to_owned())];
            refs::ensure(git, repository, &keep, "phalanx: base of workspaces").await?;
            let refs = checkout::refs_to_show(git, repository).await?;
            Ok(Arc::new(Lent { refs, warnings: OnceLock::new() }))
        };
        cell.get_or_try_init(keep).await.map(Arc::clone)
    }

    /// The base of a commit: at hand, found on disk, or made; whole at this moment. Others who want the same wait for
    /// it; nobody else does.
    pub(crate) async fn ensure(
        &self,
        git: &Git,
        repository: &Repository,
        commit: &str,
        owner: Option<User>,
        purpose: Purpose,
    ) -> Result<Arc<Base>> {
        let name = name_of(repository, commit, owner);
        for _ in 0..MADE_AT_MOST {
            let cell = self.cell(&name)?;
            let made = cell.get_or_try_init(|| self.find_or_make(git, repository, commit, owner, &name));
            let base = Arc::clone(made.await?);
            if purpose == Purpose::Verification && base.origin == Origin::Found {
                self.replace(&name, &cell, OLD)?;
            } else if base.is_whole().await {
                return Ok(base);
            } else {
                self.discard_damaged(git, &name, &cell).await?;
            }
        }
        Err(Error::BaseChanges { path: self.folder.join(name) })
    }

    /// The base of this name that is there, and whole.
    async fn find(&self, git: &Git, commit: &str, name: &Path) -> Result<Option<Arc<Base>>> {
        let path = self.folder.join(name);
        let tree = path.join("tree");
        let Some(facts) = read_facts(&path)? else { return Ok(None) };
        let sealed = match &facts.seal {
            Some(_) => true,
            None => is_as_committed(git, &tree, commit).await,
        };
        let at = tree.clone();
        let seal = super::blocking("check a base", move || seal::of(&at)).await;
        if let Ok(seal) = seal
            && sealed
            && facts.seal.as_ref().is_none_or(|before| *before == seal.digest)
        {
            let base = Base::of(name, tree, facts, seal.digest, Origin::Found);
            return Ok(Some(Arc::new(base)));
        }
        if let Some(aside) = self.set_aside(&path, DAMAGED)? {
            self.note_damage(git, name, &aside).await;
        }
        Ok(None)
    }

    async fn find_or_make(
        &self,
        git: &Git,
        repository: &Repository,
        commit: &str,
        owner: Option<User>,
        name: &Path,
    ) -> Result<Arc<Base>> {
        let path = self.folder.join(name);
        let lent = self.lend(git, repository, commit).await?;
        if let Some(base) = self.find(git, commit, name).await? {
            return Ok(base);
        }
        // One without a record of what it is.
        self.set_aside(&path, DAMAGED)?;
        let parent = path.parent().unwrap_or(&self.folder).to_path_buf();
        let new = checkout::unique(&parent, UNFINISHED)?;
        let made = async {
            let top = new.join("tree");
            std::fs::create_dir(&top).at("made", &top)?;
            let fill = Fill { owner, lent: &lent, warm: true };
            let warnings = checkout::make(git, repository, commit, &top, &fill).await?;
            let facts = Facts {
                version: 1,
                repository: repository.clone(),
                commit: commit.to_owned(),
                warnings,
                extra: Extra::default(),
                seal: None,
            };
            seal_and_finish(git, &new, &path, facts).await
        };
        match made.await {
            Ok((facts, seal)) => {
                Ok(Arc::new(Base::of(name, path.join("tree"), facts, seal, Origin::MadeNow)))
            }
            Err(error) => {
                let _ = std::fs::remove_dir_all(&new);
                Err(error)
            }
        }
    }

    fn folders(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for repository in std::fs::read_dir(&self.folder).at("read", &self.folder)?.flatten() {
            if !repository.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = repository.path();
            found.extend(std::fs::read_dir(&path).at("read", &path)?.flatten().map(|entry| entry.path()));
        }
        found.sort();
        Ok(found)
    }

    /// Bases on which no workspace of `agents` lies and that nobody is about to use.
    pub(crate) fn unused(&self, agents: &Path) -> Result<Vec<UnusedBase>> {
        let used: BTreeSet<PathBuf> = manifests(agents)?.into_iter().filter_map(|m| m.base).collect();
        let mut unused = Vec::new();
        for path in self.folders()? {
            let Ok(name) = path.strip_prefix(&self.folder) else { continue };
            let plain = name.to_string_lossy();
            let plain = [DAMAGED, OLD]
                .iter()
                .fold(&*plain, |name, mark| name.split_once(mark).map_or(name, |(name, _)| name));
            let unfinished = file_name(&path).starts_with(UNFINISHED);
            if unfinished || used.contains(Path::new(plain)) || self.is_held(Path::new(plain))? {
                continue;
            }
            let facts = read_facts(&path).ok().flatten();
            let (commit, repository) = facts.map(|facts| (facts.commit, facts.repository)).unzip();
            unused.push(UnusedBase { path, commit, repository });
        }
        Ok(unused)
    }

    fn is_held(&self, name: &Path) -> Result<bool> {
        let cell = self.cell(name)?;
        // The map and this function hold the cell; more means that somebody is making the base.
        Ok(Arc::strong_count(&cell) > 2 || cell.get().is_some_and(|base| Arc::strong_count(base) > 1))
    }

    /// Takes an unused base away, and the ref that kept its commit when no other base needs it.
    pub(crate) async fn discard(&self, git: &Git, agents: &Path, base: &UnusedBase) -> Result<()> {
        if !base.path.starts_with(&self.folder) || !self.unused(agents)?.contains(base) {
            return Err(Error::BaseInUse { path: base.path.clone() });
        }
        if let Ok(name) = base.path.strip_prefix(&self.folder)
            && let Ok(mut cells) = self.cells.lock()
        {
            cells.remove(name);
        }
        // Renamed first: a half-removed base must never be found by its name.
        let parent = base.path.parent().unwrap_or(&self.folder);
        let gone = checkout::unique(parent, UNFINISHED)?;
        std::fs::rename(&base.path, &gone).at("moved aside", &base.path)?;
        let path = gone.clone();
        super::blocking("remove a base", move || remove::remove_tree(&path)).await?;
        let (Some(commit), Some(repository)) = (&base.commit, &base.repository) else { return Ok(()) };
        let other_base = self
            .folders()?
            .iter()
            .any(|other| other.parent() == Some(parent) && file_name(other).starts_with(commit.as_str()));
        if other_base || !repository.common_dir.is_dir() || !self.give_back(agents, repository, commit)? {
            return Ok(());
        }
        refs::drop_all(git, repository, &[keeping_ref(commit)]).await
    }

    /// True when no workspace borrows the commit or is about to; the next one lends it anew.
    fn give_back(&self, agents: &Path, repository: &Repository, commit: &str) -> Result<bool> {
        let key = (repository.common_dir.clone(), commit.to_owned());
        let mut lent = self.lent.lock().map_err(|_| Error::Interrupted { operation: "drop a base" })?;
        if let Some(cell) = lent.get(&key) {
            let being_made = Arc::strong_count(cell) > 1;
            if being_made || cell.get().is_some_and(|lent| Arc::strong_count(lent) > 1) {
                return Ok(false);
            }
        }
        let borrows = |manifest: &Manifest| {
            manifest.base_commit.as_deref() == Some(commit)
                && manifest.repository.as_ref().is_some_and(|r| r.common_dir == repository.common_dir)
        };
        if manifests(agents)?.iter().any(borrows) {
            return Ok(false);
        }
        lent.remove(&key);
        Ok(true)
    }
}

impl Base {
    fn of(name: &Path, tree: PathBuf, facts: Facts, seal: String, origin: Origin) -> Self {
        let (name, looked_at) = (name.to_path_buf(), tokio::sync::Mutex::default());
        Self { name, tree, warnings: facts.warnings, extra: facts.extra, seal, origin, looked_at }
    }

    /// Whether nothing in it was changed. Who asks while somebody looks shares the next look, not that one.
    async fn is_whole(&self) -> bool {
        let asked_at = Instant::now();
        let mut looked_at = self.looked_at.lock().await;
        if looked_at.is_some_and(|begun| begun >= asked_at) {
            return true;
        }
        let (begun, tree) = (Instant::now(), self.tree.clone());
        let seal = super::blocking("check a base", move || seal::of(&tree)).await;
        let is_whole = seal.is_ok_and(|seal| seal.digest == self.seal);
        *looked_at = is_whole.then_some(begun);
        is_whole
    }
}

/// The name of the base of a bare commit.
fn name_of(repository: &Repository, commit: &str, owner: Option<User>) -> PathBuf {
    let owned = owner.map(|(uid, gid)| format!("-{uid}-{gid}")).unwrap_or_default();
    Path::new(&repository::key(repository)).join(format!("{commit}{owned}"))
}

/// First the seal, then the look at the files: what is changed before is seen by the one, what is changed later by the
/// other.
async fn seal_and_finish(git: &Git, new: &Path, path: &Path, facts: Facts) -> Result<(Facts, String)> {
    let top = new.join("tree");
    let at = top.clone();
    let seal = super::blocking("seal a base", move || seal::of(&at)).await?;
    if !is_as_committed(git, &top, &facts.commit).await {
        return Err(Error::BaseChanges { path: path.to_path_buf() });
    }
    seal.settles().await;
    let facts = Facts { seal: Some(seal.digest.clone()), ..facts };
    finish(new, path, &facts)?;
    Ok((facts, seal.digest))
}

/// Gives a whole base its name.
fn finish(new: &Path, path: &Path, facts: &Facts) -> Result<()> {
    let text = serde_json::to_vec(facts)
        .map_err(|error| Error::BadManifest { path: path.to_path_buf(), detail: error.to_string() })?;
    let file = new.join(FACTS);
    std::fs::write(&file, text).at("written", &file)?;
    std::fs::rename(new, path).at("renamed", path)
}

fn keeping_ref(commit: &str) -> String {
    format!("refs/phalanx/base/{commit}")
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn read_facts(base: &Path) -> Result<Option<Facts>> {
    let path = base.join(FACTS);
    match std::fs::read(&path) {
        // A file that a power cut emptied counts as none.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", &path, error)),
    }
}

/// Every file as its index says, and the index as the commit says.
async fn is_as_committed(git: &Git, tree: &Path, commit: &str) -> bool {
    let compared = git
        .call("check a base")
        .git_dir(&tree.join(".git"))
        .work_tree(tree)
        .args(["diff-index", "--quiet", "--ignore-submodules=all", commit, "--"])
        .output()
        .await;
    compared.is_ok_and(|output| output.status.success())
}

fn manifests(agents: &Path) -> Result<Vec<Manifest>> {
    let entries = match std::fs::read_dir(agents) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", agents, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let folders = Folders::of(&entry.at("read", agents)?.path());
        // A manifest that cannot be read might name any base: then none is unused.
        found.extend(manifest::read(&folders)?);
    }
    Ok(found)
}
