//! Limits by v1 controllers, and the unified hierarchy beside them for freeze, kill and events.
//!
//! Plain files, as in `v2`: cgroups-rs makes a group in every hierarchy, answers 0 where a read failed, which must be
//! "unknown" here, and brings a D-Bus client of 48 crates.
//! Source: `Documentation/admin-guide/cgroup-v1/`, and `Documentation/scheduler/sched-bwc.rst`.
//! Groups are made at the root of each mount: on v1 there is no delegation to respect, and this
//! process's own group may be someone's container of limits.

use std::path::{Path, PathBuf};

use super::detect::V1Mount;
use super::files::{self, Core, read, read_number, value_of};
use super::v2::WANTED;
use super::{CgroupError, Enforced, Lack, Limits, Stats};

const PERIOD_USEC: u64 = 100_000;
/// v1 shows "no limit" as the largest page-aligned number; nothing real is above this.
const NO_MEMORY_LIMIT: u64 = 1 << 62;
const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";

#[derive(Debug, Clone)]
pub(super) struct V1 {
    name: String,
    /// Mount points in which groups are made, the unified one included, each once.
    mounts: Vec<PathBuf>,
    /// The wanted controllers that are mounted, and where.
    controllers: Vec<(String, PathBuf)>,
    unified: Option<PathBuf>,
    freezer: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
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
        let controllers = WANTED.iter().filter_map(|&name| Some((name.to_owned(), point(name)?))).collect();
        Ok(Self { name, mounts, controllers, unified: unified.map(Path::to_path_buf), freezer, cpuacct })
    }

    pub(super) fn controllers(&self) -> Vec<String> {
        self.controllers.iter().map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn can_freeze(&self) -> bool {
        self.unified.is_some() || self.freezer.is_some()
    }

    pub(super) fn reason(&self) -> Option<String> {
        let missing: Vec<_> =
            WANTED.into_iter().filter(|name| !self.controllers.iter().any(|(has, _)| has == name)).collect();
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
        let group = format!("{}/{agent}/agent", self.name);
        let leaf_of = |name: &str| {
            self.controllers.iter().find(|(has, _)| has == name).map(|(_, point)| point.join(&group))
        };
        V1Limits {
            memory: leaf_of("memory"),
            cpu: leaf_of("cpu"),
            pids: leaf_of("pids"),
            unified: self.unified.as_ref().map(|mount| mount.join(&group)),
            cpuacct: self.cpuacct.as_ref().map(|mount| mount.join(&group)),
        }
    }
}

/// The `agent` leaf of one agent in each v1 hierarchy that is there.
#[derive(Debug, Clone)]
pub(super) struct V1Limits {
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    pids: Option<PathBuf>,
    unified: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
}

impl V1Limits {
    /// Sets all limits; what could not be set is returned with the kernel's reason.
    pub(super) fn set(&self, limits: &Limits) -> Vec<Lack> {
        let mut refused = Vec::new();
        let mut set = |limit: &'static str, leaf: &Path, file: &str, value: String| {
            if let Err(error) = std::fs::write(leaf.join(file), value) {
                refused.push(Lack { limit, reason: format!("{file}: {error}") });
            }
        };
        if let Some(leaf) = &self.memory {
            // The files take signed numbers, of which -1 is "no limit".
            let bytes = limits.memory_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
            // Memory plus swap must never be below memory: lift it, set the one, then bring it down. A kernel that
            // does not count swap has no such file.
            let swap_is_counted = std::fs::write(leaf.join(MEMORY_AND_SWAP), "-1").is_ok();
            set("memory", leaf, "memory.limit_in_bytes", bytes.to_string());
            if swap_is_counted && bytes >= 0 {
                set("swap", leaf, MEMORY_AND_SWAP, bytes.to_string());
            }
        }
        if let Some(leaf) = &self.cpu {
            let quota = limits.cpu_millis.map_or(-1, |millis| i64::from(millis) * 100);
            set("cpu", leaf, "cpu.cfs_period_us", PERIOD_USEC.to_string());
            set("cpu", leaf, "cpu.cfs_quota_us", quota.to_string());
        }
        if let Some(leaf) = &self.pids {
            set(
                "pids",
                leaf,
                "pids.max",
                limits.pids.map_or_else(|| "max".to_owned(), |most| most.to_string()),
            );
        }
        refused
    }

    pub(super) fn enforced(&self) -> Enforced {
        // A limit of -1 is no number here, as `max` is none.
        let number =
            |leaf: &Option<PathBuf>, file: &str| read_number(&leaf.as_ref()?.join(file)).ok().flatten();
        let cpu = number(&self.cpu, "cpu.cfs_quota_us")
            .zip(number(&self.cpu, "cpu.cfs_period_us"))
            .and_then(|(quota, period)| u32::try_from(quota.checked_mul(1000)?.checked_div(period)?).ok());
        Enforced {
            memory_bytes: number(&self.memory, "memory.limit_in_bytes")
                .filter(|limit| *limit < NO_MEMORY_LIMIT),
            cpu_millis: cpu,
            pids: number(&self.pids, "pids.max").and_then(|most| u32::try_from(most).ok()),
        }
    }

    pub(super) fn held_memory(&self) -> Result<Option<u64>, CgroupError> {
        let Some(leaf) = &self.memory else { return Ok(None) };
        let text = read(&leaf.join("memory.stat"))?;
        let held = |key: &str| value_of(&text, key).unwrap_or(0);
        Ok(Some(held("total_rss").saturating_add(held("total_shmem"))))
    }

    pub(super) fn stats(&self) -> Result<Stats, CgroupError> {
        let mut stats = Stats::default();
        if let Some(leaf) = &self.memory {
            stats.memory_bytes = read_number(&leaf.join("memory.usage_in_bytes"))?;
            stats.memory_peak_bytes = read_number(&leaf.join("memory.max_usage_in_bytes"))?;
            stats.oom_kills = value_of(&read(&leaf.join("memory.oom_control"))?, "oom_kill");
        }
        if let Some(leaf) = &self.cpu {
            let nanoseconds = value_of(&read(&leaf.join("cpu.stat"))?, "throttled_time");
            stats.throttled_usec = nanoseconds.map(|time| time / 1000);
        }
        if let Some(leaf) = &self.pids {
            stats.pids = read_number(&leaf.join("pids.current"))?;
            stats.pids_refused = value_of(&read(&leaf.join("pids.events"))?, "max");
        }
        stats.cpu_usec = match (&self.unified, &self.cpuacct) {
            (Some(leaf), _) => value_of(&read(&leaf.join("cpu.stat"))?, "usage_usec"),
            (None, Some(leaf)) => read_number(&leaf.join("cpuacct.usage"))?.map(|time| time / 1000),
            (None, None) => None,
        };
        Ok(stats)
    }
}
