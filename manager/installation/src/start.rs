//! `up`: everything runs when it returns, started once however many call it at the same time; or it says why
//! not.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use super::layout::{Layout, LayoutError, connect_socket};
use super::lock::{self, Lock, LockError};
use super::process::{ProcessHandle, wait_readable};
use super::supervisor::board::{Failure, State, Status};
use super::supervisor::{self, SupervisorError, log_files};

/// How `up` is to be done.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The command that is the supervisor: the `phalanx` program and `supervise`.
    pub supervise: Vec<OsString>,
    /// The whole of it may take this long.
    pub limit: Duration,
}

/// What `up` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpReport {
    pub outcome: UpOutcome,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpOutcome {
    AlreadyUp,
    Started,
}

/// Why not everything runs.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("another start or stop is not done after {} s", limit.as_secs())]
    Busy {
        limit: Duration,
        #[source]
        source: LockError,
    },
    #[error("{}", screen(failure, log))]
    Failed { failure: Failure, log: PathBuf },
    #[error(
        "the manager does not answer after {} s; see {log}, or stop everything with: phalanx down",
        limit.as_secs()
    )]
    TimedOut { limit: Duration, log: PathBuf },
    #[error(transparent)]
    Supervisor(#[from] SupervisorError),
    #[error("cannot {action}")]
    Io {
        action: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Which component, why, its last words, what to do: at most one screen.
fn screen(failure: &Failure, log: &std::path::Path) -> String {
    let mut text = format!("{} could not be started: {}", failure.component, failure.cause);
    for line in &failure.last_log {
        let _ = write!(text, "\n  | {line}");
    }
    let _ = write!(
        text,
        "\nNothing was left running. Full log: {}. Check this machine: phalanx doctor",
        log.display()
    );
    text
}

/// Whether the manager takes connections: the fast path of every command, well under a millisecond.
pub fn is_up(layout: &Layout) -> bool {
    connect_socket(&layout.manager_socket()).is_ok()
}

/// Makes sure that everything runs. Returns once the manager answers and, when this call started it, every
/// component is ready.
pub fn ensure_up(layout: &Layout, options: &UpOptions) -> Result<UpReport, UpError> {
    let begun = Instant::now();
    let report = |outcome| UpReport { outcome, took: begun.elapsed() };
    if is_up(layout) {
        return Ok(report(UpOutcome::AlreadyUp));
    }
    layout.ensure_folders()?;
    let _turn = Lock::take_within(&layout.up_lock(), options.limit)
        .map_err(|source| UpError::Busy { limit: options.limit, source })?;
    if is_up(layout) {
        return Ok(report(UpOutcome::AlreadyUp));
    }
    match std::fs::remove_file(layout.stopped_marker()) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(UpError::Io { action: "remove the mark of a stop", source });
        }
        _ => {}
    }
    let deadline = begun + options.limit;
    let held = lock::is_held(&layout.lock("supervisor"))
        .map_err(|source| UpError::Io { action: "look at the supervisor's lock", source })?;
    if !held {
        start_supervisor(layout, options, deadline)?;
    }
    wait_for_manager(layout, options, deadline)?;
    Ok(report(UpOutcome::Started))
}

/// Starts the supervisor and waits until its start has succeeded or failed.
fn start_supervisor(layout: &Layout, options: &UpOptions, deadline: Instant) -> Result<(), UpError> {
    match std::fs::remove_file(layout.status_file()) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(UpError::Io { action: "remove the old status", source });
        }
        _ => {}
    }
    let mut child = supervisor::launch(layout, &options.supervise, Stdio::piped())?;
    let settled = child.stdout.take().map(|pipe| drain(pipe, deadline)).transpose();
    let launched =
        child.wait().map_err(|source| UpError::Io { action: "wait for the supervisor", source })?;
    let settled = settled.map_err(|source| UpError::Io { action: "hear from the supervisor", source })?;
    let log = layout.log_file("supervisor");
    match Status::read(&layout.status_file()) {
        Some(status) if status.state == State::Failed => {
            let failure = status.failure.unwrap_or_else(|| unexplained(layout));
            Err(UpError::Failed { failure, log })
        }
        // Started, or the start takes longer than our limit: what can be seen decides.
        Some(_) if launched.success() => Ok(()),
        _ if settled == Some(Pipe::Open) => Ok(()),
        _ => Err(UpError::Failed { failure: unexplained(layout), log }),
    }
}

fn unexplained(layout: &Layout) -> Failure {
    Failure {
        component: "supervisor".to_owned(),
        cause: "it ended without saying why".to_owned(),
        last_log: log_files::tail(&layout.log_file("supervisor"), 8),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pipe {
    Closed,
    Open,
}

/// Reads until the other side closes the pipe.
fn drain(mut pipe: ChildStdout, deadline: Instant) -> io::Result<Pipe> {
    let mut dropped = [0_u8; 1024];
    while wait_readable(&pipe, deadline.saturating_duration_since(Instant::now()))? {
        if pipe.read(&mut dropped)? == 0 {
            return Ok(Pipe::Closed);
        }
    }
    Ok(Pipe::Open)
}

fn wait_for_manager(layout: &Layout, options: &UpOptions, deadline: Instant) -> Result<(), UpError> {
    const LOOK_EVERY: Duration = Duration::from_millis(10);
    let log = layout.log_file("supervisor");
    let mut supervisor = None;
    while Instant::now() < deadline {
        if is_up(layout) {
            return Ok(());
        }
        if supervisor.is_none() {
            supervisor = lock::holder(&layout.lock("supervisor")).unwrap_or_default();
        }
        // A socket cannot be waited for; the death of the one who is to make it can.
        let ended = match &supervisor {
            Some(process) => ProcessHandle::has_ended(process, LOOK_EVERY),
            None => Ok(true),
        };
        if ended.map_err(|source| UpError::Io { action: "watch the supervisor", source })? && !is_up(layout) {
            let failed = Status::read(&layout.status_file()).and_then(|status| status.failure);
            return Err(UpError::Failed { failure: failed.unwrap_or_else(|| unexplained(layout)), log });
        }
    }
    match Status::read(&layout.status_file()).and_then(|status| status.failure) {
        Some(failure) => Err(UpError::Failed { failure, log }),
        None => Err(UpError::TimedOut { limit: options.limit, log }),
    }
}
