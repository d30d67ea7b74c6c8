//! Lists that go on: each change told once, over restarts of the manager, and drawn in place on a terminal.

use std::collections::BTreeMap;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::Install;
use phalanx_tests::programs::path_of;
use phalanx_tests::wait;
use serde_json::Value;

use super::outer::Outer;

/// `ls --watch -o jsonl` into a file.
struct Watch<'a> {
    install: &'a Install,
    file: &'static str,
    child: Child,
}

impl<'a> Watch<'a> {
    fn start(install: &'a Install, file: &'static str, words: &[&str]) -> Self {
        let out = std::fs::File::create(install.path(file)).unwrap();
        let mut args = vec!["ls", "--watch", "-o", "jsonl"];
        args.extend(words);
        Self { install, file, child: install.command(&args).stdout(out).spawn().unwrap() }
    }

    fn lines(&self) -> Vec<Value> {
        self.install.lines(self.file).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    fn until(&self, what: &str, right: impl FnMut(&Vec<Value>) -> bool) -> Vec<Value> {
        wait::until(wait::LIMIT, what, || self.lines(), right)
    }

    /// Ends as by Ctrl-C.
    #[track_caller]
    fn end(mut self) -> Vec<Value> {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT).unwrap();
        let ended = || self.child.try_wait().unwrap();
        let status = wait::until(wait::LIMIT, "it ends", ended, Option::is_some).unwrap();
        assert_eq!(status.code(), Some(130));
        self.lines()
    }
}

fn is(line: &Value, change: &str, name: &str, phase: &str) -> bool {
    line["change"] == change && line["agent"]["name"] == name && line["agent"]["phase"] == phase
}

fn brief(line: &Value) -> String {
    let agent = &line["agent"];
    format!("{} {} {} {}", line["change"], agent["name"], agent["phase"], line["cursor"])
}

/// Names with their phases, as whoever read all the lines knows them.
fn told(lines: &[Value]) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for line in lines {
        assert_eq!(line["schema_version"], 1, "{line}");
        let name = || line["agent"]["id"].as_str().unwrap().to_owned();
        let phase = || line["agent"]["phase"].as_str().unwrap().to_owned();
        match line["change"].as_str().unwrap() {
            "reset" => known.clear(),
            "synced" => assert!(line["cursor"].is_string(), "{line}"),
            "listed" => assert_eq!(known.insert(name(), phase()), None, "{line}"),
            "added" => assert_eq!(known.insert(name(), phase()), None, "{line}"),
            "changed" => assert!(known.insert(name(), phase()).is_some(), "{line}"),
            other => {
                assert_eq!(other, "gone", "{line}");
                assert!(known.remove(&name()).is_some(), "{line}");
            }
        }
    }
    known
}

#[test]
fn every_change_is_told_once_also_after_a_cursor_and_over_a_restart_of_the_manager() {
    let install = Install::start();
    install.create("first", &[], &["hang"]);
    let watch = Watch::start(&install, "all", &[]);
    let running = Watch::start(&install, "running", &["--phase", "RUNNING"]);
    watch.until("the list", |lines| lines.last().is_some_and(|line| line["change"] == "synced"));
    running.until("the list", |lines| lines.last().is_some_and(|line| line["change"] == "synced"));
    install.create("second", &[], &["hang"]);
    watch.until("the new one", |lines| lines.iter().any(|line| is(line, "changed", "second", "RUNNING")));
    install.run(&["stop", "second"]).succeeded();
    install.run(&["rename", "first", "renamed"]).succeeded();
    install.run(&["destroy", "second"]).succeeded();
    let lines = watch.until("all of it", |lines| {
        lines.iter().any(|line| line["change"] == "gone")
            && lines.iter().any(|line| line["agent"]["name"] == "renamed")
    });
    assert!(lines.iter().any(|line| is(line, "added", "second", "CREATING")), "{lines:?}");
    assert!(lines.iter().any(|line| is(line, "changed", "second", "STOPPED")), "{lines:?}");
    // Of those that run, the one that stopped is gone.
    let of_running = running.until("the end of the second", |lines| {
        lines.iter().any(|line| is(line, "gone", "second", "STOPPED"))
    });
    assert_eq!(told(&of_running).len(), 1);

    // Going on after each cursor gives what was told after it.
    for (place, line) in lines.iter().enumerate().filter(|(_, line)| line["cursor"].is_string()) {
        let rest: Vec<String> = lines[place + 1..].iter().map(brief).collect();
        if rest.is_empty() {
            continue;
        }
        let again = Watch::start(&install, "again", &["--cursor", line["cursor"].as_str().unwrap()]);
        again.until("the rest", |lines| lines.len() >= rest.len());
        assert_eq!(again.end().iter().map(brief).collect::<Vec<_>>(), rest, "after {}", brief(line));
    }

    let cursor = lines.last().unwrap()["cursor"].as_str().unwrap().to_owned();
    install.kill("manager");
    install.settled();
    watch.until("told anew", |lines| lines.iter().any(|line| line["change"] == "reset"));
    install.create("third", &[], &["exit", "0"]);
    watch.until("the third", |lines| lines.iter().any(|line| is(line, "changed", "third", "STOPPED")));
    let known = told(&watch.end());
    let listed = install.agents(&[]).into_iter();
    assert_eq!(known, listed.map(|agent| (agent.id.to_string(), agent.phase.to_string())).collect());
    drop(running.end());

    let late = Watch::start(&install, "late", &["--cursor", &cursor]);
    let lines = late.until("all anew", |lines| lines.last().is_some_and(|line| line["change"] == "synced"));
    assert_eq!(lines[0]["change"], "reset");
    assert!(lines[0]["reason"].as_str().unwrap().contains("restarted"), "{lines:?}");
    assert_eq!(told(&late.end()), known);

    let wrong = install.run(&["ls", "-w", "-o", "jsonl", "--cursor", "nonsense"]).ended_with(2);
    assert!(wrong.stderr.contains("nonsense"), "{}", wrong.stderr);
    install.run(&["ls", "--cursor", "1-2"]).ended_with(2);
    install.run(&["ls", "-w", "--cursor", "1-2"]).ended_with(2);
    install.run(&["ls", "-w", "-o", "jsonl", "--run", "nobody"]).ended_with(3);
}

