//! Ending the program and all it has started. Knows the agent's leaf cgroup where there is one and the process tree
//! where there is none; when to end is decided in `limits`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use protocol::shim::Launch;

use crate::facts;

/// Where the program's processes are found.
pub(crate) struct Family<'a> {
    pub(crate) launch: &'a Launch,
    /// The program, while it has not been reaped: its number is its process group and may be signalled.
    pub(crate) program: Option<Pid>,
}

impl Family<'_> {
    /// SIGTERM to all; thawed first, since a frozen process cannot heed it.
    pub(crate) fn terminate(&self) {
        self.thaw();
        self.signal(Signal::SIGTERM);
    }

    /// SIGKILL to all.
    pub(crate) fn kill(&self) {
        if leaf_members(&self.launch.agent_procs).is_some() {
            for file in &self.launch.kill_files {
                if let Err(error) = std::fs::write(file, "1") {
                    crate::log(&format!("cannot write {}: {error}", file.display()));
                }
            }
        }
        self.signal(Signal::SIGKILL);
        // In a v1 freezer even SIGKILL waits for the thaw.
        self.thaw();
    }

    fn signal(&self, signal: Signal) {
        if let Some(program) = self.program {
            let _ = kill(Pid::from_raw(-program.as_raw()), signal);
        }
        let mut all = descendants(getpid().as_raw());
        all.extend(leaf_members(&self.launch.agent_procs).unwrap_or_default());
        for pid in all {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn thaw(&self) {
        for file in &self.launch.freeze_files {
            let word = if file.ends_with("freezer.state") { "THAWED" } else { "0" };
            if let Err(error) = std::fs::write(file, word) {
                crate::log(&format!("cannot write {}: {error}", file.display()));
            }
        }
    }
}

/// Whether `cgroup.events` says that the leaf has members; false where it cannot be read.
pub(crate) fn populated(events_file: Option<&Path>) -> bool {
    let text = events_file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    text.lines().any(|line| line == "populated 1")
}

/// Processes of the agent's leaf. `None` without one, and where the shim itself is in it: such a group is not the
/// agent's alone, and ending all of it would end others.
fn leaf_members(files: &[PathBuf]) -> Option<BTreeSet<i32>> {
    let own = getpid().as_raw();
    let mut members = BTreeSet::new();
    for file in files {
        if let Ok(text) = std::fs::read_to_string(file) {
            members.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
        }
    }
    let usable = !files.is_empty() && !members.contains(&own) && !members.contains(&1);
    // 0 stands for processes of another pid namespace; as a target of kill(2) it would mean our own group.
    usable.then(|| members.into_iter().filter(|&pid| pid > 1).collect())
}

/// All processes below `root`; those whose parents have died are there too, since the shim adopts them.
fn descendants(root: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(pid) = pid
            && let Ok(stat) = facts::stat(pid)
            && stat.state != 'Z'
        {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            if found.insert(child) {
                next.push(child);
            }
        }
    }
    found
}
