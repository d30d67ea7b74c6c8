//! tmux as the viewer and keyboard of people: one session for each agent, on private servers.
//!
//! A session's pane runs `phalanx-shim attach`, a relay that can be made again at any time, so the
//! loss of a server loses nothing but a view. Never touches the user's own tmux: own sockets, own
//! configuration, `TMUX` unset. What happens to the agent, its exit and its output are not known here.

mod format;
mod server;
mod silent;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;

pub use format::{Relay, Session};
pub use server::{Shard, ShardState};

use crate::sys::process::ProcessRef;
use format::{OLDEST, is_agent_id, parse_version, quote, shown_label};
use server::{Servers, complaint, socket_name};
use silent::Silence;

/// Sessions of one server: the cost of a line grows with the panes of its server, and so does what a
/// crash takes away.
pub const SESSIONS_PER_SERVER: usize = 16;

/// Pace of looking whether a server still lives.
const LOOK_FOR_END: Duration = Duration::from_secs(2);

/// Why a session could not be made, found or ended.
#[derive(Debug, thiserror::Error)]
pub enum TmuxError {
    #[error("tmux is not installed; install tmux 3.1c or newer (Debian, Ubuntu: apt-get install tmux)")]
    Missing,
    #[error("{0} is too old: 3.1c or newer is needed")]
    TooOld(String),
    #[error("tmux did not answer in time")]
    Silent,
    #[error("tmux server {} is in an unknown state: {reason}", socket_name(*shard))]
    Unknown { shard: Shard, reason: String },
    #[error("tmux made no session: {0}")]
    Refused(String),
    #[error("{0:?} cannot name a session: it is not an agent's id")]
    Name(String),
    #[error("{} cannot be given to tmux: its path has a line break or is not UTF-8", .0.display())]
    Path(PathBuf),
    #[error("cannot {action}")]
    Io {
        action: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Where tmux is and what its panes run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Folder of sockets and configuration; made with mode 0700.
    pub dir: PathBuf,
    /// Absolute path of the shim.
    pub shim: PathBuf,
    /// `cgroup.procs` files a new server joins; see `Cgroups::viewers`.
    pub procs: Vec<PathBuf>,
    /// `tmux`, or a path.
    pub program: PathBuf,
}

/// The session an agent should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSpec {
    pub agent: String,
    /// The agent's name, for people.
    pub label: String,
    /// The agent's folder, which the relay is given.
    pub dir: PathBuf,
}

/// Where an agent's session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionAt {
    pub shard: Shard,
    /// File name of the socket in the tmux folder.
    pub socket: String,
    /// `$N`.
    pub session_id: String,
}

/// The tmux servers of one hostd. Calls may overlap: each server takes one change at a time.
#[derive(Debug)]
pub struct Tmux {
    servers: Servers,
    shim: String,
    /// Which server an agent's session is on, or will be.
    placed: Mutex<BTreeMap<String, Shard>>,
    /// Servers that did not answer last time; nothing new is placed there.
    unwell: Mutex<BTreeSet<Shard>>,
    /// Servers that do not answer, and when each was last looked at.
    silence: Silence,
    /// Held over a look and the change that follows from it.
    changing: Mutex<BTreeMap<Shard, Arc<tokio::sync::Mutex<()>>>>,
}

impl Tmux {
    /// Checks the version, writes the configuration, and finds the sessions an earlier hostd made.
    pub async fn open(settings: Settings) -> Result<Self, TmuxError> {
        make_folder(&settings.dir)?;
        let make = |source| TmuxError::Io { action: "make the tmux folder", source };
        let dir = settings.dir.canonicalize().map_err(make)?;
        let shim = text_of(&settings.shim)?.to_owned();
        let servers = Servers::new(dir, settings.program, settings.procs);
        let version = servers.version().await?;
        if parse_version(&version).is_some_and(|version| version < OLDEST) {
            return Err(TmuxError::TooOld(version));
        }
        write_config(servers.dir())?;
        let (placed, unwell, changing) = (Mutex::default(), Mutex::default(), Mutex::default());
        let silence = Silence::default();
        let tmux = Self { servers, shim, placed, unwell, silence, changing };
        for (shard, state) in tmux.list().await? {
            if let ShardState::Running(sessions) = state {
                let mut placed = lock(&tmux.placed);
                placed.extend(sessions.into_iter().map(|session| (session.agent, shard)));
            }
        }
        Ok(tmux)
    }

