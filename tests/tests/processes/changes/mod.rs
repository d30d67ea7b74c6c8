//! Agents that are there are changed while they run and after their end; what is not in force is never shown as done.

mod snapshots;
mod waiting;

use phalanx_tests::install::{Install, is_alive};
use phalanx_tests::programs::is_root_for;
use phalanx_tests::wait;
use protocol::agent::Phase;

fn said(install: &Install, args: &[&str], code: i32, words: &[&str]) {
    let ran = install.run(args).ended_with(code);
    let text = format!("{} {}", ran.text(), ran.stderr);
    assert!(words.iter().all(|word| text.contains(word)), "{args:?}: {text}");
}

#[test]
fn a_paused_agent_stands_still_until_it_is_resumed_or_ended() {
    if !is_root_for("a freezer") {
        return;
    }
    let install = Install::start();
    let agent = install.create("demo", &["--grace", "500ms"], &["lines", "1000000", "5"]);
    let printed = || std::fs::metadata(install.agent_folder(agent.id).join("out.raw")).unwrap().len();
    said(&install, &["pause", "demo"], 0, &["demo paused"]);
    let paused = install.agent("demo");
    assert_eq!((paused.phase, paused.reason.as_str()), (Phase::Paused, "frozen"));
    let before = printed();
    wait::pause(std::time::Duration::from_millis(300));
    assert_eq!(printed(), before, "it prints nothing");
    said(&install, &["pause", "demo"], 0, &["already"]);
    said(&install, &["exec", "demo", "--", "true"], 125, &["paused", "phalanx resume"]);
    // Whether it stands still is the kernel's word: a new hostd knows it.
    install.kill("hostd");
    install.settled();
    assert_eq!(install.agent_until("demo", "is seen", |a| a.phase == Phase::Paused).id, agent.id);
    said(&install, &["resume", "demo"], 0, &["demo resumed"]);
    wait::until(wait::LIMIT, "it goes on", printed, |now| *now > before);
    // A stop reaches one that stands still, within its grace.
    said(&install, &["pause", "demo"], 0, &[]);
    let ran = install.run(&["stop", "demo"]).succeeded();
    assert_eq!(install.agent("demo").ending(), "STOPPED requested signal 15", "{}", ran.stderr);
    said(&install, &["pause", "demo"], 5, &["ended"]);
    said(&install, &["resume", "demo"], 5, &["phalanx start"]);
    said(&install, &["pause", "nobody"], 3, &["nobody"]);
}

#[test]
fn what_stands_still_is_killed_removed_and_ended_by_its_limits_too() {
    if !is_root_for("a freezer") {
        return;
    }
    let install = Install::start();
    install.create("deaf", &["--grace", "200ms"], &["deaf", "hang"]);
    let timed = install.create("timed", &["--timeout", "3s", "--grace", "200ms"], &["hang"]);
    let gone = install.create("gone", &["--grace", "200ms"], &["hang"]);
    install.run(&["pause", "deaf", "timed", "gone", "--yes"]).succeeded();
    install.run(&["stop", "deaf"]).succeeded();
    assert!(install.agent("deaf").ending().starts_with("STOPPED requested"));
    install.run(&["destroy", "gone"]).succeeded();
    install.gone(gone.id);
    let ended = install.agent_until("timed", "is ended", |agent| agent.phase == Phase::Failed);
    assert!(ended.ending().starts_with("FAILED time-limit"), "{}", ended.ending());
    assert!(!is_alive(install.shim_and_child(timed.id).1));
}

