//! What the store held when it was looked at last, in a file beside the bus: a bus that comes back with less was cut
//! off, wiped or restored while nobody looked.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use manager_installation::atomic_file::{self, Durability};
use serde::{Deserialize, Serialize};

use crate::store::StreamState;

/// One bucket as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    pub stream: StreamState,
    /// Keys with a value.
    pub live: u64,
}

/// By the names of the buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Witness {
    pub version: u32,
    pub buckets: BTreeMap<String, Seen>,
}

fn path(folder: &Path) -> PathBuf {
    folder.join("witness.json")
}

/// One that cannot be read witnesses nothing.
#[must_use]
pub(super) fn read(folder: &Path) -> Witness {
    match std::fs::read(path(folder)) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "what the bus held before is not known: its file is broken");
            Witness::default()
        }),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "what the bus held before is not known");
            }
            Witness::default()
        }
    }
}

pub(super) fn write(folder: &Path, witness: &Witness) {
    let bytes = serde_json::to_vec(witness).unwrap_or_default();
    if let Err(error) = atomic_file::write(&path(folder), &bytes, Durability::Process) {
        tracing::warn!(error = %protocol::chain(&error), "what the bus holds is not noted down");
    }
}

/// How many keys are gone at least that nobody deleted: every write since then can have deleted one.
#[must_use]
pub(super) fn missing(before: &Seen, now: &Seen) -> u64 {
    if before.stream.created != now.stream.created || now.stream.last < before.stream.last {
        return before.live.saturating_sub(now.live);
    }
    let written = now.stream.last - before.stream.last;
    before.live.saturating_sub(written).saturating_sub(now.live)
}

/// Whether the stream is another one, or lost its end.
#[must_use]
pub(super) fn is_cut(before: &StreamState, now: &StreamState) -> bool {
    before.created != now.created || now.last < before.last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(created: i128, last: u64, live: u64) -> Seen {
        Seen { stream: StreamState { created, last, messages: live }, live }
    }

    #[test]
    fn a_key_that_may_have_been_deleted_is_not_missed_and_one_that_cannot_is() {
        let before = seen(1, 100, 22);
        assert_eq!(missing(&before, &seen(1, 100, 22)), 0);
        assert_eq!(missing(&before, &seen(1, 100, 21)), 1, "nothing was written since");
        assert_eq!(missing(&before, &seen(1, 103, 19)), 0, "three may have been deleted");
        assert_eq!(missing(&before, &seen(1, 103, 18)), 1);
        assert_eq!(missing(&before, &seen(1, 40, 1)), 21, "its end was cut off");
        assert_eq!(missing(&before, &seen(2, 0, 0)), 22, "it was made anew");
        assert_eq!(missing(&before, &seen(2, 30, 25)), 0);
    }

    #[test]
    fn a_witness_comes_back_as_it_was_written_and_a_broken_one_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Witness::default());
        let witness = Witness { version: 1, buckets: [("runs".to_owned(), seen(1 << 70, 3, 2))].into() };
        write(folder.path(), &witness);
        assert_eq!(read(folder.path()), witness);
        std::fs::write(path(folder.path()), "{").unwrap();
        assert_eq!(read(folder.path()), Witness::default());
    }
}
