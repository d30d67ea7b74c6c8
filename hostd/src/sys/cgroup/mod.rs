//! Limits, freezing, killing and counting of one agent's processes, whatever the kernel offers.
//!
//! Layout in every hierarchy used: `<root>/phalanx-<instance>/<agent>/{shim,agent}`. Limits, freeze,
//! kill and out-of-memory act on `agent` only, so the shim lives to write the exit record. Calls are
//! blocking and short, or carry a limit; callers use a blocking thread.
//! Detection is in `detect`, limits in `v2` and `v1`, freeze and kill in `files`, machines without
//! usable cgroups in `without`. Which limits an agent gets is decided elsewhere.

mod detect;
mod files;
mod group;
mod v1;
mod v2;
mod watch;
mod without;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use group::AgentGroup;
pub use watch::PopulatedWatch;
pub use without::AGENT_VARIABLE;

use group::{Controllers, FileGroup};
use without::EnvironmentGroup;

/// Folder of the leaf that holds the tmux servers, outside the unit or session that started hostd.
const VIEWERS: &str = "viewers";

/// What an agent may use; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    /// 1000 is one core.
    pub cpu_millis: Option<u32>,
    pub pids: Option<u32>,
}

/// Limits as read back from the kernel; `None` where none is in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enforced {
    pub memory_bytes: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub pids: Option<u32>,
}

/// A limit that was asked for and is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// `memory`, `swap`, `cpu` or `pids`.
    pub limit: &'static str,
    pub reason: String,
}

/// Usage of an agent since its group was made; `None` where this machine does not count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    pub cpu_usec: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub pids: Option<u64>,
    /// Forks refused by the pids limit.
    pub pids_refused: Option<u64>,
    pub oom_kills: Option<u64>,
    /// Time the group wanted to run and its quota did not let it.
    pub throttled_usec: Option<u64>,
}

/// How this machine's cgroups are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One delegated subtree of the unified hierarchy.
    V2,
    /// Limits by v1 controllers; freeze, kill and events by the unified hierarchy where it is mounted.
    Hybrid,
    /// No group can be made: nothing is limited, and processes are found by their environment.
    None,
}

/// What of the cgroups works here, for `doctor`, host facts and the `degraded` field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupFacts {
    pub kind: Kind,
    pub controllers: Vec<String>,
    pub memory: bool,
    pub cpu: bool,
    pub pids: bool,
    pub freeze: bool,
    /// Why something is lacking and what mends it.
    pub reason: Option<String>,
}

/// Why an operation on an agent's group failed. "Not there" on kill and remove is success.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0:?} cannot name a cgroup: letters, digits, `-` and `_` only")]
    Name(String),
    #[error("agent {0} has no cgroup")]
    Absent(String),
    #[error("{} was not {state} after {} ms", path.display(), limit.as_millis())]
    Late { path: PathBuf, state: &'static str, limit: Duration },
    #[error("cannot {action} without cgroups: {reason}")]
    Unsupported { action: &'static str, reason: String },
    #[error("cannot look through the processes of this machine")]
    Processes(#[source] io::Error),
}

impl CgroupError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// The group vanished under the call: someone else removed it.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Absent(_) => true,
            Self::Io { source, .. } => group_is_gone(source),
            _ => false,
        }
    }
}

/// Opening gives ENOENT, a descriptor that was open before the removal ENODEV.
fn group_is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}

#[derive(Debug, Clone)]
enum Backend {
    V2(v2::V2),
    V1(v1::V1),
    Without { reason: String },
}

/// The groups of one instance of hostd on this machine.
#[derive(Debug, Clone)]
pub struct Cgroups {
    backend: Backend,
}

impl Cgroups {
    /// Finds what this machine offers and makes the instance's own folder; never fails, since an
    /// agent without limits, shown as such, is of more use than none.
    #[must_use]
    pub fn detect(instance: &str) -> Self {
        Self { backend: detect::detect(instance, None) }
    }

    /// As [`Cgroups::detect`], in the delegated v2 group `root` (under systemd: a unit of its own).
    #[must_use]
    pub fn detect_at(instance: &str, root: &Path) -> Self {
        Self { backend: detect::detect(instance, Some(root)) }
    }

    /// No cgroups, by configuration.
    #[must_use]
    pub fn without(reason: &str) -> Self {
        Self { backend: Backend::Without { reason: reason.to_owned() } }
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.backend {
            Backend::V2(_) => Kind::V2,
            Backend::V1(_) => Kind::Hybrid,
            Backend::Without { .. } => Kind::None,
        }
    }

    #[must_use]
    pub fn describe(&self) -> CgroupFacts {
        let (controllers, freeze, reason) = match &self.backend {
            Backend::V2(v2) => (v2.controllers(), true, v2.reason()),
            Backend::V1(v1) => (v1.controllers(), v1.can_freeze(), v1.reason()),
            Backend::Without { reason } => (Vec::new(), false, Some(reason.clone())),
        };
        let has = |name: &str| controllers.iter().any(|controller| controller == name);
        CgroupFacts {
            kind: self.kind(),
            memory: has("memory"),
            cpu: has("cpu"),
            pids: has("pids"),
            freeze,
            controllers,
            reason,
        }
    }

