//! Manager and hosts: orders, questions, heartbeats, requests of hosts; events; the configuration of a hostd.

use std::collections::BTreeMap;

use protocol::agent::Phase;
use protocol::compare::{CompareForm, Compared, FileChange, FileStatus, Sides};
use protocol::error::{ErrorCode, WireError};
use protocol::event::{Event, Fact};
use protocol::host_config::{BusConfig, HostConfig, RetentionConfig, SupervisorConfig};
use protocol::house::{Freed, Holding, HouseItem};
use protocol::ids::{Fencing, Generation, Incarnation, OrderId, Seq};
use protocol::order::{Answer, Ask, Command, Discard, Order, OutputStream, Question, ResolvedBase};
use protocol::report::{DigestRow, Heartbeat, HostFacts, HostReply, HostRequest};
use protocol::snapshot::{Restored, Snapshot, SnapshotCall};
use protocol::task::TaskState;

use super::agents::{end, environment, least_spec, spec};
use super::{AT, BASE, COMMIT, agent_id, host, region, run_id, task_id, text, texts};
use crate::rules::{Form, Sample};

fn order(command: Command) -> Order {
    Order {
        id: OrderId::from_parts(AT.0, 0xd),
        region: region(),
        host: host(),
        incarnation: Incarnation(1_700_000_000_001),
        fencing: Fencing(7),
        expires: AT.after_ms(30_000),
        command,
    }
}

pub(crate) fn ask(question: Question) -> Ask {
    Ask {
        id: OrderId::from_parts(AT.0, 0xe),
        region: region(),
        host: host(),
        fencing: Fencing(7),
        expires: AT.after_ms(30_000),
        question,
    }
}

pub(crate) fn error() -> WireError {
    WireError::new(ErrorCode::NotFound, "no agent \"x\"").hint("phalanx ls")
}

pub(crate) fn facts() -> HostFacts {
    HostFacts {
        cpus: 16,
        memory_total_bytes: 68_719_476_736,
        memory_available_bytes: 34_359_738_368,
        disk_total_bytes: 1 << 40,
        disk_free_bytes: 1 << 39,
        load_percent: 215,
        boot_id: text("5f0c2a30-6d5f-4b3c-9a51-0d4e5f6a7b8c"),
        cgroups: text("v2"),
        overlay: true,
        labels: BTreeMap::from([(text("gpu"), text("2"))]),
        disk_share_max_percent: 85,
        degraded: texts(&["no-cgroup-memory"]),
        cannot_freeze: None,
        user: String::new(),
        cannot_change_user: None,
    }
}

fn snapshot_asked(call: SnapshotCall) -> Question {
    Question::Snapshot { agent: agent_id(), call }
}

pub(crate) fn snapshot() -> Snapshot {
    Snapshot {
        number: 3,
        ref_name: text("refs/phalanx/snapshots/x/3"),
        commit: text(COMMIT),
        tree: "4".repeat(40),
        head: text(BASE),
        repo: text("/srv/repo"),
        at: AT,
        files: 12,
        ignored: true,
        not_saved: texts(&["inner/"]),
    }
}

pub(crate) fn restored() -> Restored {
    let before = Snapshot { number: 4, not_saved: Vec::new(), ..snapshot() };
    Restored { from: snapshot(), before, written: 2, deleted: 1, left: texts(&["new.txt"]) }
}

pub(crate) fn resolved() -> ResolvedBase {
    ResolvedBase { repo: text("/srv/repo"), commit: text(BASE), dirty: true }
}

pub(crate) fn event(host_name: bool, fact: Fact) -> Event {
    Event {
        at: AT,
        epoch: "e".repeat(32),
        seq: 9,
        region: region(),
        host: host_name.then(host),
        name: text("fix it"),
        fact,
        cursor: None,
    }
}

