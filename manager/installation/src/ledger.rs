//! How far each hook has come in the stream of facts, and how its deliveries went: one small file a hook, whole or not
//! there, which outlives the manager.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Layout;
use crate::atomic_file::{self, Durability, WriteFailed};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    pub version: u32,
    /// Place in the stream of the first fact that was not dealt with.
    pub next: u64,
    /// What it is, as it may be shown.
    pub shown: String,
    pub delivered: u64,
    /// Given up after all tries.
    pub lost: u64,
    /// Of the last try, when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub at_ms: u64,
    pub why: String,
}

#[must_use]
pub fn folder(layout: &Layout) -> PathBuf {
    layout.manager().join("notify")
}

fn path(folder: &Path, hook: &str) -> PathBuf {
    folder.join(format!("{hook}.json"))
}

/// `None` when there is none.
///
/// # Errors
/// A file that cannot be read or decoded: unknown, never "none", since all would be sent again.
pub fn read(folder: &Path, hook: &str) -> io::Result<Option<Ledger>> {
    match std::fs::read(path(folder, hook)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes those of hooks that are not among these.
///
/// # Errors
/// A file that could not be removed.
pub fn forget_others(folder: &Path, hooks: &[String]) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let id = path.file_stem().and_then(|stem| stem.to_str());
        if id.is_none_or(|id| hooks.iter().all(|hook| hook != id)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// # Errors
/// A file that could not be written.
pub fn write(folder: &Path, hook: &str, ledger: &Ledger) -> Result<(), WriteFailed> {
    let path = path(folder, hook);
    let failed = |source| WriteFailed { path: path.clone(), source };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let bytes = serde_json::to_vec(ledger).map_err(io::Error::other).map_err(failed)?;
    atomic_file::write(&path, &bytes, Durability::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_until_its_hook_is_gone_and_a_broken_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("notify");
        forget_others(&folder, &[]).unwrap();
        assert_eq!(read(&folder, "a").unwrap(), None);
        let failure = Some(Failed { at_ms: 5, why: "no".to_owned() });
        let ledger =
            Ledger { version: 1, next: 7, shown: "command x".to_owned(), failure, ..Ledger::default() };
        write(&folder, "a", &ledger).unwrap();
        write(&folder, "b", &ledger).unwrap();
        forget_others(&folder, &["a".to_owned()]).unwrap();
        assert_eq!(read(&folder, "a").unwrap(), Some(ledger));
        assert_eq!(read(&folder, "b").unwrap(), None);
        std::fs::write(path(&folder, "a"), "{").unwrap();
        assert!(read(&folder, "a").is_err());
    }

    #[test]
    fn a_record_of_the_first_release_is_read() {
        let text = r#"{"version":1,"next":7,"shown":"command x","delivered":2,"lost":1,"failure":{"at_ms":5,"why":"no"}}"#;
        let ledger: Ledger = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&ledger).unwrap(), text);
        let bare: Ledger =
            serde_json::from_str(r#"{"version":1,"next":7,"shown":"x","delivered":0,"lost":0}"#).unwrap();
        assert_eq!((bare.next, bare.failure), (7, None));
    }
}
