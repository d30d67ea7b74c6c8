//! What a hostd is told at its start, in `host/hostd.json` (mode 0600): who it is, where its state lies, how it
//! reaches the bus. Written by whoever sets the host up (`phalanx up` on one machine), read by hostd, which changes
//! nothing in it. Fields are only added; a reader ignores those it does not know.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version this build writes.
pub const HOST_CONFIG_VERSION: u32 = 1;

/// A file in [`HostConfig::run`], there while the operator wants everything stopped: nobody restarts anything, and a
/// hostd that ends then leaves nothing on the machine that only ended agents had.
pub const STOPPED_MARKER: &str = "stopped";

/// The configuration of one hostd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostConfig {
    /// [`HOST_CONFIG_VERSION`] of the writer. A reader refuses one above what it knows.
    pub version: u32,
    /// `PHALANX_HOME` of this installation.
    pub home: PathBuf,
    /// hostd's own state, `<home>/host`.
    pub state: PathBuf,
    /// Sockets, locks and pids, `<home>/run`.
    pub run: PathBuf,
    /// `<home>/log`.
    pub log: PathBuf,
    /// `[a-z0-9-]{1,40}`, fixed for the life of the host.
    pub host: String,
    /// The region this host belongs to; `hub` on one machine.
    pub region: String,
    pub bus: BusConfig,
    /// hostd flocks this file for as long as it lives and writes its process id and a newline into it.
    pub lock: PathBuf,
    pub supervisor: SupervisorConfig,
    /// An agent is refused while its file system is used to more than this share (0 to 1).
    pub disk_share_max: f64,
    /// How long this host keeps what nobody needs any more.
    #[serde(default)]
    pub retention: RetentionConfig,
}

/// How hostd reaches the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusConfig {
    /// Such as `nats://127.0.0.1:4222`. The embedded bus may move to another port: it is read again at each start,
    /// and a supervisor that moved it restarts hostd.
    pub url: String,
    /// The user's JWT and seed, mode 0600.
    pub credentials: PathBuf,
    /// The one inbox prefix this user may subscribe to.
    pub inbox_prefix: String,
    /// The nkey that orders must be signed with.
    pub order_key: String,
}

/// How hostd brings the supervisor back: when nobody holds `lock` (flock), run `program args…` and reap it; it
/// returns at once, having left the supervisor in a session of its own. Run twice, or while everything was stopped
/// on purpose, it does nothing. `None` where something else, such as systemd, does this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorConfig {
    pub lock: PathBuf,
    /// The `phalanx` executable, then the words after it.
    pub command: Option<Vec<String>>,
}

/// `None`: kept for ever.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionConfig {
    /// Destroyed agents of which something is kept, the newest.
    #[serde(default)]
    pub archived_most: Option<u64>,
    /// How long something of a destroyed agent is kept.
    #[serde(default)]
    pub archived_ms: Option<u64>,
}
