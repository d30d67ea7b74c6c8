//! The folder: who may serve it, what lies in it and what does not.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use protocol::codec::{Frame, read_frame, write_frame};
use protocol::shim::kind;
use protocol::shim::{EndCause, Event, RefusalReason, Reply, Request, SOCKET_VERSION, StartStep, file};

use crate::support::{Agent, SHIM, alive, launch, shell, wait_until};

#[test]
fn a_second_shim_leaves_the_first_alone() {
    let mut agent = Agent::started(&shell("read line; exit 3"));
    let before = agent.record();
    let run = || {
        let mut second = Agent::within(&agent.dir);
        second.shim =
            Some(Command::new(SHIM).arg("run").arg(&agent.dir).stderr(Stdio::null()).spawn().unwrap());
        second.wait()
    };
    assert_eq!(run().code(), Some(5));
    assert_eq!(agent.record(), before);
    let mut connection = agent.connect();
    connection.attach(24, 80);
    connection.input(b"\r");
    let exit = agent.ended();
    assert_eq!((exit.code, exit.rows, exit.cols), (Some(3), 24, 80));
    // Nor does one start the program again when it has ended.
    let mut again = Agent::within(&agent.dir);
    again.shim = Some(Command::new(SHIM).arg("run").arg(&agent.dir).stderr(Stdio::null()).spawn().unwrap());
    assert_eq!(again.wait().code(), Some(5));
    assert_eq!(agent.exit().unwrap().code, Some(3));
}

#[test]
fn the_record_names_processes_that_run_and_is_private() {
    let agent = Agent::started(&shell("sleep 60"));
    let record = agent.record();
    assert_eq!(record.shim.pid, i32::try_from(agent.shim.as_ref().unwrap().id()).unwrap());
    assert!(alive(record.child.pid) && record.child.start_time >= record.shim.start_time);
    assert_eq!(record.socket_version, SOCKET_VERSION);
    for name in [file::SHIM, file::OUTPUT, file::SOCKET, file::LOCK, file::LOG] {
        let mode = std::fs::symlink_metadata(agent.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn the_environment_is_exactly_the_file_and_the_file_and_its_values_are_gone() {
    let mut agent = Agent::new();
    let secret = format!("secret-{}", std::process::id());
    let mut launch = launch("env", &[]);
    launch.env_file =
        Some(agent.environment(&[("PATH", "/usr/bin:/bin"), ("TOKEN", &secret), ("A", "b=c\nd")]));
    launch.program = "sh".to_owned();
    launch.args = vec!["-c".to_owned(), "env; read line".to_owned()];
    agent.start(&launch);
    assert!(!agent.path("env").exists());
    agent.wait_for_output("TOKEN");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(&secret), "{:?}", entry.path());
    }
    let shim = std::fs::read(format!("/proc/{}/environ", agent.record().shim.pid)).unwrap();
    assert!(!String::from_utf8_lossy(&shim).contains(&secret));
    let mut connection = agent.connect();
    connection.attach(24, 80);
    connection.input(b"\r");
    agent.ended();
    let text = String::from_utf8(agent.output()).unwrap();
    assert!(text.contains(&secret) && text.contains("A=b=c\r\nd"));
    assert!(!text.contains("HOME="), "{text}");
}

#[test]
fn arguments_arrive_as_they_are() {
    let odd = ["", "a b", "*", "$HOME", "-c", "tail;", "new\nline", "é 👩‍🚀", "\"'"];
    let script = "import sys,json; print(json.dumps(sys.argv[1:]))";
    let args: Vec<&str> = ["-c", script].into_iter().chain(odd).collect();
    let (agent, record) = Agent::run(&launch("python3", &args));
    assert_eq!(record.code, Some(0));
    let got: Vec<String> = serde_json::from_slice(&agent.output()).unwrap();
    assert_eq!(got, odd);
}

#[test]
fn a_folder_with_a_path_longer_than_a_socket_address_is_served_and_attached() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("x".repeat(100)).join("y".repeat(100));
    std::fs::create_dir_all(&dir).unwrap();
    let mut agent = Agent::within(&dir);
    agent.start(&shell("echo hello; read line; exit 3"));
    let mut viewer = Command::new(SHIM);
    let mut viewer =
        viewer.arg("attach").arg(&dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut viewer.stdin.take().unwrap(), b"\r").unwrap();
    let shown = viewer.wait_with_output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("hello") && shown.contains("[agent ended: exit 3]"), "{shown}");
    assert_eq!(agent.ended().code, Some(3));
}