pub(crate) fn host_config() -> HostConfig {
    HostConfig {
        version: 1,
        home: "/home/u/.local/share/phalanx".into(),
        state: "/home/u/.local/share/phalanx/host".into(),
        run: "/home/u/.local/share/phalanx/run".into(),
        log: "/home/u/.local/share/phalanx/log".into(),
        host: text("db-01"),
        region: text("hub"),
        bus: BusConfig {
            url: text("nats://127.0.0.1:4222"),
            credentials: "/home/u/.local/share/phalanx/bus/host.creds".into(),
            inbox_prefix: text("_INBOX_db-01"),
            order_key: text("UAORDER"),
        },
        lock: "/home/u/.local/share/phalanx/run/hostd.lock".into(),
        supervisor: SupervisorConfig {
            lock: "/home/u/.local/share/phalanx/run/supervisor.lock".into(),
            command: Some(texts(&["/usr/bin/phalanx", "supervise"])),
        },
        disk_share_max: 0.85,
        retention: RetentionConfig { archived_most: Some(5000), archived_ms: Some(2_592_000_000) },
    }
}

pub(crate) fn house_items() -> Vec<HouseItem> {
    let agent = agent_id();
    vec![
        HouseItem::Workspace { agent },
        HouseItem::Transcript { agent },
        HouseItem::Outputs { agent },
        HouseItem::Archive { agent },
        HouseItem::Base { path: text("/home/u/.local/share/phalanx/host/bases/x/y") },
        HouseItem::Ref { repo: text("/srv/repo"), name: text("refs/phalanx/adhoc/x"), commit: text(COMMIT) },
    ]
}

pub(crate) fn holdings() -> Vec<Holding> {
    let of = |item| Holding { item, label: text("fix it"), bytes: 1 << 33, since: AT, kept: None };
    let mut holdings: Vec<Holding> = house_items().into_iter().map(of).collect();
    holdings[0].kept = Some(text("it is live"));
    holdings
}

/// Of kinds that were added since.
pub(crate) fn added_holdings() -> Vec<Holding> {
    let agent = agent_id();
    let items = [
        HouseItem::Group { agent },
        HouseItem::Session { agent },
        HouseItem::Socket { path: text("/s/00.sock") },
        HouseItem::Run { run: run_id() },
    ];
    let of = |item| Holding { item, label: text("fix it"), bytes: 0, since: AT, kept: None };
    items.into_iter().map(of).collect()
}

pub(crate) fn bus_items() -> Vec<HouseItem> {
    vec![HouseItem::Blob { name: "a".repeat(64) }, HouseItem::Cut { name: text("4bIXEvTzGbdPZnDPYcm6xR") }]
}

pub(crate) fn bus_holdings() -> Vec<Holding> {
    let of = |item| Holding { item, label: text("aaaaaaaaaaaa"), bytes: 12, since: AT, kept: None };
    bus_items().into_iter().map(of).collect()
}

pub(crate) fn freed() -> Vec<Freed> {
    let kept = |n: usize| (n == 0).then(|| text("it is live"));
    house_items().into_iter().enumerate().map(|(n, item)| Freed { item, bytes: 12, kept: kept(n) }).collect()
}

fn orders() -> Vec<Sample> {
    let (agent, generation) = (agent_id(), Generation(3));
    let spec = Box::new(spec());
    let least = Box::new(least_spec());
    let stop = Command::Stop { agent, generation, grace_ms: 1_500, spec: spec.clone() };
    let keep = Command::Destroy { agent, generation, discard: Discard::Keep, spec: spec.clone() };
    let discard = Command::Destroy { agent, generation, discard: Discard::Yes, spec: least.clone() };
    vec![
        Sample::of("order-ensure", order(Command::Ensure { agent, generation, spec })),
        Sample::of("order-ensure-least", order(Command::Ensure { agent, generation, spec: least })),
        Sample::of("order-stop", order(stop)),
        Sample::of("order-destroy-keep", order(keep)),
        Sample::of("order-destroy-discard", order(discard)),
    ]
}

