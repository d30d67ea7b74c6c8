//! Specs, reports and ends of agents; pieces of transcripts.

use std::collections::BTreeMap;

use protocol::agent::{
    AgentSpec, Blob, Checkout, CheckoutKind, CommitMode, End, EndCause, Environment, Phase, ResourceLimits,
    Role, StartStep, TaskLink,
};
use protocol::ids::{Fencing, Generation, Incarnation, Seq};
use protocol::message::MessageFacts;
use protocol::report::{
    Collected, Life, Output, Report, SessionFacts, TranscriptFacts, Unmet, Usage, WorkspaceFacts,
};
use protocol::transcript::Chunk;

use super::{AT, BASE, COMMIT, agent_id, host, region, run_id, task_id, text, texts};
use crate::rules::Sample;

pub(crate) fn blob() -> Blob {
    Blob { sha256: "a".repeat(64), bytes: 4_294_967_296 }
}

pub(crate) fn environment() -> Environment {
    Environment(BTreeMap::from([(text("TOKEN"), text("s3cr3t")), (text("LANG"), text("C.UTF-8"))]))
}

pub(crate) fn limits() -> ResourceLimits {
    ResourceLimits {
        memory_bytes: Some(1 << 30),
        cpu_millis: Some(1_500),
        pids: Some(64),
        time_ms: Some(3_600_000),
    }
}

pub(crate) fn spec() -> AgentSpec {
    AgentSpec {
        name: "naïve 名前".parse().unwrap(),
        role: Role::Attempt,
        task: Some(TaskLink {
            run: run_id(),
            task: task_id(),
            attempt: 2,
            run_name: text("nightly"),
            task_name: text("fix it"),
        }),
        program: texts(&["/usr/bin/env", "claude", "-p", "a b"]),
        profile: Some(text("claude")),
        labels: BTreeMap::from([(text("team"), text("blue"))]),
        limits: limits(),
        grace_ms: 5_000,
        checkout: Some(Checkout {
            repo: text("/srv/repo"),
            commit: text(BASE),
            branch: Some(text("phalanx/nightly-1/fix-it-2")),
            kind: CheckoutKind::Overlay,
            result_ref: Some(text("refs/phalanx/r/t/2")),
            near: Some(text(COMMIT)),
            snapshot: None,
            copy: Vec::new(),
            prepare: None,
        }),
        commit: CommitMode::Auto,
        has_environment: true,
        prompt: Some(blob()),
        feedback: Some(Blob { sha256: "b".repeat(64), bytes: 3 }),
        inputs: None,
        result: Some(text("result.json")),
        outputs: texts(&["out/a.txt"]),
        ready_text: Some(text("ready>")),
        signals: None,
        user: Some(text("worker")),
        lease_ms: Some(300_000),
        frozen: false,
        launch: 1,
    }
}

/// As a person makes one without a word more than needed.
pub(crate) fn least_spec() -> AgentSpec {
    AgentSpec {
        name: "a".parse().unwrap(),
        role: Role::Own,
        task: None,
        program: texts(&["true"]),
        profile: None,
        labels: BTreeMap::new(),
        limits: ResourceLimits::default(),
        grace_ms: 10_000,
        checkout: None,
        commit: CommitMode::Agent,
        has_environment: false,
        prompt: None,
        feedback: None,
        inputs: None,
        result: None,
        outputs: Vec::new(),
        ready_text: None,
        signals: None,
        user: None,
        lease_ms: None,
        frozen: false,
        launch: 1,
    }
}

pub(crate) fn end() -> End {
    End {
        cause: EndCause::StartFailed,
        code: Some(127),
        signal: Some(9),
        step: Some(StartStep::ProgramMissing),
        detail: text("no such program: claude"),
        at: AT.after_ms(60_000),
    }
}

pub(crate) fn collected() -> Collected {
    Collected {
        commit: Some(text(COMMIT)),
        base_commit: Some(text(BASE)),
        result_ref: Some(text("refs/phalanx/r/t/2")),
        uncommitted: Some("3".repeat(40)),
        uncommitted_ref: None,
        left_out: Vec::new(),
        branch_drift: Some(text("main")),
        files: 3,
        insertions: 120,
        deletions: 4,
        result: Some(text("{\"ok\":true}")),
        problems: texts(&["out/b.txt is missing"]),
        outputs: vec![Output { path: text("out/a.txt"), bytes: 12, sha256: "c".repeat(64) }],
        unknown_submodules: Vec::new(),
        source_moved: Vec::new(),
        failed: Some(text("the repository is locked")),
        failed_by_content: false,
    }
}

