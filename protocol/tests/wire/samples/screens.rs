//! Screens, the questions for them, and the signs on them.

use protocol::agent::{AgentSpec, Phase};
use protocol::api::{AgentScreen, Query, Reply, Request, Until};
use protocol::event::Fact;
use protocol::order::{Answer, Question};
use protocol::report::Report;
use protocol::row::AgentRow;
use protocol::screen::{CursorPlace, ScreenView};
use protocol::signals::{Children, Dialog, PhaseReason, Sign, Signals};
use protocol::task::TaskSpec;

use super::agents::{least_report, least_spec};
use super::hosts::{ask, event};
use super::looking::least_row;
use super::tasks::least_task_spec;
use super::{AT, agent_id, host, text, texts};
use crate::rules::Sample;

fn screen() -> ScreenView {
    ScreenView {
        rows: 3,
        cols: 80,
        cursor: Some(CursorPlace { row: 1, col: 2 }),
        lines: texts(&["\u{1b}[0;1mnaïve 名前\u{1b}[0m", "> ", ""]),
        history: texts(&["above"]),
        title: text("✳ Claude Code"),
        alternate: true,
        as_of: AT,
        last_output: Some(AT.after_ms(3)),
        transcript_bytes: 1 << 33,
        rendered_bytes: 4 << 20,
        ended: true,
    }
}

fn least_screen() -> ScreenView {
    ScreenView {
        cursor: None,
        history: Vec::new(),
        title: String::new(),
        alternate: false,
        last_output: None,
        ended: false,
        ..screen()
    }
}

fn agent_screen() -> AgentScreen {
    AgentScreen {
        agent: agent_id(),
        name: text("naïve 名前"),
        host: host(),
        phase: Phase::Blocked,
        screen: screen(),
    }
}

pub(crate) fn signals() -> Signals {
    let sign = Sign {
        screen: Some(text("^> \\z")),
        cursor: Some(text("> $")),
        title: Some(text("^✳ ")),
        children: Some(Children::None),
    };
    let screen = |pattern: &str| vec![Sign { screen: Some(text(pattern)), ..Sign::default() }];
    Signals {
        rows: 7,
        ready: screen("welcome"),
        asking: screen("sure\\?"),
        busy: screen("esc to interrupt"),
        idle: vec![sign],
    }
}

fn blocked() -> Report {
    Report {
        phase: Phase::Blocked,
        source: text("screen"),
        phase_reason: Some(PhaseReason::Question),
        dialog: Some(Dialog { text: text("Do you want to proceed?"), choices: texts(&["1. Yes", "2. No"]) }),
        ..least_report()
    }
}

fn signs() -> Vec<Sample> {
    let spec = AgentSpec { signals: Some(Box::new(signals())), ..least_spec() };
    let task = TaskSpec { signals: Some(Box::new(Signals::default())), ..least_task_spec() };
    let fact = Fact::AgentPhase {
        agent: agent_id(),
        phase: Phase::Paused,
        end: None,
        reason: Some(PhaseReason::TurnDone),
    };
    let until = Until::PhaseFor(Phase::Paused, PhaseReason::Frozen);
    let row = AgentRow { phase_reason: Some(PhaseReason::TurnDone), ..least_row() };
    vec![
        Sample::of("agent-spec-signals", spec),
        Sample::of("task-spec-signals", task),
        Sample::of("report-blocked", blocked()),
        Sample::of("event-agent-phase-paused", event(true, fact)),
        Sample::of(
            "request-wait-phase-for",
            Request::from(Query::WaitAgents { targets: texts(&["demo"]), until }),
        ),
        Sample::of("row-paused", row),
    ]
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all = signs();
    let question = Question::Screen { agent: agent_id(), history: 100, colours: true };
    let request = Query::Capture { target: text("demo@db-01"), history: 100, colours: true };
    all.extend([
        Sample::of("ask-screen", ask(question)),
        Sample::of("answer-screen", Answer::Screen(Box::new(screen()))),
        Sample::of("answer-screen-least", Answer::Screen(Box::new(least_screen()))),
        Sample::of("request-capture", request),
        Sample::of("reply-screen", Reply::Screen(Box::new(agent_screen()))),
    ]);
    all
}
