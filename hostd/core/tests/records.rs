//! `agent.json` of every released hostd is read for ever: a later hostd adopts the agents of an earlier one. The rules
//! are those of the wire.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it saw by failing"
)]
#![expect(clippy::disallowed_methods, reason = "the core reads no files; its released forms lie in some")]

#[path = "../../../protocol/tests/wire/rules.rs"]
mod rules;
#[expect(dead_code, reason = "messages of the wire, of which the records hold some")]
#[path = "../../../protocol/tests/wire/samples/mod.rs"]
mod samples;
#[path = "../../../protocol/tests/wire/tree.rs"]
mod tree;

use std::path::PathBuf;

use hostd_core::{AgentRecord, MessageEntry, MessageLedger, Wanted};
use protocol::ids::{Generation, MessageId};
use protocol::message::MessageState;
use protocol::order::Discard;
use rules::{Form, Released, Sample};
use samples::{AT, agent_id, agents};

fn record() -> AgentRecord {
    AgentRecord {
        version: 1,
        agent: agent_id(),
        generation: Generation(3),
        wanted: Wanted::Stopped { grace_ms: 1_500 },
        spec: agents::spec(),
        created_at: AT,
        epoch: "e".repeat(32),
        stop_requested: true,
        end: Some(agents::end()),
        collected: Some(agents::collected()),
        removed: true,
        launch: 1,
        launched_at: None,
        limits: None,
        earlier: Vec::new(),
        messages: MessageLedger::default(),
    }
}

/// Started for the second time, while a change of its limits is under way.
fn again() -> AgentRecord {
    AgentRecord {
        spec: agents::changed_spec(),
        launch: 2,
        launched_at: Some(AT.after_ms(9)),
        limits: Some(agents::limits()),
        earlier: vec![agents::end()],
        ..least(Wanted::Running)
    }
}

fn messages() -> MessageLedger {
    let decided = MessageEntry {
        message: MessageId::from_parts(AT.0, 0xf),
        number: 6,
        sha256: "d".repeat(64),
        press_enter: true,
        at_once: true,
        each_line: false,
        state: MessageState::NotDelivered,
        reason: "its program has ended".to_owned(),
        at: AT,
        asked: Some(2),
        turn_done_at: Some(AT.after_ms(9)),
    };
    let open = MessageEntry {
        number: 7,
        press_enter: false,
        at_once: false,
        state: MessageState::Queued,
        reason: String::new(),
        asked: None,
        turn_done_at: None,
        ..decided.clone()
    };
    MessageLedger { last_number: 7, entries: vec![decided, open] }
}

fn least(wanted: Wanted) -> AgentRecord {
    AgentRecord {
        wanted,
        spec: agents::least_spec(),
        stop_requested: false,
        end: None,
        collected: None,
        removed: false,
        ..record()
    }
}

fn released() -> Released {
    let samples = vec![
        Sample::in_form(Form::Json, "agent", record()),
        Sample::in_form(Form::Json, "agent-messages", AgentRecord { messages: messages(), ..record() }),
        Sample::in_form(Form::Json, "agent-running", least(Wanted::Running)),
        Sample::in_form(Form::Json, "agent-again", again()),
        Sample::in_form(Form::Json, "agent-destroyed", least(Wanted::Destroyed { discard: Discard::Keep })),
        Sample::in_form(Form::Json, "agent-discarded", least(Wanted::Destroyed { discard: Discard::Yes })),
    ];
    Released { folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), samples }
}

#[test]
fn todays_writer_gives_the_released_record() {
    released().todays_encoder_gives_the_released_bytes();
}

#[test]
fn todays_reader_reads_every_released_file() {
    released().todays_decoder_reads_every_released_file();
}

#[test]
fn what_an_older_writer_left_out_reads_as_its_default() {
    released().what_an_older_writer_left_out_reads_as_its_default();
}

#[test]
fn a_field_of_a_newer_writer_is_skipped() {
    released().a_field_of_a_newer_writer_is_skipped();
}

#[test]
fn each_twin_says_what_its_record_says() {
    released().each_twin_says_what_its_bytes_say();
}
