//! Finds which cgroup hierarchies are mounted and which of them this process may use.
//!
//! A machine whose cgroups cannot be used is not an error: hostd then works without limits and says
//! why, and what mends it.

use std::fs;
use std::path::{Path, PathBuf};

use super::v1::V1;
use super::v2::{self, V2, WANTED};
use super::{Backend, CgroupError, check_name};

/// The leaf hostd moves itself to when it sits in the group it was given.
const SUPERVISOR: &str = "supervisor";

/// A mounted v1 hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct V1Mount {
    pub(super) point: PathBuf,
    pub(super) controllers: Vec<String>,
}

/// The mounted v2 hierarchy; `root` is the group that its mount point shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct V2Mount {
    point: PathBuf,
    root: PathBuf,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Mounts {
    v1: Vec<V1Mount>,
    v2: Option<V2Mount>,
}

pub(super) fn detect(instance: &str, root: Option<&Path>) -> Backend {
    match try_detect(instance, root) {
        Ok(backend) => backend,
        Err(reason) => Backend::Without { reason },
    }
}

fn try_detect(instance: &str, root: Option<&Path>) -> Result<Backend, String> {
    check_name(instance).map_err(|error| error.to_string())?;
    let text = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo cannot be read: {error}"))?;
    let mounts = parse_mounts(&text);
    if let Some(root) = root {
        return use_v2(root, instance);
    }
    let limits_are_v1 = mounts
        .v1
        .iter()
        .any(|mount| mount.controllers.iter().any(|controller| WANTED.contains(&controller.as_str())));
    if limits_are_v1 {
        let unified = mounts.v2.as_ref().map(|mount| mount.point.as_path());
        return V1::prepare(&mounts.v1, unified, instance).map(Backend::V1).map_err(|error| explain(&error));
    }
    let Some(mount) = mounts.v2 else {
        return Err("no cgroup hierarchy is mounted".to_owned());
    };
    let own = fs::read_to_string("/proc/self/cgroup")
        .map_err(|error| format!("/proc/self/cgroup cannot be read: {error}"))?;
    let own = own_group(&own, &mount).ok_or("this process's own cgroup is outside the mounted hierarchy")?;
    let given = match own.parent() {
        // An earlier hostd of this unit moved itself there, and this one was started by it.
        Some(parent) if own.ends_with(SUPERVISOR) => parent.to_path_buf(),
        _ => own,
    };
    if under_systemd() && !is_delegated(&given) {
        return Err(format!(
            "{} belongs to systemd and is not delegated; start hostd in a unit with Delegate=yes \
             (by hand: systemd-run --scope -p Delegate=yes, as a user with --user)",
            given.display()
        ));
    }
    use_v2(&given, instance)
}

fn use_v2(root: &Path, instance: &str) -> Result<Backend, String> {
    let own_pid = std::process::id().to_string();
    let procs = fs::read_to_string(root.join("cgroup.procs"))
        .map_err(|error| format!("{} is not a cgroup v2 folder: {error}", root.display()))?;
    // Only the real root of the hierarchy may have both processes and controllers below.
    let is_real_root = !root.join("cgroup.type").exists();
    if !is_real_root && procs.lines().any(|pid| pid == own_pid) {
        v2::move_self_to_leaf(root, SUPERVISOR).map_err(|error| explain(&error))?;
    }
    V2::prepare(root, instance).map(Backend::V2).map_err(|error| explain(&error))
}

fn explain(error: &CgroupError) -> String {
    match error {
        CgroupError::Io { source, .. } => format!("{error}: {source}"),
        other => other.to_string(),
    }
}

fn under_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// systemd marks what it delegates by an attribute; a user's own subtree also belongs to the user.
fn is_delegated(group: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let uid = nix::unistd::geteuid();
    let owned = fs::metadata(group.join("cgroup.procs")).is_ok_and(|meta| meta.uid() == uid.as_raw());
    (!uid.is_root() && owned)
        || ["user.delegate", "trusted.delegate"].iter().any(|name| attribute_is_one(group, name))
}

