//! The JSON records of an agent's folder, which is the working folder here: whole on disk or not there at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("cannot write {name}")]
    Write {
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read {name}")]
    Read {
        name: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot understand {name}")]
    Decode {
        name: &'static str,
        #[source]
        source: serde_json::Error,
    },
}

impl RecordError {
    /// The folder has been removed: no later try can succeed.
    pub(crate) fn folder_gone(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Temp file, fsync, rename, fsync of the folder: a reader sees the old record or the new one, after a crash too.
pub(crate) fn store<T: Serialize>(name: &'static str, value: &T) -> Result<(), RecordError> {
    let write = || -> io::Result<()> {
        let mut text = serde_json::to_vec(value)?;
        text.push(b'\n');
        let temporary = format!(".{name}.new");
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&temporary, name)?;
        File::open(".")?.sync_all()
    };
    write().map_err(|source| RecordError::Write { name, source })
}

pub(crate) fn load<T: DeserializeOwned>(name: &'static str) -> Result<T, RecordError> {
    let text = std::fs::read(name).map_err(|source| RecordError::Read { name, source })?;
    serde_json::from_slice(&text).map_err(|source| RecordError::Decode { name, source })
}

/// Whether a record is there; an error other than its absence counts as there, so that nothing is overwritten.
pub(crate) fn exists(name: &str) -> bool {
    !matches!(std::fs::symlink_metadata(name), Err(error) if error.kind() == io::ErrorKind::NotFound)
}
