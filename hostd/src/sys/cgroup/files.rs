//! The small files that every cgroup has: members, events, freeze, kill, removal.
//!
//! Uses the kernel's notifications (`POLLPRI` on `cgroup.events`, a pidfd where there are none), so
//! nothing here waits for a guessed time. Limits and statistics are in `v1` and `v2`.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::{CgroupError, group_is_gone};
use crate::sys::process::ProcessRef;

/// Where freeze, kill and the count of members are for one agent's leaf.
#[derive(Debug, Clone)]
pub(super) enum Core {
    /// A folder of the unified hierarchy.
    Unified(PathBuf),
    /// v1 alone: the freezer hierarchy, or, where that lacks too, any other (no freeze then).
    V1 { folder: PathBuf, freezer: bool },
}

impl Core {
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::Unified(folder) | Self::V1 { folder, .. } => folder,
        }
    }
}

pub(super) fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(CgroupError::io("read", path))
}

pub(super) fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(CgroupError::io("write", path))
}

/// A number, or `None` for `max` and for a file that this kernel does not have.
pub(super) fn read_number(path: &Path) -> Result<Option<u64>, CgroupError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CgroupError::io("read", path)(source)),
    }
}

/// The value after `key` in a file of `key value` lines.
pub(super) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

pub(super) fn make_group(folder: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(CgroupError::io("make cgroup", folder)(source)),
    }
}

