//! Processes by identity: a pid alone may be another process tomorrow, a pid with its start time not.
//!
//! Signals go through a pidfd whose start time was checked after it was opened, so they reach the
//! process that was meant or none. Starting the shim is in `spawn`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// One process of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessRef {
    pub pid: i32,
    /// Clock ticks after boot: field 22 of `/proc/<pid>/stat`.
    pub start_time: u64,
}

impl ProcessRef {
    /// The process that has this pid now; `None` if there is none.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        Ok(read_stat(pid)?.map(|stat| stat.process))
    }

    /// Whether it runs still. A zombie has ended: nothing of it will run again.
    pub fn is_alive(self) -> io::Result<bool> {
        Ok(read_stat(self.pid)?.is_some_and(|stat| stat.process == self && !stat.has_ended()))
    }

    /// Whether a signal has stopped it: it does nothing until another one lets it go on. One that stands still for a
    /// debugger is not meant.
    pub fn is_stopped(self) -> io::Result<bool> {
        Ok(read_stat(self.pid)?.is_some_and(|stat| stat.process == self && stat.state == 'T'))
    }

    /// Sends `signal` to this very process; `false` when it has ended already.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        let Some(fd) = self.open()? else { return Ok(false) };
        match pidfd_send_signal(&fd, signal) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits on the calling thread until it has ended; `false` when the limit passed first.
    pub fn wait_ended(self, limit: Duration) -> io::Result<bool> {
        let Some(fd) = self.open()? else { return Ok(true) };
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(0) if left.as_millis() == 0 => return Ok(false),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Resolves when it has ended; also for processes that are not children of this one.
    pub async fn ended(self) -> io::Result<()> {
        let Some(fd) = self.open()? else { return Ok(()) };
        let fd = register(fd, Interest::READABLE)?;
        let _ended = fd.readable().await?;
        Ok(())
    }

    /// A descriptor of this process, or `None` if it has ended and was reaped.
    fn open(self) -> io::Result<Option<OwnedFd>> {
        let fd = match pidfd_open(self.pid) {
            Ok(fd) => fd,
            // EINVAL: the pid now names a thread of another process.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Checked after opening: from here on the descriptor cannot come to mean another process.
        Ok(Self::of(self.pid)?.filter(|now| *now == self).map(|_| fd))
    }
}

/// Registers a descriptor with the runtime, on which this must be called.
#[expect(unsafe_code, reason = "the runtime cannot check that a descriptor stays the same")]
pub(crate) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, always names the same descriptor, and is dropped with the `AsyncFd`.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}

#[expect(unsafe_code, reason = "pidfd_open(2) has no wrapper in nix or libc")]
fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers; a non-negative result is a new descriptor that nobody else owns.
    // The kernel sets close-on-exec on it.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

#[expect(unsafe_code, reason = "pidfd_send_signal(2) has no wrapper in nix or libc")]
fn pidfd_send_signal(fd: &OwnedFd, signal: Signal) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the call's duration; a null siginfo is allowed by the man page.
    let result =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal as i32, no_info, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What a process has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    pub cpu_usec: u64,
    pub resident_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stat {
    process: ProcessRef,
    parent: i32,
    state: char,
    cpu_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn read_stat(pid: i32) -> io::Result<Option<Stat>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "unreadable /proc/<pid>/stat");
            parse_stat(&text).map(Some).ok_or_else(unreadable)
        }
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Format: `proc_pid_stat(5)`. The name in parentheses may hold anything, parentheses included.
fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // The first of these is field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    Some(Stat {
        process: ProcessRef { pid, start_time: number(22)? },
        parent: field(4)?.parse().ok()?,
        state: field(3)?.chars().next()?,
        cpu_ticks: number(14)? + number(15)?,
        resident_pages: number(24)?,
    })
}

/// Whether `pid` lives and comes of one of `ancestors`; a daemon comes of the subreaper that took it on.
pub fn comes_of(pid: i32, ancestors: &[i32]) -> io::Result<bool> {
    let Some(stat) = read_stat(pid)?.filter(|stat| !stat.has_ended()) else { return Ok(false) };
    let mut parent = stat.parent;
    // As deep as nobody starts processes; a loop cannot be, but for pids that are used again meanwhile.
    for _ in 0..64 {
        if ancestors.contains(&parent) {
            return Ok(true);
        }
        match read_stat(parent)? {
            Some(stat) if stat.parent > 1 => parent = stat.parent,
            Some(stat) => return Ok(ancestors.contains(&stat.parent)),
            None => return Ok(false),
        }
    }
    Ok(false)
}

/// What some processes that all wait have used of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    cpu_ticks: u64,
}

