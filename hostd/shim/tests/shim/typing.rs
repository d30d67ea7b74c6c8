//! Text for a program: in one piece, bracketed where that was asked for, never mixed with a person's.

use protocol::shim::{RefusalReason, Reply, Request, TypeHow, TypeOutcome, TypeText, Typed};

use crate::support::{Agent, Connection, leaving, shell, wait_until};

/// Writes what it reads to `got`, byte for byte.
fn recorder(modes: &str) -> Agent {
    let agent = Agent::started(&shell(&format!("stty raw -echo; printf '{modes}ready'; exec cat >got")));
    agent.wait_for_output("ready");
    agent
}

fn got(agent: &Agent) -> Vec<u8> {
    std::fs::read(agent.path("got")).unwrap_or_default()
}

fn wait_got(agent: &Agent, bytes: &[u8]) {
    wait_until(&format!("{:?} arrives", String::from_utf8_lossy(bytes)), || got(agent) == bytes);
}

fn typed(reply: &Reply) -> Typed {
    match reply {
        Reply::Typed(typed) => *typed,
        other => panic!("{other:?}"),
    }
}

fn refused(reply: &Reply) -> RefusalReason {
    match reply {
        Reply::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

fn with_bracketed_paste(agent: &Agent) -> Connection {
    let mut connection = agent.connect();
    wait_until("the mode is known", || connection.modes().contains(&2004));
    connection
}

#[test]
fn a_program_with_bracketed_paste_gets_one_and_then_enter() {
    let agent = recorder("\\033[?2004h");
    let mut connection = with_bracketed_paste(&agent);
    let answer = typed(&connection.type_text("two\nlines; é".as_bytes(), TypeHow::Auto, Some(50)));
    assert_eq!((answer.outcome, answer.bracketed, answer.draft_possible), (TypeOutcome::Delivered, true, 0));
    wait_got(&agent, "\x1b[200~two\nlines; é\x1b[201~\r".as_bytes());
}

#[test]
fn a_program_without_it_gets_keys() {
    let agent = recorder("");
    let answer = typed(&agent.connect().type_text(b"two\nlines", TypeHow::Auto, Some(50)));
    assert_eq!((answer.outcome, answer.bracketed), (TypeOutcome::Delivered, false));
    wait_got(&agent, b"two\rlines\r");
}

#[test]
fn keys_go_as_they_are_and_controls_in_a_text_do_not_go() {
    let agent = recorder("\\033[?2004h");
    let mut connection = with_bracketed_paste(&agent);
    assert_eq!(
        refused(&connection.type_text(b"x\x1b[201~/evil", TypeHow::Auto, Some(0))),
        RefusalReason::ControlCharacters
    );
    assert_eq!(
        refused(&connection.type_text(b"\x03", TypeHow::Plain, None)),
        RefusalReason::ControlCharacters
    );
    typed(&connection.type_text(b"\x1b\x1b", TypeHow::Keys, None));
    wait_got(&agent, b"\x1b\x1b");
}

#[test]
fn a_large_text_arrives_whole() {
    let agent = recorder("\\033[?2004h");
    let mut connection = with_bracketed_paste(&agent);
    let text: String = (0..300_000).map(|n| format!("{n},")).collect();
    typed(&connection.type_text(text.as_bytes(), TypeHow::Auto, Some(10)));
    wait_got(&agent, format!("\x1b[200~{text}\x1b[201~\r").as_bytes());
}

#[test]
fn a_persons_keys_never_come_between_a_text_and_its_enter() {
    let agent = recorder("\\033[?2004h");
    let (mut person, mut sender) = (agent.connect(), with_bracketed_paste(&agent));
    person.attach(24, 80);
    let text = TypeText {
        bytes: b"text".to_vec(),
        how: TypeHow::Auto,
        enter_after_ms: Some(400),
        refuse_on_draft: false,
        timeout_ms: 10_000,
        refuse_lines: false,
    };
    sender.send(&Request::Type(text.clone()));
    wait_got(&agent, b"\x1b[200~text\x1b[201~");
    person.input(b"mine");
    wait_got(&agent, b"\x1b[200~text\x1b[201~\rmine");
    // What the person has not sent is seen, and a text that must not join it is refused.
    let refuse = Request::Type(TypeText { refuse_on_draft: true, ..text.clone() });
    assert_eq!(refused(&sender.ask(&refuse)), RefusalReason::Draft);
    assert_eq!(sender.status().draft_possible, 4);
    assert_eq!(typed(&sender.ask(&Request::Type(text))).draft_possible, 4);
    wait_got(&agent, b"\x1b[200~text\x1b[201~\rmine\x1b[200~text\x1b[201~\r");
}

#[test]
fn a_program_that_does_not_read_makes_an_answer_of_unknown_and_no_enter() {
    let script =
        "stty raw -echo; printf '\\033[?2004hready'; while ! [ -e go ]; do sleep 0.02; done; exec cat >got";
    let agent = Agent::started(&shell(script));
    let mut connection = with_bracketed_paste(&agent);
    let text = TypeText {
        bytes: b"text".to_vec(),
        how: TypeHow::Auto,
        enter_after_ms: Some(10),
        refuse_on_draft: false,
        timeout_ms: 200,
        refuse_lines: false,
    };
    assert_eq!(typed(&connection.ask(&Request::Type(text))).outcome, TypeOutcome::Unknown);
    std::fs::write(agent.path("go"), "").unwrap();
    typed(&connection.type_text(b"x", TypeHow::Keys, None));
    wait_got(&agent, b"\x1b[200~text\x1b[201~x");
}

#[test]
fn after_the_end_nothing_is_typed() {
    let mut agent = Agent::started(&leaving("while ! [ -e go ]; do sleep 0.02; done", 0));
    wait_until("it has ended", || agent.exit().is_some());
    let reply = agent.connect().type_text(b"x", TypeHow::Auto, None);
    assert_eq!(refused(&reply), RefusalReason::Ended);
    std::fs::write(agent.path("go"), "").unwrap();
    agent.ended();
}

fn message(id: &str, bytes: &[u8]) -> Request {
    let text = TypeText {
        bytes: bytes.to_vec(),
        how: TypeHow::Auto,
        enter_after_ms: Some(50),
        refuse_on_draft: true,
        timeout_ms: 10_000,
        refuse_lines: false,
    };
    Request::Message { id: id.to_owned(), text }
}

fn typed_of(id: &str) -> Request {
    Request::Typed { id: id.to_owned() }
}

#[test]
fn a_message_asked_for_twice_is_typed_once_and_answered_the_same() {
    let agent = recorder("\\033[?2004h");
    let mut connection = with_bracketed_paste(&agent);
    assert_eq!(refused(&connection.ask(&typed_of("m1"))), RefusalReason::NotTyped);
    // The first asker dies in the middle; who asks next waits for the one outcome.
    connection.send(&message("m1", b"once"));
    wait_got(&agent, b"\x1b[200~once\x1b[201~");
    drop(connection);
    let mut connection = agent.connect();
    assert_eq!(typed(&connection.ask(&message("m1", b"once"))).outcome, TypeOutcome::Delivered);
    assert_eq!(typed(&connection.ask(&typed_of("m1"))).outcome, TypeOutcome::Delivered);
    assert_eq!(typed(&connection.ask(&message("m2", b"two"))).outcome, TypeOutcome::Delivered);
    assert_eq!(typed(&connection.ask(&message("m1", b"once"))).outcome, TypeOutcome::Delivered);
    wait_got(&agent, b"\x1b[200~once\x1b[201~\r\x1b[200~two\x1b[201~\r");
}

/// The kernel drops what is over its limit of a line without a word.
#[test]
fn a_line_that_the_terminal_would_cut_is_refused_and_the_longest_one_arrives() {
    let agent = Agent::started(&shell("stty -echo; printf ready; exec cat >got"));
    agent.wait_for_output("ready");
    let mut connection = agent.connect();
    let longest = "x".repeat(4095);
    assert_eq!(
        refused(&connection.ask(&message("m1", format!("a\n{longest}y\nb").as_bytes()))),
        RefusalReason::LineTooLong
    );
    let text = format!("a\n{longest}\nb");
    assert_eq!(typed(&connection.ask(&message("m2", text.as_bytes()))).outcome, TypeOutcome::Delivered);
    wait_got(&agent, format!("{text}\n").as_bytes());
}

#[test]
fn enter_is_pressed_again_only_on_a_screen_that_was_looked_at() {
    let agent = recorder("\\033[?2004h");
    let mut connection = with_bracketed_paste(&agent);
    let delivered = typed(&connection.ask(&message("m1", b"once")));
    let seen = delivered.entered_at.unwrap();
    wait_got(&agent, b"\x1b[200~once\x1b[201~\r");
    assert_eq!(seen, connection.status().out_len);
    let again = |out_len| Request::PressAgain { id: "m1".to_owned(), out_len };
    assert_eq!(refused(&connection.ask(&again(seen + 1))), RefusalReason::Changed);
    assert_eq!(typed(&connection.ask(&again(seen))).outcome, TypeOutcome::Delivered);
    wait_got(&agent, b"\x1b[200~once\x1b[201~\r\r");
    let mut person = agent.connect();
    person.attach(24, 80);
    person.input(b"x");
    wait_got(&agent, b"\x1b[200~once\x1b[201~\r\rx");
    assert_eq!(
        refused(&connection.ask(&again(seen))),
        RefusalReason::Changed,
        "it is not only ours any more"
    );
}

#[test]
fn several_lines_are_not_submitted_one_by_one_where_that_was_not_asked_for() {
    let agent = recorder("");
    let text = TypeText {
        bytes: b"two\nlines".to_vec(),
        how: TypeHow::Auto,
        enter_after_ms: Some(10),
        refuse_on_draft: false,
        timeout_ms: 10_000,
        refuse_lines: true,
    };
    let one = TypeText { bytes: b"one".to_vec(), ..text.clone() };
    let mut connection = agent.connect();
    assert_eq!(refused(&connection.ask(&Request::Type(text))), RefusalReason::SeveralLines);
    typed(&connection.ask(&Request::Type(one)));
    wait_got(&agent, b"one\r");
}

#[test]
fn a_viewer_cannot_give_the_program_a_terminal_beyond_all_screens() {
    let agent = recorder("");
    let mut viewer = agent.connect();
    viewer.attach(u16::MAX, u16::MAX);
    let mut connection = agent.connect();
    wait_until("the size is clamped", || {
        let status = connection.status();
        (status.rows, status.cols) == (500, 1_000)
    });
    viewer.ask(&Request::Resize { rows: 60_000, cols: 30 });
    assert_eq!((connection.status().rows, connection.status().cols), (500, 30));
}
