//! Looking at agents: lists of many, and files.

use std::collections::BTreeMap;

use protocol::agent::{Phase, Role};
use protocol::api::{Action, Item, LogStart, Query, Reachability, Reply, Request};
use protocol::error::{ErrorCode, WireError};
use protocol::event::{Event, Fact};
use protocol::exec::{ExecInput, ExecOpen, ExecTalk, InputTaken};
use protocol::files::{
    FileArea, FileEntry, FileFinish, FileKind, FileList, FileNode, FilePath, FilePiece, FileWrite,
};
use protocol::house::Unheard;
use protocol::ids::OrderId;
use protocol::notify::{HookFailure, HookView, HooksView, MissingHook, NoticeKind};
use protocol::order::{Answer, Question};
use protocol::row::{AgentRow, Figures, RowChange, RowFilter, RowItem, WatchRows};
use protocol::top::{Measured, TopView, TopWish};

use super::agents::{end, environment, spec};
use super::hosts::event;
use super::{AT, agent_id, host, region, text, texts};
use crate::rules::Sample;

fn row() -> AgentRow {
    AgentRow {
        reason: text("signal 9"),
        started_at: Some(AT.after_ms(1)),
        end: Some(end()),
        stopping: true,
        draining: true,
        degraded: texts(&["no-cgroup"]),
        labels: BTreeMap::from([(text("team"), text("blue")), (text("tier"), text("2"))]),
        profile: Some(text("claude")),
        task: spec().task,
        user: text("dev"),
        workspace: Some(text("/srv/a/work")),
        branch: Some(text("phalanx/x/y")),
        last_output: Some(AT.after_ms(3)),
        figures: Figures {
            cpu_ms: Some(1_540),
            cpu_millis: Some(900),
            memory_bytes: Some(1 << 20),
            pids: Some(7),
            disk_bytes: Some(1 << 33),
            disk_as_of: Some(AT),
        },
        ..least_row()
    }
}

pub(crate) fn least_row() -> AgentRow {
    AgentRow {
        id: agent_id(),
        name: text("naïve 名前"),
        role: Role::Own,
        region: region(),
        host: host(),
        reachability: Reachability::Late,
        phase: Phase::Crashed,
        phase_reason: None,
        reason: String::new(),
        wanted: text("running"),
        gone: false,
        as_of: AT,
        created_at: AT,
        started_at: None,
        end: None,
        stopping: false,
        draining: false,
        degraded: Vec::new(),
        labels: BTreeMap::new(),
        profile: None,
        task: None,
        user: String::new(),
        workspace: None,
        branch: None,
        last_output: None,
        figures: Figures::default(),
    }
}

fn path() -> FilePath {
    FilePath::parse(b"src/na\xffme").unwrap()
}

fn list() -> FileList {
    let entry = |name: &[u8], kind, target: Option<&[u8]>| FileEntry {
        name: name.to_vec(),
        kind,
        bytes: 1 << 33,
        mode: 0o750,
        modified: AT,
        target: target.map(<[u8]>::to_vec),
    };
    let link = entry(b"li\xffnk", FileKind::Link, Some(b"../x"));
    FileList { is_folder: true, entries: vec![link, entry(b"f", FileKind::File, None)], more: true }
}

fn piece() -> FilePiece {
    FilePiece {
        offset: 1 << 33,
        bytes: b"hi\xff\n".to_vec(),
        size: 1 << 34,
        mode: 0o640,
        modified: AT,
        version: text("1-2-3"),
    }
}

fn write() -> FileWrite {
    let finish = FileFinish { sha256: "a".repeat(64), mode: Some(0o755) };
    FileWrite {
        path: path(),
        upload: "0".repeat(32),
        offset: 4,
        bytes: b"hi\xff\n".to_vec(),
        finish: Some(finish),
    }
}

