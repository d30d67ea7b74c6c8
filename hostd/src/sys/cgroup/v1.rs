//! Limits by v1 controllers, and the unified hierarchy beside them for freeze, kill and events.
//!
//! Limits are set and read back through cgroups-rs with the controllers named (by itself it would
//! make a group in every hierarchy). Its statistics are not used: they read a dozen files per group
//! and answer 0 where a read failed, which must be "unknown" here.
//! Groups are made at the root of each mount: on v1 there is no delegation to respect, and this
//! process's own group may be someone's container of limits.

use std::path::{Path, PathBuf};

use cgroups_rs::fs::cpu::CpuController;
use cgroups_rs::fs::hierarchies::V1 as Mounts;
use cgroups_rs::fs::memory::MemController;
use cgroups_rs::fs::pid::PidController;
use cgroups_rs::fs::{Cgroup, MaxValue};

use super::detect::V1Mount;
use super::files::{self, Core, read, read_number, value_of};
use super::v2::WANTED;
use super::{CgroupError, Enforced, Lack, Limits, Stats};

const PERIOD_USEC: u64 = 100_000;
/// v1 shows "no limit" as the largest page-aligned number; nothing real is above this.
const NO_MEMORY_LIMIT: u64 = 1 << 62;

#[derive(Debug, Clone)]
pub(super) struct V1 {
    name: String,
    /// Mount points in which groups are made, the unified one included, each once.
    mounts: Vec<PathBuf>,
    controllers: Vec<String>,
    unified: Option<PathBuf>,
    freezer: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    hierarchy: Mounts,
}

impl V1 {
    /// Makes the instance's folder in each hierarchy used: those of the wanted controllers, and
    /// the unified one, or in its place the v1 freezer and cpuacct.
    pub(super) fn prepare(
        v1: &[V1Mount],
        unified: Option<&Path>,
        instance: &str,
    ) -> Result<Self, CgroupError> {
        let find = |name: &str| v1.iter().find(|mount| mount.controllers.iter().any(|has| has == name));
        let point = |name: &str| find(name).map(|mount| mount.point.clone());
        let name = format!("phalanx-{instance}");
        let mut mounts: Vec<PathBuf> = Vec::new();
        let mut add = |point: Option<PathBuf>| {
            if let Some(point) = point
                && !mounts.contains(&point)
            {
                mounts.push(point);
            }
        };
        WANTED.iter().for_each(|name| add(point(name)));
        let (freezer, cpuacct) =
            if unified.is_some() { (None, None) } else { (point("freezer"), point("cpuacct")) };
        add(freezer.clone());
        add(cpuacct.clone());
        // Last: once the program is in the group that is killed and counted, it is in all of them.
        add(unified.map(Path::to_path_buf));
        for mount in &mounts {
            files::make_group(&mount.join(&name))?;
        }
        let controllers =
            WANTED.iter().filter(|name| find(name).is_some()).map(|&name| name.to_owned()).collect();
        Ok(Self {
            name,
            mounts,
            controllers,
            unified: unified.map(Path::to_path_buf),
            freezer,
            cpuacct,
            hierarchy: Mounts::new(),
        })
    }

    pub(super) fn controllers(&self) -> Vec<String> {
        self.controllers.clone()
    }

    pub(super) fn can_freeze(&self) -> bool {
        self.unified.is_some() || self.freezer.is_some()
    }

    pub(super) fn reason(&self) -> Option<String> {
        let missing: Vec<_> =
            WANTED.into_iter().filter(|name| !self.controllers.iter().any(|has| has == name)).collect();
        (!missing.is_empty())
            .then(|| format!("{} cannot be limited: no such v1 hierarchy is mounted", missing.join(", ")))
    }

    pub(super) fn instance_folders(&self) -> Vec<PathBuf> {
        self.mounts.iter().map(|mount| mount.join(&self.name)).collect()
    }

    pub(super) fn make(&self, agent: &str) -> Result<(), CgroupError> {
        for folder in self.instance_folders() {
            let folder = folder.join(agent);
            files::make_group(&folder)?;
            files::make_group(&folder.join("shim"))?;
            files::make_group(&folder.join("agent"))?;
        }
        Ok(())
    }

    pub(super) fn core(&self, agent: &str) -> Core {
        let leaf = |mount: &Path| mount.join(&self.name).join(agent).join("agent");
        match (&self.unified, &self.freezer) {
            (Some(unified), _) => Core::Unified(leaf(unified)),
            (None, Some(freezer)) => Core::V1 { folder: leaf(freezer), freezer: true },
            (None, None) => {
                let mount = self.mounts.first().map_or(Path::new("/sys/fs/cgroup"), PathBuf::as_path);
                Core::V1 { folder: leaf(mount), freezer: false }
            }
        }
    }

    pub(super) fn of(&self, agent: &str) -> V1Limits {
        V1Limits {
            path: format!("{}/{agent}/agent", self.name),
            controllers: self.controllers.clone(),
            hierarchy: self.hierarchy.clone(),
            unified: self.unified.clone(),
            cpuacct: self.cpuacct.clone(),
        }
    }
}

