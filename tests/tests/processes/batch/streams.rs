//! Runs whose tasks come one by one: started as they come, ended by the end of the input, and gone on with.

use std::io::Write;

use phalanx_tests::install::Install;
use phalanx_tests::wait;
use protocol::task::{TaskState, TaskView};

fn accepted(tasks: &[TaskView]) -> usize {
    tasks.iter().filter(|task| task.state == TaskState::Accepted).count()
}

#[test]
fn rows_are_started_as_they_come_and_a_wrong_one_is_left_out() {
    let install = Install::start();
    let file = install.file("t.yaml", "tasks: [{name: '{{ row.n }}', command: 'echo {{ row.n }}'}]\n");
    let mut command = install.command(&["run", &file, "--map", "-", "--follow", "--name", "stream"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut rows = child.stdin.take().unwrap();
    writeln!(rows, "{{\"n\": \"one\"}}").unwrap();
    let there = || install.run(&["tasks", "stream", "-o", "json"]).code;
    wait::until(wait::LIMIT, "the run is there", there, |code| *code == 0);
    let tasks = || install.tasks("stream");
    wait::until(wait::LIMIT, "the first is done before the second comes", tasks, |tasks| {
        accepted(tasks) == 1
    });
    // A manager that was killed in between loses nothing and does nothing twice.
    install.kill("manager");
    writeln!(rows, "{{\"n\": \"two\"}}\n{{\"m\": 1}}\nnot json\n{{\"n\": \"one\"}}").unwrap();
    let after_kill = || {
        let ran = install.run(&["tasks", "stream", "-o", "json"]);
        if ran.code == 0 { phalanx_tests::json::items(&ran.stdout) } else { Vec::<TaskView>::new() }
    };
    wait::until(wait::LIMIT, "all that are right", after_kill, |tasks| accepted(tasks) == 3);
    drop(rows);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("line 3 was left out") && said.contains("line 4 was left out"), "{said}");
    let names: Vec<String> = tasks().iter().map(|task| task.spec.name.to_string()).collect();
    assert_eq!(names, ["one", "two", "one-5"], "{said}");
}

#[test]
fn an_open_run_whose_client_was_killed_is_gone_on_with() {
    let install = Install::start();
    let mut command = install.command(&["run", "-", "--follow", "--name", "queue"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    writeln!(child.stdin.as_mut().unwrap(), "true 1").unwrap();
    let there = || install.run(&["runs", "-o", "name"]).text();
    wait::until(wait::LIMIT, "the run is there", there, |text| text == "queue");
    child.kill().unwrap();
    child.wait().unwrap();
    let more = install.file("more.txt", "true 2\ntrue 3\n");
    let why = install.run(&["why", "queue"]).succeeded().text();
    assert!(why.contains("phalanx run --resume"), "{why}");
    install.run(&["run", "--resume", "queue", &more, "--follow"]).ended_with(2);
    install.run(&["run", "--resume", "queue", &more]).succeeded();
    assert_eq!(accepted(&install.tasks("queue")), 3);
    install.run(&["run", "--resume", "queue", &more]).ended_with(5);
    install.run(&["run", "--resume", "queue"]).succeeded();
    install.run(&["run", "--resume", "nobody"]).ended_with(3);
}
