//! Starting the shim, and processes by identity, against the real kernel.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostd::sys::process::{ProcessRef, ProcessTable};
use hostd::sys::spawn::{ReadyReader, ShimSpawn, SpawnError, SpawnedShim, ready_pipe, spawn_shim};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a script in the shim's place. It finds the descriptor's number in `number`.
struct Case {
    dir: TempDir,
    started: Option<ProcessRef>,
}

impl Case {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let shim = dir.path().join("shim");
        fs::write(&shim, format!("#!/bin/sh\nread ready < number\n{script}\n")).unwrap();
        fs::set_permissions(&shim, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, started: None }
    }

    fn spawn(&mut self, shim: &Path, procs: &[PathBuf]) -> Result<(SpawnedShim, ReadyReader), SpawnError> {
        let (reader, ready) = ready_pipe()?;
        fs::write(self.dir.path().join("number"), format!("{}\n", ready.number())).unwrap();
        let spawned = spawn_shim(ShimSpawn { shim, dir: self.dir.path(), procs, ready })?;
        self.started = Some(spawned.process);
        Ok((spawned, reader))
    }

    fn start(&mut self) -> (SpawnedShim, ReadyReader) {
        let shim = self.dir.path().join("shim");
        self.spawn(&shim, &[]).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if let Some(process) = self.started {
            let _ = process.signal(Signal::SIGKILL);
        }
    }
}

async fn line(reader: &mut ReadyReader) -> Option<String> {
    timeout(LIMIT, reader.line()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_shim_starts_alone_in_its_session_with_nothing_inherited() {
    // Held open without close-on-exec: must not reach the shim.
    let leak = fs::File::open("/dev/zero").unwrap();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let mut case = Case::new(
        r#"echo "$1 $2"; ls -l /proc/$$/fd > fds; tr '\0' '\n' < /proc/$$/environ > environ
           cat /proc/$$/stat > stat; echo '{"ok":true}' > /proc/self/fd/$ready; exec sleep 1000"#,
    );
    let (spawned, mut reader) = case.start();
    assert_eq!(line(&mut reader).await.as_deref(), Some(r#"{"ok":true}"#));
    assert_eq!(case.read("shim.log"), format!("run {}\n", case.dir.path().display()));
    assert_eq!(case.read("environ"), "");
    assert!(!case.read("fds").contains("/dev/zero"), "{}", case.read("fds"));
    let stat = case.read("stat");
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap();
    assert_eq!(session, spawned.process.pid.to_string());
    let children = ProcessTable::read().unwrap();
    let own = ProcessRef::of(i32::try_from(std::process::id()).unwrap()).unwrap().unwrap();
    assert!(children.descendants(own).contains(&spawned.process));
}

#[tokio::test]
async fn a_shim_that_ends_without_a_word_is_told_from_one_that_is_ready() {
    let mut case = Case::new("exit 7");
    let (mut spawned, mut reader) = case.start();
    assert_eq!(line(&mut reader).await, None);
    assert_eq!(timeout(LIMIT, spawned.child.wait()).await.unwrap().unwrap().code(), Some(7));
    let mut half = Case::new("printf 'half a li' > /proc/self/fd/$ready");
    let (_spawned, mut reader) = half.start();
    assert_eq!(line(&mut reader).await, None);
}

#[tokio::test]
async fn a_shim_that_is_missing_or_cannot_join_its_group_is_an_error() {
    let mut case = Case::new("exit 0");
    let missing = case.spawn(Path::new("/nowhere/shim"), &[]);
    assert!(matches!(missing, Err(SpawnError::Start { .. })));
    let shim = case.dir.path().join("shim");
    let no_group = case.spawn(&shim, &[PathBuf::from("/nowhere/cgroup.procs")]);
    assert!(matches!(no_group, Err(SpawnError::Open { .. })));
    let refuses = case.spawn(&shim, &[PathBuf::from("/dev/full")]);
    assert!(matches!(refuses, Err(SpawnError::Start { .. })));
}

#[tokio::test]
async fn a_shim_lives_on_when_its_handle_is_dropped_and_leaves_no_zombie() {
    let mut case = Case::new("echo > /proc/self/fd/$ready; exec sleep 1000");
    let (spawned, mut reader) = case.start();
    assert!(line(&mut reader).await.is_some());
    let process = spawned.process;
    drop(spawned);
    assert!(process.is_alive().unwrap());
    assert!(process.signal(Signal::SIGKILL).unwrap());
    timeout(LIMIT, process.ended()).await.unwrap().unwrap();
    assert!(!process.is_alive().unwrap());
    assert!(process.wait_ended(LIMIT).unwrap());
    // The runtime reaps it, after which nothing has that pid.
    let reaped = async {
        while ProcessRef::of(process.pid).unwrap() == Some(process) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, reaped).await.unwrap();
    assert!(!process.signal(Signal::SIGKILL).unwrap());
}
