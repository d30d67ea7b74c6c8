//! An agent as a row, as JSON, and in one sentence.

use protocol::agent::AgentSpec;
use protocol::agent::{End, EndCause, StartStep};
use protocol::api::AgentView;
use protocol::report::Report;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::output::render::Listed;
use super::super::watch::row::{AgentDocument, Row};

pub struct AgentRow {
    pub view: AgentView,
    pub now: Timestamp,
}

impl AgentRow {
    pub fn end(&self) -> Option<&End> {
        end(&self.view)
    }

    fn row(&self) -> Row {
        Row { agent: protocol::row::AgentRow::of(&self.view), now: self.now }
    }
}

/// Whether the limits that are wanted of it are in force; those that its host refused are not wanted any more.
pub fn has_wanted_limits(view: &AgentView) -> bool {
    view.report.as_ref().is_some_and(|report| report.spec.limits == view.spec.limits)
}

/// How it ended, if it has.
pub fn end(view: &AgentView) -> Option<&End> {
    view.report.as_ref().and_then(|report| report.end.as_ref())
}

/// One short word for a table.
pub fn short_end(end: &End) -> String {
    match (end.cause, end.code, end.signal) {
        (EndCause::Exited, Some(code), _) => code.to_string(),
        (EndCause::Signalled, _, Some(signal)) => signal_name(signal),
        (EndCause::OutOfMemory, ..) => "oom".to_owned(),
        (EndCause::StartFailed, ..) => end.step.map_or("start-failed", StartStep::as_str).to_owned(),
        (cause, ..) => cause.to_string(),
    }
}

/// A sentence for a person.
pub fn long_end(end: &End) -> String {
    let mut text = match (end.cause, end.code, end.signal) {
        (EndCause::Exited, Some(code), _) => format!("it ended with exit {code}"),
        (EndCause::Signalled, _, Some(signal)) => format!("it was ended by {}", signal_name(signal)),
        (EndCause::OutOfMemory, ..) => "the kernel ended it at its memory limit".to_owned(),
        (EndCause::Requested, ..) => "it was stopped on request".to_owned(),
        (EndCause::TimeLimit, ..) => "it reached its time limit".to_owned(),
        (EndCause::Lease, ..) => "its lease was not renewed".to_owned(),
        (EndCause::SupervisorLost, ..) => "its supervisor was lost".to_owned(),
        (EndCause::Rebooted, ..) => "its host was rebooted".to_owned(),
        (EndCause::StartFailed, ..) => match end.step {
            // The host says which.
            Some(StartStep::ProgramMissing | StartStep::ProgramDenied) if !end.detail.is_empty() => {
                return end.detail.clone();
            }
            Some(StartStep::ProgramMissing) => "there is no such program".to_owned(),
            Some(StartStep::ProgramDenied) => "the program may not be executed".to_owned(),
            Some(step) => format!("it could not be started ({step})"),
            None => "it could not be started".to_owned(),
        },
        (cause, ..) => format!("it ended: {cause}"),
    };
    if !end.detail.is_empty() {
        text.push_str(": ");
        text.push_str(&end.detail);
    }
    text
}

/// `SIGKILL`, else the number.
pub fn signal_name(signal: i32) -> String {
    nix::sys::signal::Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

/// What a row of `ls` has, and the spec and the last report besides.
#[derive(Serialize, JsonSchema)]
pub struct WholeAgent<'a> {
    #[serde(flatten)]
    row: AgentDocument,
    spec: &'a AgentSpec,
    /// `null` until the first one.
    report: Option<&'a Report>,
}

impl Listed for AgentRow {
    const KIND: &'static str = Row::KIND;
    const HEADER: &'static [&'static str] = Row::HEADER;
    const WIDE: &'static [&'static str] = Row::WIDE;

    type Document<'a>
        = WholeAgent<'a>
    where
        Self: 'a;

    fn document(&self) -> WholeAgent<'_> {
        WholeAgent { row: self.row().document(), spec: &self.view.spec, report: self.view.report.as_ref() }
    }

    fn name(&self) -> String {
        self.view.name.clone()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        self.row().cells(wide)
    }
}
