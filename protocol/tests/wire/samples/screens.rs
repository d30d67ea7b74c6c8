//! Screens, and the questions for them.

use protocol::agent::Phase;
use protocol::api::{AgentScreen, Reply, Request};
use protocol::order::{Answer, Question};
use protocol::screen::{CursorPlace, ScreenView};

use super::hosts::ask;
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

pub(crate) fn all() -> Vec<Sample> {
    let question = Question::Screen { agent: agent_id(), history: 100, colours: true };
    let request = Request::Capture { target: text("demo@db-01"), history: 100, colours: true };
    vec![
        Sample::of("ask-screen", ask(question)),
        Sample::of("answer-screen", Answer::Screen(Box::new(screen()))),
        Sample::of("answer-screen-least", Answer::Screen(Box::new(least_screen()))),
        Sample::of("request-capture", request),
        Sample::of("reply-screen", Reply::Screen(Box::new(agent_screen()))),
    ]
}
