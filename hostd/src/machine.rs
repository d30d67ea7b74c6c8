//! What every job of this host works with: the adapters, the folders, and the way back to the driver.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hostd_core::Input;
use protocol::host_config::HostConfig;
use protocol::ids::Incarnation;
use tokio::sync::{Semaphore, mpsc};

use crate::agents::Waiters;
use crate::asks::{Programs, Talks, Uploads};
use crate::bus::{Bus, Requests, ShipperSink};
use crate::containment::Containment;
use crate::house::Sizes;
use crate::screen::WatchSink;
use crate::state::AgentFolders;
use crate::sys::cgroup::Cgroups;
use crate::sys::tmux::Tmux;
use crate::workspace::Workspaces;

/// Agents that are being made at once: more only makes each slower on the same cores.
const STARTS_AT_ONCE: usize = 8;
/// Collections and removals at once.
const ENDS_AT_ONCE: usize = 8;

/// Programs that operators run beside agents at once; more are refused.
const EXECS_AT_ONCE: usize = 256;
/// Screens that are rendered at once.
const RENDERS_AT_ONCE: usize = 2;

#[derive(Debug)]
pub struct Machine {
    pub config: HostConfig,
    pub bus: Bus,
    pub folders: AgentFolders,
    pub workspaces: Workspaces,
    pub cgroups: Cgroups,
    pub containment: Containment,
    /// Why there are no sessions for people, where there are none.
    pub tmux: Result<Tmux, String>,
    /// Kept copy of the shim that new agents get.
    pub shim: PathBuf,
    pub requests: Requests,
    pub shipper: ShipperSink,
    pub signs: WatchSink,
    pub boot_id: String,
    /// Of this life of hostd.
    pub incarnation: Incarnation,
    /// What agents inherit of hostd's own environment.
    pub environment: BTreeMap<String, String>,
    /// Agents whose base is being prepared.
    pub waiters: Waiters,
    pub starts: Semaphore,
    pub ends: Semaphore,
    pub execs: Semaphore,
    pub renders: Semaphore,
    /// Differences that are being told.
    pub talks: Talks,
    /// Programs beside agents that are being spoken with.
    pub programs: Programs,
    pub uploads: Uploads,
    pub sizes: Sizes,
    /// Outcomes for the driver. Bounded: a job waits when the driver is behind.
    pub inputs: mpsc::Sender<Input>,
}

/// A handle that jobs keep.
pub type Handle = Arc<Machine>;

impl Machine {
    #[must_use]
    pub fn start_permits() -> Semaphore {
        Semaphore::new(STARTS_AT_ONCE)
    }

    #[must_use]
    pub fn end_permits() -> Semaphore {
        Semaphore::new(ENDS_AT_ONCE)
    }

    #[must_use]
    pub fn exec_permits() -> Semaphore {
        Semaphore::new(EXECS_AT_ONCE)
    }

    #[must_use]
    pub fn render_permits() -> Semaphore {
        Semaphore::new(RENDERS_AT_ONCE)
    }

    pub async fn tell(&self, input: Input) {
        // Closed only at shutdown: the next life finds the fact on the disk.
        let _ = self.inputs.send(input).await;
    }

    /// What this host cannot do for agents.
    #[must_use]
    pub fn lacks(&self) -> Vec<String> {
        let cgroups = self.cgroups.describe();
        let mut lacks = Vec::new();
        if let Some(reason) = cgroups.reason {
            lacks.push(format!("cgroups: {reason}"));
        }
        if let Err(reason) = &self.tmux {
            lacks.push(format!("sessions: {reason}"));
        }
        lacks
    }
}

/// Variables that agents inherit from hostd; all others are built or left out.
const INHERITED: &[&str] = &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"];

/// The allow-listed part of this process's environment, `LC_*` included.
#[must_use]
pub fn inherited_environment() -> BTreeMap<String, String> {
    let mut kept: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(key, _)| INHERITED.contains(&key.as_str()) || key.starts_with("LC_"))
        .collect();
    kept.entry("PATH".to_owned())
        .or_insert_with(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    if !kept.contains_key("LANG") && !kept.contains_key("LC_ALL") {
        kept.insert("LANG".to_owned(), "C.UTF-8".to_owned());
    }
    kept
}

/// Copies the shim that lies beside this program to `bin/phalanx-shim-<hash>`, from where it is started and stays as
/// long as an agent runs under it: an upgrade never replaces a running one.
///
/// # Errors
/// When there is none, or it cannot be kept.
pub fn keep_shim(bin: &Path) -> std::io::Result<PathBuf> {
    use sha2::{Digest, Sha256};
    use std::os::unix::fs::PermissionsExt;

    let beside = std::env::current_exe()?.with_file_name("phalanx-shim");
    let content = std::fs::read(&beside)
        .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", beside.display())))?;
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(&content));
    let kept = bin.join(format!("phalanx-shim-{}", digest.get(..16).unwrap_or(&digest)));
    if kept.exists() {
        return Ok(kept);
    }
    std::fs::create_dir_all(bin)?;
    let temp = bin.join(format!(".phalanx-shim-{}", std::process::id()));
    std::fs::write(&temp, content)?;
    std::fs::set_permissions(&temp, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&temp, &kept)?;
    Ok(kept)
}
