//! Sees that the bus refuses to store although there is room again. A stream of JetStream whose file could once not be
//! written (a full disk) refuses every later message until the server is started anew; it says so only in its log.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::log_files::Mark;

/// How often to look. Those who were refused ask again every few seconds, so that a look finds it in the log.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
const LINES: usize = 64;
const REFUSED: &str = "JetStream failed to store a msg";
const CAUSES: [&str; 2] = ["no space left on device", "disk quota exceeded"];
/// With less free space a server that is started anew would soon stand where it stood.
const ROOM: u64 = 16 << 20;

/// What was seen at the last look.
#[derive(Debug)]
pub(super) struct Refusals {
    log: PathBuf,
    mark: Mark,
    had_room: bool,
}

impl Refusals {
    pub(super) fn from_now(log: &Path) -> Self {
        Self { log: log.to_path_buf(), mark: Mark::at_end(log), had_room: false }
    }

    /// Whether something was refused between the last look and this one, with room at both.
    pub(super) fn persist(&mut self, free: u64) -> bool {
        let room = free >= ROOM;
        let refused = self
            .mark
            .last_lines(LINES)
            .iter()
            .any(|line| line.contains(REFUSED) && CAUSES.iter().any(|cause| line.contains(cause)));
        let persist = refused && room && self.had_room;
        self.mark = Mark::at_end(&self.log);
        self.had_room = room;
        persist
    }
}

/// Bytes that may be written where `folder` lies; none when that cannot be told.
pub(super) fn free_bytes(folder: &Path) -> u64 {
    nix::sys::statvfs::statvfs(folder)
        .map_or(0, |disk| disk.blocks_available().saturating_mul(disk.fragment_size()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = "[1] 2026/01/01 00:00:00.000000 [ERR] JetStream failed to store a msg on stream 'A > KV_agents': \
                        write /h/1.blk: no space left on device\n";

    #[test]
    fn only_what_is_refused_while_there_is_room_makes_the_server_start_anew() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("nats-server.log");
        let mut writer = super::super::log_files::open(&log).unwrap();
        let mut say = |text: &str| writer.write_all(text.as_bytes()).unwrap();
        say(LINE);
        let mut refusals = Refusals::from_now(&log);
        assert!(!refusals.persist(ROOM), "what was before is not looked at");
        say(LINE);
        assert!(!refusals.persist(0), "there is no room");
        say(LINE);
        assert!(!refusals.persist(ROOM), "it may have been refused before there was room");
        say("[1] [INF] all is well\n");
        assert!(!refusals.persist(ROOM), "nothing was refused since");
        say(LINE);
        assert!(refusals.persist(ROOM));
        assert!(!refusals.persist(ROOM), "each is seen once");
    }
}
