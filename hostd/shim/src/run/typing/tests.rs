//! Rules of [`super::Typist`].

use super::*;

fn text(bytes: &[u8], how: TypeHow, enter: Option<u64>) -> TypeText {
    TypeText {
        bytes: bytes.to_vec(),
        how,
        enter_after_ms: enter,
        refuse_on_draft: false,
        timeout_ms: 1000,
        refuse_lines: false,
    }
}

fn asker(id: &str) -> Asker {
    Asker { client: 1, frame_id: id.to_owned() }
}

/// What the program has printed.
const OUT: u64 = 77;

/// Writes all that may be written at `now`.
fn write_all(typist: &mut Typist, now: u64) -> (Vec<u8>, Vec<Answer>) {
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    while let Some(next) = typist.next_bytes().map(<[u8]>::to_vec) {
        bytes.extend_from_slice(&next);
        answers.extend(typist.wrote(now, next.len(), OUT));
    }
    (bytes, answers)
}

#[test]
fn a_paste_is_bracketed_and_its_enter_waits_until_it_has_been_read() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one\ntwo", TypeHow::Auto, Some(300)), true);
    typist.person(b"x".to_vec());
    assert_eq!(write_all(&mut typist, 0), (b"\x1b[200~one\ntwo\x1b[201~".to_vec(), vec![]));
    assert_eq!(typist.tick(10, || true), None);
    assert_eq!(typist.tick(30, || false), None);
    assert_eq!(write_all(&mut typist, 329).0, b"", "neither Enter nor the person's key yet");
    assert_eq!(typist.deadline(), Some(330));
    assert_eq!(typist.tick(330, || false), None);
    let (bytes, answers) = write_all(&mut typist, 330);
    assert_eq!(bytes, b"\rx");
    assert_eq!(answers[0].typed.outcome, TypeOutcome::Delivered);
    assert!(answers[0].typed.bracketed);
}

#[test]
fn without_bracketed_paste_lines_are_keys_and_enter_follows_at_once() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one\ntwo", TypeHow::Auto, Some(300)), false);
    typist.text(0, asker("b"), None, text(b"q\n", TypeHow::Plain, None), true);
    typist.text(0, asker("c"), None, text(b"\x1b\n", TypeHow::Keys, None), true);
    let (bytes, answers) = write_all(&mut typist, 0);
    assert_eq!(bytes, b"one\rtwo\rq\r\x1b\n");
    assert_eq!(answers.len(), 3);
    assert!(answers.iter().all(|a| a.typed.outcome == TypeOutcome::Delivered && !a.typed.bracketed));
}

#[test]
fn an_unread_paste_is_unknown_in_time_and_enter_is_never_pressed() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Auto, Some(300)), true);
    write_all(&mut typist, 0);
    assert_eq!(typist.tick(1299, || true), None);
    assert_eq!(typist.tick(1300, || true).unwrap().typed.outcome, TypeOutcome::Unknown);
    assert_eq!(typist.tick(9000, || false), None);
    assert_eq!(write_all(&mut typist, 9000).0, b"");
    assert_eq!(typist.deadline(), None);
}

#[test]
fn a_half_written_paste_is_unknown_and_still_gets_its_closing_bracket() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Auto, Some(300)), true);
    assert_eq!(typist.wrote(0, 7, OUT), None);
    assert_eq!(typist.tick(1300, || true).unwrap().typed.outcome, TypeOutcome::Unknown);
    assert_eq!(write_all(&mut typist, 1400), (b"ne\x1b[201~".to_vec(), vec![]));
    assert_eq!(typist.next_bytes(), None);
}

#[test]
fn a_half_written_line_is_unknown_and_its_rest_and_enter_are_dropped() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Plain, Some(0)), false);
    assert_eq!(typist.wrote(0, 2, OUT), None);
    assert_eq!(typist.tick(1000, || true).unwrap().typed.outcome, TypeOutcome::Unknown);
    assert_eq!(typist.next_bytes(), None);
}

#[test]
fn a_text_of_which_nothing_was_taken_is_not_delivered() {
    let mut typist = Typist::default();
    typist.person(b"stuck".to_vec());
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Auto, Some(300)), true);
    let answer = typist.tick(1300, || true).unwrap();
    assert_eq!(answer.typed.outcome, TypeOutcome::NotDelivered);
    assert_eq!(write_all(&mut typist, 1300).0, b"stuck");
}

