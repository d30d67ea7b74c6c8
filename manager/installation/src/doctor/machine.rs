//! Probes of the machine: where state lies, what the kernel lets us enforce, and limits that a thousand
//! agents reach.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::{Statvfs, statvfs};
use nix::unistd::{AccessFlags, access, geteuid};

use super::Finding;
use crate::boot::{self, AtBoot};
use crate::layout::Layout;
use crate::ledger;
use crate::supervisor::component::current_program;
use manager_plan::config::{Settings, key};

const DISK_LEAST_MB: u64 = 2048;
const OPEN_FILES_WANTED: u64 = 4096;
const PROCESSES_WANTED: u64 = 4096;
const TERMINALS_WANTED: u64 = 1024;
const INOTIFY_WANTED: u64 = 128;
/// 2024-01-01: a clock before it was never set, and dates in ids and reports would be wrong.
const CLOCK_LEAST_S: u64 = 1_704_067_200;

/// The nearest folder at or above `path` that exists.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|folder| folder.is_dir()).unwrap_or_else(|| Path::new("/")).to_path_buf()
}

pub(super) fn home(layout: &Layout) -> Finding {
    let folder = existing(layout.home());
    let shown = layout.home().display();
    match access(&folder, AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Finding::ok(format!("{shown}")),
        Err(error) => Finding::fail(
            format!("{shown}: cannot write {}: {error}", folder.display()),
            "set PHALANX_HOME to a folder you can write",
        ),
    }
}

pub(super) fn cgroups(_: &Layout) -> Finding {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else {
        return Finding::unknown("/proc/self/mounts cannot be read");
    };
    let wanted = ["memory", "cpu", "pids", "freezer"];
    let mut enforced: Vec<&str> = Vec::new();
    let mut where_found = Vec::new();
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(path), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let found: Vec<&str> = match kind {
            "cgroup" => {
                wanted.into_iter().filter(|name| options.split(',').any(|option| option == *name)).collect()
            }
            "cgroup2" => unified_controllers(Path::new(path), &wanted),
            _ => continue,
        };
        if found.is_empty() || !own_group_is_writable(Path::new(path), kind, options) {
            continue;
        }
        where_found.push(path.to_owned());
        enforced.extend(found);
    }
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !enforced.contains(name)).collect();
    let remedy = if geteuid().is_root() {
        "run where the cgroup file system is mounted for writing (containers: privileged, or a private cgroupns)"
    } else {
        "run under systemd with Delegate=yes: phalanx up --enable, or run as root"
    };
    match (enforced.is_empty(), missing.is_empty()) {
        (false, true) => {
            Finding::ok(format!("limits, freeze and kill enforced ({})", where_found.join(", ")))
        }
        (false, false) => Finding::warn(
            format!("not enforced: {} ({})", missing.join(", "), where_found.join(", ")),
            remedy,
        ),
        (true, _) => {
            Finding::warn("no writable hierarchy: agents run without limits (degraded: no-cgroup)", remedy)
        }
    }
}

fn unified_controllers(path: &Path, wanted: &[&'static str]) -> Vec<&'static str> {
    let listed = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
    let has = |name: &&&str| listed.split_whitespace().any(|word| word == **name);
    // The unified hierarchy freezes and kills without a controller, once it has any to limit with.
    let mut found: Vec<&'static str> = wanted.iter().filter(has).copied().collect();
    if !found.is_empty() {
        found.push("freezer");
    }
    found
}

/// Whether groups can be made below the one this process is in (the top, for root).
fn own_group_is_writable(mount: &Path, kind: &str, options: &str) -> bool {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, names, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = match kind {
            "cgroup2" => number == "0",
            _ => !names.is_empty() && names.split(',').all(|name| options.split(',').any(|o| o == name)),
        };
        ours.then(|| path.trim_start_matches('/').to_owned())
    });
    let below = mount.join(group.unwrap_or_default());
    let folder = if below.is_dir() { below } else { mount.to_path_buf() };
    access(&folder, AccessFlags::W_OK).is_ok()
}