/// The `agent` leaf of one agent in the v1 hierarchies.
#[derive(Debug, Clone)]
pub(super) struct V1Limits {
    path: String,
    controllers: Vec<String>,
    hierarchy: Mounts,
    unified: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
}

impl V1Limits {
    fn group(&self) -> Cgroup {
        let hierarchy = Box::new(self.hierarchy.clone());
        Cgroup::load_with_specified_controllers(hierarchy, &self.path, self.controllers.clone())
    }

    /// Sets all limits; what could not be set is returned with the kernel's reason.
    pub(super) fn set(&self, limits: &Limits) -> Vec<Lack> {
        let group = self.group();
        let mut refused = Vec::new();
        let mut note = |limit: &'static str, result: Result<(), cgroups_rs::fs::error::Error>| {
            if let Err(error) = result {
                refused.push(Lack { limit, reason: error.to_string() });
            }
        };
        if let Some(memory) = group.controller_of::<MemController>() {
            let bytes = limits.memory_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
            // Memory plus swap must never be below memory: lift it, set the one, then bring it down.
            let swap_is_counted = memory.set_memswap_limit(-1).is_ok();
            note("memory", memory.set_limit(bytes));
            if swap_is_counted && bytes >= 0 {
                note("swap", memory.set_memswap_limit(bytes));
            }
        }
        if let Some(cpu) = group.controller_of::<CpuController>() {
            let quota = limits.cpu_millis.map_or(-1, |millis| i64::from(millis) * 100);
            note("cpu", cpu.set_cfs_quota_and_period(Some(quota), Some(PERIOD_USEC)));
        }
        if let Some(pids) = group.controller_of::<PidController>() {
            let most = limits.pids.map_or(MaxValue::Max, |pids| MaxValue::Value(i64::from(pids)));
            note("pids", pids.set_pid_max(most));
        }
        refused
    }

    pub(super) fn enforced(&self) -> Enforced {
        let group = self.group();
        let memory = self
            .leaf_of::<MemController>(&group)
            .and_then(|leaf| read_number(&leaf.join("memory.limit_in_bytes")).ok().flatten());
        let cpu = group.controller_of::<CpuController>().and_then(|cpu| {
            let quota = u64::try_from(cpu.cfs_quota().ok()?).ok()?;
            u32::try_from((quota * 1000).checked_div(cpu.cfs_period().ok()?)?).ok()
        });
        let pids = group.controller_of::<PidController>().and_then(|pids| match pids.get_pid_max().ok()? {
            MaxValue::Value(most) => u32::try_from(most).ok(),
            MaxValue::Max => None,
        });
        Enforced { memory_bytes: memory.filter(|limit| *limit < NO_MEMORY_LIMIT), cpu_millis: cpu, pids }
    }

    pub(super) fn held_memory(&self) -> Result<Option<u64>, CgroupError> {
        let group = self.group();
        let Some(leaf) = self.leaf_of::<MemController>(&group) else { return Ok(None) };
        let text = read(&leaf.join("memory.stat"))?;
        let held = |key: &str| value_of(&text, key).unwrap_or(0);
        Ok(Some(held("total_rss").saturating_add(held("total_shmem"))))
    }

    pub(super) fn stats(&self) -> Result<Stats, CgroupError> {
        let group = self.group();
        let mut stats = Stats::default();
        if let Some(leaf) = self.leaf_of::<MemController>(&group) {
            stats.memory_bytes = read_number(&leaf.join("memory.usage_in_bytes"))?;
            stats.memory_peak_bytes = read_number(&leaf.join("memory.max_usage_in_bytes"))?;
            stats.oom_kills = value_of(&read(&leaf.join("memory.oom_control"))?, "oom_kill");
        }
        if let Some(leaf) = self.leaf_of::<CpuController>(&group) {
            let nanoseconds = value_of(&read(&leaf.join("cpu.stat"))?, "throttled_time");
            stats.throttled_usec = nanoseconds.map(|time| time / 1000);
        }
        if let Some(leaf) = self.leaf_of::<PidController>(&group) {
            stats.pids = read_number(&leaf.join("pids.current"))?;
            stats.pids_refused = value_of(&read(&leaf.join("pids.events"))?, "max");
        }
        stats.cpu_usec = match (&self.unified, &self.cpuacct) {
            (Some(unified), _) => value_of(&read(&unified.join(&self.path).join("cpu.stat"))?, "usage_usec"),
            (None, Some(mount)) => {
                read_number(&mount.join(&self.path).join("cpuacct.usage"))?.map(|time| time / 1000)
            }
            (None, None) => None,
        };
        Ok(stats)
    }

    fn leaf_of<'a, T>(&self, group: &'a Cgroup) -> Option<&'a Path>
    where
        &'a T: From<&'a cgroups_rs::fs::Subsystem>,
        T: cgroups_rs::fs::Controller + cgroups_rs::fs::ControllIdentifier + 'a,
    {
        group.controller_of::<T>().map(cgroups_rs::fs::Controller::path)
    }
}
