//! What agents take of their host, measured for whoever looks; and what is told of work that goes on.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::Install;
use phalanx_tests::programs::path_of;
use phalanx_tests::wait;
use serde_json::Value;

use super::outer::Outer;

fn document(install: &Install, words: &[&str]) -> Value {
    let mut args = vec!["top", "--once", "-o", "json"];
    args.extend(words);
    serde_json::from_slice(&install.run(&args).succeeded().stdout).unwrap()
}

fn row<'a>(document: &'a Value, name: &str) -> &'a Value {
    let rows = document["items"].as_array().unwrap();
    let found = rows.iter().find(|row| row["name"] == name);
    assert!(found.is_some(), "{name}: {document}");
    found.unwrap()
}

fn number(value: &Value) -> u64 {
    assert!(value.is_u64(), "{value} is no number");
    value.as_u64().unwrap()
}

#[test]
fn top_measures_cpu_memory_processes_and_disk_of_each_agent_and_their_sums() {
    let install = Install::start();
    assert_eq!(document(&install, &[])["items"], Value::Array(Vec::new()));
    install.create("busy", &["--label", "team=core"], &["spin"]);
    install.create("still", &[], &["children", "5", "hang"]);
    let big = install.file("big", vec![7; 3 << 20]);
    install.run(&["file", "put", &big, "still:big"]).succeeded();
    install.create("over", &[], &["exit", "0"]);
    install.agent_until("over", "ends", |agent| agent.phase.is_ended());

    let found = document(&install, &[]);
    assert_eq!((&found["schema_version"], &found["kind"]), (&Value::from(1), &Value::from("TopList")));
    let (busy, still, over) = (row(&found, "busy"), row(&found, "still"), row(&found, "over"));
    // Beside other tests it does not get a whole core, but it takes what it gets.
    assert!(number(&busy["cpu_millis"]) > 100, "{busy}");
    assert!(number(&still["cpu_millis"]) < 100, "{still}");
    assert!(number(&still["pids"]) >= 6, "{still}");
    assert!(number(&still["disk_bytes"]) >= 3 << 20, "{still}");
    assert!(number(&busy["disk_bytes"]) < 1 << 20 && number(&busy["memory_bytes"]) > 0, "{busy}");
    assert!(over["cpu_millis"].is_null() && over["memory_bytes"].is_null(), "{over}");
    let sum = |name: &str| {
        let rows = found["items"].as_array().unwrap();
        rows.iter().map(|row| row[name].as_u64().unwrap_or(0)).sum::<u64>()
    };
    for name in ["cpu_millis", "memory_bytes", "pids", "disk_bytes"] {
        assert_eq!(number(&found["totals"][name]), sum(name), "{name}");
    }
    assert_eq!(found["totals"]["unknown"], 0);

    let names = |words: &[&str]| -> Vec<String> {
        let found = document(&install, words);
        let rows = found["items"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&["--sort", "name"]), ["busy", "over", "still"]);
    assert_eq!(names(&["--sort", "disk"])[0], "still");
    assert_eq!(names(&["--sort", "cpu"])[0], "busy");
    assert_eq!(names(&["-l", "team=core"]), ["busy"]);
    assert_eq!(names(&["s*", "--phase", "RUNNING"]), ["still"]);
    let lines = install.run(&["top", "--once", "-o", "jsonl", "busy"]).succeeded().text();
    assert_eq!(lines.lines().count(), 1);
    let table = install.run(&["top", "--once", "--sort", "name"]).succeeded().text();
    let first: Vec<&str> = table.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(first, ["NAME", "busy", "over", "still", "TOTAL"], "{table}");
    install.run(&["top", "--interval", "1ms"]).ended_with(2);
    install.run(&["top", "--once", "--run", "nobody"]).ended_with(3);
}

