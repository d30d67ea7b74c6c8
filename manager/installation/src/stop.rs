//! `down`: the manager, hostd and the bus end, in that order, and are seen to be gone. Agents go on under
//! their shims; who wants them stopped orders that before.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::atomic_file::{self, Durability, WriteFailed};
use super::layout::Layout;
use super::lock::{self, Lock, LockError};
use super::process::ProcessHandle;
use super::supervisor::component::{DAEMON_STOP_LIMIT, HOSTD, MANAGER, NATS};

/// The supervisor stops the bus, hostd and the manager, each within its limit and 5 s for the kill.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(90);
/// hostd takes away what ended agents have on the machine before it ends.
const COMPONENT_LIMIT: Duration = DAEMON_STOP_LIMIT;
const KILL_LIMIT: Duration = Duration::from_secs(5);
const TURN_LIMIT: Duration = Duration::from_secs(60);
/// One that dies again and again comes back later than this; then the next `down` does it.
const COMEBACK_LIMIT: Duration = Duration::from_secs(3);
const COMEBACK_STEP: Duration = Duration::from_millis(20);

/// Why something may still run.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    #[error("a start or another stop is not done; try again")]
    Busy(#[source] LockError),
    #[error("cannot tell whether {component} runs")]
    Look {
        component: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot end {component} (process {pid})")]
    Signal {
        component: String,
        pid: u32,
        #[source]
        source: io::Error,
    },
    #[error("{component} (process {pid}) is still there after SIGKILL; it hangs in the kernel")]
    Stuck { component: String, pid: u32 },
    #[error(transparent)]
    Mark(#[from] WriteFailed),
}

/// What `down` found running.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DownReport {
    pub ended: Vec<Ended>,
    /// Of what no agent needs any more, once none lives: servers of terminals and mounts that are still there.
    pub left: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub component: String,
    pub pid: u32,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Asked,
    Killed,
}

/// Ends everything but agents. Nothing running is no error, and then nothing is made either.
pub fn down(layout: &Layout) -> Result<DownReport, DownError> {
    if !layout.run().exists() {
        return Ok(DownReport::default());
    }
    let _turn = Lock::take_within(&layout.up_lock(), TURN_LIMIT).map_err(DownError::Busy)?;
    wait_for_hostd(layout);
    // First, so that no daemon brings the supervisor back while it goes.
    atomic_file::write(&layout.stopped_marker(), b"", Durability::Disk)?;
    let before: Vec<(&str, Option<ProcessHandle>)> = [MANAGER, HOSTD, NATS]
        .into_iter()
        .map(|name| (name, lock::holder(&layout.lock(name)).unwrap_or_default()))
        .collect();
    let mut ended = Vec::new();
    if let Some(how) = end(layout, "supervisor", SUPERVISOR_LIMIT)? {
        ended.push(how);
    }
    for (name, process) in before {
        match end(layout, name, COMPONENT_LIMIT)? {
            Some(how) => ended.push(how),
            // The supervisor did it.
            None => ended.extend(process.map(|process| Ended {
                component: name.to_owned(),
                pid: process.pid(),
                how: How::Asked,
            })),
        }
    }
    let left = left(layout);
    Ok(DownReport { ended, left })
}

/// Mounts below the host's folder and servers of terminals, which are there as long as agents live.
fn left(layout: &Layout) -> Vec<String> {
    let mut left = Vec::new();
    let host = layout.host().canonicalize().unwrap_or_else(|_| layout.host());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Field 5 is the mount point, with blanks as octal (proc_pid_mountinfo(5)).
    let points =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| point.replace("\\040", " "));
    left.extend(
        points.filter(|point| Path::new(point).starts_with(&host)).map(|point| format!("mount {point}")),
    );
    let viewers = host.join("tmux");
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_there = std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == viewers);
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if is_there && name.starts_with("tmux: server") {
            left.push(format!("tmux server (process {})", entry.file_name().to_string_lossy()));
        }
    }
    left
}

/// It takes away what ended agents have on the machine: one that has just died comes back first, if it does soon.
fn wait_for_hostd(layout: &Layout) {
    let is_held = |name: &str| lock::is_held(&layout.lock(name)).unwrap_or(false);
    let begun = Instant::now();
    while is_held("supervisor") && !is_held(HOSTD) && begun.elapsed() < COMEBACK_LIMIT {
        #[expect(clippy::disallowed_methods, reason = "a lock that is taken tells nobody")]
        std::thread::sleep(COMEBACK_STEP);
    }
}

/// Ends the holder of a component's lock, if there is one.
fn end(layout: &Layout, name: &str, limit: Duration) -> Result<Option<Ended>, DownError> {
    let component = || name.to_owned();
    let found = lock::holder(&layout.lock(name))
        .map_err(|source| DownError::Look { component: component(), source })?;
    let Some(process) = found else { return Ok(None) };
    let pid = process.pid();
    for (signal, limit, how) in [(Signal::TERM, limit, How::Asked), (Signal::KILL, KILL_LIMIT, How::Killed)] {
        let gone = process.signal(signal).and_then(|()| process.has_ended(limit));
        if gone.map_err(|source| DownError::Signal { component: component(), pid, source })? {
            return Ok(Some(Ended { component: component(), pid, how }));
        }
    }
    Err(DownError::Stuck { component: component(), pid })
}
