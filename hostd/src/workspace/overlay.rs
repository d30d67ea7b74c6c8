//! Mounts and unmounts: an agent's own layer over an immutable base (overlayfs, Linux
//! Documentation/filesystems/overlayfs.rst). Only as root: in a user namespace the mount would be
//! invisible to hostd. Leaves to others: what lies in the layers.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};

use super::error::{At, Error, Result};

/// The folders of one overlay.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    pub(crate) lower: PathBuf,
    pub(crate) upper: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) merged: PathBuf,
}

/// Options that the kernel of this machine takes, found by mounting once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overlay {
    options: &'static str,
}

/// Without `redirect_dir` the rename of a folder of the base fails with EXDEV; without `index=off`
/// an upper layer cannot be mounted over a base that was made again.
const OPTIONS: &[&str] = &[",redirect_dir=on,index=off,metacopy=off", ",index=off", ""];

impl Overlay {
    /// Tries once in a folder of the state: the same file system that the agents will use.
    pub(crate) fn probe(state: &Path) -> std::result::Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let folder = super::checkout::unique(state, "overlay-probe").map_err(|error| error.to_string())?;
        let found = probe_in(&folder);
        let _ = std::fs::remove_dir_all(&folder);
        found
    }

    pub(crate) fn mount(self, layers: &Layers) -> Result<()> {
        // Through descriptors: a path may hold the `,` and `:` that separate options, be longer than
        // the page that all options must fit in, or be swapped for a link.
        let open =
            |path: &Path| open_folder(path).map(|file| (format!("/proc/self/fd/{}", file.as_raw_fd()), file));
        let (lower, _lower) = open(&layers.lower)?;
        let (upper, _upper) = open(&layers.upper)?;
        let (work, _work) = open(&layers.work)?;
        let (merged, _merged) = open(&layers.merged)?;
        let data = format!("lowerdir={lower},upperdir={upper},workdir={work}{}", self.options);
        mount(Some("phalanx"), merged.as_str(), Some("overlay"), MsFlags::MS_NODEV, Some(data.as_str()))
            .at("mounted", &layers.merged)
    }
}

fn probe_in(folder: &Path) -> std::result::Result<Overlay, String> {
    let layers = Layers {
        lower: folder.join("lower"),
        upper: folder.join("upper"),
        work: folder.join("work"),
        merged: folder.join("merged"),
    };
    for path in [&layers.lower, &layers.upper, &layers.work, &layers.merged] {
        std::fs::create_dir(path).map_err(|error| error.to_string())?;
    }
    std::fs::write(layers.lower.join("seen"), "").map_err(|error| error.to_string())?;
    let mut reason = String::new();
    for options in OPTIONS {
        let overlay = Overlay { options };
        match overlay.mount(&layers) {
            Ok(()) => {
                let seen = layers.merged.join("seen").exists();
                let written = std::fs::write(layers.merged.join("new"), "");
                unmount(&layers.merged).map_err(|error| error.to_string())?;
                written.map_err(|error| error.to_string())?;
                return if seen { Ok(overlay) } else { Err("a mount shows no files".to_owned()) };
            }
            Err(Error::Io { source, .. }) => reason = source.to_string(),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

fn open_folder(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .at("opened", path)
}

/// True when an overlay is mounted on `merged` itself.
pub(crate) fn is_mounted(merged: &Path) -> Result<bool> {
    let facts = match std::fs::symlink_metadata(merged) {
        Ok(facts) => facts,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("read", merged, error)),
    };
    let Some(parent) = merged.parent() else { return Ok(false) };
    let around = parent.metadata().at("read", parent)?;
    if !facts.is_dir() || facts.dev() == around.dev() {
        return Ok(false);
    }
    Ok(statfs(merged).at("read", merged)?.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

/// Files and links that lie in an upper layer, below its top; its git folder is not looked into.
pub(crate) fn written(upper: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = open.pop() {
        let full = upper.join(&folder);
        let entries = match std::fs::read_dir(&full) {
            Ok(entries) => entries,
            // Whoever lives there may take away what he has just made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("read", &full, error)),
        };
        for entry in entries {
            let entry = entry.at("read", &full)?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().at("read", &full)?;
            if kind.is_dir() && path != Path::new(".git") {
                open.push(path);
            } else if kind.is_file() || kind.is_symlink() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// How a mount went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// Nothing was mounted.
    NotThere,
    Whole,
    /// Something still used it: detached, and gone for good when that ends.
    Lazily,
}

/// Takes away all that is mounted on `point`.
pub(crate) fn unmount(point: &Path) -> Result<Unmounted> {
    let mut done = Unmounted::NotThere;
    loop {
        let (now, flags) = match umount2(point, MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EBUSY) => (Unmounted::Lazily, Some(MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)),
            Ok(()) => (Unmounted::Whole, None),
            // Not a mount point (any more), or not there.
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(done),
            Err(error) => return Err(Error::io("unmounted", point, error.into())),
        };
        if let Some(flags) = flags {
            umount2(point, flags).at("unmounted", point)?;
        }
        if done != Unmounted::Lazily {
            done = now;
        }
    }
}

/// Takes away what is mounted on `point` itself, unless something uses it; whether nothing is mounted there now.
pub(crate) fn unmount_unused(point: &Path) -> Result<bool> {
    loop {
        match umount2(point, MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(true),
            Err(Errno::EBUSY) => return Ok(false),
            Err(error) => return Err(Error::io("unmounted", point, error.into())),
        }
    }
}

/// Mount points strictly below `folder`, deepest first (proc_pid_mountinfo(5)).
pub(crate) fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let table = Path::new("/proc/self/mountinfo");
    let text = std::fs::read(table).at("read", table)?;
    let folder = std::fs::canonicalize(folder).at("reached", folder)?;
    let mut points: Vec<PathBuf> = text
        .split(|&b| b == b'\n')
        .filter_map(|line| line.split(|&b| b == b' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(&folder) && *point != folder)
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.as_os_str().as_bytes().len()));
    Ok(points)
}

/// Space, tab, newline and backslash are octal in mountinfo.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_in_the_mount_table_is_read_back() {
        assert_eq!(unescape(br"/a\040b\134c\012"), PathBuf::from("/a b\\c\n"));
        assert_eq!(unescape(br"/plain\9"), PathBuf::from(r"/plain\9"));
    }
}
