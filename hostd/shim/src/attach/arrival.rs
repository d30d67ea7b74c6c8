//! Waiting for the shim of the folder, which may be about to start. Woken by changes of the folder, for a limited time.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use protocol::shim::{ShimRecord, file};

use crate::{facts, records};

const WAIT_MS: u64 = 30_000;
/// A process that dies closes its connections a little before it is seen as dead.
const DEATH_MS: u64 = 2000;
const DEATH_LOOK_MS: u8 = 20;

pub(super) enum Arrival {
    Shim(UnixStream),
    /// Its exit record is there and the shim has done its work.
    Ended,
    /// It has died without an exit record.
    Gone,
    /// Nothing came.
    Late,
}

pub(super) fn wait_for_shim() -> io::Result<Arrival> {
    // Before the first look, so that nothing happens unseen between the look and the wait.
    let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    // A socket is connectable from its change of mode on, which follows its listen.
    changes
        .add_watch(".", AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ATTRIB)?;
    let deadline = facts::boottime_ms() + WAIT_MS;
    loop {
        if let Ok(stream) = UnixStream::connect(file::SOCKET) {
            return Ok(Arrival::Shim(stream));
        }
        if records::exists(file::EXIT) {
            return Ok(Arrival::Ended);
        }
        if records::load::<ShimRecord>(file::SHIM).is_ok_and(|record| has_died(&record)) {
            // Its last act may have been to write the record.
            return Ok(if records::exists(file::EXIT) { Arrival::Ended } else { Arrival::Gone });
        }
        let left = deadline.saturating_sub(facts::boottime_ms());
        if left == 0 {
            return Ok(Arrival::Late);
        }
        let mut polled = [PollFd::new(changes.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        match changes.read_events() {
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether the shim that has closed its connection is dead, after a short while.
pub(super) fn has_died_soon() -> io::Result<bool> {
    let deadline = facts::boottime_ms() + DEATH_MS;
    loop {
        if records::load::<ShimRecord>(file::SHIM).is_ok_and(|record| has_died(&record)) {
            return Ok(true);
        }
        if facts::boottime_ms() >= deadline {
            return Ok(false);
        }
        match poll(&mut [], PollTimeout::from(DEATH_LOOK_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Proven, not guessed: another boot, no such process, or another process with its number.
fn has_died(record: &ShimRecord) -> bool {
    if facts::boot_id().is_ok_and(|boot| boot != record.boot_id) {
        return true;
    }
    match facts::stat(record.shim.pid) {
        Ok(stat) => stat.start_time != record.shim.start_time || stat.state == 'Z',
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}