impl Rest {
    /// `None` where one of them runs, is stopped or waits for a disk.
    pub fn of(pids: &[i32]) -> io::Result<Option<Self>> {
        let mut cpu_ticks = 0_u64;
        for pid in pids {
            let Some(stat) = read_stat(*pid)?.filter(|stat| !stat.has_ended()) else { continue };
            if stat.state != 'S' {
                return Ok(None);
            }
            cpu_ticks = cpu_ticks.saturating_add(stat.cpu_ticks);
        }
        Ok(Some(Self { cpu_ticks }))
    }

    /// Whether they have used at most so many clock ticks since.
    #[must_use]
    pub fn rests_since(self, then: Self, ticks: u64) -> bool {
        self.cpu_ticks.saturating_sub(then.cpu_ticks) <= ticks
    }
}

/// All processes at one moment.
#[derive(Debug, Clone)]
pub struct ProcessTable {
    stats: BTreeMap<i32, Stat>,
}

impl ProcessTable {
    /// Reads `/proc`; about 10 µs for each process of the machine.
    pub fn read() -> io::Result<Self> {
        let mut stats = BTreeMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            if let Some(stat) = read_stat(pid)? {
                stats.insert(pid, stat);
            }
        }
        Ok(Self { stats })
    }

    /// Live processes below `ancestor`, without itself; none if it has ended.
    #[must_use]
    pub fn descendants(&self, ancestor: ProcessRef) -> Vec<ProcessRef> {
        if self.stats.get(&ancestor.pid).is_none_or(|stat| stat.process != ancestor) {
            return Vec::new();
        }
        let mut children: BTreeMap<i32, Vec<&Stat>> = BTreeMap::new();
        for stat in self.stats.values() {
            children.entry(stat.parent).or_default().push(stat);
        }
        let mut found = Vec::new();
        let mut open = vec![ancestor.pid];
        while let Some(pid) = open.pop() {
            // Removed, so that a reading torn by pid reuse cannot make this loop for ever.
            for stat in children.remove(&pid).unwrap_or_default() {
                open.push(stat.process.pid);
                if !stat.has_ended() {
                    found.push(stat.process);
                }
            }
        }
        found
    }

    /// Live processes started with `entry` (`NAME=value`) in their environment, as far as this user may see.
    #[must_use]
    pub fn with_environment(&self, entry: &str) -> Vec<ProcessRef> {
        let has_it = |stat: &&Stat| {
            let environment = fs::read(format!("/proc/{}/environ", stat.process.pid)).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
        };
        let live = self.stats.values().filter(|stat| !stat.has_ended());
        live.filter(has_it).map(|stat| stat.process).collect()
    }

    /// Live processes for which `accept` holds, given the pid.
    pub fn find(&self, mut accept: impl FnMut(i32) -> bool) -> Vec<ProcessRef> {
        let live = self.stats.values().filter(|stat| !stat.has_ended());
        live.map(|stat| stat.process).filter(|process| accept(process.pid)).collect()
    }

    #[must_use]
    pub fn usage(&self, process: ProcessRef) -> Option<Usage> {
        let stat = self.stats.get(&process.pid).filter(|stat| stat.process == process)?;
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten()?;
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten()?;
        Some(Usage {
            cpu_usec: (stat.cpu_ticks * 1_000_000).checked_div(u64::try_from(ticks).ok()?)?,
            resident_bytes: stat.resident_pages * u64::try_from(page).ok()?,
        })
    }
}

/// Kills every process below `ancestor`, and waits until none is left; `false` when the limit passed first. Those whose
/// parents have ended are below a subreaper too, whichever session or cgroup they went to.
pub fn kill_below(ancestor: ProcessRef, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        // Again after each round: one of them may have forked between the look and the kill.
        let below = ProcessTable::read()?.descendants(ancestor);
        if below.is_empty() {
            return Ok(true);
        }
        for process in &below {
            process.signal(Signal::SIGKILL)?;
        }
        for process in below {
            if !process.wait_ended(deadline.saturating_duration_since(Instant::now()))? {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_shift_the_fields() {
        let rest = "S 7 1 1 0 -1 4194560 0 0 0 0 3 4 0 0 20 0 1 0 987 1000 55 0";
        let stat = parse_stat(&format!("42 (a) R 1 (x) {rest}")).unwrap();
        assert_eq!(stat.process, ProcessRef { pid: 42, start_time: 987 });
        assert_eq!((stat.parent, stat.state, stat.cpu_ticks, stat.resident_pages), (7, 'S', 7, 55));
        assert_eq!(parse_stat("42 (a) S 7"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_is_alive_and_one_with_another_start_time_is_not() {
        let own = ProcessRef::of(i32::try_from(std::process::id()).unwrap()).unwrap().unwrap();
        assert!(own.is_alive().unwrap());
        let other = ProcessRef { start_time: own.start_time + 1, ..own };
        assert!(!other.is_alive().unwrap());
        assert!(!other.signal(Signal::SIGKILL).unwrap());
        assert!(other.wait_ended(Duration::ZERO).unwrap());
    }
}
