//! Released forms of the shim's records and socket messages stay readable: a shim runs as long as its agent, and a
//! hostd of any later version adopts it. Files are only added here; when one no longer decodes, the type is wrong.

#![expect(clippy::unwrap_used, reason = "a test says what it saw by failing")]

use std::path::PathBuf;

use protocol::codec::{from_bytes, to_bytes};
use protocol::shim::{
    EndCause, Event, ExitRecord, Launch, LaunchUser, Limit, ProcessRef, Ready, Refusal, RefusalReason, Reply,
    Request, ShimRecord, StartFailure, StartStep, Status, TypeHow, TypeOutcome, TypeText, Typed, Usage,
};

fn golden<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn exit_record() -> ExitRecord {
    ExitRecord {
        version: 1,
        agent: "01jc8z4n5v7qk2w3x6y9abcdef".to_owned(),
        build: "0.1.0".to_owned(),
        boot_id: "5f0c2a30-6d5f-4b3c-9a51-0d4e5f6a7b8c".to_owned(),
        cause: EndCause::WallTime,
        code: None,
        signal: Some(9),
        core_dumped: false,
        started_at_ms: 1_700_000_000_000,
        exited_at_ms: 1_700_000_060_000,
        exited_boottime_ms: 150_000,
        out_len: 4711,
        usage: Usage { user_ms: 1200, system_ms: 340, max_rss_kb: 65536 },
        descendants_left: true,
        descendants_ended_by: Some(Limit::WallTime),
        drained: true,
        rows: 0,
        cols: 0,
        launch: 1,
        shim: None,
        epoch: None,
    }
}

#[test]
fn a_launch_of_version_1_is_read() {
    let launch: Launch = golden("shim-launch-1.json");
    assert_eq!(
        (launch.program.as_str(), launch.args.as_slice()),
        ("claude", ["--model", "a b", "é"].map(str::to_owned).as_slice())
    );
    assert_eq!(launch.user, Some(LaunchUser { uid: 1000, gid: 1001, groups: vec![10, 20] }));
    assert_eq!((launch.agent_procs.len(), launch.kill_files.len(), launch.freeze_files.len()), (2, 1, 1));
    assert!(launch.cgroup_required && launch.events_file.is_some() && launch.env_file.is_some());
    assert_eq!((launch.rows, launch.cols, launch.grace_ms), (50, 160, 5000));
    assert_eq!(
        (launch.wall_time_ms, launch.lease_deadline_boottime_ms),
        (Some(3_600_000), Some(123_456_789))
    );
    assert_eq!((launch.nofile, launch.ready_fd), (Some(4096), Some(5)));

    let least: Launch = golden("shim-launch-1-least.json");
    assert_eq!((least.args.len(), least.agent_procs.len(), least.cgroup_required), (0, 0, false));
    assert_eq!((least.wall_time_ms, least.user, least.grace_ms), (None, None, 10_000));
}

#[test]
fn records_of_version_1_are_read() {
    let record: ShimRecord = golden("shim-record-1.json");
    assert_eq!(record.shim, ProcessRef { pid: 100, start_time: 5000 });
    assert_eq!(record.child, ProcessRef { pid: 101, start_time: 5001 });
    assert_eq!((record.started_at_ms, record.started_boottime_ms), (1_700_000_000_000, 90_000));
    assert_eq!((record.wall_time_ms, record.lease_deadline_boottime_ms), (Some(3_600_000), Some(390_000)));
    assert_eq!(golden::<ExitRecord>("shim-exit-1.json"), exit_record());
    let sized = ExitRecord { rows: 50, cols: 160, ..exit_record() };
    assert_eq!(golden::<ExitRecord>("shim-exit-1-sized.json"), sized);
    assert_eq!(record.launch, 1, "whoever wrote it knew of one start only");
    let again: ExitRecord =
        serde_json::from_slice(&serde_json::to_vec(&ExitRecord { launch: 3, ..exit_record() }).unwrap())
            .unwrap();
    assert_eq!(again.launch, 3);
    let failure = StartFailure {
        step: StartStep::Interpreter,
        errno: 2,
        message: "the interpreter or loader that ./x names is missing".to_owned(),
    };
    assert_eq!(golden::<ExitRecord>("shim-exit-1-not-started.json").cause, EndCause::StartFailed(failure));
    let ready: Ready = golden("shim-ready-1.json");
    assert_eq!((ready.child, ready.failure), (Some(record.child), None));
}

