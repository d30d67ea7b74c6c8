//! Machines where no cgroup can be made: processes are found by descent and by environment.
//!
//! An agent's processes are those below its shim and those with `PHALANX_AGENT=<id>` in their
//! environment. A process that both left its parents and cleared its environment is missed; that is
//! why such a host is shown as `degraded: no-cgroup`. No limit is claimed and no freeze: SIGSTOP can
//! be seen and undone by the program.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{CgroupError, Stats};
use crate::sys::process::{ProcessRef, ProcessTable};

/// Has the agent's id in the environment of each of its processes.
pub const AGENT_VARIABLE: &str = "PHALANX_AGENT";

#[derive(Debug, Clone)]
pub(super) struct EnvironmentGroup {
    agent: String,
    reason: String,
    shim: Option<ProcessRef>,
}

impl EnvironmentGroup {
    pub(super) fn new(agent: &str, reason: &str) -> Self {
        Self { agent: agent.to_owned(), reason: reason.to_owned(), shim: None }
    }

    pub(super) fn agent(&self) -> &str {
        &self.agent
    }

    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    pub(super) fn set_shim(&mut self, shim: ProcessRef) {
        self.shim = Some(shim);
    }

    pub(super) fn unsupported(&self, action: &'static str) -> CgroupError {
        CgroupError::Unsupported { action, reason: self.reason.clone() }
    }

    fn members(&self) -> Result<(ProcessTable, Vec<ProcessRef>), CgroupError> {
        let table = ProcessTable::read().map_err(CgroupError::Processes)?;
        let wanted = format!("{AGENT_VARIABLE}={}", self.agent);
        let below = self.shim.map(|shim| table.descendants(shim)).unwrap_or_default();
        let mut members = below;
        for process in table.with_environment(&wanted) {
            if !members.contains(&process) {
                members.push(process);
            }
        }
        // The shim carries the agent's environment, as does this process when an agent starts one.
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        members.retain(|process| Some(*process) != self.shim && process.pid != own);
        Ok((table, members))
    }

    pub(super) fn processes(&self) -> Result<Vec<ProcessRef>, CgroupError> {
        Ok(self.members()?.1)
    }

    pub(super) fn signal_all(&self, signal: Signal) -> Result<usize, CgroupError> {
        let mut sent = 0;
        for process in self.processes()? {
            if process.signal(signal).map_err(CgroupError::Processes)? {
                sent += 1;
            }
        }
        Ok(sent)
    }

    /// Stops all first, so that none forks away between the look and the kill.
    pub(super) fn kill(&self, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + limit;
        loop {
            if self.signal_all(Signal::SIGSTOP)? == 0 {
                return Ok(());
            }
            let members = self.processes()?;
            for process in &members {
                process.signal(Signal::SIGKILL).map_err(CgroupError::Processes)?;
            }
            for process in &members {
                let left = deadline.saturating_duration_since(Instant::now());
                if !process.wait_ended(left).map_err(CgroupError::Processes)? {
                    return Err(CgroupError::Late { path: "/proc".into(), state: "empty", limit });
                }
            }
        }
    }

    pub(super) fn stats(&self) -> Result<Stats, CgroupError> {
        let (table, members) = self.members()?;
        let mut stats = Stats { cpu_usec: Some(0), memory_bytes: Some(0), ..Stats::default() };
        for process in &members {
            if let Some(usage) = table.usage(*process) {
                stats.cpu_usec = stats.cpu_usec.map(|sum| sum + usage.cpu_usec);
                stats.memory_bytes = stats.memory_bytes.map(|sum| sum + usage.resident_bytes);
            }
        }
        stats.pids = u64::try_from(members.len()).ok();
        Ok(stats)
    }
}
