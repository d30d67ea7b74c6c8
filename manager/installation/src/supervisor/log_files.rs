//! The log files of the components: opened for appending, bounded in size, and the lines a component left
//! behind.
//!
//! A component writes to its file itself, not through the supervisor, so it keeps its log when the supervisor
//! is killed. Hence a file is bounded by copying it aside and emptying it in place: what is written between
//! the two (well under a millisecond) is lost, which a log may be.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The size at which a file is set aside, and how many are kept, the current one included.
pub const LOG_BYTES: u64 = 8 << 20;
pub const LOG_FILES: u32 = 4;

/// How much of a file is read for its last lines.
const TAIL_BYTES: u64 = 16 << 10;

/// Opens a log for appending, mode 0600.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Sets the file aside when it has grown beyond `limit`.
pub fn rotate(path: &Path, limit: u64, files: u32) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.len() > limit => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    for number in (1..files.saturating_sub(1)).rev() {
        match fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut from = OpenOptions::new().read(true).write(true).open(path)?;
    let mut to = File::create(numbered(path, 1))?;
    // The copy is bounded: what a component prints faster than that is dropped.
    io::copy(&mut Read::by_ref(&mut from).take(limit.saturating_mul(2)), &mut to)?;
    from.set_len(0)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// A place in a log, to read later what came after it.
#[derive(Debug, Clone)]
pub struct Mark {
    path: PathBuf,
    offset: u64,
}

impl Mark {
    pub fn at_end(path: &Path) -> Self {
        let offset = fs::metadata(path).map_or(0, |meta| meta.len());
        Self { path: path.to_path_buf(), offset }
    }

    /// The last `count` lines after the mark; none when the file cannot be read.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        self.read().map(|text| last_lines(&text, count)).unwrap_or_default()
    }

    fn read(&self) -> io::Result<String> {
        let mut file = File::open(&self.path)?;
        let len = file.metadata()?.len();
        // Shorter than the mark means it was emptied since: all of it is new.
        let from = if len < self.offset { 0 } else { self.offset };
        file.seek(SeekFrom::Start(from.max(len.saturating_sub(TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The last lines of a log, whoever wrote them.
pub fn tail(path: &Path, count: usize) -> Vec<String> {
    Mark { path: path.to_path_buf(), offset: 0 }.last_lines(count)
}

fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    let plain = |line: &&str| line.chars().filter(|c| !c.is_control()).take(400).collect();
    lines.get(from..).unwrap_or_default().iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_is_set_aside_when_too_large_and_its_writer_goes_on() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.log");
        let mut writer = open(&path).unwrap();
        for round in 0..6 {
            writer.write_all(format!("round {round} {}\n", "x".repeat(100)).as_bytes()).unwrap();
            rotate(&path, 50, 4).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 0, "appending starts at the new end");
        assert!(fs::read_to_string(numbered(&path, 1)).unwrap().starts_with("round 5"));
        assert!(fs::read_to_string(numbered(&path, 3)).unwrap().starts_with("round 3"));
        assert!(!numbered(&path, 4).exists());
    }

    #[test]
    fn a_mark_gives_only_what_came_after_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.log");
        fs::write(&path, "old\n").unwrap();
        let mark = Mark::at_end(&path);
        assert!(mark.last_lines(5).is_empty());
        open(&path).unwrap().write_all(b"one\n\ntwo\n\x1b[31mthree\n").unwrap();
        assert_eq!(mark.last_lines(2), ["two", "[31mthree"]);
        fs::write(&path, "n\n").unwrap();
        assert_eq!(mark.last_lines(2), ["n"]);
    }
}
