//! How a program ends: it is reaped, its end recorded at once, and again when all it started has ended and all it
//! printed is on disk. The record is written before anyone is told.
//!
//! ```text
//! running ──program reaped──> exit.json ──no child left, terminal empty──> exit.json, drained ──told──> the shim ends
//! ```

use std::io;

use protocol::shim::{EndCause, Event, ExitRecord, RECORD_VERSION, Usage, file};

use super::processes;
use super::supervisor::{RETRY_MS, Supervisor};
use crate::{BUILD, facts, records};

/// Clients that do not read their last frames are not waited for longer.
const LEAVE_MS: u64 = 2000;
/// More than a terminal holds: what the program printed before its end is read with one call.
const REST_BYTES: usize = 1 << 20;

/// How far an end has come.
pub(crate) struct End {
    pub(crate) record: ExitRecord,
    /// `drained` of the record on disk.
    stored: Option<bool>,
    folder_gone: bool,
    pub(crate) leave_by: Option<u64>,
}

impl End {
    /// The record, once it is on disk and so may be told.
    pub(crate) fn told(&self) -> Option<&ExitRecord> {
        self.stored.map(|_| &self.record)
    }

    /// What is on disk, and so may be told.
    pub(crate) fn events(&self) -> Vec<Event> {
        let record = || Box::new(self.record.clone());
        match self.stored {
            None => Vec::new(),
            Some(false) => vec![Event::Exited(record())],
            Some(true) => vec![Event::Exited(record()), Event::Drained(record())],
        }
    }
}

/// From wait4(2).
struct Reaped {
    pid: i32,
    status: i32,
    usage: Usage,
}

impl Supervisor {
    /// All children that have ended, the adopted ones too.
    pub(crate) fn reap(&mut self) {
        loop {
            match wait_any() {
                Ok(Some(reaped)) if reaped.pid == self.record.child.pid && self.end.is_none() => {
                    self.program_ended(&reaped);
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    self.children_left = false;
                    return;
                }
            }
        }
    }

    fn program_ended(&mut self, reaped: &Reaped) {
        let status = reaped.status;
        let exited = libc::WIFEXITED(status);
        let (rows, cols) = self.pty.size();
        let by_itself = if exited { EndCause::Exited } else { EndCause::Signalled };
        let record = ExitRecord {
            version: RECORD_VERSION,
            agent: self.record.agent.clone(),
            build: BUILD.to_owned(),
            boot_id: self.record.boot_id.clone(),
            cause: self.limits.reached().map_or(by_itself, EndCause::from),
            code: exited.then(|| libc::WEXITSTATUS(status)),
            signal: (!exited).then(|| libc::WTERMSIG(status)),
            core_dumped: !exited && libc::WCOREDUMP(status),
            started_at_ms: self.record.started_at_ms,
            exited_at_ms: facts::wall_ms(),
            exited_boottime_ms: facts::boottime_ms(),
            out_len: self.output.len(),
            usage: reaped.usage,
            descendants_left: false,
            descendants_ended_by: None,
            drained: false,
            rows,
            cols,
            launch: self.record.launch,
            shim: Some(self.record.shim),
            epoch: self.launch.epoch.clone(),
        };
        self.end = Some(End { record, stored: None, folder_gone: false, leave_by: None });
        for answer in self.typist.close() {
            self.answer_typed(answer);
        }
    }

    /// Brings the end, if there is one, as far as it can be brought now.
    pub(crate) fn settle(&mut self, now: u64) {
        let Some(stored) = self.end.as_ref().map(|end| end.stored) else { return };
        if stored == Some(true) || self.retry_at.is_some_and(|at| at > now) {
            return;
        }
        // Before the first record too: it tells how much the program has printed.
        let read = (stored.is_none() || !self.children_left) && self.read_terminal(REST_BYTES);
        let drained = read && !self.children_left;
        if stored == Some(drained) || (stored == Some(false) && !drained) {
            return;
        }
        let populated = self.children_left || processes::populated(self.launch.events_file.as_deref());
        let (out_len, reached) = (self.output.len(), self.limits.reached());
        let Some(end) = self.end.as_mut() else { return };
        if stored.is_none() {
            end.record.descendants_left = populated;
        }
        end.record.descendants_ended_by = reached.filter(|_| end.record.descendants_left);
        end.record.drained = drained;
        end.record.out_len = out_len;
        let result = self.output.sync().map_err(|error| error.to_string());
        let result = result.and_then(|()| {
            records::store(file::EXIT, &end.record).map_err(|error| {
                end.folder_gone = error.folder_gone();
                error.to_string()
            })
        });
        match result {
            Ok(()) => {
                end.stored = Some(drained);
                end.leave_by = drained.then(|| now + LEAVE_MS);
                let mut events = end.events();
                if stored == Some(false) {
                    // The exit itself has been told.
                    events.remove(0);
                }
                events.iter().for_each(|event| self.broadcast(event));
                if self.degraded.exit.take().is_some() {
                    self.tell_degraded();
                }
            }
            Err(error) => {
                end.record.drained = false;
                self.retry_at = Some(now + RETRY_MS);
                let trouble = Some(format!("cannot record the end: {error}"));
                if trouble != self.degraded.exit {
                    self.degraded.exit = trouble;
                    self.tell_degraded();
                }
            }
        }
    }

    /// Whether the shim's work is done, or can no longer be.
    pub(crate) fn may_leave(&self) -> bool {
        let Some(end) = &self.end else { return false };
        if end.folder_gone {
            return !self.children_left;
        }
        let late = end.leave_by.is_some_and(|at| at <= facts::boottime_ms());
        end.stored == Some(true) && (late || !self.clients.iter().any(super::client::Client::has_unsent))
    }
}

/// `None`: children are left, and none has ended. An error: there are none.
#[expect(unsafe_code, reason = "wait4, for the usage of the one child, has no safe wrapper")]
fn wait_any() -> io::Result<Option<Reaped>> {
    let mut status: libc::c_int = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live locals of the right type.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match pid {
        0 => Ok(None),
        pid if pid > 0 => {
            // SAFETY: zeroed is a valid rusage, and wait4 has filled it.
            let usage = unsafe { usage.assume_init() };
            let (user_ms, system_ms) = (milliseconds(usage.ru_utime), milliseconds(usage.ru_stime));
            let max_rss_kb = u64::try_from(usage.ru_maxrss).unwrap_or(0);
            Ok(Some(Reaped { pid, status, usage: Usage { user_ms, system_ms, max_rss_kb } }))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn milliseconds(time: libc::timeval) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1000);
    whole + u64::try_from(time.tv_usec).unwrap_or(0) / 1000
}
