//! Runs and tasks, as submitted and as shown.

use std::collections::BTreeMap;

use protocol::agent::{CommitMode, Prepare, ResourceLimits};
use protocol::notify::{NoticeKind, Told};
use protocol::task::{
    Accept, Attempt, Decision, Failure, FailureClass, Landing, Retries, RunSpec, RunView, SubmitTask,
    TaskSpec, TaskState, TaskView, Verdict, Verification, Waiting,
};

use super::agents::{blob, collected, end, environment, limits};
use super::{AT, BASE, COMMIT, agent_id, host, run_id, task_id, text, texts};
use crate::rules::Sample;

pub(crate) fn run_spec() -> RunSpec {
    RunSpec {
        name: "nightly".parse().unwrap(),
        max_parallel: Some(50),
        labels: BTreeMap::from([(text("team"), text("blue"))]),
        caps: BTreeMap::new(),
        notify: Vec::new(),
        open: false,
    }
}

pub(crate) fn told() -> Vec<Told> {
    let on = vec![NoticeKind::Failed, NoticeKind::RunEnd];
    vec![
        Told { to: "pager".parse().unwrap(), on },
        Told { to: "naïve 名前".parse().unwrap(), on: Vec::new() },
    ]
}

pub(crate) fn task_spec() -> TaskSpec {
    TaskSpec {
        name: "fix it".parse().unwrap(),
        program: texts(&["claude", "-p"]),
        prompt: Some(blob()),
        profile: Some(text("claude")),
        repo: Some(text("/srv/repo")),
        base_commit: Some(text(BASE)),
        depends_on: vec!["first".parse().unwrap()],
        after: Vec::new(),
        base_from: None,
        setup: Vec::new(),
        prepare: None,
        copy: Vec::new(),
        priority: -3,
        labels: BTreeMap::from([(text("kind"), text("bug"))]),
        limits: limits(),
        grace_ms: 5_000,
        retries: Retries {
            max: 2,
            backoff_ms: 1_000,
            backoff_max_ms: 60_000,
            jitter_percent: 20,
            on: vec![FailureClass::Agent, FailureClass::Verify],
        },
        verify: vec![texts(&["python3", "-m", "pytest"]), texts(&["true"])],
        verify_timeout_ms: Some(600_000),
        accept: Accept::Verify,
        result: Some(text("result.json")),
        outputs: texts(&["out/a.txt"]),
        commit: CommitMode::Auto,
        user: Some(text("worker")),
        has_environment: true,
        ready_text: Some(text("ready>")),
        signals: None,
        move_after_ms: Some(300_000),
        needs_change: false,
    }
}

pub(crate) fn least_task_spec() -> TaskSpec {
    TaskSpec {
        name: "a".parse().unwrap(),
        program: texts(&["true"]),
        prompt: None,
        profile: None,
        repo: None,
        base_commit: None,
        depends_on: Vec::new(),
        after: Vec::new(),
        base_from: None,
        setup: Vec::new(),
        prepare: None,
        copy: Vec::new(),
        priority: 0,
        labels: BTreeMap::new(),
        limits: ResourceLimits::default(),
        grace_ms: 10_000,
        retries: Retries::default(),
        verify: Vec::new(),
        verify_timeout_ms: None,
        accept: Accept::Exit,
        result: None,
        outputs: Vec::new(),
        commit: CommitMode::Agent,
        user: None,
        has_environment: false,
        ready_text: None,
        signals: None,
        move_after_ms: None,
        needs_change: false,
    }
}

pub(crate) fn attempt() -> Attempt {
    Attempt {
        number: 2,
        agent: agent_id(),
        host: host(),
        assigned_at: AT,
        started_at: Some(AT.after_ms(5)),
        ended_at: Some(AT.after_ms(60_000)),
        end: Some(end()),
        collected: Some(collected()),
        verification: Some(Verification {
            agent: agent_id(),
            commit: text(COMMIT),
            end: Some(end()),
            passed: Some(false),
            base_agent: Some(agent_id()),
            base_passed: Some(true),
            restarts: 1,
            isolated: None,
        }),
        failure: Some(Failure {
            class: FailureClass::Verify,
            reason: text("verification failed: exit 1"),
            charged: true,
        }),
    }
}

