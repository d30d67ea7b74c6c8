//! Units: looked for, written, enabled, started by the manager of the system for root and of the user otherwise, who
//! then lingers (loginctl(1)), so that his units run without a login. Leaves to others: their text.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use super::program::{run, said};
use super::{BootError, Entry, Start, Way, lacks_program, name_of, unit};
use crate::atomic_file::{self, Durability};
use crate::layout::Layout;
use crate::lock::Lock;
use crate::start::is_up;

/// As long as the unit may take to stop and to start.
const START_LIMIT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    System,
    User,
}

/// Whether systemd runs this machine: sd_booted(3).
fn is_booted() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Of whose units the caller has some.
fn scopes() -> &'static [Scope] {
    if nix::unistd::geteuid().is_root() { &[Scope::System, Scope::User] } else { &[Scope::User] }
}

/// The manager that the caller has here; `None` where systemd does not run the machine, an error where it has none for
/// this user.
pub(super) fn scope() -> Result<Option<Scope>, String> {
    if !is_booted() {
        return Ok(None);
    }
    if nix::unistd::geteuid().is_root() {
        return Ok(Some(Scope::System));
    }
    match Scope::User.ask(&["show-environment"]) {
        Ok(Some(output)) if output.status.success() => Ok(Some(Scope::User)),
        Ok(Some(output)) => Err(said(&output)),
        Ok(None) => Err("there is no systemctl".to_owned()),
        Err(error) => Err(protocol::chain(&error)),
    }
}

impl Scope {
    const fn way(self) -> Way {
        match self {
            Self::System => Way::SystemUnit,
            Self::User => Way::UserUnit,
        }
    }

    fn folder(self) -> Option<PathBuf> {
        match self {
            Self::System => Some(PathBuf::from("/etc/systemd/system")),
            Self::User => {
                let set =
                    |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
                Some(config.join("systemd/user"))
            }
        }
    }

    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::System => "multi-user.target",
            Self::User => "default.target",
        }
    }

    fn file(self, layout: &Layout) -> Option<PathBuf> {
        Some(self.folder()?.join(unit_name(layout)))
    }

    /// What `systemctl enable` makes.
    fn link(self, layout: &Layout) -> Option<PathBuf> {
        Some(self.folder()?.join(format!("{}.wants", self.target())).join(unit_name(layout)))
    }

    fn args<'a>(self, words: &[&'a str]) -> Vec<&'a str> {
        let user = (self == Self::User).then_some("--user");
        user.into_iter().chain(words.iter().copied()).collect()
    }

    fn ask(self, words: &[&str]) -> Result<Option<Output>, BootError> {
        let uid = nix::unistd::geteuid();
        let runtime = format!("/run/user/{uid}");
        // Not set for who came by su: systemctl finds the user's manager by it.
        let lacks = std::env::var_os("XDG_RUNTIME_DIR").is_none() && Path::new(&runtime).is_dir();
        let environment: Vec<_> = lacks.then_some(("XDG_RUNTIME_DIR", runtime)).into_iter().collect();
        run("systemctl", &self.args(words), &environment, b"")
    }

    fn call(self, words: &[&str]) -> Result<(), BootError> {
        let shown = format!("systemctl {}", self.args(words).join(" "));
        match self.ask(words)? {
            Some(output) if output.status.success() => Ok(()),
            Some(output) => Err(BootError::Refused { words: shown, said: said(&output) }),
            None => Err(BootError::Refused { words: shown, said: "there is no systemctl".to_owned() }),
        }
    }

    /// 0 where it does not say: the oldest.
    fn version(self) -> u32 {
        let output = self.ask(&["--version"]).ok().flatten();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.and_then(|text| text.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    }
}

fn unit_name(layout: &Layout) -> String {
    format!("{}.service", name_of(layout))
}

pub(super) fn enable(scope: Scope, start: &Start<'_>) -> Result<Entry, BootError> {
    let text = unit::text(scope, scope.version(), start)?;
    let path = scope.file(start.layout).ok_or(BootError::Neither)?;
    let failed = |action, source| BootError::File { action, path: path.clone(), source };
    let before = std::fs::read(&path).ok();
    if before.as_deref() != Some(text.as_bytes()) {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|source| failed("make the folder of", source))?;
        }
        atomic_file::write(&path, text.as_bytes(), Durability::Disk)
            .map_err(|error| failed("write", error.source))?;
    }
    if let Err(error) = take_in(scope, start.layout, before.as_deref() != Some(text.as_bytes())) {
        // A unit that nothing starts would look as if something did.
        if before.is_none() {
            let _ = std::fs::remove_file(&path);
            let _ = scope.call(&["daemon-reload"]);
        }
        return Err(error);
    }
    let lacks = if scope == Scope::User { linger() } else { String::new() };
    Ok(Entry { way: scope.way(), place: path.display().to_string(), lacks })
}

