//! Every path below `PHALANX_HOME`, in one place, and the folders made with mode 0700. Reads and writes no
//! file.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The variable that moves all state.
pub const HOME_VARIABLE: &str = "PHALANX_HOME";

/// Why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error(
        "neither PHALANX_HOME, XDG_DATA_HOME nor HOME is set; set PHALANX_HOME to a folder for all state"
    )]
    NoHome,
    #[error("PHALANX_HOME must be an absolute path, not {0}")]
    Relative(PathBuf),
    #[error("cannot make {path}; check its owner, or set PHALANX_HOME to a folder you can write")]
    Create {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} belongs to user {owner}, not to you (user {caller}); set PHALANX_HOME to a folder of your own"
    )]
    Foreign { path: PathBuf, owner: u32, caller: u32 },
}

/// The paths of one installation. Cheap to clone; two are equal when they mean the same home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    home: PathBuf,
}

impl Layout {
    /// A layout at `home`, which must be absolute.
    pub fn at(home: impl Into<PathBuf>) -> Result<Self, LayoutError> {
        let home = home.into();
        if home.is_absolute() { Ok(Self { home }) } else { Err(LayoutError::Relative(home)) }
    }

    /// `PHALANX_HOME`, else `$XDG_DATA_HOME/phalanx`, else `~/.local/share/phalanx`. An empty variable counts
    /// as unset, a relative `XDG_DATA_HOME` is ignored (as the XDG base directory specification asks).
    pub fn from_env() -> Result<Self, LayoutError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, LayoutError> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(home) = set(HOME_VARIABLE) {
            return Self::at(home);
        }
        if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            return Self::at(data.join("phalanx"));
        }
        let user = set("HOME").ok_or(LayoutError::NoHome)?;
        Self::at(user.join(".local/share/phalanx"))
    }

    /// Makes the home and its folders, each for the owner only. Idempotent; tightens modes that are too wide.
    pub fn ensure_folders(&self) -> Result<(), LayoutError> {
        let folders = [
            self.home.clone(),
            self.bin(),
            self.bus(),
            self.keys(),
            self.jwts(),
            self.manager(),
            self.host(),
            self.run(),
            self.log(),
        ];
        for path in folders {
            ensure_private_folder(&path)?;
        }
        Ok(())
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn bin(&self) -> PathBuf {
        self.home.join("bin")
    }

    pub fn bus(&self) -> PathBuf {
        self.home.join("bus")
    }

    /// Seeds of the bus: operator, accounts, signing keys, users.
    pub fn keys(&self) -> PathBuf {
        self.bus().join("keys")
    }

    /// The JWTs this installation issued.
    pub fn jwts(&self) -> PathBuf {
        self.bus().join("jwt")
    }

    /// The folder in which nats-server keeps the account JWTs it serves.
    pub fn resolver(&self) -> PathBuf {
        self.bus().join("resolver")
    }

    pub fn jetstream(&self) -> PathBuf {
        self.bus().join("jetstream")
    }

    pub fn nats_conf(&self) -> PathBuf {
        self.bus().join("nats-server.conf")
    }

    pub fn nats_pid(&self) -> PathBuf {
        self.bus().join("nats-server.pid")
    }

    /// The port of the bus on 127.0.0.1, in decimal.
    pub fn port_file(&self) -> PathBuf {
        self.bus().join("port")
    }

    /// The bytes JetStream may use on disk, in decimal; chosen once.
    pub fn max_file(&self) -> PathBuf {
        self.bus().join("max_file")
    }

    pub fn manager(&self) -> PathBuf {
        self.home.join("manager")
    }

    pub fn manager_creds(&self) -> PathBuf {
        self.manager().join("manager.creds")
    }

    /// The seed that signs orders.
    pub fn order_key(&self) -> PathBuf {
        self.manager().join("order-signing.nk")
    }

    /// The key that seals secrets at rest.
    pub fn fleet_key(&self) -> PathBuf {
        self.manager().join("fleet.key")
    }

    pub fn host(&self) -> PathBuf {
        self.home.join("host")
    }

    /// Sockets of the tmux servers that show agents to people.
    pub fn viewers(&self) -> PathBuf {
        self.host().join("tmux")
    }

    pub fn host_creds(&self) -> PathBuf {
        self.host().join("hostd.creds")
    }

    pub fn host_config(&self) -> PathBuf {
        self.host().join("hostd.json")
    }

    pub fn run(&self) -> PathBuf {
        self.home.join("run")
    }

    pub fn manager_socket(&self) -> PathBuf {
        self.run().join("manager.sock")
    }

    /// The lock a component holds for as long as it lives; its content is the holder's process id.
    pub fn lock(&self, component: &str) -> PathBuf {
        self.run().join(format!("{component}.lock"))
    }

    /// Held by whoever starts or stops the whole.
    pub fn up_lock(&self) -> PathBuf {
        self.run().join("up.lock")
    }

    /// What the supervisor knows of its components.
    pub fn status_file(&self) -> PathBuf {
        self.run().join("status.json")
    }

    /// Present while the operator wants everything stopped: nobody restarts anything.
    pub fn stopped_marker(&self) -> PathBuf {
        self.run().join(protocol::host_config::STOPPED_MARKER)
    }

    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    pub fn log_file(&self, component: &str) -> PathBuf {
        self.log().join(format!("{component}.log"))
    }
}

