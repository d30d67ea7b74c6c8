//! What the supervisor keeps running, as data: a program, how it is known to live, when it counts as started.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::layout::{HOME_VARIABLE, Layout, connect_socket};
use crate::lock;
use crate::nats::binary::is_executable;

/// The name of the embedded bus among the components.
pub const NATS: &str = "nats-server";
/// The names of the two daemons.
pub const MANAGER: &str = "manager";
pub const HOSTD: &str = "hostd";
/// A daemon that was asked to end may take so long: hostd unmounts what ended agents left.
pub const DAEMON_STOP_LIMIT: Duration = Duration::from_secs(30);

/// One program to keep running. It must hold `run/<name>.lock` (flock, its pid as content) while it lives:
/// that is how it is found again by a later supervisor. It may end at once when the lock is another's.
#[derive(Debug, Clone)]
pub struct Component {
    pub name: String,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Added to the supervisor's own environment.
    pub env: Vec<(OsString, OsString)>,
    pub ready: Ready,
    /// From SIGTERM to SIGKILL.
    pub stop_limit: Duration,
}

/// When a component counts as started.
#[derive(Debug, Clone)]
pub enum Ready {
    /// It holds its lock.
    Locked,
    /// It holds its lock and this Unix socket accepts.
    Socket(PathBuf),
}

impl Component {
    /// Whether the component is started, by what can be seen from outside.
    pub fn is_ready(&self, layout: &Layout) -> bool {
        let locked = lock::is_held(&layout.lock(&self.name)).unwrap_or(false);
        locked
            && match &self.ready {
                Ready::Locked => true,
                Ready::Socket(path) => connect_socket(path).is_ok(),
            }
    }
}

/// Why a program cannot be named.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("cannot learn the path of the running program")]
    CurrentExe(#[source] io::Error),
    #[error("{name} is neither beside {beside} nor on PATH; install it there")]
    Missing { name: &'static str, beside: PathBuf },
}

/// hostd and manager, in the order they are started.
pub fn daemons(layout: &Layout) -> Result<Vec<Component>, ProgramError> {
    let phalanx = current_program()?;
    let hostd = beside_or_on_path(&phalanx, HOSTD)?;
    let daemon = |name: &str, program: PathBuf, word: &str, ready| Component {
        name: name.to_owned(),
        program,
        args: vec![word.into()],
        env: vec![(HOME_VARIABLE.into(), layout.home().into())],
        ready,
        stop_limit: DAEMON_STOP_LIMIT,
    };
    Ok(vec![
        daemon(HOSTD, hostd, "run", Ready::Locked),
        daemon(MANAGER, phalanx, "manager", Ready::Socket(layout.manager_socket())),
    ])
}

/// The running program. The kernel appends ` (deleted)` when its file was replaced, as an upgrade does: then
/// the new file is meant.
pub fn current_program() -> Result<PathBuf, ProgramError> {
    let path = std::env::current_exe().map_err(ProgramError::CurrentExe)?;
    let replaced = path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|path| is_executable(path)).unwrap_or(path))
}

fn beside_or_on_path(program: &Path, name: &'static str) -> Result<PathBuf, ProgramError> {
    let beside = program.parent().unwrap_or_else(|| Path::new("/")).to_path_buf();
    Some(beside.join(name))
        .filter(|path| is_executable(path))
        .or_else(|| on_path(name))
        .ok_or(ProgramError::Missing { name, beside })
}

/// The program of this name that a shell would start, never one of a relative folder.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_executable(path))
}
