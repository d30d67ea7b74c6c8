//! Phases from the screen and from processes, with real programs.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::agent::Phase;
use serde_json::Value;

use super::press;

fn until(install: &Install, name: &str, phase: Phase, source: &str) {
    install.agent_until(name, &format!("is {phase} by its {source}"), |agent| {
        let known = agent.report.as_ref().map(|report| report.source.as_str());
        (agent.phase, known) == (phase, Some(source))
    });
}

const FOOLS: &str = r"printf 'esc to interrupt\nctrl+r to toggle\n❯ 1. Yes\nDo you want to proceed?\n'";

#[test]
fn a_shell_is_paused_at_its_prompt_and_running_while_anything_it_started_lives() {
    let install = Install::start();
    install.run(&["create", "sh", "shell", "--env", "SHELL=/bin/bash"]).succeeded();
    assert!(install.agent("sh").report().ready, "create returns once it is ready");
    install.run(&["wait", "sh", "--for", "PAUSED:turn-done", "--timeout", "20s"]).succeeded();
    until(&install, "sh", Phase::Paused, "screen");
    let shown = install.run(&["ls"]).succeeded().text();
    assert!(shown.contains("PAUSED (turn-done)"), "{shown}");
    let shown = install.run(&["show", "sh"]).succeeded().text();
    assert!(shown.contains("PAUSED (turn-done)") && shown.contains("screen"), "{shown}");
    let why = install.run(&["why", "sh"]).succeeded().text();
    assert!(why.contains("at its prompt") && why.contains("screen shows it"), "{why}");

    // What it prints as an answer is not what it does.
    press(&install, "sh", &[FOOLS, "Enter"]);
    let printed = || install.run(&["capture", "sh"]).succeeded().text();
    wait::until(wait::LIMIT, "it has answered", printed, |text| {
        text.contains("\n❯ 1. Yes\nDo you want to proceed?\n")
    });
    until(&install, "sh", Phase::Paused, "screen");
    press(&install, "sh", &["sleep 300", "Enter"]);
    until(&install, "sh", Phase::Running, "process");
    install.run(&["wait", "sh", "--for", "PAUSED", "--timeout", "700ms"]).ended_with(124);
    press(&install, "sh", &["C-c"]);
    until(&install, "sh", Phase::Paused, "screen");

    // Back at its prompt, but not done.
    press(&install, "sh", &["sleep 300 &", "Enter"]);
    until(&install, "sh", Phase::Running, "process");
    let why = install.run(&["why", "sh"]).succeeded().text();
    assert!(why.contains("RUNNING"), "{why}");
    // Somebody else's program beside it is none of its own.
    press(&install, "sh", &["kill %1; wait", "Enter"]);
    until(&install, "sh", Phase::Paused, "screen");
    let beside = install.spawn(&["exec", "sh", "--", "sleep", "3"]);
    install.run(&["wait", "sh", "--for", "RUNNING", "--timeout", "2s"]).ended_with(124);
    assert_eq!(beside.end().code, 0);

    let events = install.run(&["events", "sh"]).succeeded().text();
    assert!(events.contains("PAUSED: turn-done") && !events.contains("BLOCKED"), "{events}");
}

#[test]
fn what_is_seen_is_derived_anew_when_hostd_comes_back() {
    let install = Install::start();
    install.run(&["create", "py", "repl"]).succeeded();
    until(&install, "py", Phase::Paused, "screen");
    let before = install.agent("py").report().incarnation;
    install.kill("hostd");
    let after = install.agent_until("py", "is known to another hostd", |agent| {
        agent
            .report
            .as_ref()
            .is_some_and(|report| report.incarnation > before && report.phase == Phase::Paused)
    });
    assert!(after.report().ready);
    press(&install, "py", &["import time; time.sleep(300)", "Enter"]);
    until(&install, "py", Phase::Running, "process");
    press(&install, "py", &["C-c"]);
    until(&install, "py", Phase::Paused, "screen");
    press(&install, "py", &["exit()", "Enter"]);
    let ended = install.agent_until("py", "ends", |agent| agent.phase == Phase::Stopped);
    assert_eq!((ended.report().phase_reason, ended.report().source.as_str()), (None, "exit-record"));
}

#[test]
fn a_profile_of_ones_own_says_when_it_asks() {
    let install = Install::start();
    let config = install.path("user").join(".config/phalanx");
    std::fs::create_dir_all(&config).unwrap();
    let profile = format!(
        "[profiles.asker]\ncommand = ['{}', 'ask', 'Proceed?', 'raw', 'hang']\n\
         [profiles.asker.signals]\nasking = 'Proceed\\?$\\z'\nbusy = '^GOT'\n",
        fake_agent()
    );
    std::fs::write(config.join("config.toml"), profile).unwrap();
    let ran = install.run(&["create", "mine", "asker"]).succeeded();
    assert!(ran.stderr.contains("it asks: Proceed?"), "{}", ran.stderr);
    install.run(&["wait", "mine", "--for", "BLOCKED", "--timeout", "20s"]).succeeded();
    let why = install.run(&["why", "mine"]).succeeded().text();
    assert!(why.contains("BLOCKED") && why.contains("Proceed?") && why.contains("phalanx attach"), "{why}");
    let rows: Value = serde_json::from_slice(&install.run(&["ls", "-o", "json"]).stdout).unwrap();
    assert_eq!(rows["items"][0]["phase_reason"], "question");
    press(&install, "mine", &["yes", "Enter"]);
    until(&install, "mine", Phase::Running, "screen");
    install.run(&["wait", "mine", "--for", "PAUSED:never", "--timeout", "1s"]).ended_with(2);
}

#[test]
fn signals_of_a_task_file_are_read_strictly_and_used() {
    let install = Install::start();
    let bad = install.file(
        "bad.yaml",
        "profiles:\n  p:\n    command: ['true']\n    signals:\n      busy: 'a('\n      idle: {children: many}\n      asks: x\ntasks:\n  - {name: a, profile: p}\n",
    );
    let ran = install.run(&["run", &bad]).ended_with(2);
    for said in ["bad.yaml:5:13", "not a regular expression", "bad.yaml:6:24", "asking"] {
        assert!(ran.stderr.contains(said), "{said}: {}", ran.stderr);
    }
    let gate = install.text_path("gate");
    let good = install.file(
        "good.yaml",
        format!(
            "profiles:\n  p:\n    command: ['{}', 'say', 'done', 'await', '{gate}', 'exit', '0']\n    signals: {{idle: '^done$'}}\n\
             tasks:\n  - {{name: a, profile: p}}\n",
            fake_agent()
        ),
    );
    let running = install.spawn(&["run", &good, "--wait"]);
    let paused = || install.agents(&["--phase", "PAUSED"]);
    wait::until(wait::LIMIT, "the attempt is at its prompt", paused, |agents| agents.len() == 1);
    install.file("gate", "");
    assert_eq!(running.end().code, 0);
}