#[test]
fn a_newer_record_is_read_as_far_as_it_is_known() {
    let record: ExitRecord = golden("shim-exit-9-newer.json");
    assert_eq!((record.cause, record.code), (EndCause::Unknown, Some(7)));
    assert_eq!(record.descendants_ended_by, Some(Limit::Unknown));
    assert_eq!(serde_json::from_str::<StartStep>("\"a-step-of-tomorrow\"").unwrap(), StartStep::Unknown);
}

fn requests() -> Vec<(&'static str, Request)> {
    vec![
        ("attach", Request::Attach { rows: 24, cols: 80, read_only: true }),
        ("detach", Request::Detach),
        ("resize", Request::Resize { rows: 30, cols: 100 }),
        (
            "type",
            Request::Type(TypeText {
                bytes: b"text\n".to_vec(),
                how: TypeHow::Auto,
                enter_after_ms: Some(300),
                refuse_on_draft: true,
                timeout_ms: 5000,
                refuse_lines: false,
            }),
        ),
        ("modes", Request::Modes),
        ("status", Request::Status),
        ("renew-lease", Request::RenewLease { deadline_boottime_ms: 400_000 }),
        ("set-wall-time", Request::SetWallTime { wall_time_ms: None }),
        ("watch", Request::Watch),
        ("signal", Request::Signal { signo: 15 }),
        (
            "message",
            Request::Message {
                id: "01jc8z4n5v7qk2w3x6y9abcdef".to_owned(),
                text: TypeText {
                    bytes: b"text\n".to_vec(),
                    how: TypeHow::Auto,
                    enter_after_ms: None,
                    refuse_on_draft: true,
                    timeout_ms: 10_000,
                    refuse_lines: false,
                },
            },
        ),
        ("typed", Request::Typed { id: "01jc8z4n5v7qk2w3x6y9abcdef".to_owned() }),
        ("press-again", Request::PressAgain { id: "01jc8z4n5v7qk2w3x6y9abcdef".to_owned(), out_len: 4711 }),
    ]
}

fn replies() -> Vec<(&'static str, Reply)> {
    let typed =
        Typed { outcome: TypeOutcome::NotDelivered, bracketed: true, draft_possible: 4, entered_at: None };
    let entered =
        Typed { outcome: TypeOutcome::Delivered, bracketed: true, draft_possible: 0, entered_at: Some(4711) };
    let refusal = Refusal { reason: RefusalReason::Draft, message: "no".to_owned() };
    let status = Status {
        child_alive: false,
        out_len: 4711,
        last_output_at_ms: 1_700_000_059_000,
        attached: 2,
        degraded: vec!["the disk is full".to_owned()],
        exit: Some(exit_record()),
        rows: 24,
        cols: 80,
        draft_possible: 4,
        wall_time_ms: Some(3_600_000),
        lease_deadline_boottime_ms: None,
    };
    vec![
        ("reply-done", Reply::Done),
        ("reply-typed", Reply::Typed(typed)),
        ("reply-entered", Reply::Typed(entered)),
        ("reply-modes", Reply::Modes { set: vec![7, 25, 2004] }),
        ("reply-status", Reply::Status(Box::new(status))),
        ("reply-refused", Reply::Refused(refusal)),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    vec![
        ("event-exited", Event::Exited(Box::new(exit_record()))),
        ("event-drained", Event::Drained(Box::new(exit_record()))),
        ("event-degraded", Event::Degraded { what: vec!["x".to_owned()] }),
    ]
}

/// `name hex` lines.
fn released(name: &str) -> Vec<u8> {
    let text = include_str!("golden/shim-socket-1.txt");
    let hex = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn socket_messages_of_version_1_are_read() {
    for (name, request) in requests() {
        assert_eq!(from_bytes::<Request>(&released(name)).unwrap(), request, "{name}");
    }
    for (name, reply) in replies() {
        assert_eq!(from_bytes::<Reply>(&released(name)).unwrap(), reply, "{name}");
    }
    for (name, event) in events() {
        assert_eq!(from_bytes::<Event>(&released(name)).unwrap(), event, "{name}");
    }
}

#[test]
fn every_message_survives_its_own_encoding() {
    for (name, request) in requests() {
        assert_eq!(from_bytes::<Request>(&to_bytes(&request).unwrap()).unwrap(), request, "{name}");
    }
    for (name, reply) in replies() {
        assert_eq!(from_bytes::<Reply>(&to_bytes(&reply).unwrap()).unwrap(), reply, "{name}");
    }
    for (name, event) in events() {
        assert_eq!(from_bytes::<Event>(&to_bytes(&event).unwrap()).unwrap(), event, "{name}");
    }
}

#[test]
fn a_text_is_not_shown_in_debug_output() {
    let shown = format!("{:?}", requests());
    assert!(!shown.contains("text\\n") && shown.contains("<5 bytes>"), "{shown}");
}
