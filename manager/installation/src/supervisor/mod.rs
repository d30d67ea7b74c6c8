//! The supervisor: one small process, in a session of its own, that keeps nats-server, hostd and the manager
//! running. It may be killed at any moment: its components do not notice, and the next one adopts them.
//!
//! **Who brings it back.** It holds `run/supervisor.lock` while it lives. `phalanx up`, the manager and hostd
//! look at that lock (the daemons every few seconds, [`ensure_alive`]) and, when nobody holds it, run
//! `phalanx supervise` and reap it. That program returns at once, having left behind a second one that takes
//! the lock or, finding it taken, ends. `run/stopped` (made by `phalanx down`, removed by `phalanx up`) makes
//! it end too, so that nothing is restarted that the operator stopped.
//!
//! **A start that fails.** When nothing was running before and a component cannot be brought up, everything
//! it started is stopped again and the reason is left in `run/status.json`. When something was running, it
//! stays.

pub mod board;
mod bus;
pub mod component;
mod keeper;
pub mod log_files;
mod overseer;
mod refusals;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use component::Component;

use super::layout::{HOME_VARIABLE, Layout, LayoutError};
use super::lock::{self, Lock, LockError};

/// Set in the second of the two processes of a start.
pub const STAGE_VARIABLE: &str = "PHALANX_SUPERVISE_STAGE";
const STAGE_DETACHED: &str = "detached";

/// What to keep running, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Beside the bus, in the order they are started; see [`component::daemons`].
    pub components: Vec<Component>,
    /// The command that hostd is told to bring the supervisor back with.
    pub supervise: Vec<String>,
    /// Within which every component must have become ready.
    pub start_limit: Duration,
}

/// Why the supervisor ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot start the supervisor")]
    Spawn(#[source] io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    #[error("{component} could not be started: {cause}")]
    Start { component: String, cause: String },
}

/// The whole of `phalanx supervise`: `command` is how this process was started. The first process leaves the
/// caller's session and starts the second, which is nobody's child; it keeps the caller's standard output
/// open until the start has succeeded or failed, so that a caller with a pipe sees that moment.
pub fn main(layout: &Layout, options: Options, command: &[OsString]) -> Result<(), SupervisorError> {
    layout.ensure_folders()?;
    if std::env::var_os(STAGE_VARIABLE).is_some_and(|stage| stage == STAGE_DETACHED) {
        return run(layout, options);
    }
    // Fails only for the leader of a group, as when started by hand from a shell: then it is detached enough.
    let _ = nix::unistd::setsid();
    let log = log_files::open(&layout.log_file("supervisor")).map_err(SupervisorError::Spawn)?;
    let (program, args) = command
        .split_first()
        .ok_or_else(|| SupervisorError::Spawn(io::Error::from(io::ErrorKind::InvalidInput)))?;
    Command::new(program)
        .args(args)
        .env_clear()
        .envs(inherited_environment(std::env::vars_os()))
        .env(HOME_VARIABLE, layout.home())
        .env(STAGE_VARIABLE, STAGE_DETACHED)
        .current_dir(layout.home())
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .stderr(Stdio::from(log))
        .spawn()
        .map(drop)
        .map_err(SupervisorError::Spawn)
}

/// Supervises in this process until SIGTERM. Returns at once when another does, or all was stopped on
/// purpose.
pub fn run(layout: &Layout, options: Options) -> Result<(), SupervisorError> {
    let _lock = match Lock::try_take(&layout.lock("supervisor")) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if layout.stopped_marker().exists() {
        return Ok(());
    }
    log_to_stderr();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SupervisorError::Spawn)?;
    let result = runtime.block_on(overseer::run(layout, options, close_stdout));
    if let Err(error) = &result {
        tracing::error!(error = protocol::chain(error), "supervisor ends");
    }
    result
}

/// Standard error is the supervisor's log file. A program that already has a subscriber keeps it.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PHALANX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber =
        tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).with_env_filter(filter);
    // An error means that there is one, which is what is wanted.
    let _ = subscriber.try_init();
}

/// Lets go of the pipe that the caller of `up` waits on.
fn close_stdout() {
    let closed = File::options().write(true).open("/dev/null").map(nix::unistd::dup2_stdout);
    if !matches!(closed, Ok(Ok(()))) {
        tracing::warn!("standard output could not be closed");
    }
}

/// Daemons outlive the login that started them: they get what names the machine and its user, and no handle
/// or secret of that login. What an agent gets of it is hostd's to decide.
fn inherited_environment(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    const NAMES: [&str; 26] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "SUDO_USER",
        "SUDO_UID",
        "SUDO_GID",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "PHALANX_LOG",
        "LD_LIBRARY_PATH",
    ];
    const PREFIXES: [&str; 3] = ["LC_", "XDG_", "PHALANX_TEST_"];
    all.filter(|(name, _)| {
        name.to_str().is_some_and(|name| {
            NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
    })
}

/// What [`ensure_alive`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alive {
    Already,
    Started,
    /// The operator stopped everything; nothing is started.
    StoppedOnPurpose,
}

/// Starts the supervisor when nobody is it. For the daemons, every few seconds; takes a few milliseconds and
/// does not wait for the components.
pub fn ensure_alive(layout: &Layout, command: &[OsString]) -> Result<Alive, SupervisorError> {
    let path = layout.lock("supervisor");
    let held = lock::is_held(&path).map_err(|source| LockError::Io { path, source })?;
    if held {
        return Ok(Alive::Already);
    }
    if layout.stopped_marker().exists() {
        return Ok(Alive::StoppedOnPurpose);
    }
    let mut child = launch(layout, command, Stdio::null())?;
    child.wait().map_err(SupervisorError::Spawn)?;
    Ok(Alive::Started)
}

/// Starts `phalanx supervise` without waiting; its first process is the returned child.
pub(super) fn launch(
    layout: &Layout,
    command: &[OsString],
    stdout: Stdio,
) -> Result<std::process::Child, SupervisorError> {
    let (program, args) = command
        .split_first()
        .ok_or_else(|| SupervisorError::Spawn(io::Error::from(io::ErrorKind::InvalidInput)))?;
    let log = log_files::open(&layout.log_file("supervisor")).map_err(SupervisorError::Spawn)?;
    Command::new(program)
        .args(args)
        .env(HOME_VARIABLE, layout.home())
        .env_remove(STAGE_VARIABLE)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(SupervisorError::Spawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_inherits_no_handle_and_no_secret_of_the_login() {
        let all = [
            ("PATH", "/bin"),
            ("LC_ALL", "C.UTF-8"),
            ("SSH_AUTH_SOCK", "/tmp/s"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("PHALANX_AGENT", "a"),
            ("TMUX", "/tmp/t"),
        ];
        let kept: Vec<OsString> = inherited_environment(all.iter().map(|(k, v)| (k.into(), v.into())))
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, ["PATH", "LC_ALL"]);
    }
}
