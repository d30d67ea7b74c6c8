//! The text of a unit (systemd.service(5), systemd.syntax(7)). Reads and writes nothing.

use super::systemd::Scope;
use super::{BootError, Start};

/// In double quotes: specifiers and escapes stand for themselves.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// In a command line `$` begins a variable besides, but not in the name of the program, which is /bin/sh for that.
pub(super) fn argument(text: &str) -> String {
    quoted(text).replace('$', "$$")
}

/// Enters the leaf `supervisor` of the unit's group, then is `phalanx up`: a group that limits groups below it may hold
/// no process itself, so agents get theirs beside the leaf. Where there is no unified hierarchy nothing is made.
const START: &str = r#"group=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup); group=${group%/.control}; \
group=${group%/supervisor}/supervisor; mkdir "$group" 2>/dev/null; \
[ ! -d "$group" ] || echo $$ >"$group/cgroup.procs"; exec "$0" up"#;

/// The first systemd that puts the process into a leaf itself (`DelegateSubgroup=`), also when agents of an earlier start
/// are in the groups beside it, and the kernel lets no process into the group above. Older ones fail there with EBUSY, so
/// the unit could not be restarted while an agent lives. What they run by `ExecStartPost=` they put into the leaf
/// `.control`, and a oneshot unit needs no `ExecStart=`.
const SUBGROUP_SINCE: u32 = 254;

pub(super) fn text(scope: Scope, version: u32, start: &Start<'_>) -> Result<String, BootError> {
    let texts = start.texts("a systemd unit")?;
    let environment: String = texts
        .environment
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    let (program, target) = (argument(texts.program), scope.target());
    let script = argument(&START.replace("\\\n", ""));
    let run =
        if version >= SUBGROUP_SINCE { "DelegateSubgroup=supervisor\nExecStart" } else { "ExecStartPost" };
    let stop = argument(r#"exec "$0" down"#);
    let mounts = quoted(texts.home);
    Ok(format!(
        "# Made by `phalanx up --enable`; `phalanx down --disable` takes it away.

[Unit]
Description=Phalanx: manager, bus and hostd of one installation
After=network.target local-fs.target
RequiresMountsFor={mounts}
StartLimitIntervalSec=0

[Service]
# `up` returns once everything answers; what it left behind stays in this unit.
Type=oneshot
RemainAfterExit=yes
{environment}# The groups below this unit are ours: limits of agents are enforced in them.
Delegate=yes
{run}=/bin/sh -c {script} {program}
ExecStop=/bin/sh -c {stop} {program}
# Agents outlive a stop or restart of this unit.
KillMode=process
TimeoutStartSec=90
TimeoutStopSec=180
LimitNOFILE=65536
LimitNPROC=infinity
TasksMax=infinity
OOMPolicy=continue

[Install]
WantedBy={target}
"
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::layout::Layout;

    #[test]
    fn no_systemd_starts_us_in_the_group_that_hands_limits_down() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        let start = Start::new("/bin/true".into(), &layout, std::iter::empty());
        let of = |version| text(Scope::System, version, &start).unwrap();
        for version in [0, 252, 253] {
            assert!(
                of(version).contains("\nExecStartPost=") && !of(version).contains("\nExecStart="),
                "{version}"
            );
        }
        for version in [254, 257] {
            assert!(of(version).contains("\nDelegateSubgroup=supervisor\nExecStart="), "{version}");
        }
    }

    #[test]
    fn systemd_takes_the_unit_whatever_is_in_the_paths() {
        if Command::new("systemd-analyze").arg("--version").output().is_err() {
            // deploy/test installs it.
            let required = std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_some();
            assert!(!required, "there is no systemd-analyze");
            eprintln!("skipped: there is no systemd-analyze");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let odd = temp.path().join("it's 100% $HOME \"x\" \\ y");
        std::fs::create_dir(&odd).unwrap();
        let program = odd.join("phalanx");
        std::fs::copy("/bin/true", &program).unwrap();
        let layout = Layout::at(odd.join("home")).unwrap();
        let path = ("PATH".into(), "/usr/bin:/a b".into());
        let start = Start::new(program, &layout, std::iter::once(path));
        for scope in [Scope::System, Scope::User] {
            let unit = temp.path().join(format!("phalanx-{scope:?}.service"));
            std::fs::write(&unit, text(scope, 252, &start).unwrap()).unwrap();
            let manager = if scope == Scope::User { "--user" } else { "--system" };
            let mut verify = Command::new("systemd-analyze");
            verify.args(["verify", manager]).arg(&unit).env("XDG_RUNTIME_DIR", temp.path());
            let checked = verify.output().unwrap();
            let said = String::from_utf8_lossy(&checked.stderr);
            assert!(checked.status.success() && !said.contains("phalanx-"), "{said}");
        }
    }
}