fn files() -> Vec<Sample> {
    let agent = agent_id();
    let target = || text("fix it@db-01");
    let after = Some(b"a\xff".to_vec());
    let (area, path) = (FileArea::Workspace, path());
    let folder = FileNode::Folder { mode: 0o755 };
    let link = FileNode::Link { target: b"../x\xff".to_vec() };
    let least = FileWrite { finish: None, ..write() };
    let questions = [
        ("list-files", Question::ListFiles { agent, area, path: path.clone(), after: after.clone() }),
        (
            "read-file",
            Question::ReadFile {
                agent,
                area: FileArea::Outputs,
                path: path.clone(),
                offset: 7,
                max: 9,
                version: Some(text("1-2-3")),
            },
        ),
        ("write-file", Question::WriteFile { agent, write: write() }),
        ("write-file-least", Question::WriteFile { agent, write: least }),
        ("make-folder", Question::MakeNode { agent, path: path.clone(), node: folder.clone() }),
        ("make-link", Question::MakeNode { agent, path: path.clone(), node: link }),
    ];
    let requests: [(&str, Request); 4] = [
        ("list-files", Query::ListFiles { target: target(), area, path: path.clone(), after }.into()),
        ("get-file", Query::GetFile { target: target(), area, path: path.clone(), changing: true }.into()),
        ("put-file", Action::PutFile { target: target(), write: write() }.into()),
        ("make-node", Action::MakeNode { target: target(), path, node: folder }.into()),
    ];
    let mut all = vec![
        Sample::of("answer-files", Answer::Files(list())),
        Sample::of("answer-file-part", Answer::FilePart(piece())),
        Sample::of("reply-files", Reply::Files(list())),
        Sample::of("item-file-part", Item::FilePart(piece())),
    ];
    all.extend(questions.map(|(name, question)| Sample::of(format_args!("question-{name}"), question)));
    all.extend(requests.map(|(name, request)| Sample::of(format_args!("request-{name}"), request)));
    all
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all = rows();
    all.extend(watched());
    all.extend(events());
    all.extend(files());
    all.push(logs());
    all.extend(top());
    all.extend(spoken_with());
    all.extend(hooks());
    all
}

/// An older manager refuses the request by name, so that nothing asks it for hooks in vain.
fn hooks() -> Vec<Sample> {
    let pager = HookView {
        name: Some("pager".parse().unwrap()),
        shown: text("webhook https://hooks.example.org/…"),
        on: vec![NoticeKind::Failed, NoticeKind::RunEnd],
        only_asked: true,
        timeout_ms: 10_000,
        delivered: 7,
        lost: 1,
        failure: Some(HookFailure { at: AT, why: text("HTTP 503") }),
        layer: text("user"),
        place: text("/home/ann/.config/phalanx/config.toml:3"),
    };
    let least = HookView { name: None, only_asked: false, failure: None, ..pager.clone() };
    let missing = MissingHook {
        hook: "gone".parse().unwrap(),
        run: super::run_id(),
        run_name: "nightly".parse().unwrap(),
    };
    let whole = HooksView { hooks: vec![pager, least], wrong: text("x.toml:1: no"), missing: vec![missing] };
    vec![
        Sample::of("request-hooks", Request::from(Query::Hooks)),
        Sample::of("reply-hooks", Reply::Hooks(Box::new(whole))),
        Sample::of("reply-hooks-none", Reply::Hooks(Box::default())),
    ]
}

/// An older manager refuses it by name.
fn logs() -> Sample {
    let from = LogStart::Since(AT);
    Sample::of(
        "request-logs-since",
        Request::from(Query::Logs { target: text("a"), from, follow: true, redact: false }),
    )
}

fn rows() -> Vec<Sample> {
    let filter = RowFilter {
        all: true,
        labels: BTreeMap::from([(text("team"), text("blue"))]),
        phases: vec![Phase::Running],
        run: Some(text("nightly")),
        hosts: vec![host()],
        names: texts(&["fix-*"]),
    };
    vec![
        Sample::of("request-list-rows", Request::from(Query::ListRows(filter))),
        Sample::of("request-list-rows-least", Request::from(Query::ListRows(RowFilter::default()))),
        Sample::of("reply-rows", Reply::Rows { rows: vec![row(), least_row()], as_of: AT }),
        Sample::of(
            "reply-rows-gone",
            Reply::Rows { rows: vec![AgentRow { gone: true, ..least_row() }], as_of: AT },
        ),
    ]
}