/// Names of the groups directly below `folder`; none if it is not there.
pub(super) fn child_groups(folder: &Path) -> Result<Vec<String>, CgroupError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if group_is_gone(&error) => return Ok(Vec::new()),
        Err(source) => return Err(CgroupError::io("list", folder)(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(CgroupError::io("list", folder))?;
        if entry.file_type().map_err(CgroupError::io("list", folder))?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// Pids of `folder` and of all groups below it (an agent that is root may have made some).
pub(super) fn processes(folder: &Path) -> Result<Vec<i32>, CgroupError> {
    let procs = folder.join("cgroup.procs");
    let mut pids: Vec<i32> = match fs::read_to_string(&procs) {
        Ok(text) => text.lines().filter_map(|line| line.parse().ok()).collect(),
        Err(error) if group_is_gone(&error) => return Ok(Vec::new()),
        Err(source) => return Err(CgroupError::io("read", &procs)(source)),
    };
    for name in child_groups(folder)? {
        pids.extend(processes(&folder.join(name))?);
    }
    Ok(pids)
}

/// Whether a live process is in the leaf or below. A zombie is not one: it holds nothing but its status.
pub(super) fn populated(core: &Core) -> Result<bool, CgroupError> {
    match core {
        Core::Unified(folder) => {
            let path = folder.join("cgroup.events");
            match fs::read_to_string(&path) {
                Ok(text) => Ok(value_of(&text, "populated") != Some(0)),
                Err(error) if group_is_gone(&error) => Ok(false),
                Err(source) => Err(CgroupError::io("read", &path)(source)),
            }
        }
        Core::V1 { folder, .. } => Ok(!processes(folder)?.is_empty()),
    }
}

/// Waits until `cgroup.events` says `key value`; `Ok(false)` when the limit passed first.
fn wait_event(folder: &Path, key: &str, value: u64, limit: Duration) -> Result<bool, CgroupError> {
    let path = folder.join("cgroup.events");
    let deadline = Instant::now() + limit;
    let mut file = File::open(&path).map_err(CgroupError::io("open", &path))?;
    let mut text = String::new();
    loop {
        text.clear();
        file.seek(SeekFrom::Start(0)).map_err(CgroupError::io("read", &path))?;
        file.read_to_string(&mut text).map_err(CgroupError::io("read", &path))?;
        if value_of(&text, key) == Some(value) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        // At least one millisecond: rounding down to zero would spin.
        let timeout = PollTimeout::try_from(left.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(CgroupError::io("watch", &path)(errno.into())),
        }
    }
}

/// Waits until one of the members has ended, where the kernel tells nothing about the group itself.
fn wait_member(folder: &Path, left: Duration) -> Result<(), CgroupError> {
    for pid in processes(folder)? {
        if let Some(process) = ProcessRef::of(pid).map_err(CgroupError::Processes)? {
            process.wait_ended(left).map_err(CgroupError::Processes)?;
            return Ok(());
        }
    }
    Ok(())
}

pub(super) fn freeze(core: &Core, limit: Duration) -> Result<(), CgroupError> {
    set_frozen(core, true, limit)
}

pub(super) fn thaw(core: &Core, limit: Duration) -> Result<(), CgroupError> {
    set_frozen(core, false, limit)
}

fn set_frozen(core: &Core, frozen: bool, limit: Duration) -> Result<(), CgroupError> {
    let state = if frozen { "frozen" } else { "thawed" };
    let late = |folder: &Path| CgroupError::Late { path: folder.to_path_buf(), state, limit };
    match core {
        Core::Unified(folder) => {
            write(&folder.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
            if wait_event(folder, "frozen", u64::from(frozen), limit)? { Ok(()) } else { Err(late(folder)) }
        }
        Core::V1 { folder, freezer: true } => {
            let path = folder.join("freezer.state");
            let word = if frozen { "FROZEN" } else { "THAWED" };
            let deadline = Instant::now() + limit;
            write(&path, word)?;
            // The v1 freezer moves on when it is written or read; it has no notification.
            while read(&path)?.trim() != word {
                if Instant::now() >= deadline {
                    return Err(late(folder));
                }
                write(&path, word)?;
                std::thread::yield_now();
            }
            Ok(())
        }
        Core::V1 { freezer: false, .. } => Err(CgroupError::Unsupported {
            action: "freeze an agent",
            reason: "neither the unified hierarchy nor the v1 freezer is mounted".to_owned(),
        }),
    }
}

pub(super) fn frozen(core: &Core) -> Result<bool, CgroupError> {
    match core {
        Core::Unified(folder) => Ok(value_of(&read(&folder.join("cgroup.events"))?, "frozen") == Some(1)),
        Core::V1 { folder, freezer: true } => Ok(read(&folder.join("freezer.state"))?.trim() == "FROZEN"),
        Core::V1 { freezer: false, .. } => Ok(false),
    }
}

/// Kills every member, frozen or not, and waits until none is left.
pub(super) fn kill(core: &Core, limit: Duration) -> Result<(), CgroupError> {
    let late = || CgroupError::Late { path: core.folder().to_path_buf(), state: "empty", limit };
    let deadline = Instant::now() + limit;
    while populated(core)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        match core {
            Core::Unified(folder) if folder.join("cgroup.kill").exists() => {
                write_unless_gone(&folder.join("cgroup.kill"), "1")?;
                // Again after a while: one that joined just behind the kill is not hit by it.
                let step = left.min(Duration::from_secs(1));
                if group_gone_or(wait_event(folder, "populated", 0, step))? {
                    return Ok(());
                }
            }
            Core::Unified(folder) => {
                // Kernels before 5.14. The v2 freezer lets a frozen process die, so it may stay frozen.
                write_unless_gone(&folder.join("cgroup.freeze"), "1")?;
                signal_all(core, Signal::SIGKILL)?;
                let step = left.min(Duration::from_millis(50));
                let empty = group_gone_or(wait_event(folder, "populated", 0, step))?;
                write_unless_gone(&folder.join("cgroup.freeze"), "0")?;
                if empty {
                    return Ok(());
                }
            }
            Core::V1 { folder, freezer } => {
                // Frozen first so that none forks away; a v1 frozen process dies only once thawed.
                if *freezer {
                    freeze(core, left)?;
                }
                let signalled = signal_all(core, Signal::SIGKILL);
                if *freezer {
                    thaw(core, left)?;
                }
                signalled?;
                wait_member(folder, left)?;
            }
        }
    }
    Ok(())
}

fn write_unless_gone(path: &Path, value: &str) -> Result<(), CgroupError> {
    match write(path, value) {
        Err(error) if error.is_absent() => Ok(()),
        other => other,
    }
}

/// A group that vanished while it was waited for is empty.
fn group_gone_or(waited: Result<bool, CgroupError>) -> Result<bool, CgroupError> {
    match waited {
        Err(error) if error.is_absent() => Ok(true),
        other => other,
    }
}

/// Sends `signal` to each member, by pidfd and checked start time, so that none else is hit.
pub(super) fn signal_all(core: &Core, signal: Signal) -> Result<usize, CgroupError> {
    let mut sent = 0;
    for pid in processes(core.folder())? {
        if let Some(process) = ProcessRef::of(pid).map_err(CgroupError::Processes)? {
            // A pid that another process took between the two reads is no longer in the group.
            if process.signal(signal).map_err(CgroupError::Processes)? {
                sent += 1;
            }
        }
    }
    Ok(sent)
}

/// Removes a group and all below it, leaves first. Dying members are waited for within `limit`.
pub(super) fn remove_tree(folder: &Path, limit: Duration) -> Result<(), CgroupError> {
    let deadline = Instant::now() + limit;
    for name in child_groups(folder)? {
        remove_tree(&folder.join(name), deadline.saturating_duration_since(Instant::now()))?;
    }
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if group_is_gone(&error) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(CgroupError::io("remove cgroup", folder)(error));
                }
                if folder.join("cgroup.events").exists() {
                    group_gone_or(wait_event(folder, "populated", 0, left))?;
                } else {
                    wait_member(folder, left)?;
                }
                std::thread::yield_now();
            }
            Err(source) => return Err(CgroupError::io("remove cgroup", folder)(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::value_of;

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
        assert_eq!(value_of(text, "oom_kill"), Some(7));
        assert_eq!(value_of(text, "oom"), None);
        assert_eq!(value_of("", "oom_kill"), None);
    }
}
