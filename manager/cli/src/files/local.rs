//! Files on this side: written beside their place and renamed once they are whole, so that a transfer that was cut
//! leaves what was there before. What a killed one left is taken away by the next one to the same place: whoever is at work
//! holds a lock (flock(2)) on what it writes.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::error::ErrorCode;

use super::super::context::random_hex;
use super::super::error::Failure;

/// A file on its way.
pub struct LocalFile {
    file: File,
    path: PathBuf,
    /// `None`: written where it is, since it is a device or a pipe.
    hidden: Option<PathBuf>,
}

pub fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::NotFound,
        io::ErrorKind::PermissionDenied => ErrorCode::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::Exhausted,
        _ => ErrorCode::Failed,
    };
    Failure::new(code, format!("cannot {what} {}: {error}", path.display()))
}

const LOCK: rustix::fs::FlockOperation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
/// Hex digits at the end of a hidden name.
const RANDOM: usize = 8;

/// What the hidden names of a place begin with.
fn hidden_prefix(path: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".phalanx-");
    name
}

/// Beside `path`, under a name of its own.
fn hidden(path: &Path) -> Result<PathBuf, Failure> {
    let mut name = hidden_prefix(path);
    name.push(random_hex()?.get(..RANDOM).unwrap_or_default());
    Ok(path.with_file_name(name))
}

/// Locked for as long as it is open; `false` when somebody else has it.
fn lock(file: &File) -> bool {
    rustix::fs::flock(file, LOCK).is_ok()
}

/// Takes away what killed transfers to this place left. What cannot be taken away stays: it is in nobody's way.
fn sweep(path: &Path) {
    let prefix = hidden_prefix(path);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let random = name.as_bytes().strip_prefix(prefix.as_bytes()).unwrap_or_default();
        if random.len() != RANDOM || !random.iter().all(u8::is_ascii_hexdigit) {
            continue;
        }
        let left = entry.path();
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let Ok(opened) = OpenOptions::new().read(true).custom_flags(flags).open(&left) else { continue };
        if lock(&opened) {
            let is_folder = opened.metadata().is_ok_and(|facts| facts.is_dir());
            let _ = if is_folder { std::fs::remove_dir_all(&left) } else { std::fs::remove_file(&left) };
        }
    }
}

/// The lock of what was just made; somebody who sweeps may have been faster. Where there are no locks, nobody sweeps.
fn held(file: File, path: &Path) -> Result<File, Failure> {
    let is_anothers = rustix::fs::flock(&file, LOCK) == Err(rustix::io::Errno::WOULDBLOCK);
    if !is_anothers && file.metadata().is_ok_and(|facts| facts.nlink() > 0) {
        return Ok(file);
    }
    let message = format!("another transfer to {} has begun at this moment", path.display());
    Err(Failure::new(ErrorCode::Conflict, message).hint("the same command again"))
}

impl LocalFile {
    pub fn create(path: &Path) -> Result<Self, Failure> {
        // Through a link, as cp(1) writes.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if path.metadata().is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
            let file = OpenOptions::new().write(true).open(&path);
            let file = file.map_err(|error| failed("write", &path, &error))?;
            return Ok(Self { file, path, hidden: None });
        }
        sweep(&path);
        let hidden = hidden(&path)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&hidden);
        let file = held(file.map_err(|error| failed("write", &path, &error))?, &path)?;
        Ok(Self { file, path, hidden: Some(hidden) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| failed("write", &self.path, &error))
    }

    pub fn finish(mut self, mode: u32) -> Result<(), Failure> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        self.file
            .set_permissions(Permissions::from_mode(mode & 0o777))
            .and_then(|()| std::fs::rename(hidden, &self.path))
            .map_err(|error| failed("write", &self.path, &error))?;
        self.hidden = None;
        Ok(())
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// A folder on its way: whole, or not there.
pub struct LocalFolder {
    path: PathBuf,
    hidden: Option<PathBuf>,
    /// Holds the lock.
    _lock: File,
    /// Set at last: what may not be written could not be filled.
    modes: Vec<(PathBuf, u32)>,
}

impl LocalFolder {
    /// # Errors
    /// When something is there: files of an agent are not mixed with others, whose links might lead anywhere.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            let message = format!("{} is there already", path.display());
            return Err(
                Failure::new(ErrorCode::Conflict, message).hint("name a folder that is not there yet")
            );
        }
        sweep(path);
        let hidden = hidden(path)?;
        std::fs::create_dir(&hidden).map_err(|error| failed("make", path, &error))?;
        let opened = File::open(&hidden).map_err(|error| failed("make", path, &error))?;
        let lock = held(opened, path)?;
        Ok(Self { path: path.to_path_buf(), hidden: Some(hidden), _lock: lock, modes: Vec::new() })
    }

    pub fn place(&self, below: &Path) -> PathBuf {
        self.hidden.as_deref().unwrap_or(&self.path).join(below)
    }

    pub fn folder(&mut self, below: &Path, mode: u32) -> Result<(), Failure> {
        let path = self.place(below);
        std::fs::create_dir(&path).map_err(|error| failed("make", &path, &error))?;
        self.modes.push((below.to_path_buf(), mode));
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        for (below, mode) in std::mem::take(&mut self.modes).iter().rev() {
            let path = self.place(below);
            std::fs::set_permissions(&path, Permissions::from_mode(mode & 0o777))
                .map_err(|error| failed("make", &path, &error))?;
        }
        if let Some(hidden) = &self.hidden {
            std::fs::rename(hidden, &self.path).map_err(|error| failed("make", &self.path, &error))?;
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for LocalFolder {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_dir_all(hidden);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_killed_transfers_left_goes_with_the_next_one_and_what_is_under_way_stays() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        for left in [".a.phalanx-0123abcd", ".b.phalanx-0123abcd", ".a.phalanx-mine", ".a.phalanx-0123abcd9"]
        {
            std::fs::write(at(left), "part").unwrap();
        }
        std::fs::create_dir_all(at(".c.phalanx-0123abcd/deep")).unwrap();
        let others = [".a.phalanx-0123abcd9", ".a.phalanx-mine"];

        let mut first = LocalFile::create(&at("a")).unwrap();
        let mut second = LocalFile::create(&at("a")).unwrap();
        first.write(b"first").unwrap();
        second.write(b"second").unwrap();
        second.finish(0o644).unwrap();
        first.finish(0o644).unwrap();
        assert_eq!(std::fs::read(at("a")).unwrap(), b"first", "one did not take the other's away");
        let folder = LocalFolder::create(&at("c")).unwrap();
        assert!(LocalFolder::create(&at("c")).is_ok(), "both are under way");
        folder.finish().unwrap();
        let mut left: Vec<&str> = others.into_iter().chain([".b.phalanx-0123abcd", "a", "c"]).collect();
        left.sort_unstable();
        assert_eq!(names(temp.path()), left, "only its own place is swept");
    }
}
