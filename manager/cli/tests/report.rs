//! Reports from the outside: what is in them, in which order, and that nothing in them can act.

#![expect(clippy::unwrap_used, reason = "what builds the input of a test may fail it")]

use std::collections::BTreeMap;

use manager_cli::report::{Fetched, Writer};
use protocol::agent::{CommitMode, End, EndCause, ResourceLimits};
use protocol::ids::{AgentId, RunId, TaskId};
use protocol::report::Collected;
use protocol::task::{
    Accept, Attempt, Decision, Failure, FailureClass, Retries, RunSpec, RunView, TaskSpec, TaskState,
    TaskView, Verdict, Verification,
};
use protocol::time::Timestamp;

const START: u64 = 1_700_000_000_000;

fn agent(number: u128) -> AgentId {
    AgentId::from_parts(START, number)
}

fn end(code: i32) -> End {
    End {
        cause: EndCause::Exited,
        code: Some(code),
        signal: None,
        step: None,
        detail: String::new(),
        at: Timestamp(START),
    }
}

fn task(number: u128, name: &str, state: TaskState, attempts: Vec<Attempt>) -> TaskView {
    TaskView {
        decisions: Vec::new(),
        id: TaskId::from_parts(START, number),
        run: RunId::from_parts(START, 1),
        run_name: "nightly".parse().unwrap(),
        spec: TaskSpec {
            name: name.parse().unwrap(),
            program: vec!["make".into(), "test".into()],
            prompt: None,
            profile: None,
            repo: Some("/src/lib".into()),
            base_commit: Some("b".repeat(40)),
            depends_on: Vec::new(),
            after: Vec::new(),
            base_from: None,
            setup: Vec::new(),
            prepare: None,
            copy: Vec::new(),
            priority: 0,
            labels: BTreeMap::new(),
            limits: ResourceLimits::default(),
            grace_ms: 1,
            retries: Retries::default(),
            verify: vec![vec!["make".into(), "check".into()]],
            verify_timeout_ms: None,
            accept: Accept::Verify,
            result: None,
            outputs: Vec::new(),
            commit: CommitMode::Auto,
            user: None,
            has_environment: false,
            ready_text: None,
            signals: None,
            move_after_ms: None,
            needs_change: false,
        },
        state,
        waiting: None,
        reason: String::new(),
        unverified: false,
        attempts,
        branch: None,
        landing: None,
        submitted_at: Timestamp(START),
        ended_at: Some(Timestamp(START + 9_000)),
    }
}

fn attempt(number: u32, agents: u128, code: i32) -> Attempt {
    Attempt {
        number,
        agent: agent(agents),
        host: "db-01".parse().unwrap(),
        assigned_at: Timestamp(START),
        started_at: Some(Timestamp(START + 1_000)),
        ended_at: Some(Timestamp(START + 4_000)),
        end: Some(end(code)),
        collected: Some(Collected {
            commit: Some("c".repeat(40)),
            files: 2,
            insertions: 10,
            deletions: 3,
            result: Some("{\"found\": [1, 2]}".into()),
            ..Collected::default()
        }),
        verification: None,
        failure: None,
    }
}

fn failing(number: u32, agents: u128) -> Attempt {
    Attempt {
        verification: Some(Verification {
            agent: agent(agents + 1),
            commit: "c".repeat(40),
            end: Some(end(2)),
            passed: Some(false),
            base_agent: Some(agent(agents + 2)),
            base_passed: Some(false),
            restarts: 0,
            isolated: None,
        }),
        failure: Some(Failure {
            class: FailureClass::Verify,
            reason: "make check: exit 2".into(),
            charged: true,
        }),
        ..attempt(number, agents, 0)
    }
}

fn run(tasks: &[TaskView]) -> RunView {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for task in tasks {
        *counts.entry(task.state.to_string()).or_default() += 1;
    }
    RunView {
        id: RunId::from_parts(START, 1),
        spec: RunSpec {
            name: "nightly".parse().unwrap(),
            max_parallel: Some(8),
            labels: BTreeMap::new(),
            caps: BTreeMap::new(),
            notify: Vec::new(),
            open: false,
        },
        submitted_at: Timestamp(START),
        ended_at: Some(Timestamp(START + 61_000)),
        total: tasks.len() as u64,
        counts,
    }
}

const HOSTILE: &str = "</pre><script>alert(1)</script>\x1b]52;c;x\x07\u{9b}2J\n";

