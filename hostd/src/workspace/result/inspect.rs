//! Reads an agent's git folder as what it is: bytes of a stranger. No git process looks at it with
//! its own configuration; links, foreign objects and stand-ins for the folder are refused.
//! Leaves to others: what HEAD's commit holds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::Mode;

use super::super::checkout;
use super::super::error::{At, Error, Result};
use super::super::git::is_object_id;
use super::super::manifest::{Folders, Kind, Manifest};

/// What the agent left in its git folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) git_dir: PathBuf,
    pub(crate) head: String,
    pub(crate) drift: Option<String>,
    pub(crate) in_progress: Vec<InProgress>,
}

/// An operation that the agent began and did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InProgress {
    Merge,
    Rebase,
    CherryPick,
    Revert,
    Bisect,
}

const IN_PROGRESS: &[(&str, InProgress)] = &[
    ("MERGE_HEAD", InProgress::Merge),
    ("rebase-merge", InProgress::Rebase),
    ("rebase-apply", InProgress::Rebase),
    ("CHERRY_PICK_HEAD", InProgress::CherryPick),
    ("REVERT_HEAD", InProgress::Revert),
    ("BISECT_LOG", InProgress::Bisect),
];

/// True when nothing was written above the base but what `prepare` wrote: HEAD is at the base and
/// no file, index or ref differs. Only an overlay can say so without looking at every file.
pub(crate) fn is_untouched(folders: &Folders, manifest: &Manifest) -> bool {
    let (Kind::Overlay, Some(branch), Some(commit)) =
        (manifest.kind, &manifest.branch, &manifest.base_commit)
    else {
        return false;
    };
    let mut expected = BTreeMap::from([
        (folders.upper.join(".git/HEAD"), format!("ref: refs/heads/{branch}\n")),
        (folders.upper.join(".git/refs/heads").join(branch), format!("{commit}\n")),
    ]);
    let mut open = vec![folders.upper.clone()];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { return false };
        for entry in entries {
            let Ok(entry) = entry else { return false };
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let leads_somewhere = expected.keys().any(|file| file.starts_with(&path));
                if !leads_somewhere {
                    return false;
                }
                open.push(path);
                continue;
            }
            let Some(text) = expected.remove(&path) else { return false };
            if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
                return false;
            }
        }
    }
    expected.is_empty()
}

/// Looks at the git folder and says where HEAD is.
pub(crate) fn look(folders: &Folders, manifest: &Manifest) -> Result<Found> {
    let work = &folders.work;
    let top = std::fs::symlink_metadata(work).at("read", work)?;
    if !top.is_dir() {
        return Err(Error::tampered(work, "the workspace itself is not a folder any more"));
    }
    let repository = manifest.repository.as_ref().ok_or(Error::NoRepository)?;
    let git_dir = match &manifest.worktree_git_dir {
        Some(git_dir) => {
            check_worktree_link(work, git_dir)?;
            git_dir.clone()
        }
        None => {
            check_git_dir(work, &checkout::alternates(&[&repository.objects()]))?;
            work.join(".git")
        }
    };
    let refs_in = if manifest.worktree_git_dir.is_some() { &repository.common_dir } else { &git_dir };
    let (head, drift) = read_head(work, &git_dir, refs_in, manifest)?;
    let in_progress = IN_PROGRESS
        .iter()
        .filter(|(name, _)| git_dir.join(name).symlink_metadata().is_ok())
        .map(|(_, operation)| *operation)
        .collect();
    Ok(Found { git_dir, head, drift, in_progress })
}

fn check_worktree_link(work: &Path, git_dir: &Path) -> Result<()> {
    let text = read_small(work, Path::new(".git"))?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let named = text.trim().strip_prefix("gitdir: ").map(|path| work.join(path));
    let same = named.and_then(|path| std::fs::canonicalize(path).ok()).is_some_and(|path| path == git_dir);
    if same { Ok(()) } else { Err(Error::tampered(work, "`.git` does not name the worktree's git folder")) }
}

