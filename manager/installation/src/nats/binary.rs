//! Which nats-server runs: the one this installation put into its `bin` folder, else the one that packages put beside
//! the running program, else the first on PATH, provided it is new enough. Installs nothing.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::layout::Layout;
use crate::process::{ProcessHandle, wait_readable};

/// Older servers drop stream settings in silence and accept forged `Nats-Stream-Source` headers.
pub const MINIMUM: Version = Version { major: 2, minor: 15, patch: 0 };

/// The program's file name.
pub const PROGRAM: &str = "nats-server";

const VERSION_LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl Version {
    /// Reads `2.15.1`, `v2.15.1-RC.1` and lines such as `nats-server: v2.15.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_whitespace().last()?;
        let mut parts = word.trim_start_matches('v').splitn(3, '.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        let digits: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
        Some(Self { major, minor, patch: digits.parse().ok()? })
    }
}

/// A nats-server that may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsBinary {
    pub path: PathBuf,
    pub version: Version,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    #[error(
        "nats-server is neither in {bin} nor beside phalanx nor on PATH; install it with: phalanx up --install-nats"
    )]
    Missing { bin: PathBuf },
    #[error(
        "{path} is nats-server {found}, and at least {MINIMUM} is needed; install it with: \
         phalanx up --install-nats"
    )]
    TooOld { path: PathBuf, found: Version },
    #[error("{path} does not say its version ({said}); install a good one with: phalanx up --install-nats")]
    Unreadable { path: PathBuf, said: String },
}

/// Finds the program. One in our own `bin` folder is preferred, since it is there only when the operator
/// asked for it; an unfit one falls back to the next and is named only when no other fits.
pub fn find(layout: &Layout) -> Result<NatsBinary, BinaryError> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    find_in(layout, beside, std::env::var_os("PATH").as_deref())
}

/// [`find`] with the program's own folder and a search path of the caller's.
pub fn find_in(
    layout: &Layout,
    beside: Option<PathBuf>,
    search: Option<&OsStr>,
) -> Result<NatsBinary, BinaryError> {
    let mut folders = vec![layout.bin()];
    folders.extend(beside);
    folders.extend(search.into_iter().flat_map(std::env::split_paths));
    let mut unfit = None;
    for path in folders.iter().filter(|folder| folder.is_absolute()).map(|folder| folder.join(PROGRAM)) {
        if !is_executable(&path) {
            continue;
        }
        match check(&path) {
            Ok(binary) => return Ok(binary),
            Err(error) => {
                unfit.get_or_insert(error);
            }
        }
    }
    Err(unfit.unwrap_or_else(|| BinaryError::Missing { bin: layout.bin() }))
}

/// Asks one program for its version.
pub fn check(path: &Path) -> Result<NatsBinary, BinaryError> {
    let said = ask_version(path).unwrap_or_else(|error| error.to_string());
    let Some(version) = Version::parse(&said) else {
        return Err(BinaryError::Unreadable { path: path.to_path_buf(), said: said.trim().to_owned() });
    };
    if version < MINIMUM {
        return Err(BinaryError::TooOld { path: path.to_path_buf(), found: version });
    }
    Ok(NatsBinary { path: path.to_path_buf(), version })
}

/// Whether `path` is a file this user may execute.
pub fn is_executable(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn ask_version(path: &Path) -> std::io::Result<String> {
    let mut child = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut said = String::new();
    let answered = match &mut child.stdout {
        Some(out) => {
            // A program that prints nothing within the limit is ended below, which also ends the read.
            let ready = wait_readable(out, VERSION_LIMIT)?;
            if ready {
                out.take(4096).read_to_string(&mut said)?;
            }
            ready
        }
        None => false,
    };
    let grace = if answered { Duration::from_secs(1) } else { Duration::ZERO };
    if let Some(process) = ProcessHandle::open(child.id())?
        && !process.has_ended(grace)?
    {
        child.kill()?;
    }
    child.wait()?;
    if answered { Ok(said) } else { Err(std::io::Error::from(std::io::ErrorKind::TimedOut)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(folder: &Path, says: &str) {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(PROGRAM);
        std::fs::write(&path, format!("#!/bin/sh\necho '{says}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn versions_are_read_from_what_servers_print() {
        let version = |text| Version::parse(text).map(|found| found.to_string());
        assert_eq!(version("nats-server: v2.15.1\n").as_deref(), Some("2.15.1"));
        assert_eq!(version("v2.16.0-RC.2").as_deref(), Some("2.16.0"));
        assert_eq!(version("nats-server: unknown"), None);
        assert!(Version::parse("2.9.10").unwrap() < MINIMUM);
    }

    #[test]
    fn a_server_that_is_missing_too_old_or_silent_is_refused_with_the_command_that_mends_it() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        let on_path = temp.path().join("path");
        let missing = find_in(&layout, None, Some(on_path.as_os_str())).unwrap_err();
        assert!(
            matches!(missing, BinaryError::Missing { .. }) && missing.to_string().contains("--install-nats")
        );
        program(&on_path, "nats-server: v2.14.6");
        let old = find_in(&layout, None, Some(on_path.as_os_str())).unwrap_err();
        assert!(matches!(old, BinaryError::TooOld { .. }), "{old}");
        assert!(old.to_string().contains("2.14.6") && old.to_string().contains("--install-nats"));
        program(&on_path, "");
        assert!(matches!(
            find_in(&layout, None, Some(on_path.as_os_str())),
            Err(BinaryError::Unreadable { .. })
        ));
    }

    #[test]
    fn our_own_server_comes_first_unless_it_is_unfit() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        let on_path = temp.path().join("path");
        program(&on_path, "nats-server: v2.15.1");
        program(&layout.bin(), "nats-server: v2.15.9");
        assert_eq!(find_in(&layout, None, Some(on_path.as_os_str())).unwrap().version.patch, 9);
        program(&layout.bin(), "nats-server: v2.9.10");
        assert_eq!(find_in(&layout, None, Some(on_path.as_os_str())).unwrap().version.patch, 1);
    }

    #[test]
    fn the_server_of_the_package_comes_before_that_of_the_distribution() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        let (beside, on_path) = (temp.path().join("lib"), temp.path().join("path"));
        program(&on_path, "nats-server: v2.15.1");
        let found =
            || find_in(&layout, Some(beside.clone()), Some(on_path.as_os_str())).unwrap().version.patch;
        assert_eq!(found(), 1);
        program(&beside, "nats-server: v2.15.5");
        assert_eq!(found(), 5);
        program(&layout.bin(), "nats-server: v2.15.9");
        assert_eq!(found(), 9);
    }
}