#[test]
fn without_a_terminal_and_without_json_each_change_is_a_plain_line() {
    let install = Install::start();
    install.create("first", &[], &["hang"]);
    let out = std::fs::File::create(install.path("out")).unwrap();
    let names = std::fs::File::create(install.path("names")).unwrap();
    let start = |args: &[&str], out| install.command(args).stdout(out).spawn().unwrap();
    let mut children = [
        start(&["ls", "-w", "--columns", "name,phase"], out),
        start(&["ls", "-w", "-o", "name", "--phase", "STOPPED"], names),
    ];
    let lines = || install.lines("out");
    wait::until(wait::LIMIT, "the list", lines, |lines| lines.len() == 2);
    assert_eq!(lines(), ["CHANGE  NAME   PHASE", "listed  first  RUNNING"]);
    install.run(&["stop", "first"]).succeeded();
    install.run(&["destroy", "first"]).succeeded();
    let all = wait::until(wait::LIMIT, "its end", lines, |lines| {
        lines.last().is_some_and(|line| line.starts_with("gone"))
    });
    assert!(all.iter().any(|line| line == "changed  first  STOPPED"), "{all:?}");
    let named = || install.lines("names");
    wait::until(wait::LIMIT, "the name", named, |names| names.iter().any(|name| name == "first"));
    for child in &mut children {
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(143));
    }
}

#[test]
fn on_a_terminal_the_table_is_drawn_in_place_at_every_size() {
    let install = Install::start();
    for name in ["a1", "a2", "a3", "a4", "a5"] {
        install.create(name, &[], &["hang"]);
    }
    let outer = Outer::of(&install);
    let phalanx = path_of("phalanx").display().to_string();
    let home = install.home().display().to_string();
    let command = format!("{phalanx} --home {home} ls -w --sort name; echo ended $?; exec cat");
    outer.tmux(&["new-session", "-d", "-s", "s", "-x", "70", "-y", "12", &command]);
    let seen = || outer.tmux(&["capture-pane", "-p", "-S", "-", "-t", "s"]);
    let on_screen = || outer.tmux(&["capture-pane", "-p", "-t", "s"]);
    let shows = |what: &str, right: &dyn Fn(&str) -> bool| {
        wait::until(wait::LIMIT, what, on_screen, |text| right(text));
    };
    shows("the table", &|text| text.contains("NAME") && text.contains("a5"));
    install.run(&["stop", "a3"]).succeeded();
    shows("the change", &|text| text.lines().any(|line| line.starts_with("a3") && line.contains("STOPPED")));
    assert_eq!(seen().matches("NAME").count(), 1, "drawn in place: {}", seen());
    for (x, y) in [("30", "4"), ("1", "1"), ("5", "2"), ("200", "3")] {
        outer.tmux(&["resize-window", "-t", "s", "-x", x, "-y", y]);
    }
    shows("a small one", &|text| text.contains("more") && text.lines().count() <= 3);
    outer.tmux(&["resize-window", "-t", "s", "-x", "90", "-y", "20"]);
    install.run(&["destroy", "a1"]).succeeded();
    shows("it whole", &|text| text.contains("a5") && text.contains("QUIET") && !text.contains("a1"));
    // The manager is away and back: the same table.
    install.kill("manager");
    install.settled();
    install.run(&["stop", "a4"]).succeeded();
    shows("what changed since", &|text| {
        text.lines().any(|line| line.starts_with("a4") && line.contains("STOPPED")) && !text.contains("away")
    });
    outer.tmux(&["send-keys", "-t", "s", "C-c"]);
    shows("the end", &|text| text.contains("ended 130"));
    let screen = on_screen();
    let end = screen.lines().position(|line| line.contains("ended 130")).unwrap();
    let a5 = screen.lines().position(|line| line.starts_with("a5")).unwrap();
    assert!(a5 < end, "the table stays above: {screen}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let install = Install::start();
    install.create("first", &[], &["hang"]);
    let phalanx = path_of("phalanx").display().to_string();
    let (home, out) = (install.home().display().to_string(), install.text_path("out"));
    let script =
        format!("{phalanx} --home {home} ls -w -o jsonl 2>&1 | head -n 1 > {out}; echo over >> {out}");
    let mut child = Command::new("bash").args(["-c", &script]).spawn().unwrap();
    let lines = || install.lines("out");
    wait::until(wait::LIMIT, "a line is read", lines, |lines| !lines.is_empty());
    install.run(&["stop", "first"]).succeeded();
    let ended = || child.try_wait().unwrap();
    wait::until(wait::LIMIT, "it ends with its reader", ended, Option::is_some);
    assert_eq!(lines().len(), 2, "{:?}", lines());
}
