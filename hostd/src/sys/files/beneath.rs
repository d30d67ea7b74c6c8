//! Looks, lists, reads and makes below a folder whose content an agent controls.
//!
//! Every path is resolved by the kernel with `RESOLVE_BENEATH` (openat2(2)): links are followed as long as they stay
//! inside, whatever is swapped meanwhile. What is no plain file or folder is looked at and never opened: opening a pipe
//! or a device can have effects.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::files::{FileEntry, FileKind, FileList, FileNode, FilePath, FilePiece, PIECE};
use protocol::time::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::FileError;

/// Entries of a folder in one answer, by number and by bytes: it must fit into one message.
const ENTRIES: usize = 1_000;
const ENTRY_BYTES: usize = 400 << 10;
/// The kernel asks to try again when something was renamed while it looked.
const TRIES: u32 = 16;

/// A folder that nothing leads out of.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// What is there under a path.
#[derive(Debug)]
pub struct Looked {
    pub kind: FileKind,
    pub mode: u32,
    place: (u64, u64),
}

impl Root {
    /// The folder `name` in `parent`; never one that a link stands for.
    ///
    /// # Errors
    /// When it is not there, or is something else.
    pub fn open(parent: &Path, name: &str) -> Result<Self, FileError> {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let parent = rustix::fs::open(parent, folder, Mode::empty());
        let parent = parent.map_err(|errno| FileError::of("open the folder", errno))?;
        rustix::fs::openat(&parent, name, folder, Mode::empty())
            .map(Self)
            .map_err(|errno| FileError::of("open the folder", errno))
    }

