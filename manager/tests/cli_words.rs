//! The built program with words that are wrong, files that are wrong, and nothing running: what it says, with which
//! code, and that nothing was started.

#[cfg(test)]
mod cli_support;

use cli_support::{Home, run};

const COMMANDS: &[&str] = &[
    "up",
    "down",
    "status",
    "doctor",
    "create",
    "ls",
    "show",
    "logs",
    "attach",
    "exec",
    "wait",
    "stop",
    "destroy",
    "events",
    "file",
    "hosts",
    "run",
    "runs",
    "tasks",
    "cancel",
    "retry",
    "why",
    "report",
    "config",
    "profile",
    "du",
    "gc",
    "help",
    "man",
    "completion",
];

#[test]
fn every_help_begins_with_two_examples() {
    let home = Home::new();
    for command in COMMANDS {
        let help = home.run(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}: {}", help.err);
        assert!(help.out.starts_with("Examples:\n"), "{command}: {}", help.out);
        let examples = help.out.lines().skip(1).take(2).filter(|line| line.contains("phalanx ")).count();
        let piped = help.out.lines().skip(1).take(2).filter(|line| line.contains("| phalanx ")).count();
        assert!(examples == 2 && piped <= 1, "{command}: {}", help.out);
    }
    let all = home.run(&["--help"]);
    for command in COMMANDS {
        assert!(all.out.contains(command), "{command} is not in the overview");
    }
    assert!(!all.out.contains("supervise"));
}

#[test]
fn wrong_words_are_exit_2_and_start_nothing() {
    let home = Home::new();
    for words in [
        &["nope"][..],
        &["ls", "--nope"],
        &["ls", "--phase", "SLEEPING"],
        &["ls", "-o", "xml"],
        &["create"],
        &["create", "a"],
        &["create", "a", "claude", "--", "true"],
        &["create", "--", ""],
        &["create", "..", "--", "true"],
        &["create", "", "--", "true"],
        &["create", "a/b", "--", "true"],
        &["create", "a@b", "--", "true"],
        &["create", "a", "--memory", "lots", "--", "true"],
        &["create", "a", "--cpu", "-1", "--", "true"],
        &["create", "a", "--timeout", "90", "--", "true"],
        &["create", "a", "--workspace", "clone", "--", "true"],
        &["create", "a", "--base", "main", "--", "true"],
        &["create", "a", "--env", "NOT_SET_ANYWHERE_HERE", "--", "true"],
        &["create", "a", "--label", "x", "--", "true"],
        &["create", "a", "--host", "No Such", "--", "true"],
        &["create", "a", "--key", "", "--", "true"],
        &["wait", "a", "--for", "asleep"],
        &["wait", "a", "--timeout", "3"],
        &["stop", "a", "--grace", "x"],
        &["stop", "a", "b"],
        &["events", "--since", "yesterday"],
        &["run", "-", "--map", "-"],
        &["run", "x", "--set", "a-b=c"],
        &["run", "x", "--name", "-x"],
        &["run", "x", "--wait", "--detach"],
        &["attach", "a"],
    ] {
        let said = home.run(words);
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.err);
        assert!(said.out.is_empty(), "{words:?}: {}", said.out);
        assert!(said.err.starts_with("error: "), "{words:?}: {}", said.err);
    }
    assert!(!home.state().exists(), "nothing was made");
}

#[test]
fn names_people_use_are_taken_by_the_words() {
    let home = Home::new();
    let long = "x".repeat(200);
    for name in ["a.b:c", "naïve 名前", long.as_str()] {
        // The name is right, so that it is the manager that is missing.
        assert_eq!(home.run(&["--no-start", "create", name, "--", "true"]).code, Some(9), "{name}");
    }
    assert_eq!(home.run(&["--no-start", "create", "--", "-x"]).code, Some(9));
    assert_eq!(home.run(&["create", "-x", "--", "true"]).code, Some(2));
}