/// Makes `path` and its parents; the last component gets mode 0700 and must belong to the caller.
pub fn ensure_private_folder(path: &Path) -> Result<(), LayoutError> {
    let failed = |source| LayoutError::Create { path: path.to_path_buf(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let meta = std::fs::metadata(path).map_err(failed)?;
    let caller = nix::unistd::geteuid().as_raw();
    if meta.uid() != caller {
        return Err(LayoutError::Foreign { path: path.to_path_buf(), owner: meta.uid(), caller });
    }
    if meta.mode() & 0o077 != 0 {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Connects to the Unix socket at `path`, which may be longer than the 108 bytes of `sockaddr_un`: the folder
/// is opened and the socket named through it.
pub fn connect_socket(path: &Path) -> io::Result<UnixStream> {
    let missing = || io::Error::new(io::ErrorKind::InvalidInput, "a socket path needs a folder and a name");
    let folder = File::open(path.parent().ok_or_else(missing)?)?;
    let name = path.file_name().ok_or_else(missing)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> Result<PathBuf, LayoutError> {
        let lookup = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, v)| OsString::from(v));
        Layout::from_lookup(lookup).map(|layout| layout.home().to_path_buf())
    }

    #[test]
    fn phalanx_home_wins_then_xdg_then_home() {
        let all = [("PHALANX_HOME", "/a"), ("XDG_DATA_HOME", "/b"), ("HOME", "/c")];
        assert_eq!(found(&all).unwrap(), PathBuf::from("/a"));
        assert_eq!(found(&all[1..]).unwrap(), PathBuf::from("/b/phalanx"));
        assert_eq!(found(&all[2..]).unwrap(), PathBuf::from("/c/.local/share/phalanx"));
        assert!(matches!(found(&[]), Err(LayoutError::NoHome)));
    }

    #[test]
    fn empty_and_relative_variables_are_not_taken() {
        assert_eq!(
            found(&[("PHALANX_HOME", ""), ("HOME", "/c")]).unwrap(),
            Path::new("/c/.local/share/phalanx")
        );
        assert_eq!(
            found(&[("XDG_DATA_HOME", "x"), ("HOME", "/c")]).unwrap(),
            Path::new("/c/.local/share/phalanx")
        );
        assert!(matches!(found(&[("PHALANX_HOME", "rel")]), Err(LayoutError::Relative(_))));
    }

    #[test]
    fn folders_are_for_the_owner_only_even_if_they_were_wider() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("deep/home")).unwrap();
        std::fs::create_dir_all(layout.run()).unwrap();
        std::fs::set_permissions(layout.run(), std::fs::Permissions::from_mode(0o755)).unwrap();
        layout.ensure_folders().unwrap();
        for path in [layout.home().to_path_buf(), layout.run(), layout.keys(), layout.log()] {
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700, "{}", path.display());
        }
    }

    #[test]
    fn a_socket_in_a_very_deep_folder_is_reached() {
        let temp = tempfile::tempdir().unwrap();
        let deep = temp.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let folder = File::open(&deep).unwrap();
        let bound = format!("/proc/self/fd/{}/s.sock", folder.as_raw_fd());
        let _listener = std::os::unix::net::UnixListener::bind(bound).unwrap();
        connect_socket(&deep.join("s.sock")).unwrap();
    }
}