/// An older manager refuses the request by name; items come only to who asked for them.
fn watched() -> Vec<Sample> {
    let cursor = || text("00000000000000ff-12");
    let whole = WatchRows { filter: RowFilter::default(), cursor: Some(cursor()), figures: true };
    let least = WatchRows { cursor: None, figures: false, ..whole.clone() };
    let one = |change| RowItem::One { change, row: Box::new(row()), cursor: cursor() };
    let all = |reset| RowItem::All { rows: vec![row(), least_row()], cursor: cursor(), reset };
    vec![
        Sample::of("request-watch-rows", Request::from(Query::WatchRows(whole))),
        Sample::of("request-watch-rows-least", Request::from(Query::WatchRows(least))),
        Sample::of("item-rows-all", Item::Rows(all(None))),
        Sample::of("item-rows-reset", Item::Rows(all(Some(text("the manager was restarted since"))))),
        Sample::of("item-rows-added", Item::Rows(one(RowChange::Added))),
        Sample::of("item-rows-changed", Item::Rows(one(RowChange::Changed))),
        Sample::of("item-rows-gone", Item::Rows(one(RowChange::Gone))),
        Sample::of("item-rows-figures", Item::Rows(RowItem::Figures(vec![row()]))),
    ]
}

/// An older manager reads such a request as one for all events; an older client knows a gap as an unknown fact.
fn events() -> Vec<Sample> {
    let after = Some(text("18c0a1b2c3d-7"));
    let placed = |fact| Event { cursor: after.clone(), ..event(false, fact) };
    let request = Query::Events { since: None, follow: true, targets: Vec::new(), after: after.clone() };
    vec![
        Sample::of("request-events-after", request),
        Sample::of("item-event-placed", Item::Event(Box::new(placed(Fact::HostStarted { incarnation: 1 })))),
        Sample::of("event-gap", placed(Fact::Gap { missing: Some(3) })),
        Sample::of("event-gap-unknown", placed(Fact::Gap { missing: None })),
    ]
}

/// An older manager refuses the request by name, an older host the question; items come only to who asked for them.
fn top() -> Vec<Sample> {
    let wish = |interval_ms| Query::Top(TopWish { filter: RowFilter::default(), interval_ms });
    let measured = Measured {
        agent: agent_id(),
        at_us: 1 << 40,
        cpu_us: Some(1_540_000),
        memory_bytes: Some(1 << 33),
        pids: Some(7),
        disk_bytes: Some(1 << 34),
        disk_as_of: Some(AT),
    };
    let least = Measured {
        cpu_us: None,
        memory_bytes: None,
        pids: None,
        disk_bytes: None,
        disk_as_of: None,
        ..measured.clone()
    };
    let unheard = vec![Unheard { host: host(), error: WireError::new(ErrorCode::Unavailable, "no answer") }];
    let whole = TopView { rows: vec![row(), least_row()], unheard, as_of: AT };
    let none = TopView { rows: Vec::new(), unheard: Vec::new(), as_of: AT };
    vec![
        Sample::of("request-top", wish(Some(2_000))),
        Sample::of("request-top-once", wish(None)),
        Sample::of("question-figures", Question::Figures { agents: vec![agent_id()] }),
        Sample::of("answer-figures", Answer::Figures(vec![measured, least])),
        Sample::of("item-top", Item::Top(Box::new(whole))),
        Sample::of("item-top-least", Item::Top(Box::new(none))),
    ]
}

/// An older manager refuses the requests by name, an older host the questions.
fn spoken_with() -> Vec<Sample> {
    let talk = OrderId::from_parts(3, 4);
    let environment = environment();
    let program = texts(&["sh", "-c", "cat"]);
    let input = ExecInput { offset: 1 << 33, bytes: b"hi\xff\n".to_vec(), last: true };
    let taken = InputTaken { bytes: 1 << 34, open: false };
    let to = ExecTalk { agent: agent_id(), host: host(), talk };
    let open = ExecOpen {
        target: text("fix it@db-01"),
        program: program.clone(),
        environment: environment.clone(),
        input: true,
    };
    let question = Question::ExecOpen { agent: agent_id(), program, environment, input: false };
    vec![
        Sample::of("request-exec-open", Request::from(Action::ExecOpen(open))),
        Sample::of(
            "request-exec-input",
            Request::from(Action::ExecInput { to: to.clone(), input: input.clone() }),
        ),
        Sample::of("item-talk", Item::Talk(to)),
        Sample::of("reply-taken", Reply::Taken(taken)),
        Sample::of("question-exec-open", question),
        Sample::of("question-exec-input", Question::ExecInput { talk, input }),
        Sample::of("question-exec-end", Question::ExecEnd { talk }),
        Sample::of("answer-taken", Answer::Taken(taken)),
    ]
}
