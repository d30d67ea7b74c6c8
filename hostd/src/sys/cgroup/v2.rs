//! Limits and statistics in a delegated subtree of the unified hierarchy.
//!
//! Nothing above `root` is written. Controllers are handed down one by one, since a machine that
//! delegates only some of them (rootless systemd: often memory and pids) still enforces those.
//! Source: `Documentation/admin-guide/cgroup-v2.rst`, "No Internal Process Constraint", "Delegation".

use std::path::{Path, PathBuf};

use super::files::{self, read, read_number, value_of, write};
use super::{CgroupError, Enforced, Lack, Limits, Stats};

/// Length of a quota period in microseconds, the kernel's default.
const PERIOD_USEC: u64 = 100_000;
pub(super) const WANTED: [&str; 3] = ["memory", "cpu", "pids"];

#[derive(Debug, Clone)]
pub(super) struct V2 {
    instance_folder: PathBuf,
    controllers: Vec<String>,
    reason: Option<String>,
}

impl V2 {
    /// Makes the instance's folder below `root`, which no process must sit in, and hands it the controllers.
    pub(super) fn prepare(root: &Path, instance: &str) -> Result<Self, CgroupError> {
        let mut lacks = enable(root)?;
        let instance_folder = root.join(format!("phalanx-{instance}"));
        files::make_group(&instance_folder)?;
        lacks.extend(enable(&instance_folder)?);
        let handed_down = read(&instance_folder.join("cgroup.subtree_control"))?;
        let controllers: Vec<String> = handed_down.split_whitespace().map(str::to_owned).collect();
        let missing: Vec<_> =
            WANTED.into_iter().filter(|name| !controllers.iter().any(|has| has == name)).collect();
        let reason = (!missing.is_empty()).then(|| {
            let causes = if lacks.is_empty() { String::new() } else { format!(" ({})", lacks.join("; ")) };
            format!(
                "{} cannot be limited in {}{causes}; delegate the controllers to it \
                 (systemd: Delegate=memory cpu pids)",
                missing.join(", "),
                root.display(),
            )
        });
        Ok(Self { instance_folder, controllers, reason })
    }

    pub(super) fn instance_folder(&self) -> &Path {
        &self.instance_folder
    }

    pub(super) fn controllers(&self) -> Vec<String> {
        self.controllers.clone()
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.reason.clone()
    }

    /// As it was prepared; what cannot be handed down now is told by the limits that are not in force.
    pub(super) fn make_folder(&self) -> Result<(), CgroupError> {
        files::make_group(&self.instance_folder)?;
        enable(&self.instance_folder).map(|_| ())
    }

    pub(super) fn make(&self, agent: &str) -> Result<(), CgroupError> {
        let folder = self.instance_folder.join(agent);
        files::make_group(&folder)?;
        enable(&folder)?;
        files::make_group(&folder.join("shim"))?;
        files::make_group(&folder.join("agent"))
    }

    pub(super) fn of(&self, agent: &str) -> V2Limits {
        V2Limits { leaf: self.instance_folder.join(agent).join("agent") }
    }
}

/// Hands each wanted controller that `folder` has down to its children; says which it could not.
fn enable(folder: &Path) -> Result<Vec<String>, CgroupError> {
    let control = folder.join("cgroup.subtree_control");
    let available = read(&folder.join("cgroup.controllers"))?;
    let enabled = read(&control)?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|word| word == name);
    let mut failed = Vec::new();
    for name in WANTED {
        if has(&available, name)
            && !has(&enabled, name)
            && let Err(error) = std::fs::write(&control, format!("+{name}"))
        {
            let hint =
                if error.raw_os_error() == Some(libc::EBUSY) { ", since processes sit in it" } else { "" };
            failed.push(format!("{name} in {}: {error}{hint}", folder.display()));
        }
    }
    Ok(failed)
}

/// The `agent` leaf of one agent.
#[derive(Debug, Clone)]
pub(super) struct V2Limits {
    leaf: PathBuf,
}