pub(super) fn overlay(layout: &Layout) -> Finding {
    let remedy = "checkouts are shared clones instead (slower, about 30 ms each); for overlays run as root";
    if !geteuid().is_root() {
        return Finding::warn("not root: no overlay mounts", remedy);
    }
    let Ok(listed) = fs::read_to_string("/proc/filesystems") else {
        return Finding::unknown("/proc/filesystems cannot be read");
    };
    if !listed.lines().any(|line| line.trim() == "nodev\toverlay" || line.ends_with("\toverlay")) {
        return Finding::warn("the kernel has no overlay file system loaded", "modprobe overlay");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    match bits {
        // CAP_SYS_ADMIN is bit 21 (capabilities(7)).
        Some(bits) if bits & (1 << 21) == 0 => Finding::warn("no right to mount (CAP_SYS_ADMIN)", remedy),
        Some(_) if kind_of(&existing(layout.home())).as_deref() == Some("overlay") => Finding::warn(
            format!(
                "{} lies on an overlay, which cannot hold another's upper folder",
                layout.home().display()
            ),
            "put PHALANX_HOME on a volume or a tmpfs; until then checkouts are shared clones",
        ),
        Some(_) => Finding::ok("overlay mounts are possible"),
        None => Finding::unknown("capabilities cannot be read"),
    }
}

/// The kind of the file system `path` lies on: that of the longest mount point above it.
fn kind_of(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let fields = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.nth(1)?.to_owned(), words.next()?.to_owned()))
    });
    fields
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|found| found.1)
}

pub(super) fn disk(layout: &Layout) -> Finding {
    let folder = existing(layout.home());
    let stat = match statvfs(&folder) {
        Ok(stat) => stat,
        Err(error) => return Finding::unknown(format!("{}: {error}", folder.display())),
    };
    let free_mb = stat.blocks_available().saturating_mul(stat.fragment_size()) >> 20;
    let used = used_percent(&stat);
    let found = format!("{free_mb} MB free, {used} % used at {}", folder.display());
    let remedy = "free some space, phalanx destroy what is not needed, or move PHALANX_HOME to a larger disk";
    let settings = Settings::of_daemons().unwrap_or_default();
    let most = u64::from(settings.percent(&key::DISK_SHARE).unwrap_or(100));
    if used > most {
        return Finding::fail(format!("{found}; new agents are refused above {most} %"), remedy);
    }
    if free_mb < DISK_LEAST_MB { Finding::warn(found, remedy) } else { Finding::ok(found) }
}

fn used_percent(stat: &Statvfs) -> u64 {
    let used = stat.blocks().saturating_sub(stat.blocks_free());
    let usable = used.saturating_add(stat.blocks_available());
    used.saturating_mul(100).checked_div(usable).unwrap_or(0)
}

pub(super) fn inodes(layout: &Layout) -> Finding {
    let folder = existing(layout.home());
    match statvfs(&folder) {
        // Some file systems (btrfs) have no fixed number and say 0.
        Ok(stat) if stat.files() == 0 => Finding::ok("not limited by this file system"),
        Ok(stat) if stat.files_available() < 100_000 => Finding::warn(
            format!("{} left at {}", stat.files_available(), folder.display()),
            "phalanx destroy agents that are not needed, or move PHALANX_HOME",
        ),
        Ok(stat) => Finding::ok(format!("{} left", stat.files_available())),
        Err(error) => Finding::unknown(format!("{}: {error}", folder.display())),
    }
}

pub(super) fn locale(_: &Layout) -> Finding {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| {
        std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| (name, value))
    });
    match set {
        Some((name, value)) if is_utf8(&value) => Finding::ok(format!("{name}={value}")),
        Some((name, value)) => Finding::warn(format!("{name}={value} is not UTF-8"), "export LC_ALL=C.UTF-8"),
        None => Finding::warn("no locale is set", "export LC_ALL=C.UTF-8"),
    }
}

fn is_utf8(locale: &str) -> bool {
    let lower = locale.to_lowercase();
    lower.contains("utf-8") || lower.contains("utf8")
}

