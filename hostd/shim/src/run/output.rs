//! `out.raw`: all the program has printed, only ever appended to. What the disk refuses is held back, not dropped;
//! the caller stops reading the terminal until it is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use protocol::shim::file;

use crate::replay;

pub(crate) struct Output {
    file: File,
    len: u64,
    /// Read from the terminal, not on disk yet.
    held: Vec<u8>,
}

impl Output {
    pub(crate) fn open() -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(file::OUTPUT)?;
        let len = file.metadata()?.len();
        Ok(Self { file, len, held: Vec::new() })
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
        while let Some(rest) = bytes.get(count..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
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

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// What a new viewer is shown of it.
    pub(crate) fn tail(&self) -> io::Result<Vec<u8>> {
        replay::tail(&File::open(file::OUTPUT)?, self.len)
    }
}