    /// Every server that has a socket or a process, with its sessions.
    pub async fn list(&self) -> Result<Vec<(Shard, ShardState)>, TmuxError> {
        let shards = self.servers.shards().await?;
        Ok(join_all(shards.into_iter().map(async |shard| (shard, self.servers.look(shard).await))).await)
    }

    /// Server processes, for `doctor`.
    pub async fn server_processes(&self) -> Result<BTreeMap<Shard, ProcessRef>, TmuxError> {
        self.servers.running().await
    }

    /// Resolves when a server has ended or has no socket any more, or soon when none is seen. Looks, since a descriptor for
    /// each session would use up what hostd may open.
    pub async fn server_ended(&self, shard: Shard) -> Result<(), TmuxError> {
        let server = self.servers.running().await?.get(&shard).copied();
        let socket = self.servers.dir().join(server::socket_name(shard));
        loop {
            tokio::time::sleep(LOOK_FOR_END).await;
            if !socket.try_exists().unwrap_or(true) {
                return Ok(());
            }
            // One that cannot be looked at is not known to have ended.
            if !server.is_some_and(|server| server.is_alive().unwrap_or(true)) {
                return Ok(());
            }
            self.probe_if_due(shard).await;
        }
    }

    /// One session, made if it is not there; its relay is started again if it has ended.
    pub async fn ensure_session(&self, spec: &SessionSpec) -> Result<SessionAt, TmuxError> {
        let mut made = self.ensure_sessions(std::slice::from_ref(spec)).await;
        made.pop().unwrap_or_else(|| Err(TmuxError::Refused("nothing was answered".to_owned())))
    }

    /// Many sessions with one tmux call for each server; answers in the order asked.
    pub async fn ensure_sessions(&self, specs: &[SessionSpec]) -> Vec<Result<SessionAt, TmuxError>> {
        let mut shards: BTreeMap<Shard, Vec<&SessionSpec>> = BTreeMap::new();
        for spec in specs {
            if self.check(spec).is_ok() {
                shards.entry(self.place(&spec.agent)).or_default().push(spec);
            }
        }
        let made = join_all(shards.iter().map(|(shard, specs)| self.ensure_on(*shard, specs))).await;
        let mut answers: BTreeMap<&str, Result<SessionAt, TmuxError>> = BTreeMap::new();
        for ((shard, specs), result) in shards.iter().zip(made) {
            match &result {
                Ok(_) => lock(&self.unwell).remove(shard),
                Err(_) => lock(&self.unwell).insert(*shard),
            };
            for spec in specs {
                let answer = match &result {
                    Ok((sessions, complaint)) => found(*shard, &spec.agent, sessions, complaint),
                    Err(error) => Err(error.again()),
                };
                answers.insert(&spec.agent, answer);
            }
        }
        let answer = |spec: &SessionSpec| match answers.get(spec.agent.as_str()) {
            Some(Ok(session)) => Ok(session.clone()),
            Some(Err(error)) => Err(error.again()),
            // Left out above, with a reason.
            None => self.check(spec).and(Err(TmuxError::Refused("it was not tried".to_owned()))),
        };
        specs.iter().map(answer).collect()
    }

    /// Shows another label in the session of exactly this agent, if it has one.
    pub async fn rename(&self, agent: &str, label: &str) -> Result<(), TmuxError> {
        let Some(shard) = lock(&self.placed).get(agent).copied() else { return Ok(()) };
        self.refuse_silent(shard)?;
        let guard = self.guard(shard);
        let _changing = guard.lock().await;
        let ShardState::Running(sessions) = self.look(shard).await else { return Ok(()) };
        let Some(session) = sessions.iter().find(|session| session.agent == agent) else { return Ok(()) };
        let label = quote(&shown_label(label)).unwrap_or_default();
        let id = &session.session_id;
        let commands =
            format!("rename-window -t '{id}:' -- {label}\nset-option -t '{id}:' @phalanx_label {label}\n");
        let name = format!("{shard:02}.commands");
        let path = self.servers.dir().join(&name);
        write_file(&path, &commands)?;
        let output = self.servers.call(shard, &["source-file", &name]).await;
        fs::remove_file(&path).map_err(|source| TmuxError::Io { action: "remove a command file", source })?;
        let output = output?;
        if output.status.success() { Ok(()) } else { Err(TmuxError::Refused(complaint(&output))) }
    }

