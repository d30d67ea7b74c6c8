//! A limit that is shown is enforced; a secret is where it belongs and nowhere else.

use std::path::Path;

use phalanx_tests::install::Install;
use phalanx_tests::programs::{fake_agent, is_root_for};
use phalanx_tests::wait;

#[test]
fn limits_are_enforced_and_shown() {
    if !is_root_for("limits in a cgroup") {
        return;
    }
    let install = Install::start();
    install.create("many", &["--pids", "12"], &["children", "40", "hang"]);
    let read = || install.run(&["logs", "many"]).text();
    let said = wait::until(wait::LIMIT, "it has tried", read, |text| text.contains("child"));
    assert!(said.contains("refused"), "{said}");
    let shown = install.agent("many");
    assert_eq!(shown.report().spec.limits.pids, Some(12));
    assert!(
        shown.report().enforced.iter().any(|limit| limit.contains("pids")),
        "{:?}",
        shown.report().enforced
    );
    install.run(&["stop", "many"]).succeeded();

    let agent = install.create("busy", &["--cpu", "0.2", "--memory", "64M"], &["spin"]);
    let enforced = &agent.report().enforced;
    assert!(enforced.iter().any(|limit| limit.contains("cpu")), "{enforced:?}");
    assert!(enforced.iter().any(|limit| limit.contains("memory")), "{enforced:?}");
    let (_, child) = install.shim_and_child(agent.id);
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let fields: Vec<String> =
            stat.rsplit_once(')').unwrap().1.split_whitespace().map(str::to_owned).collect();
        // In hundredths of a second (proc_pid_stat(5), utime).
        fields[11].parse::<u64>().unwrap()
    };
    let before = used();
    wait::pause(std::time::Duration::from_secs(2));
    let share = used() - before;
    assert!(share < 80, "a fifth of a core for two seconds, not {share} hundredths of a second");
    install.run(&["stop", "busy"]).succeeded();

    // What is spent while it is frozen or queued is no time of the agent's: the limit is wall time and shown as such.
    let late = install.create("late", &["--timeout", "1h"], &["hang"]);
    assert_eq!(late.report().spec.limits.time_ms, Some(3_600_000));
}

/// Every file below a folder that holds the text.
fn files_with(folder: &Path, text: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files_with(&path, text, found);
        } else if std::fs::read(&path)
            .is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
}

fn is_nowhere(install: &Install, canary: &str) {
    let mut found = Vec::new();
    files_with(install.home(), canary, &mut found);
    assert!(found.is_empty(), "in files: {found:?}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let holds = command.windows(canary.len()).any(|part| part == canary.as_bytes());
        assert!(!holds, "on a command line: {}", String::from_utf8_lossy(&command));
    }
    for args in [
        vec!["ls", "-a", "-o", "json"],
        vec!["show", "keeper", "-o", "json"],
        vec!["show", "keeper"],
        vec!["events", "-o", "jsonl"],
        vec!["tasks", "secret-run", "-o", "json"],
        vec!["why", "keeper"],
    ] {
        let ran = install.run(&args);
        let said = format!("{} {}", ran.text(), ran.stderr);
        assert!(!said.contains(canary), "{args:?}: {said}");
    }
}

#[test]
fn a_secret_is_known_to_its_agent_alone() {
    let install = Install::new();
    let canary = "s3cr3t-canary-42";
    let set_up = |args: &[&str]| {
        let mut command = install.command(args);
        command.env("TOKEN", canary).env("PHALANX_LOG", "debug").env("RUST_LOG", "debug");
        command.output().unwrap()
    };
    // The daemons are started by somebody who has it in his environment.
    assert!(set_up(&["up"]).status.success());
    let out = install.text_path("told");
    let fake = fake_agent();
    let created =
        set_up(&["create", "keeper", "--env", "TOKEN", "--", &fake, "tell-env", &out, "TOKEN", "hang"]);
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    wait::until(wait::LIMIT, "the agent has it", || install.lines("told"), |lines| lines == &[canary]);
    // One that did not ask for it, of the same hostd: nothing is inherited.
    let other = install.text_path("other");
    install.create("stranger", &[], &["tell-env", &other, "TOKEN", "hang"]);
    wait::until(wait::LIMIT, "the other looks", || install.lines("other"), |lines| lines == &[""]);

    let yaml = format!(
        "tasks:\n  - {{name: t, command: [{fake}, tell-env, {}, TOKEN], env: {{TOKEN: {canary}}}}}\n",
        install.text_path("task")
    );
    let file = install.file("secret.yaml", yaml);
    install.run(&["run", &file, "--name", "secret-run"]).succeeded();
    assert_eq!(install.lines("task"), [canary]);
    let failed = set_up(&["create", "absent", "--env", "TOKEN", "--", "/no/such/program"]);
    assert_eq!(failed.status.code(), Some(3));
    assert!(!String::from_utf8_lossy(&failed.stderr).contains(canary));

    is_nowhere(&install, canary);
    install.run(&["stop", "keeper"]).succeeded();
    install.run(&["destroy", "keeper"]).succeeded();
    install.restart();
    is_nowhere(&install, canary);
}
