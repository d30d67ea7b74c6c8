//! One agent's group: the operations hostd calls, over files or, without cgroups, over processes.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::files::{self, Core};
use super::v1::V1Limits;
use super::v2::V2Limits;
use super::without::EnvironmentGroup;
use super::{CgroupError, Enforced, Lack, Limits, PopulatedWatch, Stats};
use crate::sys::process::ProcessRef;

/// Who sets and reads the limits of a group of files.
#[derive(Debug, Clone)]
pub(super) enum Controllers {
    V2(V2Limits),
    V1(V1Limits),
}

/// The folders of one agent in every hierarchy used.
#[derive(Debug, Clone)]
pub(super) struct FileGroup {
    agent: String,
    /// `…/<agent>` in each hierarchy.
    folders: Vec<PathBuf>,
    core: Core,
    controllers: Controllers,
}

impl FileGroup {
    pub(super) fn new(agent: &str, folders: Vec<PathBuf>, core: Core, controllers: Controllers) -> Self {
        Self { agent: agent.to_owned(), folders, core, controllers }
    }

    fn procs(&self, leaf: &str) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join(leaf).join("cgroup.procs")).collect()
    }
}

#[derive(Debug, Clone)]
enum Inner {
    Files(FileGroup),
    Without(EnvironmentGroup),
}

/// The processes of one agent and what holds them.
#[derive(Debug, Clone)]
pub struct AgentGroup {
    inner: Inner,
    /// `cgroup.procs` files the shim joins by writing `0` to each, before it is executed.
    pub shim_procs: Vec<PathBuf>,
    /// The same for the agent's program.
    pub agent_procs: Vec<PathBuf>,
    /// Writing `1` kills all of the agent's processes; none before Linux 5.14 and without cgroups.
    pub kill_files: Vec<PathBuf>,
    /// Where `0` (`cgroup.freeze`) or `THAWED` (`freezer.state`) lets a frozen agent go on.
    pub freeze_files: Vec<PathBuf>,
    pub enforced: Enforced,
    pub lacking: Vec<Lack>,
}

impl AgentGroup {
    pub(super) fn files(group: FileGroup) -> Self {
        let kill_file = match &group.core {
            Core::Unified(folder) => Some(folder.join("cgroup.kill")).filter(|file| file.exists()),
            Core::V1 { .. } => None,
        };
        let kill_files = kill_file.into_iter().collect();
        let freeze_files = match &group.core {
            Core::Unified(folder) => vec![folder.join("cgroup.freeze")],
            Core::V1 { folder, freezer: true } => vec![folder.join("freezer.state")],
            Core::V1 { freezer: false, .. } => Vec::new(),
        };
        Self {
            shim_procs: group.procs("shim"),
            agent_procs: group.procs("agent"),
            kill_files,
            freeze_files,
            enforced: Enforced::default(),
            lacking: Vec::new(),
            inner: Inner::Files(group),
        }
    }

    pub(super) fn without(group: EnvironmentGroup) -> Self {
        Self {
            inner: Inner::Without(group),
            shim_procs: Vec::new(),
            agent_procs: Vec::new(),
            kill_files: Vec::new(),
            freeze_files: Vec::new(),
            enforced: Enforced::default(),
            lacking: Vec::new(),
        }
    }

    #[must_use]
    pub fn agent(&self) -> &str {
        match &self.inner {
            Inner::Files(group) => &group.agent,
            Inner::Without(group) => group.agent(),
        }
    }

    /// Without cgroups the processes below the shim count too; with them this changes nothing.
    pub fn set_shim(&mut self, shim: ProcessRef) {
        if let Inner::Without(group) = &mut self.inner {
            group.set_shim(shim);
        }
    }

    pub(super) fn is_there(&self) -> Result<bool, CgroupError> {
        let Inner::Files(group) = &self.inner else { return Ok(true) };
        let leaf = group.core.folder();
        leaf.try_exists().map_err(CgroupError::io("look for", leaf))
    }

    /// Sets the limits and reads back which are in force: what the kernel refused is in `lacking`.
    pub fn set_limits(&mut self, limits: &Limits) {
        if let Inner::Files(group) = &self.inner {
            let refused = match &group.controllers {
                Controllers::V2(v2) => v2.set(limits),
                Controllers::V1(v1) => v1.set(limits),
            };
            self.read_back(limits);
            // The kernel's own words say more than "is not in force".
            for lack in refused {
                match self.lacking.iter_mut().find(|known| known.limit == lack.limit) {
                    Some(known) => known.reason = lack.reason,
                    None if lack.limit == "swap" => self.lacking.push(lack),
                    None => {}
                }
            }
        } else {
            self.read_back(limits);
        }
    }

    pub(super) fn read_back(&mut self, wanted: &Limits) {
        self.enforced = match &self.inner {
            Inner::Files(group) => match &group.controllers {
                Controllers::V2(v2) => v2.enforced(),
                Controllers::V1(v1) => v1.enforced(),
            },
            Inner::Without(_) => Enforced::default(),
        };
        let reason = match &self.inner {
            Inner::Files(_) => "the limit read back from the kernel is not the one set",
            Inner::Without(group) => group.reason(),
        };
        self.lacking = lacking(wanted, &self.enforced, reason);
    }

