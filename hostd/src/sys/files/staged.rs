//! A file that is written out of sight and gets its name when it is whole.
//!
//! It has no name until then (`O_TMPFILE`), so that nothing is left of a transfer that was cut, however it was cut. Where
//! the file system has no such files it has a hidden name, which goes with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use protocol::files::{FileKind, FilePath};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Root, entry};
use super::error::FileError;

#[derive(Debug)]
pub struct Staged {
    folder: OwnedFd,
    name: OsString,
    /// The name it has while it is no file that anybody asked for.
    hidden: OsString,
    is_named: bool,
    file: File,
    mode_before: Option<u32>,
}

impl Staged {
    /// Begins a file that shall be `path`; `token` is a name of its own.
    ///
    /// # Errors
    /// Its folder is not there or may not be written, or what has the name is no plain file.
    pub fn begin(root: &Root, path: &FilePath, token: &str) -> Result<Self, FileError> {
        let (parent, name) = path.split().ok_or(FileError::IsFolder)?;
        let folder = root.parent(parent)?;
        let mode_before = replaceable(&folder, name)?;
        let hidden = OsString::from(format!(".phalanx-{token}"));
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let private = Mode::from_raw_mode(0o600);
        let (file, is_named) = match rustix::fs::openat(&folder, ".", flags | OFlags::TMPFILE, private) {
            Ok(file) => (file, false),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                let file = rustix::fs::openat(&folder, &hidden, flags, private);
                (file.map_err(|errno| FileError::of("make the file", errno))?, true)
            }
            Err(errno) => return Err(FileError::of("make the file", errno)),
        };
        let name = OsStr::from_bytes(name).to_owned();
        Ok(Self { folder, name, hidden, is_named, file: file.into(), mode_before })
    }

    /// # Errors
    /// No space, or what the disk says.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(|error| FileError::io("write it", error))
    }

    /// Gives it its name, in place of the file that has it. Whole or not at all, also over a power cut.
    ///
    /// # Errors
    /// As [`Self::write`], or when something else has the name by now.
    pub fn finish(mut self, mode: Option<u32>) -> Result<(), FileError> {
        let failed = |errno| FileError::of("put it in its place", errno);
        let mode = mode.or(self.mode_before).unwrap_or(0o644) & 0o777;
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(failed)?;
        self.file.sync_all().map_err(|error| FileError::io("write it", error))?;
        replaceable(&self.folder, self.name.as_bytes())?;
        if !self.is_named {
            let nameless = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, nameless, &self.folder, &self.hidden, follow).map_err(failed)?;
            self.is_named = true;
        }
        rustix::fs::renameat(&self.folder, &self.hidden, &self.folder, &self.name).map_err(failed)?;
        self.is_named = false;
        rustix::fs::fsync(&self.folder)
            .map_err(|errno| FileError::io("write its folder", io::Error::from(errno)))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_named {
            let _ = rustix::fs::unlinkat(&self.folder, &self.hidden, AtFlags::empty());
        }
    }
}

/// The permissions of the file that would be replaced; never a link, folder, pipe or device.
fn replaceable(folder: &OwnedFd, name: &[u8]) -> Result<Option<u32>, FileError> {
    match entry(folder, name)? {
        None => Ok(None),
        Some(entry) => match entry.kind {
            FileKind::File => Ok(Some(entry.mode)),
            FileKind::Folder => Err(FileError::IsFolder),
            kind => Err(FileError::NotPlain(kind)),
        },
    }
}
