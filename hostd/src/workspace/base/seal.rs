//! Whether a tree is as it was finished: a digest over what the kernel says of every file in it, its git folder
//! included. Content cannot be changed without a new change time, and that time cannot be set; so nothing is read.
//! It tells of a change by whoever may write there, not of one by whoever can set the clock or write the disk itself.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use super::super::error::{At, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) digest: String,
    /// Seconds since 1970 of the last change of any file.
    changed_s: i64,
}

pub(super) fn of(tree: &Path) -> Result<Seal> {
    let mut lines = Vec::new();
    let mut changed_s = 0;
    let mut open = vec![PathBuf::new()];
    while let Some(folder) = open.pop() {
        let full = tree.join(&folder);
        lines.push(line(&folder, &full, &mut changed_s)?);
        for entry in std::fs::read_dir(&full).at("read", &full)? {
            let entry = entry.at("read", &full)?;
            let path = folder.join(entry.file_name());
            if entry.file_type().at("read", &full)?.is_dir() {
                open.push(path);
            } else {
                lines.push(line(&path, &entry.path(), &mut changed_s)?);
            }
        }
    }
    lines.sort_unstable();
    let mut digest = Sha256::new();
    for line in &lines {
        digest.update(line.len().to_be_bytes());
        digest.update(line);
    }
    Ok(Seal { digest: data_encoding::HEXLOWER.encode(&digest.finalize()), changed_s })
}

fn line(path: &Path, full: &Path, changed_s: &mut i64) -> Result<Vec<u8>> {
    let facts = full.symlink_metadata().at("read", full)?;
    *changed_s = facts.ctime().max(*changed_s);
    let mut line = path.as_os_str().as_bytes().to_vec();
    line.push(0);
    for number in [facts.mode(), facts.uid(), facts.gid()] {
        line.extend(number.to_be_bytes());
    }
    line.extend(facts.ino().to_be_bytes());
    // The size of a folder is a matter of its file system.
    line.extend(if facts.is_dir() { 0 } else { facts.size() }.to_be_bytes());
    for number in [facts.mtime(), facts.mtime_nsec(), facts.ctime(), facts.ctime_nsec()] {
        line.extend(number.to_be_bytes());
    }
    Ok(line)
}

impl Seal {
    /// Until the second of the last change is over: git knows no finer time, and a change within that second, with the
    /// old size and the old modification time, would look like none.
    pub(super) async fn settles(&self) {
        loop {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let over = Duration::from_secs(u64::try_from(self.changed_s).unwrap_or(0).saturating_add(1));
            let left = over.saturating_sub(now);
            // A clock that was set back is not waited for.
            if left.is_zero() || left > Duration::from_secs(1) {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}