impl V2Limits {
    /// Sets all limits; what could not be set is returned with the kernel's reason.
    pub(super) fn set(&self, limits: &Limits) -> Vec<Lack> {
        let text = |value: Option<u64>| value.map_or_else(|| "max".to_owned(), |value| value.to_string());
        let quota = limits.cpu_millis.map(|millis| u64::from(millis) * PERIOD_USEC / 1000);
        let mut refused = Vec::new();
        let mut set = |limit: &'static str, file: &str, value: String, wanted: bool| {
            let path = self.leaf.join(file);
            // A file that is not there is a controller that is not: only a lack if it was asked for.
            let reason = if !path.exists() {
                format!("{file} is not there: its controller is not delegated")
            } else if let Err(error) = std::fs::write(&path, value) {
                format!("{file}: {error}")
            } else {
                return;
            };
            if wanted {
                refused.push(Lack { limit, reason });
            }
        };
        let memory = limits.memory_bytes;
        set("memory", "memory.max", text(memory), memory.is_some());
        if self.leaf.join("memory.swap.max").exists() {
            // Else an agent at its memory limit goes on in swap and slows the whole machine.
            let swap = if memory.is_some() { "0" } else { "max" };
            set("swap", "memory.swap.max", swap.to_owned(), memory.is_some());
        }
        set("memory", "memory.oom.group", u8::from(memory.is_some()).to_string(), memory.is_some());
        set("cpu", "cpu.max", format!("{} {PERIOD_USEC}", text(quota)), quota.is_some());
        set("pids", "pids.max", text(limits.pids.map(u64::from)), limits.pids.is_some());
        refused
    }

    pub(super) fn enforced(&self) -> Enforced {
        let number = |file: &str| read_number(&self.leaf.join(file)).ok().flatten();
        let cpu = read(&self.leaf.join("cpu.max")).ok().and_then(|text| parse_cpu_max(&text));
        Enforced {
            memory_bytes: number("memory.max"),
            cpu_millis: cpu,
            pids: number("pids.max").and_then(|pids| u32::try_from(pids).ok()),
        }
    }

    pub(super) fn held_memory(&self) -> Result<Option<u64>, CgroupError> {
        let path = self.leaf.join("memory.stat");
        if !path.exists() {
            return Ok(None);
        }
        let text = read(&path)?;
        let held = |key: &str| value_of(&text, key).unwrap_or(0);
        Ok(Some(held("anon").saturating_add(held("shmem"))))
    }

    pub(super) fn stats(&self) -> Result<Stats, CgroupError> {
        let number = |file: &str| read_number(&self.leaf.join(file));
        let optional = |file: &str| -> Result<Option<String>, CgroupError> {
            let path = self.leaf.join(file);
            if path.exists() { read(&path).map(Some) } else { Ok(None) }
        };
        let cpu = read(&self.leaf.join("cpu.stat"))?;
        let in_file = |text: &Option<String>, key: &str| text.as_deref().and_then(|text| value_of(text, key));
        let memory_events = optional("memory.events")?;
        let pids_events = optional("pids.events")?;
        Ok(Stats {
            cpu_usec: value_of(&cpu, "usage_usec"),
            memory_bytes: number("memory.current")?,
            memory_peak_bytes: number("memory.peak")?,
            pids: number("pids.current")?,
            pids_refused: in_file(&pids_events, "max"),
            oom_kills: in_file(&memory_events, "oom_kill"),
            throttled_usec: value_of(&cpu, "throttled_usec"),
        })
    }
}

/// Makes a leaf of `root` and moves this process there, so that `root` may hand down controllers.
pub(super) fn move_self_to_leaf(root: &Path, leaf: &str) -> Result<(), CgroupError> {
    let folder = root.join(leaf);
    files::make_group(&folder)?;
    write(&folder.join("cgroup.procs"), "0")
}

/// `QUOTA PERIOD` in thousandths of a core; `None` for `max`.
fn parse_cpu_max(text: &str) -> Option<u32> {
    let mut words = text.split_whitespace();
    let quota: u64 = words.next()?.parse().ok()?;
    let period: u64 = words.next()?.parse().ok()?;
    u32::try_from((quota * 1000).checked_div(period)?).ok()
}

#[cfg(test)]
mod tests {
    use super::parse_cpu_max;

    #[test]
    fn a_quota_reads_as_thousandths_of_a_core() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1500));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("10 0"), None);
        assert_eq!(parse_cpu_max(""), None);
    }
}