    /// Makes the agent's two leaves if they are not there, sets the limits, reads back what is in force.
    pub fn ensure(&self, agent: &str, limits: &Limits) -> Result<AgentGroup, CgroupError> {
        check_name(agent)?;
        let mut group = match &self.backend {
            Backend::V2(v2) => {
                self.in_folders(|| v2.make(agent))?;
                self.file_group(agent)
            }
            Backend::V1(v1) => {
                self.in_folders(|| v1.make(agent))?;
                self.file_group(agent)
            }
            Backend::Without { reason } => AgentGroup::without(EnvironmentGroup::new(agent, reason)),
        };
        group.set_limits(limits);
        Ok(group)
    }

    /// The group of an agent that runs already, with its limits as they are; for adoption.
    pub fn open(&self, agent: &str) -> Result<AgentGroup, CgroupError> {
        check_name(agent)?;
        let mut group = match &self.backend {
            Backend::V2(_) | Backend::V1(_) => {
                let group = self.file_group(agent);
                if !group.is_there()? {
                    return Err(CgroupError::Absent(agent.to_owned()));
                }
                group
            }
            Backend::Without { reason } => AgentGroup::without(EnvironmentGroup::new(agent, reason)),
        };
        group.read_back(&Limits::default());
        Ok(group)
    }

    /// The group of an agent, whether it is there or not: one that is not holds nothing.
    pub fn find(&self, agent: &str) -> Result<AgentGroup, CgroupError> {
        check_name(agent)?;
        let mut group = self.file_group(agent);
        group.read_back(&Limits::default());
        Ok(group)
    }

    /// Agents that have a group here, whether anyone knows them or not.
    pub fn list(&self) -> Result<Vec<String>, CgroupError> {
        let mut agents = BTreeSet::new();
        for folder in self.instance_folders() {
            for name in files::child_groups(&folder)? {
                if folder.join(&name).join("agent").is_dir() {
                    agents.insert(name);
                }
            }
        }
        Ok(agents.into_iter().collect())
    }

    /// The `cgroup.procs` files a tmux server joins so that no restart of hostd's unit ends it.
    pub fn viewers(&self) -> Result<Vec<PathBuf>, CgroupError> {
        let mut procs = Vec::new();
        for folder in self.instance_folders() {
            let leaf = folder.join(VIEWERS);
            self.in_folders(|| files::make_group(&leaf))?;
            procs.push(leaf.join("cgroup.procs"));
        }
        Ok(procs)
    }

    /// Removes the instance's own folders; those that still hold a group stay. Viewers that are ending are waited for
    /// within `limit`.
    pub fn remove_instance(&self, limit: Duration) -> Result<(), CgroupError> {
        for folder in self.instance_folders() {
            if files::child_groups(&folder)?.iter().all(|name| name == VIEWERS) {
                files::remove_tree(&folder, limit)?;
            }
        }
        Ok(())
    }

    /// Makes groups in the instance's folders, and those anew where they are gone: while they are empty, systemd removes
    /// them with others of their unit.
    fn in_folders(&self, make: impl Fn() -> Result<(), CgroupError>) -> Result<(), CgroupError> {
        match make() {
            Err(error) if error.is_absent() => {
                match &self.backend {
                    Backend::V2(v2) => v2.make_folder()?,
                    Backend::V1(v1) => {
                        v1.instance_folders().iter().try_for_each(|folder| files::make_group(folder))?;
                    }
                    Backend::Without { .. } => {}
                }
                make()
            }
            made => made,
        }
    }

    fn instance_folders(&self) -> Vec<PathBuf> {
        match &self.backend {
            Backend::V2(v2) => vec![v2.instance_folder().to_path_buf()],
            Backend::V1(v1) => v1.instance_folders(),
            Backend::Without { .. } => Vec::new(),
        }
    }

    fn file_group(&self, agent: &str) -> AgentGroup {
        let folders = self.instance_folders().iter().map(|folder| folder.join(agent)).collect();
        match &self.backend {
            Backend::V2(v2) => {
                let core = files::Core::Unified(v2.instance_folder().join(agent).join("agent"));
                AgentGroup::files(FileGroup::new(agent, folders, core, Controllers::V2(v2.of(agent))))
            }
            Backend::V1(v1) => AgentGroup::files(FileGroup::new(
                agent,
                folders,
                v1.core(agent),
                Controllers::V1(v1.of(agent)),
            )),
            Backend::Without { reason } => AgentGroup::without(EnvironmentGroup::new(agent, reason)),
        }
    }
}

fn check_name(name: &str) -> Result<(), CgroupError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > 64 || name == VIEWERS || !name.bytes().all(fits) {
        return Err(CgroupError::Name(name.to_owned()));
    }
    Ok(())
}
