//! Other processes, named so that a reused number cannot be mistaken: a pidfd pins the process, its start
//! time tells it from a later one. Starts none.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

/// A live process, held by a file descriptor that always means this one.
#[derive(Debug)]
pub struct ProcessHandle {
    pid: u32,
    pidfd: OwnedFd,
}

impl ProcessHandle {
    /// `None` when no such process is there, or it has ended and only waits to be reaped.
    pub fn open(pid: u32) -> io::Result<Option<Self>> {
        let Some(raw) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let pidfd = match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let handle = Self { pid, pidfd };
        Ok(if handle.has_ended(Duration::ZERO)? { None } else { Some(handle) })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Readable once the process has ended.
    pub fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }

    /// Waits up to `limit` for the end of the process.
    pub fn has_ended(&self, limit: Duration) -> io::Result<bool> {
        wait_readable(&self.pidfd, limit)
    }

    /// Sends a signal; a process that has ended is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits up to `limit` until `fd` has something to read or has been hung up.
pub fn wait_readable(fd: &impl AsFd, limit: Duration) -> io::Result<bool> {
    let deadline = std::time::Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The start time of a process in clock ticks since boot (field 22 of proc_pid_stat(5)); with the boot it
/// names a process for good.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and brackets: fields are counted behind the last one.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether the command line of a process has `argument` as one of its words.
pub fn has_argument(pid: u32, argument: &std::path::Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let handle = ProcessHandle::open(child.id()).unwrap().expect("it runs");
        assert!(start_time(child.id()).is_some());
        // The new program's arguments appear a moment after spawn returned.
        while !has_argument(child.id(), std::path::Path::new("60")) {
            assert!(!handle.has_ended(Duration::from_millis(1)).unwrap());
        }
        assert!(!handle.has_ended(Duration::ZERO).unwrap());
        handle.signal(Signal::KILL).unwrap();
        assert!(handle.has_ended(Duration::from_secs(5)).unwrap());
        assert!(ProcessHandle::open(child.id()).unwrap().is_none(), "a zombie is not alive");
        child.wait().unwrap();
        handle.signal(Signal::TERM).unwrap();
        assert!(ProcessHandle::open(child.id()).unwrap().is_none());
    }
}
