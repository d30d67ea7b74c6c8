//! A home of its own whose processes are gone after the test, and ways to look at them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use manager_installation::layout::Layout;
use manager_installation::lock;
use manager_installation::process::ProcessHandle;
use manager_installation::start::{UpError, UpOptions, UpReport, ensure_up};
use manager_installation::stop;
use rustix::process::Signal;

use super::stand_in::supervise_command;

pub(crate) const PARTS: [&str; 4] = ["supervisor", "nats-server", "hostd", "manager"];

pub(crate) struct Home {
    pub(crate) layout: Layout,
    /// Set for the supervisor and, through it, for the daemons.
    pub(crate) env: Vec<(String, String)>,
    _folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path().join("home")).unwrap();
        Self { layout, env: Vec::new(), _folder: folder }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// `env NAME=VALUE… program…`, so that no test changes its own environment.
    pub(crate) fn options(&self) -> UpOptions {
        let mut supervise: Vec<OsString> = vec!["env".into(), "PHALANX_TEST_ROLE=supervisor".into()];
        supervise.extend(self.env.iter().map(|(name, value)| format!("{name}={value}").into()));
        supervise.extend(supervise_command().into_iter().map(OsString::from));
        UpOptions { supervise, limit: Duration::from_secs(30) }
    }

    pub(crate) fn up(&self) -> Result<UpReport, UpError> {
        ensure_up(&self.layout, &self.options())
    }

    /// The live holder of a part's lock.
    pub(crate) fn pid(&self, part: &str) -> Option<u32> {
        lock::holder(&self.layout.lock(part)).ok().flatten().map(|process| process.pid())
    }

    pub(crate) fn pids(&self) -> Vec<Option<u32>> {
        PARTS.iter().map(|part| self.pid(part)).collect()
    }

    pub(crate) fn kill(&self, part: &str) {
        let process = ProcessHandle::open(self.pid(part).expect(part)).unwrap().expect(part);
        process.signal(Signal::KILL).unwrap();
        assert!(process.has_ended(Duration::from_secs(5)).unwrap(), "{part} did not end");
    }

    pub(crate) fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.layout.log_file(name)).unwrap_or_default()
    }

    pub(crate) fn port(&self) -> u16 {
        manager_installation::nats::port::read(&self.layout).unwrap().expect("a port")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = stop::down(&self.layout) {
            eprintln!("down: {error}");
        }
        for part in PARTS {
            if let Some(process) = lock::holder(&self.layout.lock(part)).ok().flatten() {
                let _ = process.signal(Signal::KILL);
            }
        }
        if std::thread::panicking() || std::env::var_os("PHALANX_TEST_SHOW_LOGS").is_some() {
            eprintln!("supervisor log:\n{}", self.log("supervisor"));
            eprintln!("nats log:\n{}\n{}", self.log("nats-server"), self.log("nats-server.out"));
        }
    }
}

/// Waits for a level; prints the last state when it does not come.
pub(crate) fn wait_for<T: std::fmt::Debug>(
    limit: Duration,
    what: &str,
    look: impl Fn() -> T,
    good: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + limit;
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    loop {
        let seen = look();
        if good(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}; last seen {seen:?}");
        let _ = never.recv_timeout(Duration::from_millis(5));
    }
}

/// A folder of programs to be the whole PATH, with what the tests need of the system.
pub(crate) fn path_without_nats(folder: &std::path::Path) -> PathBuf {
    let path = folder.join("path");
    std::fs::create_dir_all(&path).unwrap();
    for program in ["env", "sh", "echo"] {
        let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|folder| folder.join(program))
            .find(|path| path.is_file())
            .expect(program);
        std::os::unix::fs::symlink(real, path.join(program)).unwrap();
    }
    path
}