#[test]
fn a_launch_that_cannot_be_understood_is_a_recorded_failure() {
    let mut agent = Agent::new();
    std::fs::write(agent.path(file::LAUNCH), "{\"version\": 1}").unwrap();
    agent.shim = Some(Command::new(SHIM).arg("run").arg(&agent.dir).spawn().unwrap());
    let EndCause::StartFailed(failure) = agent.ended().cause else { panic!("started") };
    assert_eq!(failure.step, StartStep::Launch);
    assert!(failure.message.contains("agent"), "{}", failure.message);
}

#[test]
fn watchers_early_and_late_learn_of_the_end_after_it_is_on_disk() {
    let script = "trap '' HUP; (while ! [ -e go ]; do sleep 0.02; done) & read line; exit 3";
    let mut agent = Agent::started(&shell(script));
    let (mut early, mut person) = (agent.connect(), agent.connect());
    early.ask(&Request::Watch);
    person.attach(24, 80);
    person.input(b"\r");
    let Some(Event::Exited(told)) = early.event() else { panic!("no end") };
    assert_eq!(agent.exit(), Some(*told));
    let mut late = agent.connect();
    late.ask(&Request::Watch);
    assert!(matches!(late.event(), Some(Event::Exited(record)) if record.code == Some(3)));
    std::fs::write(agent.path("go"), "").unwrap();
    for watcher in [&mut early, &mut late] {
        let Some(Event::Drained(told)) = watcher.event() else { panic!("not drained") };
        assert_eq!(agent.exit(), Some(*told));
        assert_eq!(watcher.event(), None, "the end of the stream");
    }
    assert!(agent.ended().drained);
}

#[test]
fn a_request_that_is_not_known_is_answered_and_the_connection_goes_on() {
    let agent = Agent::started(&shell("sleep 60"));
    let mut connection = agent.connect();
    for (kind, body) in [(kind::REQUEST, b"\x81\xa3New\xc0".to_vec()), ("shim.newer", vec![])] {
        write_frame(&mut connection.stream, Frame::new(kind, "x", body)).unwrap();
        let frame = read_frame(&mut connection.stream).unwrap().unwrap();
        let Reply::Refused(refusal) = frame.body().unwrap() else { panic!("not refused") };
        assert_eq!((frame.id.as_str(), refusal.reason), ("x", RefusalReason::UnknownRequest));
    }
    assert!(connection.status().child_alive);
    assert!(matches!(connection.ask(&Request::Resize { rows: 5, cols: 5 }), Reply::Refused(_)));
}

#[test]
fn a_signal_reaches_the_process_group() {
    let mut agent = Agent::started(&shell("trap 'exit 44' USR1; echo up; while :; do sleep 0.02; done"));
    agent.wait_for_output("up");
    assert_eq!(agent.connect().ask(&Request::Signal { signo: libc::SIGUSR1 }), Reply::Done);
    assert_eq!(agent.ended().code, Some(44));
}

#[test]
fn a_command_line_that_is_not_known_is_refused_with_the_usage() {
    for arguments in [vec![], vec!["run"], vec!["attach", "x", "--other"], vec!["serve", "x"]] {
        let output = Command::new(SHIM).args(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("usage:"));
    }
    let version = Command::new(SHIM).arg("--version").output().unwrap();
    assert!(version.status.success() && version.stdout.starts_with(b"phalanx-shim "));
}

#[test]
fn an_idle_shim_is_small() {
    let agent = Agent::started(&shell("echo up; sleep 60"));
    agent.wait_for_output("up");
    let rollup = format!("/proc/{}/smaps_rollup", agent.record().shim.pid);
    let mut pss = u64::MAX;
    wait_until("memory is told", || {
        let text = std::fs::read_to_string(&rollup).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        pss = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(u64::MAX);
        pss < u64::MAX
    });
    println!("idle shim: {pss} kB PSS");
    // A build without optimization; the released one is a third of it.
    assert!(pss < 4000, "{pss} kB");
}
