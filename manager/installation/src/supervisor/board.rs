//! What the supervisor knows, as others read it from `run/status.json`: written by the supervisor alone.
//! Being a snapshot it proves nothing about now; locks do.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::atomic_file::{self, Durability};

pub const STATUS_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Status {
    pub version: u32,
    pub supervisor: u32,
    pub state: State,
    /// Why the start failed, or what keeps it from being complete.
    pub failure: Option<Failure>,
    pub components: Vec<ComponentStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Starting,
    /// Every component was started; each is restarted when it ends.
    Up,
    /// The start failed and what it had started was stopped again.
    Failed,
    Stopping,
    Stopped,
}

/// Why a component is not there.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "ComponentFailure")]
pub struct Failure {
    pub component: String,
    pub cause: String,
    pub last_log: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ComponentStatus {
    pub name: String,
    pub state: ComponentState,
    pub pid: Option<u32>,
    /// It was already running when this supervisor came.
    pub adopted: bool,
    /// Starts after the first.
    pub restarts: u64,
    /// When it entered `state`.
    pub since_unix_ms: u64,
    pub last_exit: Option<String>,
    pub last_log: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComponentState {
    Waiting,
    Starting,
    Running,
    /// It ended and is started again after a pause.
    Restarting,
    /// It ended several times without having run for long.
    CrashLoop,
    Stopped,
}

impl Status {
    pub fn new(names: impl Iterator<Item = String>) -> Self {
        let components = names
            .map(|name| ComponentStatus {
                name,
                state: ComponentState::Waiting,
                pid: None,
                adopted: false,
                restarts: 0,
                since_unix_ms: unix_ms(),
                last_exit: None,
                last_log: Vec::new(),
            })
            .collect();
        let supervisor = std::process::id();
        Self { version: STATUS_VERSION, supervisor, state: State::Starting, failure: None, components }
    }

    /// Writes the file. That it cannot be written (a full disk) must not stop the supervisor.
    pub fn publish(&self, path: &Path) {
        let Ok(bytes) = serde_json::to_vec_pretty(self) else { return };
        if let Err(error) = atomic_file::write(path, &bytes, Durability::Process) {
            tracing::warn!(%error, cause = %error.source, "status file not written");
        }
    }

    /// Reads the file; `None` when it is missing or not readable as a status.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }
}

pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
