//! One private tmux server: is it there, and running one command in it.
//!
//! A server that does not answer is unknown, not dead. "Absent" needs proof: nothing listens on the
//! socket *and* no server process has it on its command line; a lost socket is made again by the
//! living server (SIGUSR1), so that no second server is started beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::TmuxError;
use super::format::{SESSIONS, Session, parse_sessions};
use crate::sys::process::{ProcessRef, ProcessTable};
use crate::sys::spawn::prepare_child;

/// Limit of one tmux call; a healthy server answers in milliseconds.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// How long a server is given to end, by each of two signals.
const END_LIMIT: Duration = Duration::from_secs(3);
/// How long a server is given to make its socket again.
const SOCKET_LIMIT: Duration = Duration::from_secs(2);
const SOCKET_LOOK: Duration = Duration::from_millis(5);
/// Descriptors of a server: panes, attached people, pipes.
const DESCRIPTORS: u64 = 4096;

/// Number of a server; its socket is `NN.sock`.
pub type Shard = u16;

/// One server as found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShardState {
    Running(Vec<Session>),
    /// Proven: no server has this socket.
    Absent,
    /// It is there and has not answered in time.
    Silent,
    Unknown(String),
}

/// How servers are reached.
#[derive(Debug)]
pub(super) struct Servers {
    /// Canonical; tmux runs in it, so that its socket's path is short whatever this is.
    dir: PathBuf,
    program: PathBuf,
    procs: Vec<PathBuf>,
}

pub(super) fn socket_name(shard: Shard) -> String {
    format!("{shard:02}.sock")
}

impl Servers {
    pub(super) fn new(dir: PathBuf, program: PathBuf, procs: Vec<PathBuf>) -> Self {
        Self { dir, program, procs }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// `tmux -V`.
    pub(super) async fn version(&self) -> Result<String, TmuxError> {
        let mut command = self.command(&self.program);
        command.arg("-V");
        let output = match timeout(CALL_LIMIT, command.output()).await {
            Ok(Ok(output)) => output,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Err(TmuxError::Missing),
            Ok(Err(source)) => return Err(TmuxError::Io { action: "run tmux -V", source }),
            Err(_) => return Err(TmuxError::Silent),
        };
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Shards that have a socket file or a server process.
    pub(super) async fn shards(&self) -> Result<Vec<Shard>, TmuxError> {
        let mut shards: Vec<Shard> = self.running().await?.into_keys().collect();
        let list = |source| TmuxError::Io { action: "list the tmux folder", source };
        for entry in fs::read_dir(&self.dir).map_err(list)? {
            let name = entry.map_err(list)?.file_name();
            let number: Option<Shard> =
                name.to_str().and_then(|name| name.strip_suffix(".sock")?.parse().ok());
            shards.extend(number);
        }
        shards.sort_unstable();
        shards.dedup();
        Ok(shards)
    }

    /// The server processes of this folder, found by what they were started with.
    pub(super) async fn running(&self) -> Result<BTreeMap<Shard, ProcessRef>, TmuxError> {
        let dir = self.dir.clone();
        let look = move || -> io::Result<BTreeMap<Shard, ProcessRef>> {
            let mut servers = BTreeMap::new();
            let table = ProcessTable::read()?;
            for process in table.find(|pid| is_server(pid, &dir)) {
                if let Some(shard) = shard_of(process.pid) {
                    servers.insert(shard, process);
                }
            }
            Ok(servers)
        };
        let failed = |source| TmuxError::Io { action: "look for tmux servers", source };
        tokio::task::spawn_blocking(look)
            .await
            .map_err(|error| failed(io::Error::other(error)))?
            .map_err(failed)
    }

    /// Finds out how a server is; mends a lost socket on the way.
    pub(super) async fn look(&self, shard: Shard) -> ShardState {
        match self.connect(shard).await {
            Ok(()) => {}
            Err(error) if is_nobody(&error) => match self.recover_socket(shard).await {
                Ok(true) => {}
                Ok(false) => return ShardState::Absent,
                Err(reason) => return ShardState::Unknown(reason),
            },
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return ShardState::Silent,
            Err(error) => return ShardState::Unknown(format!("its socket cannot be reached: {error}")),
        }
        match self.call(shard, &["list-sessions", "-F", SESSIONS]).await {
            Ok(output) if output.status.success() => {
                ShardState::Running(parse_sessions(&String::from_utf8_lossy(&output.stdout)))
            }
            Ok(output) => ShardState::Unknown(complaint(&output)),
            Err(TmuxError::Silent) => ShardState::Silent,
            Err(error) => ShardState::Unknown(error.to_string()),
        }
    }

    /// Ends a server, by its own way to leave where it still listens, and waits until it is gone.
    pub(super) async fn end(&self, server: ProcessRef) -> Result<(), TmuxError> {
        let stop = |source| TmuxError::Io { action: "end a tmux server", source };
        // SIGTERM needs neither socket nor a matching version; a server that hangs does not hear it.
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if !server.signal(signal).map_err(stop)? {
                return Ok(());
            }
            if let Ok(ended) = timeout(END_LIMIT, server.ended()).await {
                return ended.map_err(stop);
            }
        }
        Err(stop(io::ErrorKind::TimedOut.into()))
    }

    /// The server, if it lives, makes its socket again; `false` when there is no server.
    async fn recover_socket(&self, shard: Shard) -> Result<bool, String> {
        let servers = self.running().await.map_err(|error| error.to_string())?;
        let Some(server) = servers.get(&shard) else { return Ok(false) };
        match server.signal(Signal::SIGUSR1) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => {
                return Err(format!("its server (pid {}) cannot be signalled: {error}", server.pid));
            }
        }
        let deadline = Instant::now() + SOCKET_LIMIT;
        while self.connect(shard).await.is_err() {
            if !server.is_alive().unwrap_or(true) {
                return Ok(false);
            }
            if Instant::now() >= deadline {
                return Err(format!("its server (pid {}) lives and has no socket", server.pid));
            }
            tokio::time::sleep(SOCKET_LOOK).await;
        }
        tracing::warn!(shard, pid = server.pid, "a tmux socket had been removed and was made again");
        Ok(true)
    }