fn sample() -> Vec<TaskView> {
    let mut good = task(1, "good", TaskState::Accepted, vec![attempt(1, 10, 0)]);
    good.branch = Some("phalanx/nightly-abc/good-def".into());
    let mut bad = task(2, "bad <b>&\"name\"", TaskState::Failed, vec![failing(1, 20), failing(2, 30)]);
    bad.reason = "verification failed after 2 attempts".into();
    bad.decisions = vec![Decision {
        verdict: Verdict::Rejected,
        attempt: 1,
        by: "ann <i>".into(),
        at: Timestamp(START),
        comment: "not \u{1b}[31mgood</dd>".into(),
    }];
    let mut exit_only = task(3, "exit only", TaskState::Accepted, vec![attempt(1, 40, 0)]);
    exit_only.unverified = true;
    vec![good, bad, exit_only, task(4, "名前", TaskState::Queued, Vec::new())]
}

fn fetch(agent_id: AgentId) -> Fetched {
    if agent_id == agent(40) {
        return Fetched::Missing("its host is lost".into());
    }
    let text = if agent_id == agent(20) { HOSTILE.to_owned() } else { format!("output of {agent_id}\n") };
    Fetched::Bytes { bytes: text.into_bytes(), missing: 0, unredacted: None }
}

#[test]
fn a_report_is_written_failed_first_with_whole_transcripts_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("deep/report");
    let tasks = sample();
    let writer = Writer::open(&out).unwrap();
    let written = writer.write(&run(&tasks), &tasks, Timestamp(START + 70_000), &mut fetch).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&written.json).unwrap()).unwrap();
    let names: Vec<_> =
        json["tasks"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bad <b>&\"name\"", "名前", "good", "exit only"]);
    assert_eq!(json["summary"]["accepted"], 2);
    assert_eq!(json["summary"]["unverified"], 1);
    assert_eq!(json["summary"]["base_fails_too"], 1);
    assert_eq!(json["tasks"][2]["result"]["found"][1], 2);
    assert_eq!(json["tasks"][0]["class"], "verify");
    assert_eq!(written.missing.len(), 1);
    // The whole transcript is byte-exact; every file that is named exists.
    let file = json["tasks"][0]["attempts"][0]["transcript"]["file"].as_str().unwrap();
    assert_eq!(std::fs::read(out.join(file)).unwrap(), HOSTILE.as_bytes());
    let left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    // Written again, it is replaced.
    writer.write(&run(&tasks), &tasks, Timestamp(START + 80_000), &mut fetch).unwrap();
}

#[test]
fn nothing_in_the_page_can_act_and_nothing_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = sample();
    let written = Writer::open(folder.path())
        .unwrap()
        .write(&run(&tasks), &tasks, Timestamp(START), &mut fetch)
        .unwrap();
    let page = std::fs::read_to_string(written.html).unwrap();
    assert_eq!(page.matches("<script>").count(), 1, "only our own");
    assert!(page.contains("&lt;script&gt;alert(1)") && page.contains("bad &lt;b&gt;&amp;"));
    assert!(!page.contains(['\x1b', '\u{9b}']));
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.find("bad &lt;b&gt;").unwrap() < page.find(">good<").unwrap());
}

#[test]
fn the_shape_of_json_and_page_is_stable() {
    let folder = tempfile::tempdir().unwrap();
    let tasks = sample();
    let written = Writer::open(folder.path())
        .unwrap()
        .write(&run(&tasks), &tasks, Timestamp(START + 70_000), &mut fetch)
        .unwrap();
    insta::assert_snapshot!("report_json", std::fs::read_to_string(written.json).unwrap());
    let page = std::fs::read_to_string(written.html).unwrap();
    let body = page.split("</style>").nth(1).unwrap().split("<script>").next().unwrap();
    insta::assert_snapshot!("report_page", body);
}

#[test]
fn a_run_without_tasks_has_a_report_too() {
    let folder = tempfile::tempdir().unwrap();
    let written =
        Writer::open(folder.path()).unwrap().write(&run(&[]), &[], Timestamp(START), &mut fetch).unwrap();
    assert!(std::fs::read_to_string(written.html).unwrap().contains("This run has no tasks."));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    let error = Writer::open(&folder.path().join("file/report")).err().unwrap().to_string();
    assert!(error.contains("cannot make the folder") && error.contains("file/report"), "{error}");
}
