//! Clients and the manager: every request, reply and item.

use std::collections::BTreeMap;

use protocol::agent::{Blob, Phase, Role};
use protocol::api::{
    Action, AddTasks, AgentFilter, AgentView, Change, CreateAgent, DecideTasks, HostView, Item, LimitChange,
    LogStart, Mutation, Outcome, Query, Reachability, Reason, Reply, Request, StatusView, SubmitRun, Until,
};
use protocol::compare::{CompareForm, Comparison};
use protocol::event::Fact;
use protocol::house::{StreamUse, Unheard};
use protocol::ids::{Generation, RequestKey};
use protocol::order::{Discard, OutputStream};
use protocol::snapshot::{SnapshotCall, SnapshotWish};
use protocol::task::{SubmitTask, Verdict};

use super::agents::{changed_report, changed_spec, environment, least_spec, report, spec, unmet};
use super::hosts::{
    added_holdings, bus_holdings, bus_items, error, event, facts, file_changes, freed, holdings, house_items,
    resolved, restored, sides, snapshot,
};
use super::tasks::{least_task_spec, run_spec, run_view, task_spec, task_view};
use super::{AT, agent_id, host, region, run_id, task_id, text, texts};
use crate::rules::Sample;

fn key() -> RequestKey {
    RequestKey(text("k-1"))
}

pub(crate) fn agent_view() -> AgentView {
    AgentView {
        id: agent_id(),
        name: text("naïve 名前"),
        role: Role::Attempt,
        region: region(),
        host: host(),
        reachability: Reachability::Late,
        phase: Phase::Crashed,
        reason: text("signal 9"),
        wanted: text("running"),
        as_of: AT,
        created_at: AT,
        spec: spec(),
        report: Some(report()),
        last_output: Some(AT.after_ms(3)),
        memory_bytes: 1 << 20,
        cpu_ms: 1_540,
        generation: None,
        unmet: Vec::new(),
        messages: Vec::new(),
    }
}

fn changed_view() -> AgentView {
    AgentView {
        spec: changed_spec(),
        report: Some(changed_report()),
        generation: Some(Generation(4)),
        unmet: unmet(),
        ..agent_view()
    }
}

fn host_view() -> HostView {
    HostView {
        region: region(),
        host: host(),
        reachability: Reachability::Fresh,
        last_seen: AT,
        clock_offset_ms: -12,
        build: text("0.1.0+abc"),
        facts: facts(),
        live_agents: 50,
    }
}

fn status() -> StatusView {
    StatusView {
        build: text("0.1.0+abc"),
        started_at: AT,
        now: AT.after_ms(5_000),
        fencing: 7,
        unwritten: 1,
        bus_connected: true,
        hosts: vec![host_view()],
        agents: BTreeMap::from([(text("RUNNING"), 50)]),
        runs: 2,
        queued_tasks: 120,
    }
}

fn agent_requests() -> Vec<(&'static str, Request)> {
    let targets = || texts(&["fix it@db-01", "a"]);
    let create = CreateAgent { key: key(), spec: spec(), host: Some(host()), environment: environment() };
    let least = CreateAgent { key: key(), spec: least_spec(), host: None, environment: Default::default() };
    let filter = AgentFilter {
        all: true,
        labels: BTreeMap::from([(text("team"), text("blue"))]),
        phases: vec![Phase::Running, Phase::Blocked],
        run: Some(text("nightly")),
    };
    let wait = |until| Query::WaitAgents { targets: targets(), until };
    vec![
        ("status", Query::Status.into()),
        ("hosts", Query::Hosts.into()),
        ("create-agent", Mutation::CreateAgent(Box::new(create)).into()),
        ("create-agent-least", Mutation::CreateAgent(Box::new(least)).into()),
        ("list-agents", Query::ListAgents(filter).into()),
        ("list-agents-least", Query::ListAgents(AgentFilter::default()).into()),
        ("show-agents", Query::ShowAgents { targets: targets() }.into()),
        ("wait-started", wait(Until::Started).into()),
        ("wait-phase", wait(Until::Phase(Phase::Paused)).into()),
        ("wait-ended", wait(Until::Ended).into()),
        ("wait-destroyed", wait(Until::Destroyed).into()),
        ("wait-applied", wait(Until::Applied).into()),
        (
            "stop-agents",
            Mutation::StopAgents { key: key(), targets: targets(), grace_ms: Some(1_500) }.into(),
        ),
        ("stop-agents-least", Mutation::StopAgents { key: key(), targets: targets(), grace_ms: None }.into()),
        (
            "destroy-agents",
            Mutation::DestroyAgents { key: key(), targets: targets(), discard: Discard::Yes }.into(),
        ),
        (
            "destroy-agents-keep",
            Mutation::DestroyAgents { key: key(), targets: targets(), discard: Discard::Keep }.into(),
        ),
        (
            "logs-offset",
            Query::Logs { target: text("a"), from: LogStart::Offset(1 << 33), follow: true, redact: false }
                .into(),
        ),
        (
            "logs-tail",
            Query::Logs { target: text("a"), from: LogStart::Tail(200), follow: false, redact: false }.into(),
        ),
        (
            "exec",
            Action::Exec {
                target: text("a"),
                program: texts(&["ls", "-l"]),
                environment: environment(),
                stdin: vec![0, 0xff],
            }
            .into(),
        ),
        ("events", Query::Events { since: Some(AT), follow: true, targets: targets(), after: None }.into()),
        ("survey", Query::Survey { targets: targets(), deep: true, added: false, blobs: false }.into()),
        ("survey-added", Query::Survey { targets: Vec::new(), deep: true, added: true, blobs: false }.into()),
        (
            "survey-blobs",
            Query::Survey { targets: Vec::new(), deep: false, added: false, blobs: true }.into(),
        ),
        ("free-blobs", Action::FreeBlobs { items: bus_items(), older_ms: 604_800_000 }.into()),
        ("free-runs", Mutation::FreeRuns { key: key(), runs: vec![run_id()], older_ms: 604_800_000 }.into()),
        (
            "free",
            Action::Free { host: host(), items: house_items(), older_ms: 604_800_000, discard: Discard::Yes }
                .into(),
        ),
        (
            "events-least",
            Query::Events { since: None, follow: false, targets: Vec::new(), after: None }.into(),
        ),
    ]
}

