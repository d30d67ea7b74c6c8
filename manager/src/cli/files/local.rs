//! Files on this side: written beside their place and renamed once they are whole, so that a transfer that was cut
//! leaves what was there before.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use protocol::error::ErrorCode;

use super::super::context::random_hex;
use super::super::error::Failure;

/// A file on its way.
pub struct LocalFile {
    file: File,
    path: PathBuf,
    /// `None`: written where it is, since it is a device or a pipe.
    hidden: Option<PathBuf>,
}

pub fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => ErrorCode::NotFound,
        io::ErrorKind::PermissionDenied => ErrorCode::Denied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::Exhausted,
        _ => ErrorCode::Failed,
    };
    Failure::new(code, format!("cannot {what} {}: {error}", path.display()))
}

/// Beside `path`, under a name of its own.
pub fn hidden(path: &Path) -> Result<PathBuf, Failure> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".phalanx-{}", random_hex()?.get(..8).unwrap_or_default()));
    Ok(path.with_file_name(name))
}

impl LocalFile {
    pub fn create(path: &Path) -> Result<Self, Failure> {
        // Through a link, as cp(1) writes.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if path.metadata().is_ok_and(|facts| !facts.is_file() && !facts.is_dir()) {
            let file = OpenOptions::new().write(true).open(&path);
            let file = file.map_err(|error| failed("write", &path, &error))?;
            return Ok(Self { file, path, hidden: None });
        }
        let hidden = hidden(&path)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&hidden);
        let file = file.map_err(|error| failed("write", &path, &error))?;
        Ok(Self { file, path, hidden: Some(hidden) })
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|error| failed("write", &self.path, &error))
    }

    pub fn finish(mut self, mode: u32) -> Result<(), Failure> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        self.file
            .set_permissions(Permissions::from_mode(mode & 0o777))
            .and_then(|()| std::fs::rename(hidden, &self.path))
            .map_err(|error| failed("write", &self.path, &error))?;
        self.hidden = None;
        Ok(())
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_file(hidden);
        }
    }
}

/// A folder on its way: whole, or not there.
pub struct LocalFolder {
    path: PathBuf,
    hidden: Option<PathBuf>,
    /// Set at last: what may not be written could not be filled.
    modes: Vec<(PathBuf, u32)>,
}

impl LocalFolder {
    /// # Errors
    /// When something is there: files of an agent are not mixed with others, whose links might lead anywhere.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            let message = format!("{} is there already", path.display());
            return Err(
                Failure::new(ErrorCode::Conflict, message).hint("name a folder that is not there yet")
            );
        }
        let hidden = hidden(path)?;
        std::fs::create_dir(&hidden).map_err(|error| failed("make", path, &error))?;
        Ok(Self { path: path.to_path_buf(), hidden: Some(hidden), modes: Vec::new() })
    }

    pub fn place(&self, below: &Path) -> PathBuf {
        self.hidden.as_deref().unwrap_or(&self.path).join(below)
    }

    pub fn folder(&mut self, below: &Path, mode: u32) -> Result<(), Failure> {
        let path = self.place(below);
        std::fs::create_dir(&path).map_err(|error| failed("make", &path, &error))?;
        self.modes.push((below.to_path_buf(), mode));
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), Failure> {
        for (below, mode) in std::mem::take(&mut self.modes).iter().rev() {
            let path = self.place(below);
            std::fs::set_permissions(&path, Permissions::from_mode(mode & 0o777))
                .map_err(|error| failed("make", &path, &error))?;
        }
        if let Some(hidden) = &self.hidden {
            std::fs::rename(hidden, &self.path).map_err(|error| failed("make", &self.path, &error))?;
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for LocalFolder {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = std::fs::remove_dir_all(hidden);
        }
    }
}