#[test]
fn an_ended_agent_runs_again_in_the_same_place_and_only_when_asked() {
    let install = Install::start();
    let starts = install.text_path("starts");
    let agent = install.create("demo", &[], &["say", "hello", "mark", &starts, "hang"]);
    said(&install, &["start", "demo"], 5, &["alive", "phalanx stop"]);
    install.run(&["stop", "demo"]).succeeded();
    std::fs::write(agent.workspace().join("left"), "mine").unwrap();
    said(&install, &["start", "demo"], 0, &["demo started"]);
    let again = install.agent_until("demo", "runs", |agent| agent.phase == Phase::Running);
    assert_eq!((again.id, again.workspace()), (agent.id, agent.workspace()));
    assert_eq!(std::fs::read_to_string(again.workspace().join("left")).unwrap(), "mine");
    wait::until(wait::LIMIT, "both starts", || install.lines("starts"), |lines| lines.len() == 2);
    let text = || install.run(&["logs", "demo"]).succeeded().text();
    wait::until(wait::LIMIT, "one transcript", text, |text| text.matches("hello").count() == 2);
    assert_eq!(again.report().earlier.len(), 1);
    assert_eq!(again.report().spec.launch, 2);
    assert!(install.agent_folder(agent.id).join("exit.1.json").exists());
    said(&install, &["show", "demo"], 0, &["ended before", "stopped on request"]);
    // Never by itself.
    install.run(&["stop", "demo"]).succeeded();
    for part in ["hostd", "manager"] {
        install.kill(part);
        install.settled();
    }
    assert_eq!(install.agent("demo").phase, Phase::Stopped);
    assert_eq!(install.lines("starts").len(), 2);
    said(&install, &["start", "demo"], 0, &[]);
    install.run(&["destroy", "demo", "--discard"]).succeeded();
    install.gone(agent.id);
    said(&install, &["start", &agent.id.to_string()], 5, &["destroyed"]);
    // One that cannot start says why, and can be tried again.
    install.try_create("quick", &["--label", "k=v"], &["exit", "3"]).ended_with(1);
    install.agent_until("quick", "ends", |agent| agent.phase == Phase::Crashed);
    said(&install, &["start", "-l", "k=v"], 2, &["--yes"]);
    said(&install, &["start", "-l", "k=v", "--yes"], 0, &["started"]);
    install.agent_until("quick", "ends again", |agent| {
        agent.phase == Phase::Crashed && agent.report().earlier.len() == 1
    });
}

#[test]
fn a_start_is_whole_or_not_at_all_when_hostd_is_killed_in_it() {
    let install = Install::start();
    let starts = install.text_path("starts");
    install.create("demo", &[], &["mark", &starts, "hang"]);
    for round in 1..=6_u64 {
        install.run(&["stop", "demo"]).succeeded();
        let key = format!("round-{round}");
        let args = ["start", "demo", "--key", &key];
        let starting = install.spawn(&args);
        wait::pause(std::time::Duration::from_millis(12 * round));
        install.kill("hostd");
        let _ = starting.end();
        install.settled();
        // The same key starts nothing more.
        let _ = install.run(&args);
        let runs = install.agent_until("demo", "runs", |agent| agent.phase == Phase::Running);
        assert_eq!(u64::from(runs.report().spec.launch), round + 1);
        let (_, child) = install.shim_and_child(runs.id);
        assert!(is_alive(child));
        let lines = || install.lines("starts");
        let count = usize::try_from(round + 1).unwrap();
        let marks = wait::until(wait::LIMIT, "each start", lines, |lines| lines.len() >= count);
        assert_eq!(marks.len(), count, "started once each time");
    }
}

#[test]
fn names_and_labels_change_and_are_found_at_once() {
    let install = Install::start();
    let agent = install.create("demo", &["--label", "team=red"], &["hang"]);
    install.create("other", &[], &["hang"]);
    said(&install, &["rename", "demo", "other"], 5, &["other"]);
    said(&install, &["rename", "demo", "a/b"], 2, &[]);
    said(&install, &["rename", "demo", "new name"], 0, &["demo renamed (now new name)"]);
    assert_eq!(install.agent("new name").id, agent.id);
    said(&install, &["show", "demo"], 3, &[]);
    install.create("demo", &[], &["hang"]);
    said(
        &install,
        &["label", "new name", "team=blue", "tier=1", "old-"],
        0,
        &["team was red", "old was not set"],
    );
    said(&install, &["label", "-l", "team=blue", "--yes", "tier-"], 0, &["tier was 1"]);
    said(&install, &["label", "new name"], 2, &["no label"]);
    let found = install.agents(&["-l", "team=blue"]);
    assert_eq!(found.len(), 1);
    install.run(&["stop", "new name"]).succeeded();
    said(&install, &["label", "new name", "late=1"], 0, &[]);
    install.restart();
    let shown = install.agent("new name");
    assert_eq!(shown.report().spec.labels["late"], "1");
    assert_eq!(shown.report().spec.name.as_str(), "new name");
}

