//! Repositories inside a workspace: their files are in no commit of it, and nobody knows what else is in them. Found by
//! their git folders and not by what git lists, since at a tracked path git takes them for the file or the submodule
//! that was there. What is ignored is not looked into: ignored files are no work.

use std::collections::BTreeSet;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::super::error::{At, Error, Result};
use super::super::manifest::Folders;

/// Names that git refuses in a path, on some file system or other.
fn is_git_folder(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git") || name.eq_ignore_ascii_case(b"git~1")
}

/// Their folders below the workspace, each with a slash at its end. Of an overlay only what was written is looked at.
pub(super) fn repositories(
    folders: &Folders,
    is_overlay: bool,
    ignored: &BTreeSet<Vec<u8>>,
) -> Result<Vec<String>> {
    let top = if is_overlay { &folders.upper } else { &folders.work };
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = open.pop() {
        let full = top.join(&folder);
        let entries = match std::fs::read_dir(&full) {
            Ok(entries) => entries,
            // It lives, and may take away what it has just made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("read", &full, error)),
        };
        for entry in entries {
            let entry = entry.at("read", &full)?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            let is_own = folder.as_os_str().is_empty() && name == ".git";
            if is_own || ignored.contains(path.as_os_str().as_bytes()) {
                continue;
            }
            if is_git_folder(name.as_bytes()) {
                found.push(shown(&folder, &name));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The repository, or, at the top and where it cannot be one, what git would not take.
fn shown(folder: &Path, name: &std::ffi::OsStr) -> String {
    let place = if folder.as_os_str().is_empty() { Path::new(name) } else { folder };
    let mut place = place.as_os_str().to_owned().into_vec();
    place.push(b'/');
    String::from_utf8_lossy(&place).into_owned()
}
