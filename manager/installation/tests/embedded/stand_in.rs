//! The other roles of this test program: the supervisor, and daemons that do no more than a daemon must. Run
//! as an ordinary test, each does nothing.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use manager_installation::layout::{HOME_VARIABLE, Layout};
use manager_installation::lock::Lock;
use manager_installation::supervisor::component::{Component, Ready};
use manager_installation::supervisor::{self, Options};

const ROLE: &str = "PHALANX_TEST_ROLE";
/// What the stand-in manager does: `serve`, `die` at once, or `hang` without a socket.
pub(crate) const MANAGER_DOES: &str = "PHALANX_TEST_MANAGER";
pub(crate) const START_LIMIT_MS: &str = "PHALANX_TEST_START_LIMIT_MS";

/// The command that is `phalanx supervise` here.
pub(crate) fn supervise_command() -> Vec<String> {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&program, "stand_in::supervisor_role", "--exact", "--nocapture"].map(ToOwned::to_owned).to_vec()
}

fn layout() -> Layout {
    Layout::at(std::env::var_os(HOME_VARIABLE).expect("PHALANX_HOME")).unwrap()
}

fn component(layout: &Layout, name: &str, ready: Ready) -> Component {
    Component {
        name: name.to_owned(),
        program: std::env::current_exe().unwrap(),
        args: ["stand_in::daemon_role", "--exact", "--nocapture"].map(Into::into).to_vec(),
        env: vec![(HOME_VARIABLE.into(), layout.home().into()), (ROLE.into(), name.into())],
        ready,
        stop_limit: Duration::from_secs(2),
    }
}

#[test]
fn supervisor_role() {
    if std::env::var_os(ROLE).is_some_and(|role| role == "supervisor") {
        let layout = layout();
        let limit = std::env::var(START_LIMIT_MS).ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
        let options = Options {
            components: vec![
                component(&layout, "hostd", Ready::Locked),
                component(&layout, "manager", Ready::Socket(layout.manager_socket())),
            ],
            supervise: supervise_command(),
            start_limit: Duration::from_millis(limit),
        };
        let command: Vec<_> = supervise_command().into_iter().map(Into::into).collect();
        let ended = supervisor::main(&layout, options, &command);
        std::process::exit(i32::from(ended.is_err()));
    }
}

#[test]
fn daemon_role() {
    let Some(role) = std::env::var(ROLE).ok().filter(|role| role != "supervisor") else { return };
    let layout = layout();
    let does = std::env::var(MANAGER_DOES).unwrap_or_default();
    if role == "manager" && does == "die" {
        eprintln!("the store is on fire");
        std::process::exit(7);
    }
    let Ok(_lock) = Lock::try_take(&layout.lock(&role)) else { std::process::exit(0) };
    let mut listener = None;
    if role == "manager" && does != "hang" {
        let socket = layout.manager_socket();
        let _ = std::fs::remove_file(&socket);
        let folder = std::fs::File::open(layout.run()).unwrap();
        let bound = format!("/proc/self/fd/{}/manager.sock", folder.as_raw_fd());
        listener = Some(UnixListener::bind(bound).unwrap());
    }
    eprintln!("{role} stands in");
    match listener {
        Some(listener) => listener.incoming().for_each(drop),
        None => std::thread::park(),
    }
}