#[test]
fn without_a_manager_and_a_start_every_command_is_exit_9_with_the_remedy() {
    let home = Home::new();
    for words in [
        &["ls"][..],
        &["show", "a"],
        &["logs", "a"],
        &["wait", "a"],
        &["stop", "a"],
        &["destroy", "a"],
        &["events"],
        &["hosts"],
        &["runs"],
        &["tasks"],
        &["cancel", "r"],
        &["retry", "r", "t"],
        &["why"],
        &["report"],
        &["create", "--", "true"],
    ] {
        let said = home.run(&[&["--no-start"], words].concat());
        assert_eq!(said.code, Some(9), "{words:?}: {}", said.err);
        assert_eq!(said.err, "error: the manager is not running\n  try: phalanx up\n", "{words:?}");
        let json = home.run(&[&["--no-start", "-o", "json"], words].concat());
        let error: serde_json::Value = serde_json::from_str(&json.err).unwrap();
        assert_eq!(error["error"]["code"], "unavailable");
        assert_eq!(error["error"]["retryable"], true);
        assert_eq!(error["error"]["hint"], "phalanx up");
    }
    assert_eq!(home.run(&["--no-start", "exec", "a", "--", "true"]).code, Some(125));
    let status = home.run(&["status"]);
    assert_eq!(status.code, Some(9));
    assert!(status.out.contains("phalanx up"), "{}", status.out);
    assert!(!home.state().exists(), "looking made nothing");
}

#[test]
fn wrong_words_are_json_when_json_was_asked_for() {
    let home = Home::new();
    for words in
        [&["ls", "--nope", "-o", "json"][..], &["-ojson", "nope"], &["ls", "--output=jsonl", "--phase", "x"]]
    {
        let said = home.run(words);
        assert_eq!(said.code, Some(2));
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!(error["error"]["code"], "invalid");
    }
}

#[test]
fn an_empty_environment_is_told_with_the_remedy() {
    let home = Home::new();
    let mut command = home.command(&["ls"]);
    command.env_clear();
    let said = run(&mut command, b"");
    assert_eq!(said.code, Some(2), "{}", said.err);
    assert!(said.err.contains("set PHALANX_HOME"), "{}", said.err);
    let mut command = home.command(&["--home", home.state().to_str().unwrap(), "--no-start", "ls"]);
    command.env_clear();
    assert_eq!(run(&mut command, b"").code, Some(9));
}

#[test]
fn a_good_file_is_shown_and_nothing_is_sent() {
    let home = Home::new();
    let file = home.file(
        "t.yaml",
        "tasks:\n  - {name: a, command: echo 1}\n  - {name: 名前, command: [x], depends_on: a}\n",
    );
    let said = home.run(&["run", &file, "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.out.contains("名前") && said.err.contains("2 tasks are right; nothing was sent"),
        "{}",
        said.err
    );
    let json = home.run(&["run", &file, "--dry-run", "-o", "json"]);
    let document: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (document["kind"].as_str(), document["schema_version"].as_u64()),
        (Some("PlannedTaskList"), Some(1))
    );
    assert_eq!(document["items"][1]["depends_on"][0], "a");
    let lines = home.run_with(&["run", "-", "--dry-run", "-o", "name"], b"# c\necho hi\nmake test\n");
    assert_eq!(lines.out, "echo-hi\nmake-test\n");
    let rows = home.file("rows.jsonl", "{\"f\": \"a\"}\n{\"f\": \"b\"}\n");
    let file = home.file("m.yaml", "tasks: [{name: 'fix {{ row.f }}', command: 'x {{ row.f }} {{ mode }}'}]");
    let mapped = home.run(&["run", &file, "--dry-run", "-o", "name", "--map", &rows, "--set", "mode=fast"]);
    assert_eq!(mapped.out, "fix a\nfix b\n", "{}", mapped.err);
    let mapped = home.run(&[
        "run",
        &file,
        "--dry-run",
        "-o",
        "name",
        "--map",
        "cmd:printf '{\"f\":1}'",
        "--set",
        "mode=x",
    ]);
    assert_eq!(mapped.out, "fix 1\n", "{}", mapped.err);
    assert!(!home.state().exists());
}