#[expect(unsafe_code, reason = "getxattr(2) has no safe wrapper among our dependencies")]
fn attribute_is_one(path: &Path, name: &str) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let (Ok(path), Ok(name)) =
        (std::ffi::CString::new(path.as_os_str().as_bytes()), std::ffi::CString::new(name))
    else {
        return false;
    };
    let mut value = [0_u8; 4];
    // SAFETY: both strings end in NUL and the buffer's own length is passed; nothing is kept.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    length == 1 && value.first() == Some(&b'1')
}

/// The folder of this process's group in the unified hierarchy.
fn own_group(proc_self_cgroup: &str, mount: &V2Mount) -> Option<PathBuf> {
    let path = proc_self_cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    // A path that climbs is outside this cgroup namespace.
    let below = Path::new(path).strip_prefix(&mount.root).ok()?;
    let climbs = below.components().any(|part| part == std::path::Component::ParentDir);
    (!climbs)
        .then(|| if below.as_os_str().is_empty() { mount.point.clone() } else { mount.point.join(below) })
}

/// Format: `proc_pid_mountinfo(5)`. The first mount of a hierarchy counts.
fn parse_mounts(text: &str) -> Mounts {
    let mut mounts = Mounts::default();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3);
        let (Some(root), Some(point)) = (before.next(), before.next()) else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or(""));
        let point = PathBuf::from(unescape(point));
        match kind {
            Some("cgroup2") if mounts.v2.is_none() => {
                mounts.v2 = Some(V2Mount { point, root: PathBuf::from(unescape(root)) });
            }
            Some("cgroup") => {
                let controllers = options.split(',').map(str::to_owned).collect();
                mounts.v1.push(V1Mount { point, controllers });
            }
            _ => {}
        }
    }
    mounts
}

/// Blank, tab, line feed and backslash are written as `\` and three octal digits.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
24 22 0:20 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
25 24 0:21 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:3 - cgroup cgroup rw,cpu,cpuacct
26 24 0:22 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
27 24 0:23 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
28 24 0:24 / /mnt/a\\040b rw,relatime - cgroup cgroup rw,name=systemd
";

    #[test]
    fn mounted_hierarchies_are_found_with_their_controllers() {
        let mounts = parse_mounts(HYBRID);
        let v2 = V2Mount { point: "/sys/fs/cgroup/unified".into(), root: "/".into() };
        assert_eq!(mounts.v2, Some(v2));
        assert_eq!(mounts.v1.len(), 3);
        assert!(mounts.v1[0].controllers.contains(&"cpuacct".to_owned()));
        assert_eq!(mounts.v1[2].point, Path::new("/mnt/a b"));
        assert_eq!(parse_mounts("nonsense\n - \n1 2 - cgroup\n"), Mounts::default());
    }

    #[test]
    fn the_own_group_is_taken_relative_to_what_is_mounted() {
        let whole = V2Mount { point: "/sys/fs/cgroup".into(), root: "/".into() };
        let own = |text, mount: &V2Mount| own_group(text, mount);
        let unit = "0::/system.slice/hostd.service\n";
        assert_eq!(own(unit, &whole), Some("/sys/fs/cgroup/system.slice/hostd.service".into()));
        assert_eq!(own("3:cpu:/x\n0::/\n", &whole), Some("/sys/fs/cgroup".into()));
        let part = V2Mount { point: "/sys/fs/cgroup".into(), root: "/docker/abc".into() };
        assert_eq!(own("0::/docker/abc/x\n", &part), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(own("0::/elsewhere\n", &part), None);
        assert_eq!(own("0::/../elsewhere\n", &whole), None);
        assert_eq!(own("3:cpu:/x\n", &whole), None);
    }

    #[test]
    fn what_cannot_be_a_group_name_leaves_hostd_without_cgroups() {
        assert!(matches!(detect("../up", None), Backend::Without { .. }));
        let no_cgroup = std::env::temp_dir();
        assert!(matches!(detect("x", Some(&no_cgroup)), Backend::Without { .. }));
    }
}
