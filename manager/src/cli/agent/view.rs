//! An agent as a row, as JSON, and in one sentence.

use protocol::agent::{End, EndCause, StartStep};
use protocol::api::{AgentView, Reachability};
use protocol::time::Timestamp;
use serde_json::{Value, json};

use super::super::output::render::Listed;
use super::super::output::when::age;
use crate::runfile::units::{human_duration, human_size};

pub struct AgentRow {
    pub view: AgentView,
    pub now: Timestamp,
}

impl AgentRow {
    pub fn end(&self) -> Option<&End> {
        end(&self.view)
    }

    fn is_live(&self) -> bool {
        !self.view.phase.is_ended()
    }

    /// Since its last output, while it lives.
    fn quiet_ms(&self) -> Option<u64> {
        self.view.last_output.filter(|_| self.is_live()).map(|at| self.now.ms_since(at))
    }

    fn phase(&self) -> String {
        let report = self.view.report.as_ref();
        let mut marks = Vec::new();
        if report.is_some_and(|report| report.stopping) && self.is_live() {
            marks.push("stopping");
        }
        if report.is_some_and(|report| report.draining) {
            marks.push("draining");
        }
        match self.view.reachability {
            Reachability::Late => marks.push("late"),
            Reachability::Lost => marks.push("host lost"),
            Reachability::Unknown => marks.push("host unknown"),
            Reachability::Fresh => {}
        }
        if marks.is_empty() {
            self.view.phase.to_string()
        } else {
            format!("{} ({})", self.view.phase, marks.join(", "))
        }
    }
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

impl Listed for AgentRow {
    const KIND: &'static str = "AgentList";
    const HEADER: &'static [&'static str] = &["NAME", "PHASE", "HOST", "AGE", "EXIT", "QUIET", "CPU", "MEM"];
    const WIDE: &'static [&'static str] = &["ID", "TASK", "PROFILE", "USER", "LABELS", "WORKSPACE", "REASON"];

    fn json(&self) -> Value {
        let mut json = serde_json::to_value(&self.view).unwrap_or_default();
        if let Value::Object(fields) = &mut json {
            fields.insert("end".into(), json!(self.end()));
            fields.insert("quiet_for_ms".into(), json!(self.quiet_ms()));
            fields.insert("age_ms".into(), json!(self.now.ms_since(self.view.created_at)));
            fields.insert("knowledge_age_ms".into(), json!(self.now.ms_since(self.view.as_of)));
        }
        json
    }

    fn name(&self) -> String {
        self.view.name.clone()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let view = &self.view;
        let mut cells = vec![
            view.name.clone(),
            self.phase(),
            view.host.to_string(),
            age(self.now, view.created_at),
            self.end().map(short_end).unwrap_or_default(),
            self.quiet_ms().map(human_duration).unwrap_or_default(),
            if view.cpu_ms > 0 { human_duration(view.cpu_ms) } else { String::new() },
            if view.memory_bytes > 0 { human_size(view.memory_bytes) } else { String::new() },
        ];
        if wide {
            let report = view.report.as_ref();
            let task = view.spec.task.as_ref();
            let labels = view.spec.labels.iter().map(|(key, value)| format!("{key}={value}"));
            cells.extend([
                view.id.to_string(),
                task.map(|task| format!("{}/{}#{}", task.run_name, task.task_name, task.attempt))
                    .unwrap_or_default(),
                view.spec.profile.clone().unwrap_or_default(),
                report.map(|report| report.user.clone()).unwrap_or_default(),
                labels.collect::<Vec<_>>().join(","),
                report.and_then(|r| r.workspace.as_ref()).map(|w| w.path.clone()).unwrap_or_default(),
                if view.reason.is_empty() {
                    self.end().map(long_end).unwrap_or_default()
                } else {
                    view.reason.clone()
                },
            ]);
        }
        cells
    }
}

/// How old the knowledge is, when not all of it is fresh.
pub fn staleness(rows: &[AgentRow]) -> Option<String> {
    let stale = rows.iter().filter(|row| row.view.reachability != Reachability::Fresh);
    let oldest = stale.min_by_key(|row| row.view.as_of)?;
    let (host, age) = (&oldest.view.host, age(oldest.now, oldest.view.as_of));
    let how = oldest.view.reachability;
    Some(format!(
        "Not all of this is fresh: host {host} is {how}, last heard {age} ago; its rows say what was true then."
    ))
}
