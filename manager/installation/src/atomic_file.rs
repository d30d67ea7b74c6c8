//! Small files that are whole or absent, whatever is killed and whenever the disk fills: written beside their
//! place, synced, moved over it, the folder synced. Mode 0600.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that could not be written; the one that was there before is untouched.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct WriteFailed {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// Whether a write outlives a power cut, or only the death of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Disk,
    /// For what is made anew at every start, such as a status file.
    Process,
}

/// Puts `bytes` at `path`, replacing what was there.
pub fn write(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), WriteFailed> {
    replace(path, bytes, durability).map_err(|source| WriteFailed { path: path.to_path_buf(), source })
}

/// Puts `bytes` at `path` unless exactly these are there already; says whether it wrote.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool, WriteFailed> {
    if std::fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    write(path, bytes, Durability::Disk).map(|()| true)
}

fn replace(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    let unnamed = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name");
    let name = path.file_name().ok_or_else(unnamed)?;
    let folder = path.parent().ok_or_else(unnamed)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.new", std::process::id()));
    let beside = folder.join(beside);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(bytes)?;
        if durability == Durability::Disk {
            file.sync_all()?;
        }
        std::fs::rename(&beside, path)
    })();
    if let Err(error) = written {
        // The half-written file is ours alone; that it cannot be removed changes nothing about the failure.
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    if durability == Durability::Disk {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_private_replaced_whole_and_left_alone_when_equal() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        assert!(write_if_changed(&path, b"one").unwrap());
        let first = std::fs::metadata(&path).unwrap();
        assert_eq!(first.mode() & 0o777, 0o600);
        assert!(!write_if_changed(&path, b"one").unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), first.ino(), "an equal file is not rewritten");
        assert!(write_if_changed(&path, b"two").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_beside_it() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("target");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("kept"), b"x").unwrap();
        assert!(write(&folder, b"file over a folder", Durability::Disk).is_err());
        assert_eq!(std::fs::read(folder.join("kept")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
