//! What scripts rely on: exit codes and pipes of `exec`, the limit of `wait`, readers that change nothing, closed pipes.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use phalanx_tests::bytes;
use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::agent::Phase;

#[test]
fn exec_passes_codes_and_bytes_through() {
    let install = Install::start();
    install.create("host", &[], &["hang"]);
    let fake = fake_agent();
    for code in [0, 1, 3, 7, 124, 125, 255] {
        install.run(&["exec", "host", "--", &fake, "exit", &code.to_string()]).ended_with(code);
    }
    install.run(&["exec", "host", "--", &fake, "signal", "9"]).ended_with(137);
    // Our own faults are 125.
    install.run(&["exec", "nobody", "--", "true"]).ended_with(125);
    let ran = install.run(&["exec", "host", "--", "/no/such/program"]);
    assert!(
        [125, 127].contains(&ran.code) && ran.stderr.contains("/no/such/program"),
        "{} {}",
        ran.code,
        ran.stderr
    );

    let input = bytes::of_seed(7, 700_000);
    let ran =
        install.run_with(&["exec", "-i", "host", "--raw", "--", &fake, "echo-input"], &input).succeeded();
    assert!(ran.stdout == input, "{} bytes", ran.stdout.len());
    let ran = install.run(&["exec", "host", "--", "sh", "-c", "echo out; echo err >&2; pwd"]).succeeded();
    let workspace = install.agent("host").workspace();
    assert_eq!(ran.text(), format!("out\n{}", workspace.display()));
    assert!(ran.stderr.contains("err"));
    // Without -i nothing of ours is read.
    let ran = install.run_with(&["exec", "host", "--", &fake, "echo-input"], b"typed").succeeded();
    assert_eq!(ran.text(), "");
}

