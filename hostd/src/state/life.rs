//! This life of hostd: the lock that makes it the only one, its incarnation, and the highest fencing it has seen. And
//! who else lives, by their locks.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use protocol::ids::{Fencing, Incarnation};
use serde::{Deserialize, Serialize};

use super::file::{StateError, replace};

/// `host.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    incarnation: u64,
    fencing: u64,
}

/// Held for as long as hostd lives; the file has its process id.
#[derive(Debug)]
pub struct LifeLock {
    _file: Flock<File>,
}

impl LifeLock {
    /// # Errors
    /// [`StateError::Held`] names the hostd that holds it.
    pub fn take(path: &Path) -> Result<Self, StateError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(StateError::io("open", path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut file) => {
                let wrote = file
                    .set_len(0)
                    .and_then(|()| file.rewind())
                    .and_then(|()| writeln!(file, "{}", std::process::id()));
                wrote.map_err(StateError::io("write", path))?;
                Ok(Self { _file: file })
            }
            Err((mut file, _)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(StateError::Held { path: path.to_owned(), pid: pid.trim().to_owned() })
            }
        }
    }
}

/// Whether another process holds the lock of a file; one that is not there is held by nobody.
///
/// # Errors
/// When it cannot be looked at: unknown, neither held nor free.
pub fn is_held(path: &Path) -> std::io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // Shared: two that only look never take each other for the holder.
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_free) => Ok(false),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(true),
        Err((_, error)) => Err(error.into()),
    }
}

/// Incarnation and fencing, and where they are kept.
#[derive(Debug)]
pub struct Life {
    path: PathBuf,
    stored: Stored,
}

impl Life {
    /// Begins a life: max(stored + 1, `unix_ms`), saved before it is used. A record that cannot be read is set
    /// aside, never taken as empty: the clock keeps the incarnation growing.
    ///
    /// # Errors
    /// When the new record cannot be saved.
    pub fn begin(state: &Path, unix_ms: u64) -> Result<Self, StateError> {
        let path = state.join("host.json");
        let old = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Stored>(&bytes).unwrap_or_else(|error| {
                tracing::error!(path = %path.display(), %error, "the record of past lives is unreadable");
                let _ = std::fs::rename(&path, path.with_extension("unreadable"));
                Stored::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Stored::default(),
            Err(error) => return Err(StateError::io("read", &path)(error)),
        };
        let stored =
            Stored { version: 1, incarnation: unix_ms.max(old.incarnation.saturating_add(1)), ..old };
        let life = Self { path, stored };
        life.save()?;
        Ok(life)
    }

    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(self.stored.incarnation)
    }

    #[must_use]
    pub fn fencing(&self) -> Fencing {
        Fencing(self.stored.fencing)
    }

    /// # Errors
    /// What the file system says; the older fencing is kept then.
    pub fn raise_fencing(&mut self, fencing: Fencing) -> Result<(), StateError> {
        self.stored.fencing = self.stored.fencing.max(fencing.0);
        self.save()
    }

    fn save(&self) -> Result<(), StateError> {
        replace(&self.path, &serde_json::to_vec(&self.stored).map_err(StateError::Encode)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_grows_also_when_the_clock_was_set_back_or_the_record_is_garbage() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Life::begin(folder.path(), 5_000).unwrap().incarnation(), Incarnation(5_000));
        assert_eq!(Life::begin(folder.path(), 10).unwrap().incarnation(), Incarnation(5_001));
        for garbage in ["", "{}", "[]", "{\"version\":1", "\0"] {
            std::fs::write(folder.path().join("host.json"), garbage).unwrap();
            assert!(Life::begin(folder.path(), 9_000).unwrap().incarnation() >= Incarnation(9_000));
        }
    }

    #[test]
    fn a_second_hostd_is_refused_by_the_pid_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hostd.lock");
        let _held = LifeLock::take(&path).unwrap();
        let refused = LifeLock::take(&path).unwrap_err().to_string();
        assert!(refused.contains(&std::process::id().to_string()), "{refused}");
    }

    #[test]
    fn a_lock_is_held_by_its_holder_and_not_by_who_looks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hostd.lock");
        assert!(!is_held(&path).unwrap());
        let held = LifeLock::take(&path).unwrap();
        assert!(is_held(&path).unwrap());
        drop(held);
        let looking = Flock::lock(File::open(&path).unwrap(), FlockArg::LockSharedNonblock).unwrap();
        assert!(!is_held(&path).unwrap());
        drop(looking);
    }
}