#[test]
fn wrong_files_are_named_by_file_line_or_field() {
    let home = Home::new();
    let nine = format!("tasks: [{{name: a, profile: claude, prompt: \"{}\"}}]", "x".repeat(9_000_000));
    let eight = format!("tasks: [{{name: a, profile: claude, prompt: \"{}\"}}]", "x".repeat(8_000_000));
    for (text, code, expected) in [
        ("tasks: [{name: a, comand: x}]", 2, "t.yaml:1:19: task \"a\": unknown key \"comand\""),
        ("tasks: [{name: a, command: x, cpu: lots}]", 2, "t.yaml:1:36: task \"a\": cpu:"),
        (
            "tasks: [{name: a, command: x, depends_on: b}, {name: b, command: x, depends_on: a}]",
            2,
            "a → b → a",
        ),
        ("tasks: [{name: a, command: x}, {name: a, command: x}]", 2, "already taken"),
        ("tasks: [{name: .., command: x}]", 2, "folder's own name"),
        (nine.as_str(), 2, "9000000 bytes; the limit is 8388608"),
        (eight.as_str(), 0, "1 tasks are right"),
        ("tasks: [{name: 'naïve 名前', command: x}, {name: 'a.b:c', command: x}]", 0, "2 tasks are right"),
    ] {
        let file = home.file("t.yaml", text);
        let said = home.run(&["run", &file, "--dry-run"]);
        assert_eq!(said.code, Some(code), "{expected}: {}", said.err);
        assert!(said.err.contains(expected), "{expected}: {}", said.err);
    }
    assert_eq!(home.run(&["run", "missing.yaml", "--dry-run"]).code, Some(3));
    let failed =
        home.run_with(&["run", "-", "--dry-run", "--map", "cmd:echo boom >&2; exit 7"], b"echo {{ row }}\n");
    assert_eq!(failed.code, Some(1));
    assert!(failed.err.contains("exit status: 7") && failed.err.contains("boom"), "{}", failed.err);
    assert!(home.run_with(&["run", "-", "--dry-run"], b"").err.contains("there are no tasks in it"));
    assert!(!home.state().exists());
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_phalanx");
    let file = home.file("many.txt", (0..5000).map(|n| format!("echo {n}\n")).collect::<String>());
    for words in [
        format!("run {file} --dry-run"),
        format!("run {file} --dry-run -o json"),
        "--help".into(),
        "completion bash".into(),
    ] {
        for reader in ["head -c 1", "true"] {
            let script = format!("set -o pipefail; '{program}' {words} | {reader} >/dev/null");
            let mut command = home.command(&[]);
            command = {
                let mut bash = std::process::Command::new("bash");
                bash.args(["-c", &script]).current_dir(command.get_current_dir().unwrap());
                bash.env("PHALANX_HOME", home.state()).stdin(std::process::Stdio::null());
                bash.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
                bash
            };
            let said = run(&mut command, b"");
            assert_eq!(said.code, Some(0), "{words} | {reader}: {}", said.err);
            assert!(!said.err.contains("panick") && !said.err.contains("error"), "{}", said.err);
        }
    }
}

#[test]
fn completions_are_made_for_every_shell() {
    let home = Home::new();
    // The first three ask at each Tab, the last knows the words alone.
    for (shell, word) in
        [("bash", "complete bash"), ("zsh", "complete zsh"), ("fish", "complete fish"), ("elvish", "destroy")]
    {
        let said = home.run(&["completion", shell]);
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("phalanx") && said.out.contains(word), "{shell}");
    }
}
