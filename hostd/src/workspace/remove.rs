//! Takes a workspace away: mounts first, then folders, without following a link or crossing a
//! mount, and looks afterwards that it is gone. Leaves to others: whether that loses work.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::libc;
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::error::{At, Error, Result};
use super::manifest::{self, Folders, Kind};
use super::overlay::{self, Unmounted};
use super::{Removed, Workspaces, blocking, refs};

/// Most leftovers that an error names.
const NAMED: usize = 20;
/// Deeper folders are moved up, so that neither descriptors nor stack run out.
const DEPTH: usize = 64;

/// Branches that were made for agents. One that is still at its base holds no work.
const OURS: &str = "phalanx/";

impl Workspaces {
    pub(super) async fn remove_now(&self, agent_dir: &Path) -> Result<Removed> {
        let folders = Folders::of(agent_dir);
        let manifest = manifest::read(&folders)?;
        let worktree = manifest.filter(|manifest| manifest.kind == Kind::Worktree);
        let removed = {
            let folders = folders.clone();
            blocking("remove a workspace", move || folders_and_manifest(&folders)).await?
        };
        let unused = worktree.as_ref().and_then(|manifest| {
            let branch = manifest.branch.as_ref().filter(|branch| branch.starts_with(OURS))?;
            Some((format!("refs/heads/{branch}"), manifest.base_commit.clone()?))
        });
        let registered = worktree.and_then(|manifest| manifest.repository.zip(manifest.worktree_git_dir));
        if let Some((repository, git_dir)) = registered {
            // Only this one: `worktree prune` would take others whose folders are elsewhere just now.
            let lock = self.lock_of(&repository)?;
            let _turn = lock.lock().await;
            let inside = git_dir.parent() == Some(&repository.common_dir.join("worktrees"));
            if inside && git_dir.symlink_metadata().is_ok() {
                blocking("remove a worktree's record", move || remove_tree(&git_dir)).await?;
            }
            if let Some((branch, base)) = unused {
                refs::drop_branch_at(&self.git, &repository, &branch, &base).await?;
            }
        }
        Ok(removed)
    }
}

fn folders_and_manifest(folders: &Folders) -> Result<Removed> {
    let removed = self::folders(folders)?;
    match std::fs::remove_file(&folders.manifest) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("removed", &folders.manifest, error))
        }
        _ => Ok(removed),
    }
}

/// Unmounts and removes the folders of a workspace; the manifest stays.
pub(crate) fn folders(folders: &Folders) -> Result<Removed> {
    let mut lazily = false;
    if folders.agent.symlink_metadata().is_ok() {
        // An agent that is root may have mounted anything below; its content is not ours to remove.
        for point in overlay::mounts_below(&folders.agent)? {
            let ours = [&folders.work, &folders.upper, &folders.overlay_work];
            let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
            if ours.iter().any(|path| point.starts_with(real(path))) {
                lazily |= overlay::unmount(&point)? == Unmounted::Lazily;
            }
        }
    }
    for path in [&folders.work, &folders.upper, &folders.overlay_work] {
        remove_tree(path)?;
    }
    Ok(Removed { unmounted_lazily: lazily })
}

/// Removes whatever `path` is; a link is removed itself. Not there is fine.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let facts = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::io("read", path, error)),
    };
    if !facts.is_dir() {
        return std::fs::remove_file(path).at("removed", path);
    }
    let open = || {
        File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
            .open(path)
            .map(OwnedFd::from)
    };
    if facts.mode() & 0o700 != 0o700 {
        // Fails for a foreign owner, and then the opening says so.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    }
    let root = open().at("opened", path)?;
    let mut walk = Walk { device: facts.dev(), root, moved: 0, left: Vec::new() };
    walk.empty(path);
    if walk.left.is_empty() {
        match std::fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) => walk.left.push(format!("{} ({error})", path.display())),
        }
    }
    if walk.left.is_empty() && path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::Leftovers { path: path.to_path_buf(), left: walk.left })
}

