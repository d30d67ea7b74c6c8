//! Events that are not yet on the bus, on disk first: an append-only file of JSON lines and a cursor.
//!
//! A line is `<seq> <json>`. The cursor moves over the contiguous acknowledged prefix. A torn last line (a crash in
//! mid-write) is cut off when the spool is opened: it was never told to anyone. When all is acknowledged and the file
//! is large it begins anew; the numbers go on, so that `<epoch>:<seq>` is never used twice.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{StateError, replace};

/// Beyond this an acknowledged file begins anew.
const ROTATE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct EventSpool {
    path: PathBuf,
    file: File,
    bytes: u64,
    head: Head,
    next_seq: u64,
}

/// `events.cursor`.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    epoch: String,
    /// Everything below is acknowledged.
    acknowledged: u64,
}

/// One event as it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spooled {
    pub seq: u64,
    pub json: String,
}

impl EventSpool {
    /// # Errors
    /// When the files cannot be read or made.
    pub fn open(state: &Path, new_epoch: &str) -> Result<Self, StateError> {
        let path = state.join("events.spool");
        let head_path = path.with_extension("cursor");
        let stored = std::fs::read(&head_path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // Without a readable cursor the numbers cannot be trusted: a new epoch, and what waits is sent under it.
        let mut head = stored.unwrap_or_else(|| Head { epoch: new_epoch.to_owned(), acknowledged: 0 });
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(StateError::io("open", &path))?;
        let whole = cut_torn_line(&mut file).map_err(StateError::io("mend", &path))?;
        let mut next_seq = head.acknowledged;
        for spooled in read_from(&path, 0)? {
            next_seq = next_seq.max(spooled.seq.saturating_add(1));
        }
        head.acknowledged = head.acknowledged.min(next_seq);
        let spool = Self { path, file, bytes: whole, head, next_seq };
        spool.save_head()?;
        Ok(spool)
    }

    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.head.epoch
    }

    /// Number that the next event gets.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Appends one event; it is on the disk when this returns.
    ///
    /// # Errors
    /// What the file system says; a torn line is cut off again.
    pub fn append(&mut self, json: &str) -> Result<u64, StateError> {
        let seq = self.next_seq;
        let line = format!("{seq} {json}\n");
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let _ = self.file.set_len(self.bytes);
            return Err(StateError::io("append to", &self.path)(error));
        }
        self.bytes += u64::try_from(line.len()).unwrap_or(0);
        self.next_seq = seq.saturating_add(1);
        Ok(seq)
    }

    /// Those that wait, oldest first.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub fn waiting(&self) -> Result<Vec<Spooled>, StateError> {
        read_from(&self.path, self.head.acknowledged)
    }

    /// Everything below `seq` is on the bus.
    ///
    /// # Errors
    /// When the cursor cannot be saved: then some are sent again, and readers drop them.
    pub fn acknowledge(&mut self, below: u64) -> Result<(), StateError> {
        if below <= self.head.acknowledged {
            return Ok(());
        }
        self.head.acknowledged = below.min(self.next_seq);
        self.save_head()?;
        if self.head.acknowledged == self.next_seq && self.bytes > ROTATE_BYTES {
            self.file.set_len(0).map_err(StateError::io("shorten", &self.path))?;
            self.bytes = 0;
        }
        Ok(())
    }

    fn save_head(&self) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(&self.head).map_err(StateError::Encode)?;
        replace(&self.path.with_extension("cursor"), &bytes)
    }
}

/// Cuts what follows the last newline; gives the length that is left.
fn cut_torn_line(file: &mut File) -> std::io::Result<u64> {
    let mut content = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut content)?;
    let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let whole_bytes = u64::try_from(whole).unwrap_or(0);
    if whole < content.len() {
        tracing::warn!(bytes = content.len() - whole, "a torn event was cut off the spool");
        file.set_len(whole_bytes)?;
    }
    Ok(whole_bytes)
}

fn read_from(path: &Path, first: u64) -> Result<Vec<Spooled>, StateError> {
    let file = File::open(path).map_err(StateError::io("read", path))?;
    let mut events = Vec::new();
    for line in BufReader::new(file).lines() {
        let line = line.map_err(StateError::io("read", path))?;
        let Some((seq, json)) = line.split_once(' ') else { continue };
        match seq.parse::<u64>() {
            Ok(seq) if seq >= first => events.push(Spooled { seq, json: json.to_owned() }),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_acknowledged_is_there_after_a_restart_and_a_torn_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = EventSpool::open(folder.path(), "e1").unwrap();
        for n in 0..5 {
            spool.append(&format!("{{\"n\":{n}}}")).unwrap();
        }
        spool.acknowledge(2).unwrap();
        drop(spool);
        let path = folder.path().join("events.spool");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"5 {\"n\":").unwrap();
        let mut spool = EventSpool::open(folder.path(), "other").unwrap();
        assert_eq!(spool.epoch(), "e1");
        let waiting: Vec<u64> = spool.waiting().unwrap().iter().map(|event| event.seq).collect();
        assert_eq!(waiting, [2, 3, 4]);
        assert_eq!(spool.append("{}").unwrap(), 5);
    }

    #[test]
    fn numbers_go_on_when_the_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = EventSpool::open(folder.path(), "e1").unwrap();
        let large = "x".repeat(300_000);
        for _ in 0..4 {
            spool.append(&large).unwrap();
        }
        spool.acknowledge(4).unwrap();
        assert_eq!(std::fs::metadata(folder.path().join("events.spool")).unwrap().len(), 0);
        drop(spool);
        let mut spool = EventSpool::open(folder.path(), "e2").unwrap();
        assert_eq!(spool.append("{}").unwrap(), 4);
        assert_eq!(spool.epoch(), "e1");
    }
}