pub(super) fn open_files(_: &Layout) -> Finding {
    limit(Resource::RLIMIT_NOFILE, OPEN_FILES_WANTED, "ulimit -n 65536 (or LimitNOFILE= in the systemd unit)")
}

pub(super) fn processes(_: &Layout) -> Finding {
    limit(
        Resource::RLIMIT_NPROC,
        PROCESSES_WANTED,
        "ulimit -u unlimited (or LimitNPROC= in the systemd unit)",
    )
}

/// The hard limit is what counts: the daemons raise their soft one.
fn limit(resource: Resource, wanted: u64, remedy: &str) -> Finding {
    match getrlimit(resource) {
        Ok((_, hard)) if hard == nix::sys::resource::RLIM_INFINITY => Finding::ok("not limited"),
        Ok((soft, hard)) if hard < wanted => {
            Finding::warn(format!("{soft} (at most {hard}); {wanted} wanted for many agents"), remedy)
        }
        Ok((soft, hard)) => Finding::ok(format!("{soft} (at most {hard})")),
        Err(error) => Finding::unknown(error.to_string()),
    }
}

pub(super) fn terminals(_: &Layout) -> Finding {
    sysctl("/proc/sys/kernel/pty/max", TERMINALS_WANTED, "sysctl -w kernel.pty.max=16384")
}

pub(super) fn inotify(_: &Layout) -> Finding {
    let remedy = "sysctl -w fs.inotify.max_user_instances=1024";
    sysctl("/proc/sys/fs/inotify/max_user_instances", INOTIFY_WANTED, remedy)
}

fn sysctl(path: &str, wanted: u64, remedy: &str) -> Finding {
    match fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(value) if value < wanted => {
            Finding::warn(format!("{value}; {wanted} wanted for many agents"), remedy)
        }
        Some(value) => Finding::ok(value.to_string()),
        None => Finding::unknown(format!("{path} cannot be read")),
    }
}

pub(super) fn notifications(layout: &Layout) -> Finding {
    let hooks = Settings::of_daemons().unwrap_or_default().hooks().to_vec();
    let folder = ledger::folder(layout);
    let remedy = "phalanx notify ls; phalanx notify test";
    let mut failing = Vec::new();
    for hook in &hooks {
        match ledger::read(&folder, &hook.id()) {
            Ok(found) => failing.extend(
                found.and_then(|ledger| ledger.failure).map(|failure| format!("{hook}: {}", failure.why)),
            ),
            Err(error) => return Finding::unknown(format!("{hook}: {error}")),
        }
    }
    match (hooks.len(), failing.is_empty()) {
        (0, _) => Finding::ok("nobody is notified: there is no [[notify]] in the settings"),
        (count, true) => Finding::ok(format!("{count} hook(s)")),
        (_, false) => Finding::warn(failing.join("; "), remedy),
    }
}

pub(super) fn boot(layout: &Layout) -> Finding {
    match boot::at_boot(layout, current_program().ok().as_deref()) {
        // Nobody has asked for it.
        AtBoot::NotEnabled => Finding::ok("not started at boot; enable it with: phalanx up --enable"),
        AtBoot::Unknown { why } => Finding::unknown(why),
        AtBoot::Enabled { entries } => {
            let words: Vec<String> = entries.iter().map(ToString::to_string).collect();
            let lacks: Vec<&str> =
                entries.iter().map(|entry| entry.lacks.as_str()).filter(|lacks| !lacks.is_empty()).collect();
            let found = format!("started by {}", words.join(" and "));
            if lacks.is_empty() { Finding::ok(found) } else { Finding::warn(found, lacks.join("; ")) }
        }
    }
}

pub(super) fn clock(_: &Layout) -> Finding {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now < CLOCK_LEAST_S {
        return Finding::fail(
            format!("{now} s since 1970: the clock was never set"),
            "set it, such as with: timedatectl",
        );
    }
    Finding::ok(format!("{now} s since 1970"))
}