fn check_git_dir(work: &Path, lent: &[u8]) -> Result<()> {
    let facts = match std::fs::symlink_metadata(work.join(".git")) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::tampered(work, "`.git` is gone"));
        }
        Err(error) => return Err(Error::io("read", &work.join(".git"), error)),
    };
    if !facts.is_dir() {
        let what = if facts.is_symlink() { "a link" } else { "a file" };
        return Err(Error::tampered(work, format!("`.git` is {what}")));
    }
    for stand_in in ["commondir", "reftable"] {
        if work.join(".git").join(stand_in).symlink_metadata().is_ok() {
            return Err(Error::tampered(work, format!("`.git/{stand_in}` moves its refs elsewhere")));
        }
    }
    // Objects from elsewhere would be read with hostd's rights and handed on.
    if read_small(work, Path::new(".git/objects/info/alternates"))?.as_deref() != Some(lent) {
        return Err(Error::tampered(work, "`.git/objects/info/alternates` was changed"));
    }
    check_plain(&work.join(".git/objects"), work, 2)
}

/// Only folders and plain files, `depth` levels down.
fn check_plain(folder: &Path, work: &Path, depth: u32) -> Result<()> {
    let is_folder = std::fs::symlink_metadata(folder).is_ok_and(|facts| facts.is_dir());
    if !is_folder {
        return Err(Error::tampered(work, format!("{} is not a folder", folder.display())));
    }
    for entry in std::fs::read_dir(folder).at("read", folder)? {
        let entry = entry.at("read", folder)?;
        let kind = entry.file_type().at("read", folder)?;
        if kind.is_dir() {
            if depth > 0 {
                check_plain(&entry.path(), work, depth - 1)?;
            }
        } else if !kind.is_file() {
            return Err(Error::tampered(work, format!("{} is not a plain file", entry.path().display())));
        }
    }
    Ok(())
}

fn read_head(
    work: &Path,
    git_dir: &Path,
    refs_in: &Path,
    manifest: &Manifest,
) -> Result<(String, Option<String>)> {
    let text = read_small(git_dir, Path::new("HEAD"))?
        .ok_or_else(|| Error::tampered(work, "its HEAD cannot be read"))?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let own = manifest.branch.as_ref().map(|branch| format!("refs/heads/{branch}"));
    let base = manifest.base_commit.clone().unwrap_or_default();
    if is_object_id(&text) {
        let drift = own.is_some().then(|| format!("HEAD is detached at {text}"));
        return Ok((text, drift));
    }
    let Some(name) = text.strip_prefix("ref:").map(str::trim) else {
        return Err(Error::tampered(work, "its HEAD is neither a commit nor a branch"));
    };
    let at = read_ref(work, refs_in, name)?;
    let drift = (own.as_deref() != Some(name)).then(|| format!("HEAD is on {name}"));
    if let Some(at) = at {
        return Ok((at, drift));
    }
    // On a branch without a commit: what the agent committed before is on its own branch.
    let before = match own.as_deref() {
        Some(own) if own != name => read_ref(work, refs_in, own)?,
        _ => None,
    };
    Ok((before.unwrap_or(base), Some(format!("HEAD is on {name}, which has no commit"))))
}

/// Where a branch is: its own file, else the packed list.
fn read_ref(work: &Path, refs_in: &Path, name: &str) -> Result<Option<String>> {
    super::super::names::check_ref("a ref", name)
        .map_err(|_| Error::tampered(work, format!("{name:?} is no ref name")))?;
    if let Some(text) = read_small(refs_in, Path::new(name))? {
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        if is_object_id(&text) {
            return Ok(Some(text));
        }
        return Err(Error::tampered(work, format!("{name} holds no commit")));
    }
    Ok(packed_refs(refs_in)?.remove(name))
}

/// All refs of a git folder: `(name, id)`; a ref that is a link or holds another ref is left out.
pub(crate) fn all_refs(git_dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = packed_refs(git_dir)?;
    let mut folders = vec![git_dir.join("refs")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.at("read", &folder)?;
            let path = entry.path();
            if entry.file_type().at("read", &path)?.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(name) = path.strip_prefix(git_dir) else { continue };
            let Some(text) = read_small(git_dir, name)? else { continue };
            let text = String::from_utf8_lossy(&text).trim().to_owned();
            if is_object_id(&text) {
                all.insert(name.to_string_lossy().into_owned(), text);
            }
        }
    }
    Ok(all)
}

fn packed_refs(git_dir: &Path) -> Result<BTreeMap<String, String>> {
    const MOST: u64 = 64 * 1024 * 1024;
    let Some(bytes) = read_beneath(git_dir, Path::new("packed-refs"), MOST)?.ok() else {
        return Ok(BTreeMap::new());
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.filter(|(id, _)| is_object_id(id)).map(|(id, name)| (name.to_owned(), id.to_owned())).collect())
}