    /// Ends the session of exactly this agent; `false` if it has none.
    pub async fn kill_session(&self, agent: &str) -> Result<bool, TmuxError> {
        if !is_agent_id(agent) {
            return Err(TmuxError::Name(agent.to_owned()));
        }
        let known = lock(&self.placed).get(agent).copied();
        let shards = match known {
            Some(shard) => vec![shard],
            None => self.servers.shards().await?,
        };
        let mut killed = false;
        for shard in shards {
            killed |= self.kill_on(shard, agent).await?;
        }
        lock(&self.placed).remove(agent);
        Ok(killed)
    }

    /// Ends every server of this folder and with it all views; the agents go on.
    pub async fn stop_servers(&self) -> Result<(), TmuxError> {
        // At once and without a turn: a call to one that hangs is over when it is gone.
        let ended =
            join_all(self.servers.running().await?.into_values().map(|server| self.servers.end(server)))
                .await;
        lock(&self.placed).clear();
        ended.into_iter().collect()
    }

    /// The server of an agent: where it is already, else the first with room.
    fn place(&self, agent: &str) -> Shard {
        let mut placed = lock(&self.placed);
        if let Some(shard) = placed.get(agent) {
            return *shard;
        }
        let mut counts: BTreeMap<Shard, usize> = BTreeMap::new();
        for shard in placed.values() {
            *counts.entry(*shard).or_default() += 1;
        }
        let unwell = lock(&self.unwell);
        let has_room = |shard: &Shard| {
            counts.get(shard).copied().unwrap_or(0) < SESSIONS_PER_SERVER && !unwell.contains(shard)
        };
        let shard = (0..Shard::MAX).find(has_room).unwrap_or(Shard::MAX);
        placed.insert(agent.to_owned(), shard);
        shard
    }

    fn guard(&self, shard: Shard) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(lock(&self.changing).entry(shard).or_default())
    }

    /// Makes what is missing on one server; its sessions afterwards, and what tmux complained about.
    async fn ensure_on(
        &self,
        shard: Shard,
        specs: &[&SessionSpec],
    ) -> Result<(Vec<Session>, String), TmuxError> {
        self.refuse_silent(shard)?;
        let guard = self.guard(shard);
        let _changing = guard.lock().await;
        if self.servers.dir().try_exists().is_ok_and(|exists| !exists) {
            make_folder(self.servers.dir())?;
            write_config(self.servers.dir())?;
        }
        let unknown = |reason| TmuxError::Unknown { shard, reason };
        let (sessions, is_running) = match self.look(shard).await {
            ShardState::Running(sessions) => (sessions, true),
            ShardState::Absent => (Vec::new(), false),
            ShardState::Silent => return Err(silence(shard)),
            ShardState::Unknown(reason) => return Err(unknown(reason)),
        };
        let mut commands = String::new();
        let mut asked = BTreeSet::new();
        for spec in specs.iter().filter(|spec| asked.insert(&spec.agent)) {
            match sessions.iter().find(|session| session.agent == spec.agent) {
                Some(session) if session.relay == Relay::Running => {}
                Some(session) => commands.push_str(&self.restart_commands(&session.session_id, spec)?),
                None => commands.push_str(&self.make_commands(spec)?),
            }
        }
        if commands.is_empty() {
            return Ok((sessions, String::new()));
        }
        // A file, since a tmux command line is limited to about 16 KB.
        let name = format!("{shard:02}.commands");
        let path = self.servers.dir().join(&name);
        write_file(&path, &commands)?;
        let output = if is_running {
            self.servers.call(shard, &["source-file", &name]).await
        } else {
            self.servers.start(shard, &["start-server", ";", "source-file", &name]).await
        };
        fs::remove_file(&path).map_err(|source| TmuxError::Io { action: "remove a command file", source })?;
        let output = output?;
        // What is there counts, not the answer: one refused session does not stop those after it.
        match self.servers.look(shard).await {
            ShardState::Running(sessions) => Ok((sessions, complaint(&output))),
            ShardState::Absent => Err(unknown(format!("it ended at once: {}", complaint(&output)))),
            ShardState::Silent => Err(silence(shard)),
            ShardState::Unknown(reason) => Err(unknown(reason)),
        }
    }

    fn make_commands(&self, spec: &SessionSpec) -> Result<String, TmuxError> {
        let (agent, dir, shim) = self.words(spec)?;
        let label = quote(&shown_label(&spec.label)).unwrap_or_default();
        let target = format!("'={}:'", spec.agent);
        Ok(format!(
            "new-session -d -s {agent} -n {label} -c {dir} -- {shim} attach {dir}\n\
             set-option -t {target} @phalanx_agent {agent}\n\
             set-option -t {target} @phalanx_label {label}\n"
        ))
    }

    fn restart_commands(&self, session_id: &str, spec: &SessionSpec) -> Result<String, TmuxError> {
        let (_, dir, shim) = self.words(spec)?;
        Ok(format!("respawn-pane -k -t '{session_id}:' -c {dir} -- {shim} attach {dir}\n"))
    }

    fn check(&self, spec: &SessionSpec) -> Result<(), TmuxError> {
        if !is_agent_id(&spec.agent) {
            return Err(TmuxError::Name(spec.agent.clone()));
        }
        self.words(spec).map(drop)
    }

    fn words(&self, spec: &SessionSpec) -> Result<(String, String, String), TmuxError> {
        let dir = quote(text_of(&spec.dir)?).ok_or_else(|| TmuxError::Path(spec.dir.clone()))?;
        let shim = quote(&self.shim).ok_or_else(|| TmuxError::Path(PathBuf::from(&self.shim)))?;
        let agent = quote(&spec.agent).ok_or_else(|| TmuxError::Name(spec.agent.clone()))?;
        Ok((agent, dir, shim))
    }

    async fn kill_on(&self, shard: Shard, agent: &str) -> Result<bool, TmuxError> {
        self.refuse_silent(shard)?;
        let guard = self.guard(shard);
        let _changing = guard.lock().await;
        let sessions = match self.look(shard).await {
            ShardState::Running(sessions) => sessions,
            ShardState::Absent => return Ok(false),
            ShardState::Silent => return Err(silence(shard)),
            ShardState::Unknown(reason) => return Err(TmuxError::Unknown { shard, reason }),
        };
        let mut killed = false;
        for session in sessions.iter().filter(|session| session.agent == agent) {
            // By id, which is never used again: if it has gone meanwhile, nothing else is hit.
            let output = self.servers.call(shard, &["kill-session", "-t", &session.session_id]).await?;
            killed |= output.status.success();
        }
        Ok(killed)
    }
}