fn take_in(scope: Scope, layout: &Layout, is_new: bool) -> Result<(), BootError> {
    if is_new {
        scope.call(&["daemon-reload"])?;
    }
    if scope.link(layout).is_none_or(|link| link.symlink_metadata().is_err()) {
        scope.call(&["enable", &unit_name(layout)])?;
    }
    Ok(())
}

/// Where the user's units do not run without a login: lets them, or says what does.
fn linger() -> String {
    if lacks_linger().is_empty() {
        return String::new();
    }
    match run("loginctl", &["enable-linger"], &[], b"") {
        Ok(Some(output)) if output.status.success() => String::new(),
        _ => lacks_linger(),
    }
}

fn lacks_linger() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let user = user.map(|user| user.name).unwrap_or_default();
    if Path::new("/var/lib/systemd/linger").join(&user).exists() {
        return String::new();
    }
    format!("it starts at your first login only; before that with: sudo loginctl enable-linger {user}")
}

pub(super) fn found(layout: &Layout, program: Option<&Path>) -> Result<Vec<Entry>, BootError> {
    let argument = program.and_then(Path::to_str).map(unit::argument);
    let mut entries = Vec::new();
    for scope in scopes() {
        let Some(path) = scope.file(layout) else { continue };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(source) => return Err(BootError::File { action: "read", path, source }),
        };
        let enabled = scope.link(layout).is_some_and(|link| link.symlink_metadata().is_ok());
        let lacks = if !is_booted() {
            "systemd does not run this machine".to_owned()
        } else if !enabled {
            "it is disabled; enable it with: phalanx up --enable".to_owned()
        } else {
            let other = lacks_program(&text, argument.as_deref());
            if other.is_empty() && *scope == Scope::User { lacks_linger() } else { other }
        };
        entries.push(Entry { way: scope.way(), place: path.display().to_string(), lacks });
    }
    Ok(entries)
}

/// Also the link that makes systemd start it, so that nothing is left where systemd cannot be asked.
pub(super) fn disable(layout: &Layout) -> Result<Vec<Entry>, BootError> {
    let mut gone = Vec::new();
    let name = unit_name(layout);
    for scope in scopes() {
        let (Some(path), Some(link)) = (scope.file(layout), scope.link(layout)) else { continue };
        if !path.is_file() {
            continue;
        }
        if is_booted() {
            // What it cannot do is done by hand below; what it says of a manager that is not there is no news.
            let _ = scope.ask(&["disable", "--now", &name]);
        }
        for file in [&link, &path] {
            match std::fs::remove_file(file) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(BootError::File { action: "remove", path: file.clone(), source });
                }
                _ => {}
            }
        }
        if is_booted() {
            let _ = scope.ask(&["daemon-reload"]);
        }
        let (way, place) = (scope.way(), path.display().to_string());
        gone.push(Entry { way, place, lacks: String::new() });
    }
    Ok(gone)
}

/// Starts the unit where there is one and this process is not of it: what is started from a login is in that login's
/// group, in which no limit can be enforced. Whether it did.
pub fn start_in_unit(layout: &Layout) -> Result<bool, BootError> {
    if !is_booted() {
        return Ok(false);
    }
    let name = unit_name(layout);
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if own.contains(&name) {
        return Ok(false);
    }
    let is_there = |scope: &&Scope| scope.file(layout).is_some_and(|path| path.is_file());
    let Some(scope) = scopes().iter().find(is_there) else { return Ok(false) };
    // One caller at a time: a second restart would stop what the first one has just started.
    layout.ensure_folders()?;
    let _turn = Lock::take_within(&layout.lock("unit"), START_LIMIT)?;
    if is_up(layout) {
        return Ok(true);
    }
    // Stopped with `phalanx down`, it still counts as active.
    let active = scope.ask(&["is-active", "--quiet", &name])?.is_some_and(|output| output.status.success());
    scope.call(&[if active { "restart" } else { "start" }, &name])?;
    Ok(true)
}
