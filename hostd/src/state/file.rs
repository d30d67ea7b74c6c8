//! Replaces a file whole: a reader, also one after a crash, sees the old content or the new one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot {what} {}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not readable as what it should hold", path.display())]
    Decode {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error("cannot write a record as JSON")]
    Encode(#[source] serde_json::Error),
    #[error("{} is of version {found}, newer than this build knows", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("another hostd (pid {pid}) holds {}", path.display())]
    Held { path: PathBuf, pid: String },
}

impl StateError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}

/// Temp file, fsync, rename, fsync of the folder. The file is private to its owner.
///
/// # Errors
/// What the file system says; the old content is whole then.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StateError> {
    let temp = path.with_extension("tmp");
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temp, path)?;
        sync_parent(path)
    })();
    written.map_err(StateError::io("write", path))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_replacement_leaves_the_old_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.json");
        replace(&path, b"old").unwrap();
        // A folder in the place of the temp file makes the write fail.
        std::fs::create_dir(path.with_extension("tmp")).unwrap();
        assert!(replace(&path, b"new").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
}