fn questions() -> Vec<Sample> {
    let agent = agent_id();
    let repo = || text("/srv/repo");
    let exec = Question::Exec {
        agent,
        program: texts(&["ls", "-l"]),
        environment: environment(),
        stdin: vec![0, 0xff],
    };
    let commits = Compared::Commits { repo: repo(), from: text(BASE), to: text(COMMIT) };
    let all = [
        ("resolve", Question::Resolve { repo: repo(), base: Some(text("main")) }),
        ("resolve-head", Question::Resolve { repo: repo(), base: None }),
        ("read", Question::Read { agent, offset: 1 << 33, max: 65_536 }),
        ("follow", Question::Follow { agent, until: AT.after_ms(10_000) }),
        ("report", Question::Report { agents: vec![agent] }),
        ("exec", exec),
        (
            "land",
            Question::Land { repo: repo(), branch: text("phalanx/x"), commit: text(COMMIT), from: None },
        ),
        (
            "land-again",
            Question::Land {
                repo: repo(),
                branch: text("phalanx/x"),
                commit: text(COMMIT),
                from: Some(text(BASE)),
            },
        ),
        ("diff", Question::Diff { repo: repo(), from: text(BASE), to: text(COMMIT) }),
        ("snapshot-take", snapshot_asked(SnapshotCall::Take { include_ignored: true })),
        ("snapshot-list", snapshot_asked(SnapshotCall::List)),
        ("snapshot-restore", snapshot_asked(SnapshotCall::Restore { number: 3 })),
        ("compare-commits", Question::Compare { what: commits, form: CompareForm::Mail }),
        (
            "compare-workspace",
            Question::Compare { what: Compared::Workspace { agent }, form: CompareForm::Files },
        ),
        ("more", Question::More { talk: OrderId::from_parts(AT.0, 0xd), pieces: 8 }),
        ("survey", Question::Survey { agents: vec![agent], deep: true, added: false }),
        ("survey-added", Question::Survey { agents: Vec::new(), deep: true, added: true }),
        ("free", Question::Free { items: house_items(), older_ms: 604_800_000, discard: Discard::Keep }),
    ];
    all.into_iter().map(|(name, question)| Sample::of(format_args!("ask-{name}"), ask(question))).collect()
}

pub(crate) fn sides() -> Sides {
    Sides { from: text(BASE), to: Some(text(COMMIT)), notes: texts(&["sub/ is a repository of its own"]) }
}

pub(crate) fn file_changes() -> Vec<FileChange> {
    let renamed = FileChange {
        path: b"new \xff".to_vec(),
        old_path: Some(b"old".to_vec().into()),
        status: FileStatus::Renamed,
        insertions: Some(1),
        deletions: Some(1 << 33),
    };
    let binary = FileChange {
        path: b"a.png".to_vec(),
        old_path: None,
        status: FileStatus::Added,
        insertions: None,
        deletions: None,
    };
    vec![renamed, binary]
}

fn answers() -> Vec<Sample> {
    let bytes = || b"\x1b[1mhi\xff".to_vec();
    let all = [
        ("resolved", Answer::Resolved(resolved())),
        ("bytes", Answer::Bytes { offset: 12, length: 1 << 33, bytes: bytes(), ended: true }),
        ("stdout", Answer::Output { stream: OutputStream::Stdout, bytes: bytes() }),
        ("stderr", Answer::Output { stream: OutputStream::Stderr, bytes: Vec::new() }),
        ("exited", Answer::Exited { code: Some(-1), signal: None }),
        ("signalled", Answer::Exited { code: None, signal: Some(15) }),
        ("landed", Answer::Landed { branch: text("phalanx/x"), commit: text(COMMIT) }),
        ("diff", Answer::Diff { bytes: bytes(), whole: false }),
        ("snapshots", Answer::Snapshots(vec![snapshot()])),
        ("restored", Answer::Restored(Box::new(restored()))),
        ("done", Answer::Done),
        ("refused", Answer::Refused(error())),
        ("compared", Answer::Compared(sides())),
        ("changed", Answer::Changed(file_changes())),
        ("file", Answer::File { name: text("0001-x.patch"), bytes: bytes() }),
        ("holdings", Answer::Holdings(holdings())),
        ("holdings-added", Answer::Holdings(added_holdings())),
        ("freed", Answer::Freed(freed())),
    ];
    all.into_iter().map(|(name, answer)| Sample::of(format_args!("answer-{name}"), answer)).collect()
}

