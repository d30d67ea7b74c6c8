//! What an agent's terminal shows: rendered for whoever asks, while it runs, after its end, and when it is destroyed.

use std::process::Command;

use phalanx_tests::install::Install;
use phalanx_tests::wait;
use serde_json::Value;

fn capture(install: &Install, args: &[&str]) -> String {
    let all = [&["capture"], args].concat();
    install.run(&all).succeeded().text()
}

fn json(install: &Install, name: &str) -> Value {
    let ran = install.run(&["capture", name, "-o", "json"]).succeeded();
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&document["kind"], &document["schema_version"]), (&"ScreenList".into(), &1.into()));
    document["items"][0].clone()
}

const DRAWS: &str = r"printf 'one\ntwo\nthree\033[2;1H\033[K\033[1;31mYes,\033[CI\033[Ctrust\033[0m\033]0;window\007';
    while [ ! -e GATE ]; do sleep 0.05; done; printf '\033[5;1Hlast'";

#[test]
fn a_screen_is_shown_while_its_agent_runs_after_its_end_and_when_it_is_destroyed() {
    let install = Install::start();
    let script = DRAWS.replace("GATE", &install.text_path("gate"));
    install.run(&["create", "drawer", "--", "sh", "-c", &script]).succeeded();
    let shown = || capture(&install, &["drawer"]);
    wait::until(wait::LIMIT, "it is drawn", shown, |text| text == "one\nYes, I trust\nthree");
    assert!(!shown().contains('\u{1b}'));
    let coloured = capture(&install, &["drawer", "-e"]);
    assert!(coloured.contains("\u{1b}[0;1;38;5;1mYes,"), "{coloured:?}");

    let screen = json(&install, "drawer");
    assert_eq!((&screen["title"], &screen["ended"]), (&"window".into(), &false.into()));
    assert_eq!((&screen["cursor"]["row"], &screen["cursor"]["col"]), (&1.into(), &12.into()));
    let (rows, cols) = (screen["rows"].as_u64().unwrap(), screen["cols"].as_u64().unwrap());
    assert_eq!(screen["lines"].as_array().unwrap().len(), usize::try_from(rows).unwrap());
    assert!(cols >= 80 && screen["as_of"].as_u64().unwrap() > 0, "{screen:#}");

    install.file("gate", "");
    let agent = install.agent_until("drawer", "ends", |agent| agent.phase.is_ended());
    assert_eq!(shown(), "one\nYes, I trust\nthree\n\nlast");
    let screen = json(&install, "drawer");
    assert_eq!((&screen["ended"], screen["rows"].as_u64().unwrap()), (&true.into(), rows));
    // What is shown needs neither workspace nor session.
    install.run(&["destroy", "drawer"]).succeeded();
    install.gone(agent.id);
    assert_eq!(capture(&install, &[&agent.id.to_string()]), "one\nYes, I trust\nthree\n\nlast");

    install.run(&["capture", "nobody"]).ended_with(3);
    install.run(&["capture"]).ended_with(2);
    install.run(&["capture", "drawer", "--history", "many"]).ended_with(2);
}

#[test]
fn a_capture_starts_no_session_and_is_safe_for_a_terminal() {
    let install = Install::start();
    install.create("evil", &[], &["escape", "lines", "200", "0", "hang"]);
    let shown = || capture(&install, &["evil", "--history", "1000"]);
    let text = wait::until(wait::LIMIT, "all lines", shown, |text| text.ends_with("line 000200"));
    assert!(text.contains("line 000001"), "history reaches the first line");
    for args in
        [&["evil"][..], &["evil", "-e"], &["evil", "-o", "json"], &["evil", "-o", "template={{ lines }}"]]
    {
        let text = capture(&install, args);
        let colourless = text.replace("\u{1b}[0m", "");
        assert!(!colourless.chars().any(|c| c.is_control() && c != '\n'), "{args:?}: {text:?}");
    }
    // As it stands without any tmux at all.
    for pid in install.tmux_servers() {
        assert!(Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap().success());
    }
    assert!(shown().ends_with("line 000200"));
}

#[test]
fn what_is_shown_follows_the_size_of_the_terminal() {
    let install = Install::start();
    install.run(&["create", "shell", "--", "sh"]).succeeded();
    let session = || install.agent("shell").report().session.clone();
    let session = wait::until(wait::LIMIT, "a session", session, Option::is_some).unwrap();
    let resized = Command::new("tmux")
        .current_dir(&session.folder)
        .args(["-S", &session.socket, "resize-window", "-t", &session.session, "-x", "61", "-y", "17"])
        .status()
        .unwrap();
    assert!(resized.success());
    let size = || {
        let screen = json(&install, "shell");
        (screen["rows"].as_u64().unwrap(), screen["cols"].as_u64().unwrap())
    };
    wait::until(wait::LIMIT, "the new size", size, |size| *size == (17, 61));
}
