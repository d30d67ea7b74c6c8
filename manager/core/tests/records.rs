//! Stored records of released builds are read for ever: desired state, runs, tasks, answers by key. The rules are
//! those of the wire.

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

use manager_core::record::{
    DESIRED, DesiredRecord, Feedback, Landing, OpenTarget, Origin, REQUESTS, RUNS, RequestRecord,
    RequestState, RunRecord, TASKS, TaskRecord, Wanted, desired_key, request_key, run_key, task_key,
};
use manager_core::{Config, Core, MergeRecord, MergeStep, Recheck, Red, StoredRecord};
use protocol::api::Reply;
use protocol::codec::to_bytes;
use protocol::ids::{Fencing, Generation, RequestKey};
use protocol::order::Discard;
use protocol::task::{RunSpec, TaskState};
use rules::{Released, Sample};
use samples::{AT, agent_id, agents, host, hosts, region, run_id, task_id, tasks, text};

fn origin() -> Origin {
    Origin { key: RequestKey(text("k-1")), digest: "d".repeat(64) }
}

fn desired() -> DesiredRecord {
    DesiredRecord {
        v: 1,
        region: region(),
        host: host(),
        generation: Generation(3),
        wanted: Wanted::Stopped,
        discard: Discard::Yes,
        spec: agents::spec(),
        created_at: AT,
        grace_ms: Some(1_500),
        void: true,
        kept: true,
        stops_anyway: false,
        refused_limits: None,
        origin: Some(origin()),
        lease_until: Some(AT.after_ms(330_000)),
    }
}

fn least_desired(wanted: Wanted) -> DesiredRecord {
    DesiredRecord {
        wanted,
        discard: Discard::Keep,
        spec: agents::least_spec(),
        grace_ms: None,
        void: false,
        kept: false,
        origin: None,
        lease_until: None,
        ..desired()
    }
}

fn run() -> RunRecord {
    RunRecord {
        v: 1,
        id: run_id(),
        spec: tasks::run_spec(),
        submitted_at: AT,
        tasks: vec![task_id()],
        ended_at: Some(AT.after_ms(99_000)),
        added: None,
        origin: Some(origin()),
        merge: None,
    }
}

fn merge() -> MergeRecord {
    MergeRecord {
        view: samples::merges::merge_view(),
        wished_into: Some(text("main")),
        message: Some(text("Merge it")),
        step: MergeStep::Verify { candidate: text(samples::COMMIT), agent: agent_id(), restarts: 1 },
        asked: 3,
        tip: Some(text(samples::BASE)),
        start: text(samples::BASE),
        merged: text(samples::COMMIT),
        confirmed: Vec::new(),
    }
}

fn rechecked() -> MergeRecord {
    let red = Red { at: 3, agent: agent_id(), reason: text("exit 1") };
    let recheck = Recheck { of: task_id(), at: 2, green: 0, red: Some(red), agent: agent_id(), restarts: 1 };
    MergeRecord { step: MergeStep::Recheck(recheck), confirmed: vec![task_id()], ..merge() }
}

fn task() -> TaskRecord {
    TaskRecord {
        v: 1,
        id: task_id(),
        run: run_id(),
        place: 7,
        spec: tasks::task_spec(),
        state: TaskState::Queued,
        reason: text("verification failed: exit 1"),
        unverified: true,
        attempts: vec![tasks::attempt()],
        branch: Some(text("phalanx/nightly-1/fix-it-2")),
        submitted_at: AT,
        ended_at: Some(AT.after_ms(99_000)),
        starts: 2,
        uncharged: 1,
        not_before: Some(AT.after_ms(90_000)),
        cancel: true,
        cancel_grace_ms: None,
        blocked_by: Some("first".parse().unwrap()),
        feedback: Feedback::Kept { blob: agents::blob() },
        landing: Landing::Due,
        inputs: None,
        decisions: Vec::new(),
        granted: 0,
        landed: None,
        merged: None,
        lost: false,
    }
}

fn reviewed_task() -> TaskRecord {
    TaskRecord {
        decisions: vec![tasks::decision()],
        granted: 1,
        landed: Some(text(samples::COMMIT)),
        ..task()
    }
}

fn least_task() -> TaskRecord {
    TaskRecord {
        spec: tasks::least_task_spec(),
        reason: String::new(),
        unverified: false,
        attempts: Vec::new(),
        branch: None,
        ended_at: None,
        starts: 0,
        uncharged: 0,
        not_before: None,
        cancel: false,
        cancel_grace_ms: None,
        blocked_by: None,
        feedback: Feedback::None,
        landing: Landing::None,
        ..task()
    }
}