#[test]
fn wait_ends_at_its_limit_and_at_the_level_it_waits_for() {
    let install = Install::start();
    let gate = install.text_path("gate");
    install.create("one", &[], &["await", &gate, "exit", "5"]);
    install.create("two", &[], &["hang"]);
    // The least of some: another process may have taken the machine for a moment.
    let late = |asked: u64| {
        let limit = format!("{asked}ms");
        let took =
            (0..5).map(|_| install.run(&["wait", "one", "--timeout", &limit]).ended_with(124).took).min();
        took.unwrap().checked_sub(Duration::from_millis(asked)).expect("not before its limit")
    };
    for asked in [100, 700] {
        let late = late(asked);
        assert!(late < Duration::from_millis(200), "{late:?} after {asked} ms");
    }
    install.run(&["wait", "one", "--for", "RUNNING", "--timeout", "10s"]).succeeded();
    install.run(&["wait", "nobody", "--timeout", "1s"]).ended_with(3);

    let waiting = install.spawn(&["wait", "one", "two", "--any"]);
    install.file("gate", "");
    let ran = waiting.end();
    assert_eq!(install.agent("one").ending(), "CRASHED exited code 5");
    assert!(ran.code == 0 || ran.code == 1, "{}", ran.stderr);
    install.run(&["wait", "two", "--timeout", "200ms"]).ended_with(124);
    // It goes on over a manager that is killed.
    let waiting = install.spawn(&["wait", "two", "--timeout", "60s"]);
    install.kill("manager");
    install.settled();
    install.run(&["stop", "two"]).succeeded();
    let ran = waiting.end();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn a_command_that_reads_changes_nothing() {
    let install = Install::start();
    install.create("ended", &[], &["mark", &install.text_path("starts"), "say", "bye", "exit", "0"]);
    let before = install.agent_until("ended", "ends", |agent| agent.phase == Phase::Stopped);
    for args in [
        vec!["ls"],
        vec!["ls", "-a", "-o", "wide"],
        vec!["show", "ended"],
        vec!["logs", "ended"],
        vec!["events"],
        vec!["why", "ended"],
        vec!["status"],
        vec!["hosts"],
        vec!["runs"],
        vec!["wait", "ended"],
    ] {
        install.run(&args).succeeded();
    }
    let after = install.agent("ended");
    assert_eq!((after.phase, after.report().seq), (before.phase, before.report().seq));
    assert_eq!(install.lines("starts").len(), 1);

    // And starts nothing where it is told not to.
    let other = Install::new();
    for args in [vec!["ls", "--no-start"], vec!["status"], vec!["doctor"]] {
        let ran = other.run(&args);
        assert!(ran.code != 101, "{}", ran.stderr);
        assert_eq!(other.pid("supervisor"), None, "{args:?}");
    }
    assert_eq!(other.run(&["ls", "--no-start"]).code, 9);
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let install = Install::start();
    install.create("loud", &[], &["lines", "20000", "0", "hang"]);
    for n in 0..30 {
        let _ = install.try_create(&format!("n{n}"), &["--no-wait"], &["hang"]);
    }
    for args in [
        vec!["ls"],
        vec!["ls", "-o", "json"],
        vec!["ls", "-o", "jsonl"],
        vec!["show", "loud"],
        vec!["logs", "loud"],
        vec!["logs", "loud", "--raw"],
        vec!["logs", "loud", "-f"],
        vec!["events"],
        vec!["status", "-o", "json"],
        vec!["--help"],
    ] {
        let mut command = install.command(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut byte = [0];
        let _ = stdout.read(&mut byte).unwrap();
        drop(stdout);
        let ended = || child.try_wait().unwrap();
        let status = wait::until(wait::LIMIT, &format!("{args:?} ends"), ended, Option::is_some).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("panicked") && status.code() != Some(101), "{args:?}: {status} {said}");
        assert!(!said.contains("error"), "{args:?}: {said}");
    }
}

#[test]
fn an_agent_that_asks_is_answered_at_its_terminal() {
    let install = Install::start();
    let agent = install.create("asker", &[], &["ask", "Proceed?", "exit", "0"]);
    let read = || install.run(&["logs", "asker"]).text();
    wait::until(wait::LIMIT, "it asks", read, |text| text.contains("Proceed?"));
    assert_eq!(install.agent("asker").phase, Phase::Running, "a question is no end");
    let session = || install.agent("asker").report().session.clone();
    let session = wait::until(wait::LIMIT, "a session", session, Option::is_some).unwrap();
    // As a person would, who looks at the session.
    let typed = std::process::Command::new("tmux")
        .current_dir(&session.folder)
        .args(["-S", &session.socket, "send-keys", "-t", &session.session, "yes indeed", "Enter"])
        .status()
        .unwrap();
    assert!(typed.success());
    install.agent_until("asker", "ends", |agent| agent.phase == Phase::Stopped);
    assert!(read().contains("GOT[yes indeed]"), "{}", read());
    install.run(&["destroy", "asker"]).succeeded();
    install.gone(agent.id);
}

#[test]
fn what_is_named_and_is_not_there_is_an_error_and_no_empty_list() {
    let install = Install::start();
    install.create("one", &[], &["hang"]);
    install.run(&["ls", "nosuch"]).ended_with(3);
    install.run(&["ls", "one", "nosuch"]).ended_with(3);
    assert_eq!(install.run(&["ls", "nosuch*", "-o", "name"]).succeeded().text(), "");
    assert_eq!(install.run(&["ls", "one", "-o", "name"]).succeeded().text(), "one");
    // It is there, and left out by what else was asked for.
    install.run(&["ls", "one", "--phase", "STOPPED", "-o", "name"]).succeeded();
    let ran = install.run(&["destroy", "--yes", ""]).ended_with(2);
    assert!(ran.stderr.contains("is empty"), "{}", ran.stderr);

    let file = install.file("tasks.txt", "true\necho b\n");
    install.run(&["run", &file, "--name", "two"]).succeeded();
    let named = install.run(&["tasks", "two", "-o", "name"]).succeeded().text();
    let first = named.lines().next().unwrap();
    let one = install.run(&["tasks", &format!("two/{first}"), "-o", "name"]).succeeded();
    assert_eq!(one.text(), first);
    install.run(&["tasks", "two/nosuch"]).ended_with(3);
}
