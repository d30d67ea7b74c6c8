//! What keeps agents apart from hostd and from each other: the one place where it is decided what a program sees, and
//! by which ways hostd itself starts programs beside it. Today the host's own means: a mount namespace for each agent
//! where hostd is root, another uid where one is asked for. Limits and ends are those of `sys::cgroup`.
//!
//! Leaves to others: making the view, which the shim does.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use protocol::host_config::HostConfig;
use protocol::report::Isolation;
use protocol::shim::{Keep, Launch, LaunchUser, View, file};
use rustix::fs::{Access, Mode, OFlags};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::sys::files::as_user;
use crate::workspace::{Kind, Manifest, Repository};

/// A view is made in milliseconds.
const MADE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ContainmentError {
    #[error(
        "an agent of another user needs a mount namespace of its own, and this host cannot make one ({why}); leave \
         out --user, or run hostd as root where mounts are allowed"
    )]
    NoNamespace { why: String },
    #[error(
        "user {uid} may not read {path}, which a checkout borrows its objects from; give that user read access to it, \
         or leave out --user",
        path = path.display()
    )]
    Unreadable { uid: u32, path: PathBuf },
    #[error("cannot look at {} as user {uid}", path.display())]
    Look {
        uid: u32,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot enter the view of the agent")]
    Enter(#[source] io::Error),
    #[error("the view of a program could not be made: {0}")]
    Made(String),
}

/// What this host can do to contain programs.
#[derive(Debug)]
pub struct Containment {
    shim: PathBuf,
    covers: Vec<PathBuf>,
    closed: Vec<PathBuf>,
    namespaces: Result<(), String>,
}

impl Containment {
    /// Finds out by trying once.
    pub async fn open(config: &HostConfig, shim: &Path) -> Self {
        // State, bus and keys. Sockets of the manager stay: an agent may look at what is going on.
        let covers = [config.state.clone(), config.home.join("bus"), config.home.join("manager")];
        let covers: Vec<PathBuf> = covers.into_iter().filter_map(|path| path.canonicalize().ok()).collect();
        let closed = config.home.join("bin").canonicalize().into_iter().collect();
        let mut found = Self { shim: shim.to_owned(), covers, closed, namespaces: Ok(()) };
        found.namespaces = if nix::unistd::geteuid().is_root() {
            let view = View { covers: found.covers.clone(), keeps: Vec::new() };
            found.hold(&view).await.map(|_| ()).map_err(|error| protocol::chain(&error))
        } else {
            Err("hostd does not run as root".to_owned())
        };
        if let Err(why) = &found.namespaces {
            tracing::warn!(why, "agents see all that hostd sees");
        }
        found
    }

    /// Why no agent can run as another user here.
    #[must_use]
    pub fn cannot_change_user(&self) -> Option<String> {
        self.namespaces
            .as_ref()
            .err()
            .map(|why| protocol::chain(&ContainmentError::NoNamespace { why: why.clone() }))
    }

    /// Whether agents of this user can run on what this repository lends, asked before anything is made.
    ///
    /// # Errors
    /// Why they cannot.
    pub fn check(&self, repository: Option<&Repository>, user: &LaunchUser) -> Result<(), ContainmentError> {
        let lent = repository.map(lent_by).unwrap_or_default();
        self.view(lent, Some(user)).map(|_| ())
    }

    /// What an agent's program sees: of hostd's folders its own only.
    ///
    /// # Errors
    /// When a program of this user could not run.
    pub fn view_of(
        &self,
        folder: &Path,
        manifest: &Manifest,
        user: Option<&LaunchUser>,
    ) -> Result<Option<View>, ContainmentError> {
        let own = ["work", "scratch", "cache", "given"].map(|name| folder.join(name));
        let mut keeps: Vec<Keep> = own.into_iter().map(|path| Keep { path, read_only: false }).collect();
        if let Some(repository) = &manifest.repository {
            if manifest.kind == Kind::Worktree {
                // Its refs and objects are the repository's own.
                keeps.push(Keep { path: repository.common_dir.clone(), read_only: false });
            } else {
                keeps.extend(lent_by(repository));
            }
        }
        self.view(keeps, user)
    }

    /// What the programs see that prepare a base.
    ///
    /// # Errors
    /// As [`Self::view_of`].
    pub fn view_of_bench(
        &self,
        folders: [&Path; 2],
        repository: &Repository,
        user: Option<&LaunchUser>,
    ) -> Result<Option<View>, ContainmentError> {
        let mut keeps = lent_by(repository);
        keeps.extend(folders.map(|path| Keep { path: path.to_owned(), read_only: false }));
        self.view(keeps, user)
    }

    fn view(
        &self,
        mut keeps: Vec<Keep>,
        user: Option<&LaunchUser>,
    ) -> Result<Option<View>, ContainmentError> {
        if let Err(why) = &self.namespaces {
            return match user {
                None => Ok(None),
                Some(_) => Err(ContainmentError::NoNamespace { why: why.clone() }),
            };
        }
        let mut covers = self.covers.clone();
        match user {
            None => keeps.extend(self.closed.iter().map(|path| Keep { path: path.clone(), read_only: true })),
            // A folder that it may not pass through shows it nothing: it loses nothing by the cover.
            Some(user) => covers.extend(barriers(&keeps, user)?),
        }
        // An absent one cannot be shown; a program that needs it says so itself.
        keeps.retain(|keep| keep.path.exists());
        covers.retain(|cover| cover.is_dir() && !keeps.iter().any(|keep| *cover == keep.path));
        Ok(Some(View { covers, keeps }))
    }

    /// A namespace with this view, for programs that no shim has.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn namespace(&self, view: &View) -> Result<OwnedFd, ContainmentError> {
        let held = self.hold(view).await?;
        let pid = held.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
        namespace_of(pid)
            .map_err(ContainmentError::Enter)?
            .ok_or_else(|| ContainmentError::Made("it is hostd's own".to_owned()))
    }

    /// A process that stays in the view until it is dropped.
    async fn hold(&self, view: &View) -> Result<Child, ContainmentError> {
        let failed = |error: io::Error| ContainmentError::Made(error.to_string());
        let mut text = serde_json::to_vec(view).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        let mut command = Command::new(&self.shim);
        command.arg("view").env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.as_mut(), child.stdout.take()) else {
            return Err(ContainmentError::Made("it has no pipes".to_owned()));
        };
        let told = async {
            stdin.write_all(&text).await?;
            stdin.flush().await?;
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).await.map(|_| line)
        };
        let line = tokio::time::timeout(MADE_WITHIN, told).await.map_err(|error| failed(error.into()))?;
        if line.as_deref().is_ok_and(|line| line == "made\n") {
            return Ok(child);
        }
        let said = child.wait_with_output().await.map_err(failed)?;
        Err(ContainmentError::Made(String::from_utf8_lossy(&said.stderr).trim_end().to_owned()))
    }
}

