//! How programs end and fail to start, and what the record says then.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::shim::{EndCause, LaunchUser, StartStep, file};

use crate::support::{Agent, alive, descendants, is_root, launch, leaving, shell, wait_until};

#[test]
fn every_exit_code_is_recorded() {
    for code in [0, 1, 127, 255] {
        let (agent, record) = Agent::run(&shell(&format!("exit {code}")));
        assert_eq!((record.cause, record.code, record.signal), (EndCause::Exited, Some(code), None));
        assert!(!record.descendants_left);
        assert!(record.exited_at_ms >= record.started_at_ms && record.started_at_ms > 0);
        assert_eq!(record.boot_id, agent.record().boot_id);
        assert!(!agent.path(file::SOCKET).exists());
    }
}

#[test]
fn a_signal_that_ends_a_program_is_recorded() {
    for (name, number) in [("KILL", 9), ("SEGV", 11), ("HUP", 1)] {
        let (_agent, record) = Agent::run(&shell(&format!("kill -{name} $$")));
        assert_eq!((record.cause, record.code, record.signal), (EndCause::Signalled, None, Some(number)));
    }
}

#[test]
fn usage_is_recorded() {
    let (_agent, record) = Agent::run(&shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"));
    assert!(record.usage.user_ms > 0);
    assert!(record.usage.max_rss_kb > 100);
}

#[test]
fn five_hundred_exits_are_all_recorded_right() {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < 500 {
                    let (_agent, record) = Agent::run(&shell("exit 3"));
                    assert_eq!((record.cause, record.code), (EndCause::Exited, Some(3)));
                }
            });
        }
    });
}

fn failed(launch: &protocol::shim::Launch) -> (StartStep, i32, String) {
    let mut agent = Agent::new();
    let ready = agent.start(launch);
    let told = ready.failure.expect("a failure on the ready line");
    let record = agent.ended();
    assert_eq!(record.cause, EndCause::StartFailed(told.clone()));
    assert_eq!((record.code, record.signal, ready.child), (None, None, None));
    (told.step, told.errno, told.message)
}