fn request(state: RequestState) -> RequestRecord {
    RequestRecord { v: 1, key: RequestKey(text("k-1")), digest: "d".repeat(64), at: AT, state }
}

fn released() -> Released {
    let targets = vec![
        OpenTarget { target: text("a"), found: Ok(agent_id()) },
        OpenTarget { target: text("x"), found: Err(hosts::error()) },
    ];
    let wanted = Feedback::Wanted { agent: agent_id(), host: host() };
    let answered = RequestState::Answered { reply: Reply::Accepted { agent: agent_id() } };
    let samples = vec![
        Sample::of("desired", desired()),
        Sample::of("desired-running", least_desired(Wanted::Running)),
        Sample::of("desired-destroyed", least_desired(Wanted::Destroyed)),
        Sample::of(
            "desired-refused",
            DesiredRecord {
                refused_limits: Some(String::from("it holds more")),
                ..least_desired(Wanted::Running)
            },
        ),
        Sample::of(
            "desired-stopping",
            DesiredRecord { stops_anyway: true, ..least_desired(Wanted::Destroyed) },
        ),
        Sample::of("run", run()),
        Sample::of("run-merging", RunRecord { merge: Some(merge()), ..run() }),
        Sample::of("run-merging-whole", RunRecord { merge: Some(rechecked()), ..run() }),
        Sample::of("task-merged", TaskRecord { merged: Some(text(samples::COMMIT)), ..least_task() }),
        Sample::of(
            "run-told",
            RunRecord { spec: RunSpec { notify: tasks::told(), ..tasks::run_spec() }, ..run() },
        ),
        Sample::of("run-open", RunRecord { ended_at: None, origin: None, ..run() }),
        Sample::of("task", task()),
        Sample::of("task-least", least_task()),
        Sample::of("task-reviewed", reviewed_task()),
        Sample::of("task-log-wanted", TaskRecord { feedback: wanted, ..least_task() }),
        Sample::of("task-lost", TaskRecord { lost: true, ..least_task() }),
        Sample::of("task-landed", TaskRecord { landing: Landing::Done, ..least_task() }),
        Sample::of("task-not-landed", TaskRecord { landing: Landing::Refused, ..least_task() }),
        Sample::of("request-open", request(RequestState::Open { targets })),
        Sample::of("request-answered", request(answered)),
    ];
    Released { folder: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden"), samples }
}

#[test]
fn todays_encoder_gives_the_released_bytes() {
    released().todays_encoder_gives_the_released_bytes();
}

#[test]
fn todays_decoder_reads_every_released_file() {
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
fn each_twin_says_what_its_bytes_say() {
    released().each_twin_says_what_its_bytes_say();
}

/// Keys are as fixed as values: a record under another key is not found again.
#[test]
fn released_keys_and_records_load_into_a_core_that_would_write_the_same() {
    assert_eq!(desired_key(agent_id()), agent_id().to_string());
    assert_eq!(task_key(run_id(), task_id()), format!("{}.{}", run_id(), task_id()));
    assert_eq!(request_key(&RequestKey(text("k-1"))), "dcmj2");
    let answered = RequestState::Answered { reply: Reply::Done };
    let requests = RequestRecord { key: RequestKey(text("k-2")), ..request(answered) };
    let stored = [
        (DESIRED, desired_key(agent_id()), to_bytes(&desired()).unwrap()),
        (RUNS, run_key(run_id()), to_bytes(&run()).unwrap()),
        (TASKS, task_key(run_id(), task_id()), to_bytes(&task()).unwrap()),
        (REQUESTS, request_key(&requests.key), to_bytes(&requests).unwrap()),
    ];
    let mut records: Vec<StoredRecord> = stored
        .into_iter()
        .map(|(bucket, key, value)| StoredRecord { bucket, key, value: Some(value) })
        .collect();
    let (core, aside) = Core::load(Config::new(Fencing(1)), records.clone(), AT);
    assert_eq!(aside, Vec::new());
    let mut again = core.records();
    for list in [&mut records, &mut again] {
        list.sort_by(|one, other| (one.bucket, &one.key).cmp(&(other.bucket, &other.key)));
    }
    assert_eq!(again, records);
}
