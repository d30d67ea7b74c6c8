//! What a program sees of the file system: a mount namespace in which folders are covered by an empty file system, and
//! what is kept of them stands at its own place. Mounts and unmounts outside go on reaching it (mount_namespaces(7)),
//! where those outside are shared at all. Leaves to others: what is covered, and why.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::sys::statvfs::{FsFlags, statvfs};
use protocol::shim::View;

/// What a program sees instead of a covered folder holds folders only.
const COVER: &str = "mode=0755,size=1m,nr_inodes=4k";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ViewError {
    #[error("cannot make a mount namespace: {0}")]
    Namespace(#[source] nix::Error),
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Path {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn at<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> ViewError {
    let path = path.to_owned();
    move |source| ViewError::Path { what, path, source: source.into() }
}

/// `view`: makes the view that stands on stdin, says so with a line, and keeps it until stdin ends. Whoever started it
/// enters its namespace meanwhile.
pub(crate) fn hold() -> ExitCode {
    let mut text = Vec::new();
    let mut stdin = io::stdin().lock();
    let made = io::BufRead::read_until(&mut stdin, b'\n', &mut text)
        .and_then(|_| serde_json::from_slice::<View>(&text).map_err(io::Error::from))
        .map_err(|error| error.to_string())
        .and_then(|view| enter(&view).map_err(|error| error.to_string()));
    if let Err(error) = made {
        crate::log(&format!("phalanx-shim: {error}"));
        return ExitCode::FAILURE;
    }
    let mut stdout = io::stdout();
    let _ = stdout.write_all(b"made\n").and_then(|()| stdout.flush());
    let _ = stdin.read_to_end(&mut text);
    ExitCode::SUCCESS
}

/// Moves this process into a new namespace with this view. Its working folder stays what it was, covered or not.
pub(crate) fn enter(view: &View) -> Result<(), ViewError> {
    // The folders on the way to what is kept are for everybody.
    let before = umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let made = make(view);
    umask(before);
    made
}

fn make(view: &View) -> Result<(), ViewError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(ViewError::Namespace)?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(at("part from the mounts of", Path::new("/")))?;
    let covers = outermost(&view.covers);
    // Opened before anything is covered: afterwards there is no way to them by name.
    let mut kept = Vec::with_capacity(view.keeps.len());
    for keep in &view.keeps {
        kept.push((keep, open(&keep.path).map_err(at("open", &keep.path))?));
    }
    let ours = |point: &Path| view.keeps.iter().any(|keep| related(point, &keep.path));
    for point in strays(&covers).map_err(at("read", Path::new(TABLE)))? {
        if !ours(&point) {
            // Gone meanwhile, as when its agent has ended: what was to be reached.
            let _ = umount2(&point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
        }
    }
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    for cover in &covers {
        mount(Some("phalanx"), *cover, Some("tmpfs"), quiet, Some(COVER)).map_err(at("cover", cover))?;
    }
    for (keep, place) in &kept {
        if covers.iter().any(|cover| keep.path.starts_with(cover)) {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(&keep.path);
            made.map_err(at("make", &keep.path))?;
        } else if !keep.read_only {
            continue;
        }
        let source = format!("/proc/self/fd/{}", place.as_raw_fd());
        mount(Some(source.as_str()), &keep.path, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
            .map_err(at("show", &keep.path))?;
        if keep.read_only {
            close(&keep.path, flags_of(&keep.path).map_err(at("read", &keep.path))?)?;
        }
    }
    covers.iter().try_for_each(|cover| close(cover, quiet))
}

/// Makes what is mounted there read-only in this namespace.
fn close(point: &Path, flags: MsFlags) -> Result<(), ViewError> {
    let none = None::<&str>;
    let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, point, none, flags, none).map_err(at("write-protect", point))
}

/// What a remount must repeat, or it is lost.
fn flags_of(point: &Path) -> nix::Result<MsFlags> {
    let found = statvfs(point)?.flags();
    let kept = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    Ok(kept.into_iter().filter(|(there, _)| found.contains(*there)).map(|(_, flag)| flag).collect())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

/// One lies in the other.
fn related(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

fn outermost(covers: &[PathBuf]) -> Vec<&Path> {
    let lies_deeper = |path: &PathBuf| covers.iter().any(|other| other != path && path.starts_with(other));
    let mut found: Vec<&Path> =
        covers.iter().filter(|path| !lies_deeper(path)).map(PathBuf::as_path).collect();
    found.sort();
    found.dedup();
    found
}

const TABLE: &str = "/proc/self/mountinfo";

/// Mounts below the covers that nobody would take away here when they are taken away outside, deepest first: a workspace
/// of another agent must not stay mounted for as long as this namespace lives (proc_pid_mountinfo(5)).
fn strays(covers: &[&Path]) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read(TABLE)?;
    Ok(strays_in(&text, covers))
}

fn strays_in(table: &[u8], covers: &[&Path]) -> Vec<PathBuf> {
    struct Line<'a> {
        id: &'a [u8],
        parent: &'a [u8],
        point: PathBuf,
        follows: bool,
    }
    let lines: Vec<Line> = table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b' ');
            let (id, parent) = (fields.next()?, fields.next()?);
            let point = unescape(fields.nth(2)?);
            let follows =
                fields.skip(1).take_while(|field| *field != b"-").any(|field| field.starts_with(b"master:"));
            Some(Line { id, parent, point, follows })
        })
        .collect();
    let mut found: Vec<PathBuf> = lines
        .iter()
        .filter(|line| covers.iter().any(|cover| line.point.starts_with(cover) && line.point != *cover))
        .filter(|line| !lines.iter().any(|other| other.id == line.parent && other.follows))
        .map(|line| line.point.clone())
        .collect();
    found.sort_by_key(|point| std::cmp::Reverse(point.as_os_str().len()));
    found
}

