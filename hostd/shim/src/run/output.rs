//! `out.raw`: all the program has printed, only ever appended to. What the disk refuses is held back, not dropped;
//! the caller stops reading the terminal until it is written.
//!
//! Readers know a byte by its place. So each is written at its place, whatever someone does to the file meanwhile: where
//! it was cut short or replaced, what is missing becomes a hole with a line of ours at its beginning.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use protocol::shim::file;

use crate::replay;

/// Where a file is made again before it takes its place.
const MENDED: &str = ".out.raw.mended";

pub(crate) struct Output {
    file: File,
    len: u64,
    /// Read from the terminal, not on disk yet.
    held: Vec<u8>,
    /// What someone has done to the file, not told yet.
    damage: Option<String>,
}

impl Output {
    pub(crate) fn open() -> io::Result<Self> {
        let file = open()?;
        let len = file.metadata()?.len();
        Ok(Self { file, len, held: Vec::new(), damage: None })
    }

    /// What was done to the file since this was asked last.
    pub(crate) fn take_damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    /// Sees to it that the file at its path is ours and as long as all that was written.
    fn mend(&mut self) -> io::Result<()> {
        let ours = self.file.metadata()?;
        let there = std::fs::symlink_metadata(file::OUTPUT);
        let is_ours = there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if is_ours && ours.len() >= self.len {
            return Ok(());
        }
        let mut kept = ours.len();
        if !is_ours {
            // Beside it and renamed over it: what lies there, a link too, is not written to.
            let _ = std::fs::remove_file(MENDED);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let mut fresh = match options.open(MENDED) {
                Ok(fresh) => fresh,
                // The folder itself is removed: nobody reads this any more, and a program must not wait for it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut old = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
            kept = io::copy(&mut old, &mut fresh)?;
            std::fs::rename(MENDED, file::OUTPUT)?;
            self.file = fresh;
        }
        if kept < self.len {
            let lost = self.len - kept;
            let line = format!("\r\n[{lost} bytes of this transcript were removed from its file]\r\n");
            self.file.set_len(self.len)?;
            if u64::try_from(line.len()).is_ok_and(|length| length <= lost) {
                self.file.write_all_at(line.as_bytes(), kept)?;
            }
            self.damage = Some(format!("{lost} bytes of out.raw were removed by someone"));
        } else {
            self.damage = Some("out.raw was replaced by someone; it was put back".to_owned());
        }
        Ok(())
    }

    /// Bytes in the file.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Appends; returns how many bytes are in the file. The rest is held and the error says why.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let (count, result) = self.write(bytes);
        self.held.extend_from_slice(bytes.get(count..).unwrap_or_default());
        (count, result)
    }

    /// Tries the held bytes again; returns those that are in the file now.
    pub(crate) fn retry(&mut self) -> (Vec<u8>, io::Result<()>) {
        let held = std::mem::take(&mut self.held);
        let (count, result) = self.append(&held);
        let mut written = held;
        written.truncate(count);
        (written, result)
    }

    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut count = 0;
        if let Err(error) = self.mend() {
            return (0, Err(error));
        }
        while let Some(rest) = bytes.get(count..).filter(|rest| !rest.is_empty()) {
            match self.file.write_at(rest, self.len) {
                Ok(0) => return (count, Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    count += written;
                    self.len += u64::try_from(written).unwrap_or(0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (count, Err(error)),
            }
        }
        (count, Ok(()))
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.mend()?;
        self.file.sync_all()
    }

    /// What a new viewer is shown of it.
    pub(crate) fn tail(&self) -> io::Result<Vec<u8>> {
        replay::tail(&File::open(file::OUTPUT)?, self.len)
    }
}

/// Not with O_APPEND, under which Linux ignores the place of a write.
fn open() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).open(file::OUTPUT)
}
