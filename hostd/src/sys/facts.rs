//! Facts of this machine for heartbeats and placement; cheap enough for every two seconds.
//!
//! A fact that could not be read is `None`, never zero. What follows from the facts is decided
//! elsewhere.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use sysinfo::{MemoryRefreshKind, System};

/// What does not change while this machine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Random, new at each boot.
    pub boot_id: Option<String>,
    pub kernel: Option<String>,
    pub hostname: Option<String>,
    /// Cores this process may use: affinity and cgroup quota are counted in.
    pub cores: Option<usize>,
    pub memory_total_bytes: Option<u64>,
}

/// What changes.
#[derive(Debug, Clone, PartialEq)]
pub struct HostLoad {
    pub memory_available_bytes: Option<u64>,
    /// Of the last minute.
    pub load_one: Option<f64>,
    pub disk: Option<DiskSpace>,
    /// Since boot, time asleep included.
    pub boottime_ms: Option<u64>,
}

/// Space of the file system that holds a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    /// What an ordinary user may still write.
    pub free_bytes: u64,
}

impl DiskSpace {
    /// Share used in percent, as `df` counts it: the reserve of root is not space.
    #[must_use]
    pub fn used_percent(&self) -> u64 {
        let used = self.total_bytes.saturating_sub(self.free_bytes);
        (used.saturating_mul(100)).checked_div(self.total_bytes).unwrap_or(100)
    }
}

/// Reads the facts; keeps what the reading library wants kept between calls.
#[derive(Debug)]
pub struct FactsReader {
    system: Option<System>,
}

impl Default for FactsReader {
    fn default() -> Self {
        Self::new()
    }
}

impl FactsReader {
    #[must_use]
    pub fn new() -> Self {
        Self { system: System::new().ok() }
    }

    pub fn identity(&mut self) -> HostIdentity {
        let memory = self.memory();
        HostIdentity {
            boot_id: boot_id(),
            kernel: System::kernel_version().ok(),
            hostname: System::host_name().ok(),
            cores: available_parallelism().ok().map(usize::from),
            memory_total_bytes: memory.map(|(total, _)| total),
        }
    }

    /// `path` is the state folder, whose disk is the one that fills.
    pub fn load(&mut self, path: &Path) -> HostLoad {
        let memory = self.memory();
        HostLoad {
            memory_available_bytes: memory.map(|(_, available)| available),
            load_one: System::load_average().ok().map(|load| load.one),
            disk: disk_space(path),
            boottime_ms: boottime_ms(),
        }
    }

    /// Total and available.
    fn memory(&mut self) -> Option<(u64, u64)> {
        let system = self.system.as_mut()?;
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        Some((system.total_memory(), system.available_memory())).filter(|(total, _)| *total > 0)
    }
}

/// The kernel's random id of this boot.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// `statvfs` of one path: listing all disks, as sysinfo does, touches network mounts that may hang.
#[must_use]
pub fn disk_space(path: &Path) -> Option<DiskSpace> {
    let stat = nix::sys::statvfs::statvfs(path).ok()?;
    let block = stat.fragment_size();
    let reserve = stat.blocks_free().saturating_sub(stat.blocks_available());
    Some(DiskSpace {
        total_bytes: stat.blocks().saturating_sub(reserve).saturating_mul(block),
        free_bytes: stat.blocks_available().saturating_mul(block),
    })
}

/// The boot clock in milliseconds; leases are measured on it, since it does not jump and counts sleep.
#[must_use]
#[expect(unsafe_code, reason = "clock_gettime(2) with CLOCK_BOOTTIME")]
pub fn boottime_ms() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local timespec that outlives the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    (result == 0).then_some(seconds * 1000 + nanoseconds / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_of_this_machine_can_be_read() {
        let mut reader = FactsReader::new();
        let identity = reader.identity();
        assert!(identity.boot_id.is_some_and(|id| id.len() == 36));
        assert!(identity.cores.is_some_and(|cores| cores > 0));
        assert!(identity.kernel.is_some() && identity.hostname.is_some());
        let load = reader.load(Path::new("/"));
        assert!(load.memory_available_bytes.unwrap() <= identity.memory_total_bytes.unwrap());
        assert!(load.disk.is_some_and(|disk| disk.used_percent() <= 100 && disk.total_bytes > 0));
        assert!(boottime_ms().unwrap() >= load.boottime_ms.unwrap());
    }

    #[test]
    fn a_path_that_is_not_there_has_no_disk_figures() {
        assert_eq!(disk_space(Path::new("/nowhere/at/all")), None);
    }
}
