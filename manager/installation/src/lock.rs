//! One holder at a time: an flock(2) on `run/<name>.lock` with the holder's process id in the file. The
//! kernel releases it however the holder ends, so a held lock *is* the proof of life, and a file without a
//! lock means nothing.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use super::process::ProcessHandle;

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{path} is held by process {}", holder.map_or_else(|| "?".to_owned(), |pid| pid.to_string()))]
    Held { path: PathBuf, holder: Option<u32> },
    #[error("cannot lock {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A held lock; dropping it releases it, unless a child shares the open file.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock now or says who holds it, and writes this process's id into it.
    pub fn try_take(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError::Io { path: path.to_path_buf(), source };
        let file = open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Self { file }.with_holder(std::process::id()).map_err(failed),
            Err(TryLockError::WouldBlock) => {
                Err(LockError::Held { path: path.to_path_buf(), holder: read_holder(path) })
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// Takes the lock, waiting for its holder up to `limit`.
    pub fn take_within(path: &Path, limit: Duration) -> Result<Self, LockError> {
        match Self::try_take(path) {
            Err(LockError::Held { .. }) => {}
            settled => return settled,
        }
        let failed = |source| LockError::Io { path: path.to_path_buf(), source };
        let file = open(path).map_err(failed)?;
        let (sender, receiver) = mpsc::channel();
        // flock has no time limit of its own. When ours passes, the thread stays blocked until the holder is
        // gone and then drops the lock at once, since nobody receives it.
        std::thread::Builder::new()
            .name("lock".to_owned())
            .spawn(move || {
                let taken = file.lock().map(|()| Self { file });
                let _ = sender.send(taken);
            })
            .map_err(failed)?;
        match receiver.recv_timeout(limit) {
            Ok(taken) => taken.and_then(|lock| lock.with_holder(std::process::id())).map_err(failed),
            Err(_) => Err(LockError::Held { path: path.to_path_buf(), holder: read_holder(path) }),
        }
    }

    /// Records `pid` as the holder, for when the open file is handed to a child.
    pub fn with_holder(mut self, pid: u32) -> io::Result<Self> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(format!("{pid}\n").as_bytes())?;
        Ok(self)
    }

    /// A second descriptor of the same open file: the lock is held until both are closed.
    pub fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether anybody holds the lock. A file that is not there is held by nobody.
pub fn is_held(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // A shared try-lock never makes two that only look see each other as holders.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The process id in the lock file, whether or not it still holds the lock.
pub fn read_holder(path: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(path).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The live process that holds the lock: `None` when nobody does. `Err(WouldBlock)` when it is held but the
/// holder's id is not written yet.
pub fn holder(path: &Path) -> io::Result<Option<ProcessHandle>> {
    if !is_held(path)? {
        return Ok(None);
    }
    let opened = match read_holder(path) {
        Some(pid) => ProcessHandle::open(pid)?,
        None => None,
    };
    // The process was pinned while or after the lock was seen held; held still, it is the holder.
    match (opened, is_held(path)?) {
        (Some(process), true) => Ok(Some(process)),
        (_, false) => Ok(None),
        (None, true) => Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "the lock is held by a process that has no name yet",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_and_is_free_after_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.lock");
        assert!(!is_held(&path).unwrap());
        let lock = Lock::try_take(&path).unwrap();
        assert!(is_held(&path).unwrap());
        assert!(matches!(Lock::try_take(&path), Err(LockError::Held { holder: Some(pid), .. })
            if pid == std::process::id()));
        assert_eq!(holder(&path).unwrap().map(|process| process.pid()), Some(std::process::id()));
        drop(lock);
        assert!(holder(&path).unwrap().is_none());
        Lock::take_within(&path, Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn waiting_for_a_lock_ends_at_its_limit_and_does_not_steal_it_later() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.lock");
        let lock = Lock::try_take(&path).unwrap();
        let waited = Lock::take_within(&path, Duration::from_millis(30));
        assert!(matches!(waited, Err(LockError::Held { .. })));
        drop(lock);
        Lock::take_within(&path, Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn a_child_that_was_given_the_open_file_holds_the_lock_after_us() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.lock");
        let lock = Lock::try_take(&path).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").stdin(lock.share().unwrap()).spawn().unwrap();
        drop(lock.with_holder(child.id()).unwrap());
        assert_eq!(holder(&path).unwrap().map(|process| process.pid()), Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(holder(&path).unwrap().is_none());
    }
}