/// Commits that only a reflog of the stash names are in no ref: all its entries.
pub(crate) fn stash_entries(git_dir: &Path) -> Result<Vec<String>> {
    const MOST: u64 = 16 * 1024 * 1024;
    let Some(bytes) = read_beneath(git_dir, Path::new("logs/refs/stash"), MOST)?.ok() else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let ids = text.lines().filter_map(|line| line.split(' ').nth(1));
    Ok(ids.filter(|id| is_object_id(id)).map(str::to_owned).collect())
}

/// Commits that linked worktrees of this git folder stand on, wherever their files are.
pub(crate) fn linked_heads(git_dir: &Path) -> Result<Vec<String>> {
    let folder = git_dir.join("worktrees");
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", &folder, error)),
    };
    let mut heads = Vec::new();
    for entry in entries {
        let name = Path::new("worktrees").join(entry.at("read", &folder)?.file_name()).join("HEAD");
        let head = read_small(git_dir, &name)?.unwrap_or_default();
        heads.push(String::from_utf8_lossy(&head).trim().to_owned());
    }
    heads.retain(|head| is_object_id(head));
    Ok(heads)
}

fn read_small(folder: &Path, name: &Path) -> Result<Option<Vec<u8>>> {
    const MOST: u64 = 64 * 1024;
    Ok(read_beneath(folder, name, MOST)?.ok())
}

/// Why a file below an agent's folder was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    Missing,
    /// A link, folder, pipe or device, or below a link.
    NotAPlainFile,
    /// Absolute, empty or with `..`.
    BadPath,
    TooLarge {
        bytes: u64,
    },
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("it is not there"),
            Self::NotAPlainFile => f.write_str("it is no plain file, or lies behind a link"),
            Self::BadPath => f.write_str("its path is empty, absolute or has `..`"),
            Self::TooLarge { bytes } => write!(f, "its {bytes} bytes are too many"),
        }
    }
}

/// Opens a plain file below `folder` without following any link on the way.
pub(crate) fn open_beneath(folder: &Path, name: &Path) -> Result<std::result::Result<File, Unread>> {
    let mut names = Vec::new();
    for part in name.components() {
        match part {
            Component::Normal(part) => names.push(part),
            Component::CurDir => {}
            _ => return Ok(Err(Unread::BadPath)),
        }
    }
    let Some((last, parents)) = names.split_last() else { return Ok(Err(Unread::BadPath)) };
    let mut at: OwnedFd = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(folder)
        .at("opened", folder)?
        .into();
    let link_free = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let path = folder.join(name);
    for parent in parents {
        at = match openat(&at, *parent, link_free | OFlag::O_DIRECTORY, Mode::empty()) {
            Ok(next) => next,
            Err(Errno::ENOENT) => return Ok(Err(Unread::Missing)),
            Err(Errno::ENOTDIR | Errno::ELOOP) => return Ok(Err(Unread::NotAPlainFile)),
            Err(error) => return Err(Error::io("opened", &path, error.into())),
        };
    }
    // Looked at before it is opened for reading: opening a device can have effects.
    let looked: File = match openat(&at, *last, link_free, Mode::empty()) {
        Ok(found) => found.into(),
        Err(Errno::ENOENT) => return Ok(Err(Unread::Missing)),
        Err(error) => return Err(Error::io("opened", &path, error.into())),
    };
    if !looked.metadata().at("read", &path)?.is_file() {
        return Ok(Err(Unread::NotAPlainFile));
    }
    let same = format!("/proc/self/fd/{}", looked.as_raw_fd());
    Ok(Ok(File::open(&same).at("opened", &path)?))
}

/// The bytes of a plain file below `folder`, at most `most`.
pub(crate) fn read_beneath(
    folder: &Path,
    name: &Path,
    most: u64,
) -> Result<std::result::Result<Vec<u8>, Unread>> {
    let file = match open_beneath(folder, name)? {
        Ok(file) => file,
        Err(unread) => return Ok(Err(unread)),
    };
    let path = folder.join(name);
    let mut bytes = Vec::new();
    (&file).take(most + 1).read_to_end(&mut bytes).at("read", &path)?;
    let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if read > most {
        let size = file.metadata().map(|facts| facts.len()).unwrap_or(read);
        return Ok(Err(Unread::TooLarge { bytes: size.max(read) }));
    }
    Ok(Ok(bytes))
}