    pub(super) fn openat(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = flags | OFlags::CLOEXEC;
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&self.0, OsStr::from_bytes(path), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// What is there; links are followed.
    ///
    /// # Errors
    /// Nothing is there, or outside only.
    pub fn look(&self, path: &FilePath) -> Result<Looked, FileError> {
        let found = self.openat(path.as_bytes(), OFlags::PATH);
        let stat = found.and_then(rustix::fs::fstat).map_err(|errno| FileError::of("look at it", errno))?;
        Ok(Looked { kind: kind_of(&stat), mode: permissions(&stat), place: place_of(&stat) })
    }

    /// Entries after `after`, by name; of what is no folder, itself. The whole folder is gone through each time, in
    /// bounded memory.
    ///
    /// # Errors
    /// It is not there, leads outside, or may not be read.
    pub fn list(&self, path: &FilePath, after: Option<&[u8]>) -> Result<FileList, FileError> {
        let looked = self.look(path)?;
        if looked.kind != FileKind::Folder {
            let (parent, name) = path.split().ok_or(FileError::NotAFolder)?;
            let parent = self.openat(parent, OFlags::RDONLY | OFlags::DIRECTORY);
            let parent = parent.map_err(|errno| FileError::of("open its folder", errno))?;
            let entry = entry(&parent, name)?.ok_or(FileError::Missing)?;
            return Ok(FileList { is_folder: false, entries: vec![entry], more: false });
        }
        let failed = |errno| FileError::of("list the folder", errno);
        let folder = self.openat(path.as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        let mut first: BTreeMap<Vec<u8>, ()> = BTreeMap::new();
        let mut more = false;
        for found in Dir::read_from(&folder).map_err(failed)? {
            let found = found.map_err(failed)?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") || after.is_some_and(|after| name <= after) {
                continue;
            }
            first.insert(name.to_vec(), ());
            if first.len() > ENTRIES {
                first.pop_last();
                more = true;
            }
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for name in first.into_keys() {
            if bytes > ENTRY_BYTES {
                more = true;
                break;
            }
            // One that is gone by now is no entry any more.
            if let Some(entry) = entry(&folder, &name)? {
                bytes += entry.name.len() + entry.target.as_ref().map_or(0, Vec::len) + 100;
                entries.push(entry);
            }
        }
        Ok(FileList { is_folder: true, entries, more })
    }

    /// Bytes from `offset` on, at most `max`. With `version`, only of the same file with the same content.
    ///
    /// # Errors
    /// It is no plain file, may not be read, or has changed.
    pub fn read(
        &self,
        path: &FilePath,
        offset: u64,
        max: usize,
        version: Option<&str>,
    ) -> Result<FilePiece, FileError> {
        let looked = self.look(path)?;
        match looked.kind {
            FileKind::File => {}
            FileKind::Folder => return Err(FileError::IsFolder),
            kind => return Err(FileError::NotPlain(kind)),
        }
        let failed = |errno| FileError::of("open it", errno);
        let file = self
            .openat(path.as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if place_of(&stat) != looked.place {
            return Err(FileError::Changed);
        }
        let mut bytes = vec![0_u8; max.min(PIECE)];
        let file = File::from(file);
        let count = file.read_at(&mut bytes, offset).map_err(|error| FileError::io("read it", error))?;
        bytes.truncate(count);
        // After the read: what was read is of this version, or the next look shows another.
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        let now = version_of(&stat);
        if version.is_some_and(|version| version != now) {
            return Err(FileError::Changed);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let modified = modified(&stat);
        Ok(FilePiece { offset, bytes, size, mode: permissions(&stat), modified, version: now })
    }

    /// Makes a folder with those it is in, or a link; what is there already is fine when it is the same.
    ///
    /// # Errors
    /// Something else is there, or it may not be made.
    pub fn make(&self, path: &FilePath, node: &FileNode) -> Result<(), FileError> {
        match node {
            FileNode::Folder { mode } => self.make_folders(path, *mode),
            FileNode::Link { target } => {
                let (parent, name) = path.split().ok_or(FileError::IsFolder)?;
                let parent = self.parent(parent)?;
                match rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, OsStr::from_bytes(name)) {
                    Err(Errno::EXIST) => {
                        let there = entry(&parent, name)?.and_then(|entry| entry.target);
                        if there.as_deref() == Some(target) { Ok(()) } else { Err(FileError::Taken) }
                    }
                    other => other.map_err(|errno| FileError::of("make the link", errno)),
                }
            }
        }
    }

    fn make_folders(&self, path: &FilePath, mode: u32) -> Result<(), FileError> {
        let levels: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
        for count in 1..=levels.len() {
            let so_far = levels.get(..count).unwrap_or_default().join(&b'/');
            let here = FilePath::parse(&so_far).unwrap_or_default();
            match self.look(&here).map(|looked| looked.kind) {
                Ok(FileKind::Folder) => continue,
                Ok(_) => return Err(FileError::Taken),
                Err(FileError::Missing) => {}
                Err(error) => return Err(error),
            }
            let Some((parent, name)) = here.split() else { continue };
            let mode = if count == levels.len() { mode & 0o777 | 0o700 } else { 0o755 };
            let parent = self.parent(parent)?;
            match rustix::fs::mkdirat(&parent, OsStr::from_bytes(name), Mode::from_raw_mode(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::of("make the folder", errno)),
            }
        }
        Ok(())
    }

    /// The folder that something shall be made in.
    pub(super) fn parent(&self, parent: &[u8]) -> Result<OwnedFd, FileError> {
        let opened = self.openat(parent, OFlags::RDONLY | OFlags::DIRECTORY);
        opened.map_err(|errno| match FileError::of("open its folder", errno) {
            FileError::Missing => FileError::NoFolder,
            other => other,
        })
    }
}

/// `None` when there is nothing of this name.
pub(super) fn entry(folder: &OwnedFd, name: &[u8]) -> Result<Option<FileEntry>, FileError> {
    let stat = match rustix::fs::statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(FileError::of("look at it", errno)),
    };
    let kind = kind_of(&stat);
    let target = match kind {
        FileKind::Link => rustix::fs::readlinkat(folder, OsStr::from_bytes(name), Vec::new()).ok(),
        _ => None,
    };
    Ok(Some(FileEntry {
        name: name.to_vec(),
        kind,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: permissions(&stat),
        modified: modified(&stat),
        target: target.map(|target| target.into_bytes()),
    }))
}

fn kind_of(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Folder,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// Without set-user-id and the like: those are nobody's to hand on.
fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o777
}

fn place_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn modified(stat: &Stat) -> Timestamp {
    // Before 1970 is 1970.
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    Timestamp(seconds.saturating_mul(1000).saturating_add(stat.st_mtime_nsec / 1_000_000))
}

fn version_of(stat: &Stat) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    )
}