    /// Stops every process of the agent where it stands; returns once the kernel says so.
    pub fn freeze(&self, limit: Duration) -> Result<(), CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::freeze(&group.core, limit),
            Inner::Without(group) => Err(group.unsupported("freeze an agent")),
        }
    }

    pub fn thaw(&self, limit: Duration) -> Result<(), CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::thaw(&group.core, limit),
            Inner::Without(group) => Err(group.unsupported("thaw an agent")),
        }
    }

    pub fn frozen(&self) -> Result<bool, CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::frozen(&group.core),
            Inner::Without(_) => Ok(false),
        }
    }

    /// Memory that the agent's processes hold and the kernel cannot take back: no cached files. `None` where this
    /// machine does not count it.
    pub fn held_memory(&self) -> Result<Option<u64>, CgroupError> {
        match &self.inner {
            Inner::Files(group) => match &group.controllers {
                Controllers::V2(v2) => v2.held_memory(),
                Controllers::V1(v1) => v1.held_memory(),
            },
            Inner::Without(_) => Ok(None),
        }
    }

    /// Kills all of the agent's processes, frozen ones too; returns when none is left.
    pub fn kill(&self, limit: Duration) -> Result<(), CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::kill(&group.core, limit),
            Inner::Without(group) => group.kill(limit),
        }
    }

    /// Sends `signal` to each of the agent's processes; says to how many.
    pub fn signal_all(&self, signal: Signal) -> Result<usize, CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::signal_all(&group.core, signal),
            Inner::Without(group) => group.signal_all(signal),
        }
    }

    /// Whether any process of the agent (not its shim) lives. An error is "unknown", never "empty".
    pub fn populated(&self) -> Result<bool, CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::populated(&group.core),
            Inner::Without(group) => Ok(!group.processes()?.is_empty()),
        }
    }

    /// Whether no process is in it, no shim either. An error is "unknown", never "empty".
    pub fn is_deserted(&self) -> Result<bool, CgroupError> {
        let Inner::Files(group) = &self.inner else { return Ok(false) };
        let processes = group.folders.iter().map(|folder| files::processes(folder));
        processes.into_iter().try_fold(true, |empty, found| Ok(empty && found?.is_empty()))
    }

    pub fn processes(&self) -> Result<Vec<i32>, CgroupError> {
        match &self.inner {
            Inner::Files(group) => files::processes(group.core.folder()),
            Inner::Without(group) => Ok(group.processes()?.iter().map(|process| process.pid).collect()),
        }
    }

    pub fn stats(&self) -> Result<Stats, CgroupError> {
        match &self.inner {
            Inner::Files(group) => match &group.controllers {
                Controllers::V2(v2) => v2.stats(),
                Controllers::V1(v1) => v1.stats(),
            },
            Inner::Without(group) => group.stats(),
        }
    }

    /// Removes the leaves and the agent's folder in every hierarchy; waits for dying processes
    /// within `limit`. A group with live processes is left as it is.
    pub fn remove(&self, limit: Duration) -> Result<(), CgroupError> {
        let Inner::Files(group) = &self.inner else { return Ok(()) };
        group.folders.iter().try_for_each(|folder| files::remove_tree(folder, limit))
    }

    /// Tells when the group becomes empty or populated.
    pub fn watch_empty(&self) -> Result<PopulatedWatch, CgroupError> {
        match &self.inner {
            Inner::Files(FileGroup { core: Core::Unified(folder), .. }) => {
                PopulatedWatch::events(&folder.join("cgroup.events"))
            }
            Inner::Files(_) | Inner::Without(_) => Ok(PopulatedWatch::looking(self.clone())),
        }
    }
}

/// Which of the wanted limits are not in force. The kernel rounds down to pages and whole microseconds.
fn lacking(wanted: &Limits, enforced: &Enforced, reason: &str) -> Vec<Lack> {
    let not_in_force = |wanted: Option<u64>, enforced: Option<u64>| match (wanted, enforced) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(wanted), Some(enforced)) => enforced > wanted,
    };
    let checks = [
        ("memory", not_in_force(wanted.memory_bytes, enforced.memory_bytes)),
        ("cpu", not_in_force(wanted.cpu_millis.map(u64::from), enforced.cpu_millis.map(u64::from))),
        ("pids", not_in_force(wanted.pids.map(u64::from), enforced.pids.map(u64::from))),
    ];
    let lack = |limit| Lack { limit, reason: reason.to_owned() };
    checks.into_iter().filter(|(_, lacks)| *lacks).map(|(limit, _)| lack(limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::lacking;
    use crate::sys::cgroup::{Enforced, Limits};

    #[test]
    fn a_limit_is_lacking_when_nothing_or_more_than_asked_is_in_force() {
        let wanted = Limits { memory_bytes: Some(1 << 20), cpu_millis: Some(500), pids: Some(10) };
        let exact = Enforced { memory_bytes: Some(1 << 20), cpu_millis: Some(500), pids: Some(10) };
        assert!(lacking(&wanted, &exact, "").is_empty());
        let rounded_down = Enforced { memory_bytes: Some((1 << 20) - 4096), ..exact };
        assert!(lacking(&wanted, &rounded_down, "").is_empty());
        let worse = Enforced { memory_bytes: Some(1 << 21), cpu_millis: None, pids: Some(10) };
        let names: Vec<_> = lacking(&wanted, &worse, "").iter().map(|lack| lack.limit).collect();
        assert_eq!(names, ["memory", "cpu"]);
        assert!(lacking(&Limits::default(), &Enforced::default(), "").is_empty());
    }
}