    async fn connect(&self, shard: Shard) -> io::Result<()> {
        let dir = fs::File::open(&self.dir)?;
        // Through the descriptor, since a socket path has a limit of 108 bytes and a folder has not.
        let path = format!("/proc/self/fd/{}/{}", dir.as_raw_fd(), socket_name(shard));
        match timeout(CALL_LIMIT, UnixStream::connect(path)).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Runs one command in a server that is there.
    pub(super) async fn call(&self, shard: Shard, arguments: &[&str]) -> Result<Output, TmuxError> {
        let output = self.run(self.client(&self.program, shard, arguments)).await?;
        if output.status.success() || !complaint(&output).contains("protocol version mismatch") {
            return Ok(output);
        }
        // tmux was upgraded under a living server: its own binary still speaks to it.
        let Some(server) = self.running().await?.get(&shard).copied() else { return Ok(output) };
        let program = PathBuf::from(format!("/proc/{}/exe", server.pid));
        tracing::warn!(shard, pid = server.pid, "tmux is of another version than its server");
        self.run(self.client(&program, shard, arguments)).await
    }

    /// Runs one command and starts the server for it, outside hostd's own cgroup.
    pub(super) async fn start(&self, shard: Shard, arguments: &[&str]) -> Result<Output, TmuxError> {
        let mut command = self.client(&self.program, shard, arguments);
        prepare_child(&mut command, &self.procs, None, Some(DESCRIPTORS))
            .map_err(|(_, source)| TmuxError::Io { action: "open the viewers' cgroup", source })?;
        self.run(command).await
    }

    async fn run(&self, mut command: Command) -> Result<Output, TmuxError> {
        match timeout(CALL_LIMIT, command.output()).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(TmuxError::Missing),
            Ok(Err(source)) => Err(TmuxError::Io { action: "run tmux", source }),
            Err(_) => Err(TmuxError::Silent),
        }
    }

    fn client(&self, program: &Path, shard: Shard, arguments: &[&str]) -> Command {
        let mut command = self.command(program);
        command.args(["-u", "-S", &socket_name(shard), "-f", "tmux.conf"]).args(arguments);
        command
    }

    /// Nothing of hostd's environment: a server keeps for life what its first client had.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").env("SHELL", "/bin/sh");
        command.env("HOME", &self.dir).env("TERM", "xterm-256color");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// What a failed call said, in one line.
pub(super) fn complaint(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().replace('\n', "; ");
    if text.is_empty() { format!("tmux: {}", output.status) } else { text }
}

fn is_server(pid: i32, dir: &Path) -> bool {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.starts_with(b"tmux: server") && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == dir)
}

/// The `NN` of `-S NN.sock` on a server's command line.
fn shard_of(pid: i32) -> Option<Shard> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0);
    words.find(|word| *word == b"-S")?;
    std::str::from_utf8(words.next()?).ok()?.strip_suffix(".sock")?.parse().ok()
}