#[test]
fn limits_change_while_it_runs_and_those_that_would_end_it_are_refused() {
    if !is_root_for("limits in a cgroup") {
        return;
    }
    let install = Install::start();
    let script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo full; sleep 600; :";
    install.run(&["create", "demo", "--memory", "256M", "--", "bash", "-c", script]).succeeded();
    let text = || install.run(&["logs", "demo"]).text();
    wait::until(wait::LIMIT, "it has eaten", text, |text| text.contains("full"));
    said(
        &install,
        &["limit", "demo", "--memory", "512M", "--pids", "50", "--cpu", "0.5"],
        0,
        &["demo limited"],
    );
    let report = install.agent("demo").report().clone();
    assert_eq!((report.spec.limits.memory_bytes, report.spec.limits.pids), (Some(512 << 20), Some(50)));
    for word in ["memory 536870912", "pids 50", "cpu 0.500"] {
        assert!(report.enforced.iter().any(|limit| limit.contains(word)), "{:?}", report.enforced);
    }
    said(&install, &["limit", "demo", "--memory", "8M"], 5, &["refused", "limits are as before", "memory"]);
    let report = install.agent("demo").report().clone();
    assert_eq!(report.spec.limits.memory_bytes, Some(512 << 20), "what is shown is in force");
    assert!(report.enforced.iter().any(|limit| limit.contains("536870912")));
    said(&install, &["limit", "demo", "--pids", "1"], 5, &["refused", "processes"]);
    // Nor does it come into force later, unasked, whoever waited for the answer, or get in the way of another change.
    said(&install, &["limit", "demo", "--memory", "8M", "--no-wait"], 0, &[]);
    let shown = || install.run(&["show", "demo"]).succeeded().text();
    wait::until(wait::LIMIT, "the refusal is told", shown, |shown| {
        shown.contains("refused:") && shown.contains("it holds")
    });
    for verb in ["stop", "start"] {
        install.run(&[verb, "demo"]).succeeded();
    }
    let report =
        install.agent_until("demo", "runs", |agent| agent.phase.as_str() == "RUNNING").report().clone();
    assert_eq!(report.spec.limits.memory_bytes, Some(512 << 20));
    wait::until(wait::LIMIT, "it has eaten again", text, |text| text.matches("full").count() == 2);
    said(&install, &["limit", "demo", "--memory", "8M"], 5, &["refused", "limits are as before", "memory"]);
    said(&install, &["label", "demo", "after=refusal"], 0, &["labelled"]);
    let shown = install.run(&["show", "demo"]).succeeded().text();
    assert!(
        shown.contains("512M") && !shown.contains("not in force") && !shown.contains("refused:"),
        "{shown}"
    );
    assert_eq!(install.agent("demo").report().spec.limits.memory_bytes, Some(512 << 20));
    said(&install, &["limit", "demo", "--memory", "none", "--cpu", "none"], 0, &[]);
    let enforced = install.agent("demo").report().enforced.clone();
    assert_eq!(enforced, ["pids 50"]);
    // Time counts from the start: one that is over would end it.
    said(&install, &["limit", "demo", "--timeout", "1ms"], 5, &["has run for", "limits are as before"]);
    said(&install, &["limit", "demo", "--timeout", "1h"], 0, &[]);
    said(&install, &["limit", "demo"], 2, &["no limit"]);
    said(&install, &["limit", "demo", "--memory", "100"], 2, &["1M"]);
    said(&install, &["limit", "demo", "--memory", "1000000G"], 6, &["memory"]);
    install.run(&["stop", "demo"]).succeeded();
    said(&install, &["limit", "demo", "--timeout", "2s", "--pids", "40"], 0, &[]);
    install.run(&["start", "demo"]).succeeded();
    assert!(install.agent("demo").report().enforced.iter().any(|limit| limit == "pids 40"));
    install.agent_until("demo", "is ended", |agent| agent.ending().starts_with("FAILED time-limit"));
}

/// A selector finds what there is to destroy, ended attempts of tasks too.
#[test]
fn destroy_by_label_finds_ended_attempts_and_leaves_others() {
    let install = Install::start();
    let yaml = "labels: {team: core}\ntasks:\n  - {name: t, command: 'false'}\n";
    let file = install.file("run.yaml", yaml);
    install.run(&["run", &file]).ended_with(8);
    install.create("mine", &["--label", "team=core"], &["exit", "0"]);
    install.create("yours", &["--label", "team=other"], &["hang"]);
    assert_eq!(install.agents(&["-a", "-l", "team=core"]).len(), 2);
    install.run(&["destroy", "-l", "team=core"]).ended_with(2);
    let ran = install.run(&["destroy", "-l", "team=core", "--yes"]).succeeded();
    assert_eq!(ran.text().lines().count(), 2, "{}", ran.text());
    assert_eq!(install.agent("yours").phase, Phase::Running);
    let again = install.run(&["destroy", "-l", "team=core", "--yes"]).succeeded();
    assert_eq!(again.text(), "", "what is destroyed is not found again");
}