fn found(shard: Shard, agent: &str, sessions: &[Session], said: &str) -> Result<SessionAt, TmuxError> {
    let session = sessions
        .iter()
        .find(|session| session.agent == agent)
        .ok_or_else(|| TmuxError::Refused(said.to_owned()))?;
    Ok(SessionAt { shard, socket: socket_name(shard), session_id: session.session_id.clone() })
}

impl TmuxError {
    /// The same failure, for each of the sessions it befell.
    fn again(&self) -> Self {
        match self {
            Self::Missing => Self::Missing,
            Self::TooOld(version) => Self::TooOld(version.clone()),
            Self::Silent => Self::Silent,
            Self::Unknown { shard, reason } => Self::Unknown { shard: *shard, reason: reason.clone() },
            Self::Refused(reason) => Self::Refused(reason.clone()),
            Self::Name(name) => Self::Name(name.clone()),
            Self::Path(path) => Self::Path(path.clone()),
            Self::Io { action, source } => {
                Self::Io { action, source: io::Error::new(source.kind(), source.to_string()) }
            }
        }
    }
}

fn silence(shard: Shard) -> TmuxError {
    TmuxError::Unknown { shard, reason: TmuxError::Silent.to_string() }
}

fn text_of(path: &Path) -> Result<&str, TmuxError> {
    path.to_str().ok_or_else(|| TmuxError::Path(path.to_path_buf()))
}

fn make_folder(dir: &Path) -> Result<(), TmuxError> {
    let make = |source| TmuxError::Io { action: "make the tmux folder", source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(make)
}

fn write_config(dir: &Path) -> Result<(), TmuxError> {
    write_file(&dir.join("tmux.conf"), include_str!("tmux.conf"))
}

fn write_file(path: &Path, text: &str) -> Result<(), TmuxError> {
    use std::io::Write;
    let write = |source| TmuxError::Io { action: "write in the tmux folder", source };
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(write)?;
    file.write_all(text.as_bytes()).map_err(write)
}

/// The maps hold nothing half changed, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
