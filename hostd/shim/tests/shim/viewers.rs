//! Attached clients: what they see, who sets the size, and that none of them holds the program up.

use std::time::Instant;

use protocol::shim::{Reply, Request};

use crate::support::{Agent, launch, shell, wait_until};

const SIZES: &str = "trap 'stty size' WINCH; stty size; echo up; while :; do sleep 0.02; done";

#[test]
fn a_line_program_shows_its_last_lines_and_then_what_comes() {
    let agent = Agent::started(&shell(
        "echo one; printf '\\033[?2004h\\033[6n'; read line; echo \"got $line\"; read line",
    ));
    agent.wait_for_output("[6n");
    let mut viewer = agent.connect();
    viewer.attach(24, 80);
    viewer.wait_shown("one\r\n\x1b[?2004h\x1b[?2004h");
    assert!(!viewer.shown.windows(4).any(|bytes| bytes == b"\x1b[6n"), "a question is not asked again");
    viewer.input(b"words\r");
    viewer.wait_shown("got words");
}

#[test]
fn a_full_screen_program_shows_no_earlier_output_but_its_modes() {
    let agent =
        Agent::started(&shell("echo secret; printf '\\033[?1049h\\033[?1002h\\033[?25lscreen'; sleep 60"));
    agent.wait_for_output("screen");
    let mut viewer = agent.connect();
    viewer.attach(24, 80);
    viewer.wait_shown("\x1b[?25l");
    assert_eq!(viewer.shown, b"\x1b[?1049h\x1b[?1002h\x1b[?25l");
}

#[test]
fn the_size_follows_the_latest_and_an_equal_size_is_a_nudge() {
    let agent = Agent::started(&shell(SIZES));
    agent.wait_for_output("24 80\r\nup");
    let (mut first, mut second) = (agent.connect(), agent.connect());
    first.attach(24, 80);
    // One row off and back.
    agent.wait_for_output("up\r\n23 80\r\n24 80\r\n");
    second.attach(30, 100);
    agent.wait_for_output("30 100");
    assert_eq!(first.ask(&Request::Resize { rows: 31, cols: 101 }), Reply::Done);
    agent.wait_for_output("31 101");
    let status = first.status();
    assert_eq!((status.rows, status.cols, status.attached), (31, 101, 2));
    assert_eq!(second.ask(&Request::Detach), Reply::Done);
    assert_eq!(first.status().attached, 1);
}

#[test]
fn two_viewers_see_the_same_and_a_read_only_one_cannot_type() {
    let mut agent = Agent::started(&shell("read line; echo \"got $line\"; read line"));
    let (mut person, mut guest) = (agent.connect(), agent.connect());
    person.attach(24, 80);
    assert_eq!(guest.ask(&Request::Attach { rows: 0, cols: 0, read_only: true }), Reply::Done);
    guest.input(b"guest\r");
    guest.status();
    person.input(b"person\r");
    for viewer in [&mut person, &mut guest] {
        viewer.wait_shown("got person");
    }
    person.input(b"\r");
    assert_eq!(agent.ended().code, Some(0));
    assert!(!String::from_utf8(agent.output()).unwrap().contains("guest"));
}

#[test]
fn a_viewer_that_does_not_read_does_not_hold_the_program_up() {
    let script = "stty raw -echo; read x; head -c 33554432 /dev/zero | tr '\\0' x; printf '\\033[?2004h'; echo; echo done";
    let run = |slow: bool| {
        let agent = Agent::started(&shell(&format!("{script}; read x")));
        let mut person = agent.connect();
        person.attach(24, 80);
        let mut viewer = slow.then(|| {
            let mut viewer = agent.connect();
            viewer.attach(24, 80);
            viewer
        });
        assert_eq!(person.ask(&Request::Detach), Reply::Done);
        let start = Instant::now();
        let typed = person.type_text(b"\n", protocol::shim::TypeHow::Keys, None);
        assert!(matches!(typed, Reply::Typed(_)), "{typed:?}");
        wait_until("all is printed", || std::fs::metadata(agent.path("out.raw")).unwrap().len() > 33_554_432);
        let took = start.elapsed();
        agent.wait_for_output("done");
        if let Some(viewer) = viewer.as_mut() {
            // Skipped what it did not read, and is drawn anew at the end.
            viewer.wait_shown("\x1bc");
            viewer.wait_shown("\x1b[?2004h");
            assert!(viewer.shown.len() < 8 << 20, "{}", viewer.shown.len());
        }
        took
    };
    let (alone, watched) = (run(false), run(true));
    println!("32 MiB: {alone:?} alone, {watched:?} with a viewer that does not read");
}

#[test]
fn a_request_is_answered_while_the_program_prints_without_end() {
    let agent = Agent::started(&launch("yes", &[]));
    let mut connection = agent.connect();
    for _ in 0..50 {
        assert!(connection.status().child_alive);
    }
    assert_eq!(connection.ask(&Request::Signal { signo: libc::SIGKILL }), Reply::Done);
}
