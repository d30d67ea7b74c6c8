//! What the bus lost of the manager's records, as the manager found it: kept in a file of its own, so that it can be told
//! whatever became of the bus.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Layout;
use crate::atomic_file::{self, Durability, WriteFailed};

/// The last ones are kept.
const KEPT: usize = 20;
/// For so long a loss is told by `status` and `doctor`.
const TOLD_MS: u64 = 7 * 24 * 3_600 * 1_000;

#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Loss {
    pub at_ms: u64,
    /// A sentence for a person.
    pub what: String,
    /// Whether the manager had all of it and wrote it back.
    pub restored: bool,
}

fn path(layout: &Layout) -> PathBuf {
    layout.manager().join("losses.json")
}

#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Oldest first; none where there is no file.
///
/// # Errors
/// A file that cannot be read or decoded.
pub fn read(layout: &Layout) -> io::Result<Vec<Loss>> {
    match std::fs::read(path(layout)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Those that a person is still to be told of.
///
/// # Errors
/// As [`read`].
pub fn told(layout: &Layout, now_ms: u64) -> io::Result<Vec<Loss>> {
    let mut losses = read(layout)?;
    losses.retain(|loss| loss.at_ms.saturating_add(TOLD_MS) > now_ms);
    Ok(losses)
}

/// # Errors
/// A file that could not be written.
pub fn add(layout: &Layout, loss: Loss) -> Result<(), WriteFailed> {
    let path = path(layout);
    let failed = |source| WriteFailed { path: path.clone(), source };
    // A file that is broken is no reason to keep quiet about what is lost now.
    let mut losses = read(layout).unwrap_or_default();
    losses.push(loss);
    losses.drain(..losses.len().saturating_sub(KEPT));
    let bytes = serde_json::to_vec(&losses).map_err(io::Error::other).map_err(failed)?;
    atomic_file::write(&path, &bytes, Durability::Disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_losses_are_kept_and_old_ones_are_told_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        assert_eq!(read(&layout).unwrap(), []);
        for at_ms in 0..25 {
            add(&layout, Loss { at_ms, what: "1 run".to_owned(), restored: true }).unwrap();
        }
        let kept = read(&layout).unwrap();
        assert_eq!((kept.len(), kept[0].at_ms), (20, 5));
        assert_eq!(told(&layout, TOLD_MS + 20).unwrap().len(), 4);
    }

    #[test]
    fn a_record_of_the_first_release_is_read() {
        let text = r#"[{"at_ms":5,"what":"1 run","restored":false}]"#;
        let losses: Vec<Loss> = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&losses).unwrap(), text);
    }
}