/// The way of a program that hostd starts into the view of another: taken between fork and exec.
#[derive(Debug)]
pub struct Entrance {
    pub(crate) namespace: OwnedFd,
    /// Entered anew there: the working folder of before is one of hostd's view.
    pub(crate) folder: CString,
}

impl Entrance {
    pub(crate) fn new(namespace: OwnedFd, folder: &Path) -> io::Result<Self> {
        Ok(Self { namespace, folder: CString::new(folder.as_os_str().as_bytes())? })
    }

    /// Into what the process sees; `None`: hostd's own view.
    ///
    /// # Errors
    /// When the process is gone or may not be looked at.
    pub fn beside(pid: i32, folder: &Path) -> Result<Option<Self>, ContainmentError> {
        let found = namespace_of(pid).map_err(ContainmentError::Enter)?;
        found.map(|namespace| Self::new(namespace, folder)).transpose().map_err(ContainmentError::Enter)
    }
}

/// The mount namespace of a process, unless it is this one's (namespaces(7)).
fn namespace_of(pid: i32) -> io::Result<Option<OwnedFd>> {
    let theirs = std::fs::File::open(format!("/proc/{pid}/ns/mnt"))?;
    let ours = std::fs::metadata("/proc/self/ns/mnt")?;
    Ok((theirs.metadata()?.ino() != ours.ino()).then(|| OwnedFd::from(theirs)))
}

/// What a start was given; `None` where nothing was started.
#[must_use]
pub fn isolation_of(folder: &Path) -> Option<Isolation> {
    let text = std::fs::read(folder.join(file::LAUNCH)).ok()?;
    serde_json::from_slice::<Launch>(&text).ok().map(|launch| isolation(&launch))
}

#[must_use]
pub fn isolation(launch: &Launch) -> Isolation {
    match (&launch.user, &launch.view) {
        (Some(_), _) => Isolation::User,
        (None, Some(_)) => Isolation::Namespace,
        (None, None) => Isolation::None,
    }
}

/// Objects are only read: a checkout writes its own.
fn lent_by(repository: &Repository) -> Vec<Keep> {
    let objects = repository.objects();
    let borrowed = std::fs::read_to_string(objects.join("info/alternates")).unwrap_or_default();
    let borrowed = borrowed.lines().filter(|line| line.starts_with('/')).map(PathBuf::from);
    let all = std::iter::once(objects).chain(borrowed);
    all.filter_map(|path| path.canonicalize().ok()).map(|path| Keep { path, read_only: true }).collect()
}

/// The first folder on each way that this user may not pass through. What is shown must be readable itself.
fn barriers(keeps: &[Keep], user: &LaunchUser) -> Result<Vec<PathBuf>, ContainmentError> {
    let uid = user.uid;
    let mut found = Vec::new();
    for Keep { path, read_only } in keeps {
        let failed = |source| ContainmentError::Look { uid, path: path.clone(), source };
        // Opened in hostd's rights, so that only the folder itself decides.
        let place = if *read_only {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Some(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?)
        } else {
            None
        };
        let (barrier, readable) = as_user(Some(user), || {
            let may_pass = |folder: &&Path| rustix::fs::access(folder.join("."), Access::EXEC_OK).is_ok();
            let mut ways: Vec<&Path> = path.ancestors().skip(1).collect();
            ways.reverse();
            let barrier = ways.into_iter().find(|folder| !may_pass(folder)).map(Path::to_path_buf);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opens = |place| rustix::fs::openat(place, ".", flags, Mode::empty()).is_ok();
            (barrier, place.as_ref().is_none_or(opens))
        })
        .map_err(failed)?;
        if !readable {
            return Err(ContainmentError::Unreadable { uid, path: path.clone() });
        }
        found.extend(barrier);
    }
    found.sort();
    found.dedup();
    Ok(found)
}