#[test]
fn a_persons_unsent_bytes_are_told_and_gone_with_our_enter() {
    let mut typist = Typist::default();
    typist.person(b"dra".to_vec());
    assert_eq!(typist.draft(), 3, "also before they are written");
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Plain, Some(0)), false);
    let (_, answers) = write_all(&mut typist, 0);
    assert_eq!(answers[0].typed.draft_possible, 3);
    assert_eq!(typist.draft(), 0);
}

#[test]
fn the_end_of_the_program_answers_every_text() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), None, text(b"one", TypeHow::Auto, Some(300)), true);
    typist.text(0, asker("b"), None, text(b"two", TypeHow::Auto, None), true);
    typist.wrote(0, 4, OUT);
    let outcomes: Vec<_> = typist.close().into_iter().map(|a| a.typed.outcome).collect();
    assert_eq!(outcomes, [TypeOutcome::Unknown, TypeOutcome::NotDelivered]);
}

#[test]
fn control_characters_are_seen_and_text_of_any_language_is_not_one() {
    for bad in [b"\x1b[201~".as_slice(), b"a\x03", b"\x7f", "\u{9b}x".as_bytes(), b"\r", b"\0"] {
        assert!(has_controls(bad), "{bad:?}");
    }
    assert!(!has_controls("tab\tline\n日本 é 👩‍🚀 \u{200d}".as_bytes()));
}

#[test]
fn a_message_is_typed_once_and_every_asker_hears_its_outcome() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), Some("m".to_owned()), text(b"one", TypeHow::Plain, Some(0)), false);
    assert_eq!(typist.decided("m"), None);
    assert!(typist.join("m", asker("again")) && !typist.join("n", asker("x")));
    let (bytes, answers) = write_all(&mut typist, 0);
    assert_eq!((bytes.as_slice(), answers.len(), answers[0].askers.len()), (b"one\r".as_slice(), 1, 2));
    assert_eq!(typist.decided("m").unwrap().outcome, TypeOutcome::Delivered);
    assert!(!typist.join("m", asker("late")), "nothing is under way any more");
}

#[test]
fn a_message_that_left_no_byte_may_be_tried_again_and_a_half_written_one_may_not() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), Some("m".to_owned()), text(b"one", TypeHow::Plain, Some(0)), false);
    typist.text(0, asker("b"), Some("n".to_owned()), text(b"two", TypeHow::Plain, Some(0)), false);
    typist.wrote(0, 2, OUT);
    while typist.tick(1000, || true).is_some() {}
    assert_eq!(typist.decided("m").unwrap().outcome, TypeOutcome::Unknown);
    assert_eq!(typist.decided("n"), None);
}

#[test]
fn enter_is_pressed_again_only_while_nothing_else_was_typed_and_not_without_end() {
    let mut typist = Typist::default();
    typist.text(0, asker("a"), Some("m".to_owned()), text(b"one", TypeHow::Auto, Some(0)), true);
    assert!(!typist.again(0, asker("b"), "m"), "it is not typed yet");
    write_all(&mut typist, 0);
    typist.tick(1, || false);
    typist.tick(2, || false);
    assert_eq!(write_all(&mut typist, 2).1[0].typed.entered_at, Some(OUT));
    assert!(!typist.again(3, asker("b"), "another"));
    assert!(typist.again(3, asker("b"), "m") && !typist.again(3, asker("c"), "m"), "one at a time");
    assert_eq!(write_all(&mut typist, 3).0, b"\r");
    assert_eq!(typist.decided("m").unwrap().outcome, TypeOutcome::Delivered);
    let mut presses = 2;
    while typist.again(4, asker("b"), "m") {
        write_all(&mut typist, 4);
        presses += 1;
    }
    assert_eq!(presses, ENTERS);

    typist.text(5, asker("a"), Some("n".to_owned()), text(b"two", TypeHow::Auto, Some(0)), true);
    write_all(&mut typist, 5);
    typist.tick(6, || false);
    typist.tick(7, || false);
    write_all(&mut typist, 7);
    typist.person(b"x".to_vec());
    assert!(!typist.again(8, asker("b"), "n"), "a person's key waits");
    write_all(&mut typist, 8);
    assert!(!typist.again(9, asker("b"), "n"), "what stands there is not only ours");
}