struct Walk {
    device: u64,
    root: OwnedFd,
    moved: u64,
    left: Vec<String>,
}

struct Level {
    folder: OwnedFd,
    /// For messages only; every access goes through `folder`.
    path: PathBuf,
    name: OsString,
    rest: Vec<OsString>,
}

impl Walk {
    fn keep(&mut self, path: &Path, why: impl std::fmt::Display) {
        if self.left.len() < NAMED {
            self.left.push(format!("{} ({why})", path.display()));
        }
    }

    fn empty(&mut self, top: &Path) {
        loop {
            let moved_before = self.moved;
            match self.root.try_clone() {
                Ok(folder) => self.empty_once(folder, top),
                Err(error) => self.keep(top, error),
            }
            // Folders that were moved up lie in the top now.
            if self.moved == moved_before || !self.left.is_empty() {
                return;
            }
        }
    }

    fn empty_once(&mut self, folder: OwnedFd, top: &Path) {
        let mut levels = Vec::new();
        self.enter(&mut levels, folder, top.to_path_buf(), OsString::new());
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.rest.pop() else {
                let done = levels.pop();
                if let (Some(done), Some(parent)) = (done, levels.last())
                    && let Err(error) = remove_empty(&parent.folder, &done.name)
                    && error != Errno::ENOENT
                    // What kept it full has been named.
                    && (error != Errno::ENOTEMPTY || self.left.is_empty())
                {
                    self.keep(&done.path, error);
                }
                continue;
            };
            let path = level.path.join(&name);
            match unlinkat(&level.folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => continue,
                // EPERM is what POSIX says for a folder; a file that may not go gives it too.
                Err(Errno::EISDIR | Errno::EPERM) => {}
                Err(error) => {
                    self.keep(&path, error);
                    continue;
                }
            }
            if levels.len() > DEPTH {
                self.move_up(levels.last(), &name, &path);
                continue;
            }
            match levels.last().map(|level| open_beneath(&level.folder, &name)) {
                Some(Ok(folder)) => self.enter(&mut levels, folder, path, name),
                Some(Err(Errno::ENOTDIR)) => self.keep(&path, Errno::EPERM),
                Some(Err(error)) => self.keep(&path, error),
                None => {}
            }
        }
    }

    fn enter(&mut self, levels: &mut Vec<Level>, folder: OwnedFd, path: PathBuf, name: OsString) {
        match fstat(&folder) {
            Ok(facts) if facts.st_dev == self.device => {}
            Ok(_) => return self.keep(&path, "another file system"),
            Err(error) => return self.keep(&path, error),
        }
        let listed = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        match listed.and_then(|entries| entries.map(|entry| entry.map(|e| e.file_name())).collect()) {
            Ok(rest) => levels.push(Level { folder, path, name, rest }),
            Err(error) => self.keep(&path, error),
        }
    }

    fn move_up(&mut self, from: Option<&Level>, name: &OsStr, path: &Path) {
        let Some(from) = from else { return };
        let target = format!(".removing-{}-{}", std::process::id(), self.moved);
        match renameat(&from.folder, name, &self.root, target.as_str()) {
            Ok(()) => self.moved += 1,
            Err(error) => self.keep(path, error),
        }
    }
}

fn remove_empty(parent: &OwnedFd, name: &OsStr) -> nix::Result<()> {
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)
}

/// Opens a folder, never through a link, and makes it writable for its owner first.
fn open_beneath(parent: &OwnedFd, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = openat(parent, name, OFlag::O_PATH | flags, Mode::empty())?;
    let mode = fstat(&found)?.st_mode;
    if mode & 0o700 != 0o700 {
        let at = format!("/proc/self/fd/{}", found.as_raw_fd());
        let _ = std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o700));
    }
    openat(parent, name, OFlag::O_RDONLY | flags, Mode::empty())
}