#[test]
fn what_kept_a_program_from_starting_is_told_apart() {
    let home = tempfile::tempdir().unwrap();
    let make = |name: &str, text: &str, mode: u32| -> String {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let step = |program: &str| {
        let (step, errno, message) = failed(&launch(program, &[]));
        assert!(message.contains(program), "{message}");
        (step, errno)
    };
    assert_eq!(step("no-such-program-anywhere"), (StartStep::Exec, libc::ENOENT));
    assert_eq!(step("/no/such/program"), (StartStep::Exec, libc::ENOENT));
    assert_eq!(step(&make("plain", "#!/bin/sh\n", 0o644)), (StartStep::Exec, libc::EACCES));
    let bad = make("bad", "#!/no/such/interpreter\n", 0o755);
    assert_eq!(step(&bad), (StartStep::Interpreter, libc::ENOENT));
    assert_eq!(step(&make("none", "echo hello\n", 0o755)), (StartStep::Interpreter, libc::ENOEXEC));
}

/// As root one may search every folder: it takes another user.
#[test]
fn a_folder_of_path_that_may_not_be_searched_says_nothing_of_the_program() {
    if !is_root("another user") {
        return;
    }
    let closed = tempfile::tempdir().unwrap();
    std::fs::write(closed.path().join("tool"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = format!("{}:/usr/bin:/bin", closed.path().display());
    let ends = |program: &str| {
        let mut agent = Agent::new();
        let mut launch = launch(program, &[]);
        launch.cwd = "/".into();
        launch.env_file = Some(agent.environment(&[("PATH", &path)]));
        launch.user = Some(LaunchUser { uid: 65534, gid: 65533, groups: Vec::new() });
        let failure = agent.start(&launch).failure.map(|told| told.errno);
        agent.ended();
        failure
    };
    assert_eq!(ends("no-such-program-anywhere"), Some(libc::ENOENT));
    assert_eq!(ends("tool"), Some(libc::ENOENT), "nobody can tell that it is there");
    assert_eq!(ends("true"), None);
}

#[test]
fn a_missing_folder_or_leaf_is_told() {
    let mut lost = shell("exit 0");
    lost.cwd = PathBuf::from("/no/such/folder");
    let (step, errno, message) = failed(&lost);
    assert_eq!((step, errno), (StartStep::Cwd, libc::ENOENT));
    assert!(message.contains("/no/such/folder"));

    let mut leafless = shell("exit 4");
    leafless.agent_procs = vec![PathBuf::from("/no/such/cgroup.procs")];
    leafless.cgroup_required = true;
    assert_eq!(failed(&leafless).0, StartStep::Cgroup);

    leafless.cgroup_required = false;
    leafless.args = vec!["-c".to_owned(), "read line; exit 4".to_owned()];
    let mut agent = Agent::started(&leafless);
    let mut connection = agent.connect();
    assert!(connection.status().degraded[0].contains("/no/such/cgroup.procs"));
    connection.attach(24, 80);
    connection.input(b"go\r");
    assert_eq!(agent.ended().code, Some(4));
}

#[test]
fn a_missing_environment_file_is_told() {
    let mut launch = shell("exit 0");
    launch.env_file = Some(PathBuf::from("/no/such/env"));
    assert_eq!(failed(&launch).0, StartStep::Environment);
}

#[test]
fn a_program_takes_on_its_user_and_owns_its_terminal() {
    if !is_root("another user") {
        return;
    }
    let mut launch = shell("id -u; id -g; id -G; : >\"$(tty)\" && echo writable; grep Sig /proc/self/status");
    launch.user = Some(LaunchUser { uid: 65534, gid: 65533, groups: vec![65532] });
    launch.cwd = PathBuf::from("/tmp");
    let (agent, record) = Agent::run(&launch);
    let text = String::from_utf8(agent.output()).unwrap();
    assert!(text.contains("65534\r\n65533\r\n65533 65532\r\nwritable\r\n"), "{text}");
    // No signal is blocked or ignored.
    for name in ["SigBlk", "SigIgn"] {
        assert!(text.contains(&format!("{name}:\t0000000000000000")), "{text}");
    }
    assert_eq!(record.code, Some(0));
}

#[test]
fn nothing_but_the_terminal_is_inherited() {
    let (agent, _) = Agent::run(&launch("ls", &["/proc/self/fd"]));
    let text = String::from_utf8(agent.output()).unwrap();
    // 3 is the folder that ls itself reads.
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
}

#[test]
fn background_descendants_keep_the_shim_and_are_heard() {
    let mut agent = Agent::started(&leaving("while ! [ -e go ]; do sleep 0.02; done; echo late; exit 9", 5));
    wait_until("the first record is there", || agent.exit().is_some());
    let first = agent.exit().unwrap();
    assert_eq!((first.code, first.descendants_left, first.drained), (Some(5), true, false));
    assert!(agent.shim.as_mut().unwrap().try_wait().unwrap().is_none());
    std::fs::write(agent.path("go"), "").unwrap();
    let last = agent.ended();
    assert_eq!((last.code, last.descendants_left, last.descendants_ended_by), (Some(5), true, None));
    assert!(String::from_utf8(agent.output()).unwrap().contains("late"));
}

#[test]
fn a_killed_shim_takes_its_program_along_and_records_nothing() {
    let mut agent = Agent::started(&shell("trap '' HUP TERM; echo up; while :; do sleep 60; done"));
    agent.wait_for_output("up");
    let program = agent.record().child.pid;
    let others = descendants(program);
    assert!(alive(program));
    agent.kill_shim();
    wait_until("the program is dead", || !alive(program));
    assert!(agent.exit().is_none());
    for pid in others {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn a_folder_that_vanishes_does_not_keep_the_shim() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("agent");
    std::fs::create_dir(&dir).unwrap();
    let mut agent = Agent::within(&dir);
    let mut launch = shell("read line");
    launch.cwd = PathBuf::from("/tmp");
    agent.start(&launch);
    let mut connection = agent.connect();
    connection.attach(24, 80);
    std::fs::remove_dir_all(&dir).unwrap();
    connection.input(b"\r");
    agent.wait();
}
