//! What the kernel says about time and processes. Judging it is left to the callers.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use protocol::shim::ProcessRef;

/// Milliseconds since boot, those the machine slept included.
pub(crate) fn boottime_ms() -> u64 {
    // Cannot fail for a clock the kernel has; 0 would only delay a limit, never end a program early.
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    seconds * 1000 + u64::try_from(now.tv_nsec()).unwrap_or(0) / 1_000_000
}

/// Milliseconds since 1970 on the host's clock, for people.
pub(crate) fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

pub(crate) fn process_ref(pid: i32) -> io::Result<ProcessRef> {
    Ok(ProcessRef { pid, start_time: stat(pid)?.start_time })
}

/// The fields of `/proc/<pid>/stat` (proc(5)) that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: char,
    pub(crate) parent: i32,
    pub(crate) start_time: u64,
}

pub(crate) fn stat(pid: i32) -> io::Result<Stat> {
    let line = std::fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(&String::from_utf8_lossy(&line))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown format of /proc/<pid>/stat"))
}

/// The second field, the name, may hold blanks and parentheses: all others lie after the last one.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22; state was 3 and parent 4.
    let start_time = fields.nth(17)?.parse().ok()?;
    Some(Stat { state, parent, start_time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) S (b) ) R 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(parse_stat(line), Some(Stat { state: 'R', parent: 3, start_time: 987_654 }));
        assert_eq!(parse_stat("7 (x) R"), None);
    }

    #[test]
    fn this_process_has_a_parent_and_a_start_time() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(stat(own).unwrap().parent > 0);
        assert!(process_ref(own).unwrap().start_time > 0);
    }
}
