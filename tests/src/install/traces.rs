//! What an installation has on the machine beside its folder: processes, mounts, cgroups. Found in `/proc` and by the
//! name of its instance, so that nothing of another installation is ever touched.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait;

/// A process of an installation, and by what it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub command: String,
    /// Folder, groups and the agent's own variables.
    belongs: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    home: PathBuf,
    pub processes: Vec<Process>,
    pub mounts: Vec<PathBuf>,
    /// Every folder below the instance's groups.
    pub cgroups: Vec<PathBuf>,
}

impl Traces {
    #[must_use]
    pub fn of(home: &Path) -> Self {
        let instance = format!("phalanx-{}", hostd::daemon::instance_of(&home.join("host")));
        let mut cgroups = Vec::new();
        for root in cgroup_mounts() {
            find_groups(&root, &instance, 0, &mut cgroups);
        }
        let processes = processes_of(home, &instance);
        Self { home: home.to_path_buf(), processes, mounts: mounts_below(home), cgroups }
    }

    /// Those that name an agent.
    #[must_use]
    pub fn naming(mut self, agent: &str) -> Self {
        self.processes.retain(|found| found.command.contains(agent) || found.belongs.contains(agent));
        self.mounts.retain(|path| path.to_string_lossy().contains(agent));
        self.cgroups.retain(|path| path.to_string_lossy().contains(agent));
        self
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.mounts.is_empty() && self.cgroups.is_empty()
    }

    /// Ends the processes by their ids, until none is found; then the mounts and groups.
    pub fn remove(self) {
        let look = || {
            let found = Self::of(&self.home);
            for process in &found.processes {
                let _ = kill(Pid::from_raw(process.pid.cast_signed()), Signal::SIGKILL);
            }
            found
        };
        let left = wait::until(Duration::from_secs(20), "the processes of a test end", look, |found| {
            found.processes.is_empty()
        });
        for path in left.mounts.iter().rev() {
            let _ = umount2(path, MntFlags::MNT_DETACH);
        }
        // The deepest first.
        for path in left.cgroups.iter().rev() {
            let _ = std::fs::remove_dir(path);
        }
    }
}

fn processes_of(home: &Path, instance: &str) -> Vec<Process> {
    let home_text = home.to_string_lossy().into_owned();
    let own = std::process::id();
    let Ok(folder) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own && super::is_alive(*pid))
        .filter_map(|pid| {
            let read = |name: &str| {
                let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let command = read("cmdline");
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            let belongs = format!("{} {} {}", cwd.display(), read("cgroup"), read("environ"));
            let ours = command.contains(&home_text)
                || belongs.contains(&home_text)
                || belongs.contains(&format!("{instance}/"));
            ours.then_some(Process { pid, command, belongs })
        })
        .collect()
}

/// Mount points below the home, in the order they were made.
fn mounts_below(home: &Path) -> Vec<PathBuf> {
    mountinfo().into_iter().map(|(_, point)| point).filter(|point| point.starts_with(home)).collect()
}

fn cgroup_mounts() -> Vec<PathBuf> {
    mountinfo().into_iter().filter(|(kind, _)| kind.starts_with("cgroup")).map(|(_, point)| point).collect()
}

/// Kind and mount point of every mount (proc_pid_mountinfo(5)).
fn mountinfo() -> Vec<(String, PathBuf)> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = |line: &str| {
        let point = line.split(' ').nth(4)?.replace("\\040", " ");
        let kind = line.split_once(" - ")?.1.split(' ').next()?.to_owned();
        Some((kind, PathBuf::from(point)))
    };
    text.lines().filter_map(mount).collect()
}

/// Groups are few and lie near the top: a container's or a unit's.
const DEPTH: usize = 8;

fn find_groups(folder: &Path, instance: &str, depth: usize, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let path = entry.path();
        if entry.file_name() == *instance {
            gather(&path, found);
        } else if depth < DEPTH && !entry.file_name().to_string_lossy().starts_with("phalanx-") {
            find_groups(&path, instance, depth + 1, found);
        }
    }
}

fn gather(group: &Path, found: &mut Vec<PathBuf>) {
    found.push(group.to_path_buf());
    let Ok(entries) = std::fs::read_dir(group) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        gather(&entry.path(), found);
    }
}