#[test]
fn of_a_host_that_does_not_answer_figures_are_unknown_never_zero() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    install.kill("supervisor");
    let pid = Pid::from_raw(install.pid("hostd").unwrap().cast_signed());
    kill(pid, Signal::SIGSTOP).unwrap();
    let ran = install.run(&["top", "--once"]);
    let json = install.run(&["top", "--once", "-o", "json"]);
    kill(pid, Signal::SIGCONT).unwrap();
    let ran = ran.ended_with(9);
    let line = ran.text().lines().find(|line| line.starts_with("demo")).unwrap().to_owned();
    assert_eq!(line.matches('?').count(), 4, "{line}");
    assert!(ran.text().contains("1 of 1 agents are not in these sums"), "{}", ran.text());
    let found: Value = serde_json::from_slice(&json.ended_with(9).stdout).unwrap();
    let demo = row(&found, "demo");
    for name in ["cpu_millis", "cpu_ms", "memory_bytes", "pids", "disk_bytes"] {
        assert!(demo[name].is_null(), "{name}: {demo}");
    }
    assert_eq!(
        (&found["totals"]["unknown"], found["unheard"].as_array().unwrap().len()),
        (&Value::from(1), 1)
    );
}

#[test]
fn top_is_drawn_again_on_a_terminal_over_a_restart_of_the_manager() {
    let install = Install::start();
    install.create("first", &[], &["hang"]);
    let outer = Outer::of(&install);
    let phalanx = path_of("phalanx").display().to_string();
    let home = install.home().display().to_string();
    let command = format!("{phalanx} --home {home} top --interval 300ms; echo ended $?; exec cat");
    outer.tmux(&["new-session", "-d", "-s", "s", "-x", "80", "-y", "12", &command]);
    let seen = || outer.tmux(&["capture-pane", "-p", "-t", "s"]);
    wait::until(wait::LIMIT, "figures", seen, |text| text.contains("first") && text.contains("TOTAL"));
    install.kill("manager");
    install.settled();
    install.create("second", &[], &["hang"]);
    let drawn = wait::until(wait::LIMIT, "the other one", seen, |text| text.contains("second"));
    assert_eq!(drawn.matches("TOTAL").count(), 1, "{drawn}");
    outer.tmux(&["send-keys", "-t", "s", "C-c"]);
    wait::until(wait::LIMIT, "the end", seen, |text| text.contains("ended 130"));
}

#[test]
fn why_says_of_a_running_agent_what_it_does_since_when_and_which_limit_is_near() {
    let install = Install::start();
    install.create("demo", &["--timeout", "10m"], &["say", "hello", "hang"]);
    let why = || install.run(&["why", "demo"]).succeeded().text();
    let said =
        wait::until(wait::LIMIT, "its silence is told", why, |text| text.contains("printed nothing for"));
    assert!(said.starts_with("agent demo is RUNNING: its program lives"), "{said}");
    assert!(said.contains("its processes show it") && said.contains(" ago"), "{said}");
    assert!(!said.contains("limit"), "{said}");
    install.create("short", &["--timeout", "30s"], &["hang"]);
    let near = || install.run(&["why", "short"]).succeeded().text();
    wait::until(wait::LIMIT, "the limit is near", near, |text| text.contains("its time limit ends it in"));
}

#[test]
fn a_file_put_into_a_host_whose_hostd_ends_is_answered_as_unknown_at_once() {
    let install = Install::start();
    install.create("demo", &[], &["hang"]);
    let large = install.file("large", vec![1; 200 << 20]);
    let putting = install.spawn(&["file", "put", &large, "demo:large"]);
    let pid = Pid::from_raw(install.pid("hostd").unwrap().cast_signed());
    let begun = || {
        let folder = install.layout().host().join("agents");
        phalanx_tests::install::is_alive(putting.pid()) && folder.is_dir()
    };
    wait::until(wait::LIMIT, "it is under way", begun, |begun| *begun);
    // Stopped in the middle of a step, so that the step is taken up and never answered; then gone.
    kill(pid, Signal::SIGSTOP).unwrap();
    wait::pause(std::time::Duration::from_secs(1));
    install.kill("hostd");
    let ran = putting.end();
    assert_eq!(ran.code, 9, "{}", ran.stderr);
    assert!(ran.took < std::time::Duration::from_secs(25), "{:?}", ran.took);
    assert!(ran.stderr.contains("unknown") || ran.stderr.contains("given up"), "{}", ran.stderr);
    let listed = install.run(&["file", "ls", "demo:"]).succeeded().text();
    assert!(!listed.contains("large"), "{listed}");
    install.run(&["file", "put", &large, "demo:large"]).succeeded();
}