fn heartbeats() -> Vec<Sample> {
    let row = DigestRow {
        agent: agent_id(),
        seq: Seq(42),
        incarnation: Incarnation(1_700_000_000_001),
        phase: Phase::Paused,
        last_output: Some(AT),
        cpu_ms: 12,
        memory_bytes: 1 << 20,
        transcript_bytes: 4_711,
    };
    let heartbeat = Heartbeat {
        region: region(),
        host: host(),
        incarnation: Incarnation(1_700_000_000_001),
        fencing: Fencing(7),
        now: AT,
        build: text("0.1.0+abc"),
        facts: facts(),
        digest: Some(vec![row]),
    };
    let plain = Heartbeat { digest: None, facts: HostFacts::default(), ..heartbeat.clone() };
    vec![Sample::of("heartbeat", heartbeat), Sample::of("heartbeat-plain", plain)]
}

fn host_requests() -> Vec<Sample> {
    let (agent, generation) = (agent_id(), Generation(3));
    let part = HostRequest::BlobPart { sha256: "a".repeat(64), offset: 900_000, max: 900_000 };
    vec![
        Sample::of("host-request-environment", HostRequest::Environment { agent }),
        Sample::of("host-request-blob", part),
        Sample::of("host-request-lease", HostRequest::RenewLease { agent, generation }),
        Sample::of("host-reply-environment", HostReply::Environment(environment())),
        Sample::of("host-reply-blob", HostReply::BlobPart { bytes: vec![0, 0xff], total: 8 << 20 }),
        Sample::of("host-reply-lease", HostReply::Lease { length_ms: 300_000 }),
        Sample::of("host-reply-refused", HostReply::Refused(error())),
    ]
}

fn events() -> Vec<Sample> {
    let (agent, run, task) = (agent_id(), run_id(), task_id());
    let state = TaskState::Verifying;
    let facts = [
        ("agent-phase", Fact::AgentPhase { agent, phase: Phase::Failed, end: Some(end()), reason: None }),
        ("agent-phase-live", Fact::AgentPhase { agent, phase: Phase::Running, end: None, reason: None }),
        ("agent-destroyed", Fact::AgentDestroyed { agent, discarded: true }),
        ("task-state", Fact::TaskState { run, task, attempt: 2, state, reason: text("exit 1") }),
        ("run-submitted", Fact::RunSubmitted { run, tasks: 170 }),
        ("run-ended", Fact::RunEnded { run, accepted: 167, failed: 2, cancelled: 1 }),
        ("records-lost", Fact::RecordsLost { what: text("the bus lost 21 runs"), restored: true }),
        ("host-started", Fact::HostStarted { incarnation: 1_700_000_000_001 }),
    ];
    let of_host = |name: &str| !matches!(name, "task-state" | "run-submitted" | "run-ended" | "records-lost");
    facts
        .into_iter()
        .map(|(name, fact)| Sample::of(format_args!("event-{name}"), event(of_host(name), fact)))
        .collect()
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all = orders();
    all.extend(questions());
    all.extend(answers());
    all.extend(heartbeats());
    all.extend(host_requests());
    all.extend(events());
    all.push(Sample::of("error", error()));
    all.push(Sample::in_form(Form::Json, "host-config", host_config()));
    all
}