fn change_requests() -> Vec<(&'static str, Request)> {
    let change = |change| Mutation::ChangeAgents { key: key(), targets: texts(&["a", "b@db-01"]), change };
    let set = BTreeMap::from([(text("team"), text("blue"))]);
    let limits = LimitChange {
        memory_bytes: Some(1 << 33),
        cpu_millis: Some(0),
        pids: None,
        time_ms: Some(3_600_000),
    };
    vec![
        ("snapshot", Action::Snapshot(SnapshotWish { target: text("a"), call: SnapshotCall::List }).into()),
        ("change-freeze", change(Change::Freeze).into()),
        ("change-thaw", change(Change::Thaw).into()),
        ("change-start", change(Change::Start).into()),
        ("change-rename", change(Change::Rename { name: "naïve 名前".parse().unwrap() }).into()),
        ("change-label", change(Change::Label { set, remove: texts(&["old"]) }).into()),
        ("change-limit", change(Change::Limit(limits)).into()),
        ("change-limit-least", change(Change::Limit(LimitChange::default())).into()),
    ]
}

fn run_requests() -> Vec<(&'static str, Request)> {
    let run = || text("nightly");
    let tasks = vec![
        SubmitTask { spec: task_spec(), environment: environment() },
        SubmitTask { spec: least_task_spec(), environment: Default::default() },
    ];
    let submit = SubmitRun { key: key(), run: run_spec(), tasks };
    let blob = Action::PutBlob { sha256: "a".repeat(64), offset: 900_000, bytes: vec![0, 0xff], last: true };
    vec![
        ("resolve-repo", Query::ResolveRepo { repo: text("/srv/repo"), base: Some(text("main")) }.into()),
        ("put-blob", blob.into()),
        ("submit-run", Mutation::SubmitRun(Box::new(submit)).into()),
        ("list-runs", Query::ListRuns.into()),
        ("show-run", Query::ShowRun { run: run() }.into()),
        ("follow-run", Query::FollowRun { run: run() }.into()),
        (
            "cancel-run",
            Mutation::CancelRun { key: key(), run: run(), tasks: texts(&["fix it"]), grace_ms: None }.into(),
        ),
        (
            "cancel-run-graceful",
            Mutation::CancelRun { key: key(), run: run(), tasks: Vec::new(), grace_ms: Some(60_000) }.into(),
        ),
        ("retry-tasks", Mutation::RetryTasks { key: key(), run: run(), tasks: Vec::new() }.into()),
        (
            "add-tasks",
            Mutation::AddTasks(Box::new(AddTasks {
                key: key(),
                run: run(),
                tasks: vec![SubmitTask { spec: least_task_spec(), environment: environment() }],
            }))
            .into(),
        ),
        ("close-run", Mutation::CloseRun { key: key(), run: run() }.into()),
        ("scale-run", scale(Some(20), false, [].into())),
        ("scale-run-caps", scale(None, true, [(text("gpu"), Some(2)), (text("team=infra"), None)].into())),
        ("why", Query::Why { target: text("nightly/fix it") }.into()),
        (
            "compare",
            Query::Compare { target: text("nightly/fix it"), attempt: Some(2), form: CompareForm::Patch }
                .into(),
        ),
        (
            "decide-tasks",
            Mutation::DecideTasks(Box::new(DecideTasks {
                key: key(),
                tasks: texts(&["nightly/fix it"]),
                verdict: Verdict::RejectedForGood,
                by: text("ann"),
                comment: text("no"),
                feedback: Some(Blob { sha256: "a".repeat(64), bytes: 2 }),
            }))
            .into(),
        ),
        (
            "decide-tasks-least",
            Mutation::DecideTasks(Box::new(DecideTasks {
                key: key(),
                tasks: texts(&["a"]),
                verdict: Verdict::Accepted,
                by: text("ann"),
                comment: String::new(),
                feedback: None,
            }))
            .into(),
        ),
        ("show-task", Query::ShowTask { task: text("nightly/fix it") }.into()),
        (
            "compare-least",
            Query::Compare { target: text("a"), attempt: None, form: CompareForm::Files }.into(),
        ),
    ]
}