pub(crate) fn task_view() -> TaskView {
    TaskView {
        id: task_id(),
        run: run_id(),
        run_name: "nightly".parse().unwrap(),
        spec: task_spec(),
        state: TaskState::Failed,
        waiting: Some(Waiting::Backoff { until: AT.after_ms(90_000) }),
        reason: text("verification failed: exit 1"),
        unverified: true,
        attempts: vec![attempt()],
        branch: Some(text("phalanx/nightly-1/fix-it-2")),
        landing: None,
        submitted_at: AT,
        ended_at: Some(AT.after_ms(99_000)),
        decisions: Vec::new(),
    }
}

pub(crate) fn decision() -> Decision {
    Decision {
        verdict: Verdict::Rejected,
        attempt: 1,
        by: text("ann"),
        at: AT.after_ms(70_000),
        comment: text("naïve 名前: test it\n"),
    }
}

pub(crate) fn run_view() -> RunView {
    RunView {
        id: run_id(),
        spec: run_spec(),
        submitted_at: AT,
        ended_at: Some(AT.after_ms(99_000)),
        counts: BTreeMap::from([(text("ACCEPTED"), 167), (text("FAILED"), 3)]),
        total: 170,
    }
}

/// One that waits for others and builds on one of them.
fn building() -> TaskSpec {
    TaskSpec {
        depends_on: vec!["first".parse().unwrap()],
        after: vec!["other".parse().unwrap()],
        base_from: Some("first".parse().unwrap()),
        setup: vec![vec![text("make"), text("deps")]],
        prepare: None,
        copy: Vec::new(),
        ..least_task_spec()
    }
}

pub(crate) fn prepare() -> Box<Prepare> {
    Box::new(Prepare { programs: vec![vec![text("npm"), text("ci")]], timeout_ms: 1_800_000 })
}

pub(crate) fn all() -> Vec<Sample> {
    let landing = Some(Landing::Refused);
    let reviewed = TaskView { decisions: vec![decision()], ..task_view() };
    let waits = [
        ("turn", Waiting::Turn { ahead: 12 }),
        ("dependencies", Waiting::Dependencies { on: vec!["first".parse().unwrap()] }),
        ("backoff", Waiting::Backoff { until: AT }),
        ("run-cap", Waiting::RunCap { cap: 50 }),
        ("host-cap", Waiting::HostCap { cap: 16 }),
        ("no-host", Waiting::NoHost),
        ("label-cap", Waiting::LabelCap { label: text("team=infra"), cap: 3, of_run: true }),
        ("memory", Waiting::Memory { wanted_bytes: 1 << 40, largest_free_bytes: 1 << 30 }),
        ("cpu", Waiting::Cpu { wanted_millis: 64_000, largest_free_millis: 16_000 }),
        ("disk-share", Waiting::DiskShare { host: host() }),
    ];
    let least_view = TaskView {
        spec: least_task_spec(),
        state: TaskState::Queued,
        waiting: None,
        reason: String::new(),
        unverified: false,
        attempts: Vec::new(),
        branch: None,
        ended_at: None,
        ..task_view()
    };
    let mut all = vec![
        Sample::of("run-spec", run_spec()),
        Sample::of("task-spec", task_spec()),
        Sample::of("task-spec-building", building()),
        Sample::of("task-spec-least", least_task_spec()),
        Sample::of("task-spec-preparing", TaskSpec { prepare: Some(prepare()), ..least_task_spec() }),
        Sample::of("submit-task", SubmitTask { spec: task_spec(), environment: environment() }),
        Sample::of("task-view", task_view()),
        Sample::of("task-view-least", least_view),
        Sample::of("task-view-reviewed", reviewed),
        Sample::of("task-view-refused", TaskView { landing, ..task_view() }),
        Sample::of(
            "run-spec-capped",
            RunSpec { caps: BTreeMap::from([(text("gpu"), 1), (text("team=infra"), 3)]), ..run_spec() },
        ),
        Sample::of("run-spec-told", RunSpec { notify: told(), ..run_spec() }),
        Sample::of("run-view", run_view()),
        Sample::of("run-view-open", RunView { ended_at: None, ..run_view() }),
    ];
    all.extend(waits.into_iter().map(|(name, wait)| Sample::of(format_args!("waiting-{name}"), wait)));
    all
}
