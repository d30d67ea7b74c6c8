//! `run DIR`: one launch, from its lock to its last record. Here is the order in which a start happens; the parts are
//! in the modules, and `supervisor` is the loop that follows.
//!
//! lock → launch.json → environment file → terminal, out.raw, socket → fork → shim.json → exec → ready line → loop.
//! A shim that cannot start its program leaves an `exit.json` that says why. One that is not the first in its folder
//! leaves everything as it is.

mod child;
mod client;
mod ending;
mod limits;
mod output;
mod processes;
mod pty;
mod requests;
mod supervisor;
mod typing;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitCode;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::waitpid;
use nix::unistd::{chdir, getpid, setsid};
use protocol::shim::{
    EndCause, ExitRecord, Launch, RECORD_VERSION, Ready, SOCKET_VERSION, ShimRecord, StartFailure, StartStep,
    Usage, file,
};

use crate::records::{self, RecordError};
use crate::{BUILD, facts, log};
use child::{Plan, failure};
use output::Output;
use pty::Pty;
use supervisor::{Supervisor, Supplies};

/// Not the first shim of this folder.
const CONFLICT: u8 = 5;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("cannot enter the folder")]
    Folder(#[source] nix::Error),
    #[error("cannot lock {name}", name = file::LOCK)]
    Lock(#[source] io::Error),
    #[error("another shim serves this folder")]
    Served,
    #[error("the folder holds {0} of an earlier launch, and a shim serves one launch")]
    Spent(&'static str),
    #[error("cannot become a supervisor")]
    Prepare(#[source] io::Error),
    #[error("the start failed and cannot be recorded")]
    Record(#[source] RecordError),
}

pub(crate) fn run(dir: &Path) -> ExitCode {
    match serve(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut line = format!("phalanx-shim: {}: {error}", dir.display());
            let mut cause = std::error::Error::source(&error);
            while let Some(source) = cause {
                line = format!("{line}: {source}");
                cause = source.source();
            }
            log(&line);
            let conflict = matches!(error, RunError::Served | RunError::Spent(_));
            ExitCode::from(if conflict { CONFLICT } else { 1 })
        }
    }
}

fn serve(dir: &Path) -> Result<(), RunError> {
    chdir(dir).map_err(RunError::Folder)?;
    // Read before anything else is opened: a descriptor of ours must not be taken for the inherited one.
    let launch = records::load::<Launch>(file::LAUNCH);
    let ready = launch.as_ref().ok().and_then(|launch| launch.ready_fd).and_then(inherited);
    close_all_but(ready.as_ref());
    let _lock = lock()?;
    for name in [file::EXIT, file::SHIM] {
        if records::exists(name) {
            return Err(RunError::Spent(name));
        }
    }
    let old_umask = umask(Mode::from_bits_truncate(0o077));
    let signals = become_supervisor().map_err(RunError::Prepare)?;
    let told = launch.as_ref().map(|launch| (launch.agent.clone(), launch.launch, launch.epoch.clone()));
    let told = told.unwrap_or_default();
    let started = launch
        .map_err(|error| failure(StartStep::Launch, 0, with_source(&error)))
        .and_then(|launch| start(launch, old_umask, signals));
    match started {
        Ok(supervisor) => {
            tell(ready, Some(&supervisor), None);
            supervisor.serve();
            let _ = std::fs::remove_file(file::SOCKET);
            Ok(())
        }
        Err(failure) => {
            log(&format!("the program was not started: {}", failure.message));
            let _ = std::fs::remove_file(file::SOCKET);
            let stored = records::store(file::EXIT, &not_started(told, failure.clone()));
            tell(ready, None, Some(failure));
            stored.map_err(RunError::Record)
        }
    }
}

fn lock() -> Result<Flock<File>, RunError> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(file::LOCK);
    Flock::lock(file.map_err(RunError::Lock)?, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        match errno {
            nix::Error::EWOULDBLOCK => RunError::Served,
            other => RunError::Lock(other.into()),
        }
    })
}

/// Own session, no terminal, the folder's log as stderr, orphans adopted, signals read from a descriptor.
fn become_supervisor() -> io::Result<SignalFd> {
    // Fails where hostd has made the session already.
    let _ = setsid();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(file::LOG)?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&log)?;
    prctl::set_child_subreaper(true)?;
    let mut ours = SigSet::empty();
    for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        ours.add(signal);
    }
    // Blocked, so that they are read one at a time; SIGPIPE is ignored by the standard library.
    ours.thread_block()?;
    Ok(SignalFd::with_flags(&ours, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

fn start(launch: Launch, umask: Mode, signals: SignalFd) -> Result<Supervisor, StartFailure> {
    let environment = take_environment(&launch)?;
    // Everything that the shim has is in its working folder, which it keeps; nobody below it finds a way there.
    if let Some(view) = &launch.view {
        crate::view::enter(view).map_err(|error| failure(StartStep::Supervise, 0, error.to_string()))?;
    }
    let lacks = |what: &'static str| {
        move |error: io::Error| {
            failure(
                StartStep::Supervise,
                error.raw_os_error().unwrap_or(0),
                format!("cannot {what}: {error}"),
            )
        }
    };
    let owner = launch.user.as_ref().map(|user| user.uid);
    let pty = Pty::open(launch.rows, launch.cols, owner).map_err(lacks("open a terminal"))?;
    let output = Output::open().map_err(lacks("open out.raw"))?;
    let listener = listen().map_err(lacks("listen on shim.sock"))?;
    let plan = Plan::new(&launch, &environment, umask);
    child::wipe(environment);
    let held = plan?.fork(pty.slave()).map_err(lacks("fork"))?;
    let child = held.pid;
    let record = ShimRecord {
        version: RECORD_VERSION,
        agent: launch.agent.clone(),
        shim: facts::process_ref(getpid().as_raw()).map_err(lacks("read /proc"))?,
        child: facts::process_ref(child.as_raw()).map_err(lacks("read /proc"))?,
        boot_id: facts::boot_id().map_err(lacks("read the boot id"))?,
        started_at_ms: facts::wall_ms(),
        started_boottime_ms: facts::boottime_ms(),
        build: BUILD.to_owned(),
        socket_version: SOCKET_VERSION,
        wall_time_ms: launch.wall_time_ms,
        lease_deadline_boottime_ms: launch.lease_deadline_boottime_ms,
        launch: launch.launch,
    };
    records::store(file::SHIM, &record)
        .map_err(|error| failure(StartStep::Supervise, 0, with_source(&error)))?;
    let warnings = held.release(&launch).inspect_err(|_| {
        // It has reported and is ending; as a zombie it would outlive this function.
        let _ = waitpid(child, None);
    })?;
    Supervisor::new(Supplies { launch, record, pty, output, listener, signals, warnings })
        .map_err(lacks("make a timer"))
}

/// Reads the environment file and removes it, whatever comes of it.
fn take_environment(launch: &Launch) -> Result<Vec<u8>, StartFailure> {
    let Some(path) = &launch.env_file else { return Ok(Vec::new()) };
    let read = || -> io::Result<Vec<u8>> {
        let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path)?;
        // Sized at once: growing would leave copies of secrets in freed memory.
        let size = usize::try_from(file.metadata()?.len()).unwrap_or(0);
        let mut bytes = Vec::with_capacity(size + 1);
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let result = read();
    let removed = match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    result.and_then(|bytes| removed.map(|()| bytes)).map_err(|error| {
        let message = format!("cannot take the environment file {}: {error}", path.display());
        failure(StartStep::Environment, error.raw_os_error().unwrap_or(0), message)
    })
}

/// Relative to the folder, so that its path may be longer than a socket address. A socket that is there belongs to a
/// shim that has died: the lock is ours.
fn listen() -> io::Result<UnixListener> {
    match std::fs::remove_file(file::SOCKET) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(file::SOCKET)?;
    std::fs::set_permissions(file::SOCKET, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn not_started((agent, launch, epoch): (String, u32, Option<String>), failure: StartFailure) -> ExitRecord {
    ExitRecord {
        version: RECORD_VERSION,
        agent,
        build: BUILD.to_owned(),
        boot_id: facts::boot_id().unwrap_or_default(),
        cause: EndCause::StartFailed(failure),
        code: None,
        signal: None,
        core_dumped: false,
        started_at_ms: 0,
        exited_at_ms: facts::wall_ms(),
        exited_boottime_ms: facts::boottime_ms(),
        out_len: std::fs::metadata(file::OUTPUT).map_or(0, |metadata| metadata.len()),
        usage: Usage::default(),
        descendants_left: false,
        descendants_ended_by: None,
        drained: true,
        rows: 0,
        cols: 0,
        launch: launch.max(1),
        shim: facts::process_ref(getpid().as_raw()).ok(),
        epoch,
    }
}

/// The one line that whoever started the shim waits for. Dropping the pipe's end closes it.
fn tell(ready: Option<File>, supervisor: Option<&Supervisor>, failure: Option<StartFailure>) {
    let Some(mut pipe) = ready else { return };
    let child = supervisor.map(Supervisor::program);
    let line = Ready { version: RECORD_VERSION, pid: getpid().as_raw(), child, failure };
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    if let Err(error) = pipe.write_all(&text) {
        log(&format!("nobody reads the ready line: {error}"));
    }
}

/// The inherited end of the ready pipe, if that number is open.
#[expect(unsafe_code, reason = "a descriptor that is only known by its number")]
fn inherited(number: i32) -> Option<File> {
    if number < 3 {
        return None;
    }
    // SAFETY: F_SETFD touches flags only, and fails for a number that is not open.
    let open = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
    // SAFETY: the number is open, and nothing in this process has opened a descriptor that it still holds.
    open.then(|| unsafe { File::from_raw_fd(number) })
}

/// What else was inherited, by mistake, is not kept open for as long as the agent lives.
#[expect(unsafe_code, reason = "close_range has no safe wrapper")]
fn close_all_but(kept: Option<&File>) {
    let close = |first: u32, last: u32| {
        if first <= last {
            // SAFETY: no Rust object of this process owns a descriptor in the range. Without the call (kernels
            // before 5.9) they stay open, which costs nothing but tidiness.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    };
    match kept.and_then(|file| u32::try_from(file.as_raw_fd()).ok()) {
        Some(kept) => {
            close(3, kept - 1);
            close(kept + 1, u32::MAX);
        }
        None => close(3, u32::MAX),
    }
}

fn with_source(error: &RecordError) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}