fn replies() -> Vec<(&'static str, Reply)> {
    let outcomes = vec![
        Outcome { target: text("a"), agent: Some(agent_id()), error: None, note: String::new() },
        Outcome { target: text("x"), agent: None, error: Some(error()), note: String::new() },
    ];
    let note = text("team was red");
    let noted = vec![Outcome { target: text("a"), agent: Some(agent_id()), error: None, note }];
    let reason = Reason {
        subject: text("task fix it"),
        state: text("QUEUED"),
        why: text("no host is heard"),
        remedy: text("phalanx hosts"),
    };
    let least_view = AgentView {
        spec: least_spec(),
        report: None,
        reason: String::new(),
        last_output: None,
        ..agent_view()
    };
    vec![
        ("done", Reply::Done),
        ("status", Reply::Status(Box::new(status()))),
        ("hosts", Reply::Hosts(vec![host_view()])),
        ("accepted", Reply::Accepted { agent: agent_id() }),
        ("agents", Reply::Agents { agents: vec![agent_view(), least_view], as_of: AT }),
        ("outcomes", Reply::Outcomes(outcomes)),
        ("outcomes-noted", Reply::Outcomes(noted)),
        ("snapshots", Reply::Snapshots(vec![snapshot()])),
        ("restored", Reply::Restored(Box::new(restored()))),
        ("exited", Reply::Exited { code: Some(3), signal: None }),
        ("resolved", Reply::Resolved(resolved())),
        ("submitted", Reply::Submitted { run: run_id(), tasks: vec![task_id()] }),
        ("runs", Reply::Runs(vec![run_view()])),
        ("run", Reply::Run { run: Box::new(run_view()), tasks: vec![task_view()] }),
        ("why", Reply::Why(vec![reason])),
        ("stored", Reply::Stored),
        ("task", Reply::Task(Box::new(task_view()))),
        (
            "surveyed",
            Reply::Surveyed {
                streams: vec![StreamUse {
                    name: text("transcripts"),
                    bytes: 1 << 30,
                    most_bytes: 1 << 33,
                    messages: 4_711,
                    unnamed_bytes: None,
                }],
                unheard: vec![Unheard { host: host(), error: error() }],
            },
        ),
        (
            "surveyed-blobs",
            Reply::Surveyed {
                streams: vec![StreamUse {
                    name: text("blobs"),
                    bytes: 1 << 30,
                    most_bytes: 1 << 33,
                    messages: 4_711,
                    unnamed_bytes: Some(1 << 20),
                }],
                unheard: Vec::new(),
            },
        ),
        ("freed", Reply::Freed(freed())),
    ]
}

fn items() -> Vec<(&'static str, Item)> {
    let destroyed = Fact::AgentDestroyed { agent: agent_id(), discarded: false };
    let comparison = Comparison {
        name: text("fix it"),
        task: Some(task_id()),
        attempt: Some(2),
        agent: agent_id(),
        host: host(),
        sides: sides(),
    };
    vec![
        ("agent", Item::Agent(Box::new(agent_view()))),
        ("agent-changed", Item::Agent(Box::new(changed_view()))),
        ("log", Item::Log { offset: 1 << 33, bytes: b"hi\xff\n".to_vec() }),
        ("output", Item::Output { stream: OutputStream::Stderr, bytes: b"hi\xff\n".to_vec() }),
        ("event", Item::Event(Box::new(event(true, destroyed)))),
        ("run", Item::Run(Box::new(run_view()))),
        ("compared", Item::Compared(Box::new(comparison))),
        ("changed", Item::Changed(file_changes())),
        ("file", Item::File { name: text("0001-x.patch"), bytes: b"hi\xff\n".to_vec() }),
        ("holdings", Item::Holdings { host: host(), holdings: holdings() }),
        ("own-holdings", Item::OwnHoldings(added_holdings())),
        ("own-holdings-blobs", Item::OwnHoldings(bus_holdings())),
    ]
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all: Vec<Sample> = agent_requests()
        .into_iter()
        .chain(change_requests())
        .chain(run_requests())
        .map(|(name, request)| Sample::of(format_args!("request-{name}"), request))
        .collect();
    all.extend(replies().into_iter().map(|(name, reply)| Sample::of(format_args!("reply-{name}"), reply)));
    all.extend(items().into_iter().map(|(name, item)| Sample::of(format_args!("item-{name}"), item)));
    all
}

fn scale(max_parallel: Option<u32>, keep_parallel: bool, caps: BTreeMap<String, Option<u32>>) -> Request {
    Mutation::ScaleRun { key: key(), run: text("nightly"), max_parallel, keep_parallel, caps }.into()
}
