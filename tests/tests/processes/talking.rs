//! Texts typed into agents' terminals: once, in order, to whom they may be typed, whatever is killed meanwhile.

use phalanx_tests::install::Install;
use phalanx_tests::programs;
use phalanx_tests::wait;
use serde_json::Value;

const READER: &str = r#"while IFS= read -r l; do printf 'GOT[%s]\n' "$l"; done"#;

fn reader(install: &Install, name: &str) {
    install.run(&["create", name, "--", "bash", "-c", READER]).succeeded();
}

/// What the program has read, in order.
fn got(install: &Install, name: &str) -> Vec<String> {
    let text = install.run(&["logs", name]).succeeded().text();
    let lines = text.lines().filter_map(|line| line.split_once("GOT[")?.1.strip_suffix(']'));
    lines.map(str::to_owned).collect()
}

fn states(install: &Install, name: &str) -> Vec<String> {
    let ran = install.run(&["messages", name, "-o", "json"]).succeeded();
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let items = document["items"].as_array().unwrap().clone();
    items.iter().map(|item| item["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_text_arrives_as_it_is_and_what_cannot_be_typed_is_refused() {
    let install = Install::start();
    reader(&install, "t");
    install.run(&["send", "t", "hello", "there"]).succeeded();
    install.run(&["message", "t", "--", "-----BEGIN;"]).succeeded();
    let file = install.file("text", "one; #{x} $HOME\r\nnaïve 名前\n");
    let refused = install.run(&["send", "t", "-f", &file]).ended_with(1).stderr;
    assert!(refused.contains("each of the 2 lines would be submitted on its own"), "{refused}");
    assert!(refused.contains("CR LF are typed as LF"), "{refused}");
    install.run(&["send", "t", "--lines", "-f", &file]).succeeded();
    let wanted = ["hello there", "-----BEGIN;", "one; #{x} $HOME", "naïve 名前"];
    wait::until(wait::LIMIT, "all of it", || got(&install, "t"), |lines| lines == &wanted);

    let bell = install.file("bell", "a\u{7}b");
    for args in [&["send", "t", "-f", &bell][..], &["send", "t"], &["send", "t", ""]] {
        install.run(args).ended_with(2);
    }
    install.run(&["send", "nobody", "x"]).ended_with(3);
    install.run(&["send", "t", "x", "--wait"]).ended_with(2);
    install.run(&["stop", "t"]).succeeded();
    install.run(&["send", "t", "late"]).ended_with(1);
    assert_eq!(got(&install, "t").len(), wanted.len());
}

#[test]
fn a_frozen_program_gets_its_texts_in_order_once_it_goes_on_but_those_that_were_taken_back() {
    if !phalanx_tests::programs::is_root_for("freezing a cgroup") {
        return;
    }
    let install = Install::start();
    reader(&install, "t");
    install.run(&["pause", "t"]).succeeded();
    let mut ids = Vec::new();
    for text in ["one", "two", "three", "four"] {
        let sent = install.run(&["send", "t", text, "--no-wait", "-q"]).succeeded();
        ids.push(sent.text());
    }
    install.run(&["send", "t", "five", "--timeout", "300ms"]).ended_with(124);
    install.run(&["messages", "--cancel", &ids[1], "--cancel", &ids[3]]).succeeded();
    assert_eq!(got(&install, "t"), Vec::<String>::new());
    install.run(&["resume", "t"]).succeeded();
    wait::until(wait::LIMIT, "the rest", || got(&install, "t"), |lines| lines == &["one", "three", "five"]);
    let mut told = states(&install, "t");
    told.sort();
    assert_eq!(told, ["cancelled", "cancelled", "delivered", "delivered", "delivered"]);
}

#[test]
fn over_kills_of_every_part_each_text_is_typed_once_and_in_order() {
    let install = Install::start();
    reader(&install, "t");
    let mut sent = Vec::new();
    for number in 0..24 {
        let text = format!("m{number:02}");
        install.run(&["send", "t", &text, "--no-wait", "--key", &text]).succeeded();
        sent.push(text);
        match number {
            5 | 17 => install.kill("hostd"),
            9 | 19 => install.kill("manager"),
            13 => install.kill("nats-server"),
            _ => {}
        }
        if matches!(number, 9 | 13 | 19) {
            install.settled();
        }
    }
    let decided = || states(&install, "t");
    let is_over = |states: &Vec<String>| states.len() == 24 && states.iter().all(|state| state != "queued");
    let states = wait::until(wait::LIMIT, "all are decided", decided, is_over);
    assert!(states.iter().all(|state| state == "delivered"), "no shim was killed: {states:?}");
    wait::until(wait::LIMIT, "all are read", || got(&install, "t"), |lines| lines == &sent);
    // A client that asks again gets the answer, not the text.
    install.run(&["send", "t", "m03", "--key", "m03"]).succeeded();
    assert_eq!(got(&install, "t"), sent);
}

#[test]
fn who_waits_for_the_turn_is_told_when_the_program_is_at_its_prompt_again() {
    let install = Install::start();
    install.run(&["create", "calc", "repl"]).succeeded();
    install.agent_until("calc", "is at its prompt", |agent| agent.phase.to_string() == "PAUSED");
    install.run(&["send", "calc", "1 + 1", "--wait=60s"]).succeeded();
    let gate = install.text_path("gate");
    let slow = format!("import os, time\nwhile not os.path.exists({gate:?}): time.sleep(0.05)\n\n");
    let file = install.file("slow.py", slow);
    install.run(&["send", "calc", "--lines", "-f", &file, "--wait=1s"]).ended_with(124);
    install.run(&["send", "calc", "6 * 7", "--no-wait"]).succeeded();
    let shown = || install.run(&["capture", "calc"]).succeeded().text();
    assert!(!shown().contains("42"), "it is at work");
    install.file("gate", "");
    wait::until(wait::LIMIT, "the next one follows", shown, |text| text.contains("42"));
}

/// An agent with an input line that takes pastes and swallows the Enters of so many milliseconds after one.
fn input_line(install: &Install, name: &str, swallows_ms: &str) {
    let program = programs::fake_agent();
    install.run(&["create", name, "--", &program, "input-line", swallows_ms]).succeeded();
    let shown = || install.run(&["capture", name]).succeeded().text();
    wait::until(wait::LIMIT, "its input line", shown, |text| text.contains('>'));
}

#[test]
fn enter_is_pressed_again_on_exactly_the_text_that_still_stands_there() {
    let install = Install::start();
    input_line(&install, "t", "1000");
    let mut wanted = Vec::new();
    for text in [
        "one",
        "a text of several\nlines, the last of which is longer than the terminal is wide, so that it is wrapped somewhere in the middle of a word",
    ] {
        install.run(&["send", "t", text, "--timeout", "60s"]).succeeded();
        wanted.push(text.lines().next().unwrap());
    }
    let shown = install.run(&["logs", "t"]).succeeded().text();
    for text in wanted {
        assert!(shown.contains(&format!("GOT[{text}")), "{text}: {shown}");
    }
    assert_eq!(shown.matches("after 2").count(), 2, "an Enter more than is needed is never pressed: {shown}");
}

#[test]
fn a_text_that_no_enter_submits_is_unknown_and_told_so() {
    let install = Install::start();
    input_line(&install, "t", "600000");
    let told = install.run(&["send", "t", "one", "--timeout", "60s"]).ended_with(9).stderr;
    assert!(told.contains("unknown") && told.contains("submission not seen"), "{told}");
    assert!(!install.run(&["logs", "t"]).succeeded().text().contains("GOT"), "nothing was submitted");
}