pub(crate) fn report() -> Report {
    Report {
        agent: agent_id(),
        region: region(),
        host: host(),
        incarnation: Incarnation(1_700_000_000_001),
        seq: Seq(42),
        generation: Generation(3),
        fencing: Fencing(7),
        as_of: AT,
        phase: Phase::Crashed,
        life: Life::Present,
        source: text("exit-record"),
        phase_reason: None,
        dialog: None,
        reason: text("signal 9"),
        stopping: true,
        draining: true,
        degraded: texts(&["no-cgroup"]),
        spec: spec(),
        created_at: AT,
        started_at: Some(AT.after_ms(5)),
        ready: true,
        end: Some(end()),
        workspace: Some(WorkspaceFacts {
            path: text("/var/lib/phalanx/agents/x/work"),
            kind: text("overlay"),
            repo: Some(text("/srv/repo")),
            base_commit: Some(text(BASE)),
            base_tree: Some("4".repeat(40)),
            branch: Some(text("phalanx/nightly-1/fix-it-2")),
            warnings: texts(&["submodules are not checked out"]),
        }),
        session: Some(SessionFacts {
            folder: text("/run/phalanx/tmux"),
            socket: text("00.sock"),
            session: text("$3"),
        }),
        transcript: Some(TranscriptFacts { epoch: "e".repeat(32), bytes: 65_536 }),
        collected: Some(collected()),
        holds: texts(&["notes.txt is not committed"]),
        enforced: texts(&["memory", "pids"]),
        user: text("worker"),
        isolation: None,
        usage: Usage { cpu_ms: 1_540, memory_peak_bytes: 7_340_032 },
        unmet: Vec::new(),
        earlier: Vec::new(),
        messages: MessageFacts::default(),
        gone: Vec::new(),
    }
}

/// As it is wanted after some changes.
pub(crate) fn changed_spec() -> AgentSpec {
    AgentSpec { frozen: true, launch: 3, ..spec() }
}

/// As it is cloned from another.
pub(crate) fn cloned_spec() -> AgentSpec {
    let checkout = spec().checkout.map(|checkout| Checkout { snapshot: Some("9".repeat(40)), ..checkout });
    AgentSpec { checkout, ..spec() }
}

/// One whose base is prepared first.
fn preparing_spec() -> AgentSpec {
    let prepare = Some(super::tasks::prepare());
    AgentSpec { checkout: spec().checkout.map(|checkout| Checkout { prepare, ..checkout }), ..spec() }
}

pub(crate) fn unmet() -> Vec<Unmet> {
    let why = text("it holds 300 MiB of memory");
    vec![Unmet { what: text("limits"), why }, Unmet { what: text("frozen"), why: String::new() }]
}

pub(crate) fn changed_report() -> Report {
    Report { spec: changed_spec(), end: None, unmet: unmet(), earlier: vec![end()], ..report() }
}

pub(crate) fn least_report() -> Report {
    Report {
        phase: Phase::Creating,
        source: text("job"),
        reason: String::new(),
        stopping: false,
        draining: false,
        degraded: Vec::new(),
        spec: least_spec(),
        started_at: None,
        ready: false,
        end: None,
        workspace: None,
        session: None,
        transcript: None,
        collected: None,
        holds: Vec::new(),
        enforced: Vec::new(),
        user: String::new(),
        isolation: None,
        usage: Usage::default(),
        ..report()
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let chunk =
        Chunk { epoch: "e".repeat(32), offset: 1 << 33, bytes: b"\x1b[1mhi\xff\r\n".to_vec(), last: true };
    let more = Chunk { epoch: "e".repeat(32), offset: 0, bytes: b"x".to_vec(), last: false };
    let left_out = vec![String::from("inner/")];
    let inner = Report { collected: Some(Collected { left_out, ..Collected::default() }), ..least_report() };
    let destroyed = Report { life: Life::Destroyed, ..least_report() };
    vec![
        Sample::of("agent-spec", spec()),
        Sample::of("agent-spec-least", least_spec()),
        Sample::of("agent-spec-inputs", AgentSpec { inputs: Some(blob()), ..least_spec() }),
        Sample::of("agent-spec-changed", changed_spec()),
        Sample::of("agent-spec-cloned", cloned_spec()),
        Sample::of("agent-spec-preparing", preparing_spec()),
        Sample::of("report-changed", changed_report()),
        Sample::of("end", end()),
        Sample::of("environment", environment()),
        Sample::of("report", report()),
        Sample::of("report-inner", inner),
        Sample::of("report-least", least_report()),
        Sample::of("report-destroyed", destroyed),
        Sample::of("chunk", chunk),
        Sample::of("chunk-more", more),
    ]
}