/// Space, tab, newline and backslash are octal in the table.
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

/// Puts this process into a Landlock domain that forbids nothing on files and the network: what is outside of it can no
/// longer be traced, signalled or reached below `/proc` (landlock(7)). A kernel that cannot do this changes nothing.
#[expect(unsafe_code, reason = "the system calls of Landlock have no wrappers")]
pub(crate) fn scope() {
    /// `struct landlock_ruleset_attr` of ABI 6.
    #[repr(C)]
    struct Ruleset {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }
    const ABSTRACT_SOCKETS: u64 = 1;
    const SIGNALS: u64 = 2;
    let ruleset = Ruleset { handled_access_fs: 0, handled_access_net: 0, scoped: ABSTRACT_SOCKETS | SIGNALS };
    // SAFETY: the pointer is to a live local of the size that is named; the descriptor is closed by the exec.
    unsafe {
        let size = std::mem::size_of::<Ruleset>();
        let made = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const ruleset, size, 0);
        if made >= 0 {
            libc::syscall(libc::SYS_landlock_restrict_self, made, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cover_inside_of_another_is_part_of_it() {
        let covers = ["/a/b", "/a", "/ab", "/a"].map(PathBuf::from);
        assert_eq!(outermost(&covers), [Path::new("/a"), Path::new("/ab")]);
    }

    #[test]
    fn only_mounts_that_would_stay_are_strays() {
        let table = b"22 1 8:1 / / rw - ext4 x rw\n\
            30 22 0:1 / /s/agents/b/work rw - overlay p rw\n\
            31 22 0:1 / /s/agents/c\\040d/work rw - overlay p rw\n\
            40 22 8:2 / /s/disk rw shared:3 master:2 - ext4 y rw\n\
            41 40 0:1 / /s/disk/e rw - overlay p rw\n\
            50 22 0:9 / /proc rw - proc proc rw\n";
        let found = strays_in(table, &[Path::new("/s")]);
        let wanted = ["/s/agents/c d/work", "/s/agents/b/work", "/s/disk"].map(PathBuf::from);
        assert_eq!(found, wanted);
    }
}
