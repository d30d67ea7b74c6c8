//! What a notification says: one JSON document, the same for every way it goes. Pure. No prompt, no transcript and no
//! value of an environment is in it: of a reason only its first line goes in, with such values blotted out.

use std::collections::BTreeMap;

use protocol::agent::{Environment, Phase, TaskLink};
use protocol::event::{Event, Fact};
use protocol::notify::NoticeKind as Kind;
use protocol::task::TaskState;
use serde::Serialize;

/// Longest reason, in characters.
const REASON_MOST: usize = 500;
/// A shorter value is part of too many words to be blotted out.
const VALUE_LEAST: usize = 4;
const REDACTED: &str = "[redacted]";

/// What a fact is, if it is one to tell. An agent's own end counts only where no task tells of it.
#[must_use]
pub fn kind_of(fact: &Fact) -> Option<Kind> {
    match fact {
        Fact::TaskState { state: TaskState::Failed, .. } => Some(Kind::Failed),
        Fact::TaskState { state: TaskState::Review, .. } => Some(Kind::Review),
        Fact::AgentPhase { phase: Phase::Crashed | Phase::Failed, .. } => Some(Kind::Failed),
        Fact::AgentPhase { phase: Phase::Blocked, .. } => Some(Kind::Blocked),
        Fact::RunEnded { .. } => Some(Kind::RunEnd),
        Fact::RecordsLost { .. }
        | Fact::TaskState { .. }
        | Fact::AgentPhase { .. }
        | Fact::AgentDestroyed { .. }
        | Fact::RunSubmitted { .. }
        | Fact::HostStarted { .. }
        | Fact::BaseReplaced { .. }
        | Fact::Gap { .. }
        | Fact::Unknown => None,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    pub id: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Notice {
    pub schema_version: u32,
    /// The same however often it is sent: who has seen it may drop it.
    pub id: String,
    pub event: &'static str,
    /// RFC 3339.
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Of the task or the run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// Of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    pub reason: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<&'static str, u64>,
}

/// Values that must not be told.
#[derive(Clone)]
pub enum Values {
    /// There are these.
    Known(Environment),
    /// There are some, and they cannot be looked up: nothing of a reason can be trusted.
    Unknown,
}

impl Notice {
    /// What the fact itself says; names of run and task are the caller's to add.
    #[must_use]
    pub fn of(event: &Event, kind: Kind, values: &Values) -> Self {
        let id = format!("{}:{}", event.epoch, event.seq);
        let at = humantime::format_rfc3339_millis(
            std::time::UNIX_EPOCH + std::time::Duration::from_millis(event.at.0),
        );
        let mut notice =
            Self { schema_version: 1, id, event: kind.as_str(), at: at.to_string(), ..Self::default() };
        let named = |id: String| Some(Named { id, name: event.name.clone() });
        match &event.fact {
            Fact::TaskState { run, task, attempt, state, reason } => {
                notice.run = Some(Named { id: run.to_string(), name: String::new() });
                notice.task = named(task.to_string());
                notice.attempt = Some(*attempt).filter(|attempt| *attempt > 0);
                notice.state = state.to_string();
                notice.reason = told(reason, values);
            }
            Fact::AgentPhase { agent, phase, end, reason } => {
                notice.agent = named(agent.to_string());
                notice.phase = phase.to_string();
                // What it asks is on its screen, which is transcript.
                let end = end.as_ref().map(ToString::to_string);
                let why = end.or_else(|| reason.map(|reason| reason.as_str().to_owned()));
                notice.reason = told(&why.unwrap_or_default(), values);
            }
            Fact::RunEnded { run, accepted, failed, cancelled } => {
                notice.run = named(run.to_string());
                notice.state = "over".to_owned();
                notice.counts =
                    BTreeMap::from([("accepted", *accepted), ("failed", *failed), ("cancelled", *cancelled)]);
                notice.reason = format!("{accepted} accepted, {failed} failed, {cancelled} cancelled");
            }
            Fact::RecordsLost { .. }
            | Fact::AgentDestroyed { .. }
            | Fact::RunSubmitted { .. }
            | Fact::HostStarted { .. }
            | Fact::BaseReplaced { .. }
            | Fact::Gap { .. }
            | Fact::Unknown => {}
        }
        notice
    }

    /// The attempt that its agent is.
    pub fn link(&mut self, link: &TaskLink) {
        self.run = Some(Named { id: link.run.to_string(), name: link.run_name.clone() });
        self.task = Some(Named { id: link.task.to_string(), name: link.task_name.clone() });
        self.attempt = Some(link.attempt);
    }

    /// One that stands for none.
    #[must_use]
    pub fn sample(now: protocol::time::Timestamp) -> Self {
        let at =
            humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + std::time::Duration::from_millis(now.0));
        Self {
            schema_version: 1,
            id: format!("sample:{}", now.0),
            event: "sample",
            at: at.to_string(),
            reason: "a test of notifications by phalanx notify test".to_owned(),
            ..Self::default()
        }
    }

    /// What a program finds in its environment, beside the document on its standard input.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let name = |named: &Option<Named>| named.as_ref().map(|named| named.name.clone()).unwrap_or_default();
        vec![
            ("PHALANX_EVENT", self.event.to_owned()),
            ("PHALANX_EVENT_ID", self.id.clone()),
            ("PHALANX_RUN_NAME", name(&self.run)),
            ("PHALANX_TASK_NAME", name(&self.task)),
            ("PHALANX_AGENT_NAME", name(&self.agent)),
            ("PHALANX_STATE", if self.state.is_empty() { self.phase.clone() } else { self.state.clone() }),
            ("PHALANX_REASON", self.reason.clone()),
        ]
    }
}

/// The first line of a reason, without values of the environment.
fn told(reason: &str, values: &Values) -> String {
    let Values::Known(Environment(values)) = values else {
        return format!("{REDACTED}: the values that it may hold cannot be looked up");
    };
    // The longest first: one may be part of another.
    let mut values: Vec<&String> = values.values().filter(|value| value.len() >= VALUE_LEAST).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let mut text = reason.to_owned();
    for value in values {
        text = text.replace(value.as_str(), REDACTED);
    }
    // What follows is what a program printed.
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).take(REASON_MOST).collect();
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::{RunId, TaskId};
    use protocol::time::Timestamp;

    fn failed(reason: &str) -> Event {
        Event {
            at: Timestamp(1_700_000_000_000),
            epoch: "e".repeat(32),
            seq: 7,
            region: "hub".parse().unwrap(),
            host: None,
            name: "fix it".into(),
            fact: Fact::TaskState {
                run: RunId::from_parts(1, 1),
                task: TaskId::from_parts(1, 2),
                attempt: 2,
                state: TaskState::Failed,
                reason: reason.to_owned(),
            },
            cursor: None,
        }
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Values::Known(Environment(pairs.collect()))
    }

    #[test]
    fn values_of_the_environment_are_blotted_out_and_only_the_first_line_is_told() {
        let event = failed("exit 1: token s3cr3t-42 (s3cr3t) refused\nits prompt was: do it");
        let known = values(&[("A", "s3cr3t"), ("B", "s3cr3t-42"), ("C", "1")]);
        let notice = Notice::of(&event, Kind::Failed, &known);
        assert_eq!(notice.reason, "exit 1: token [redacted] ([redacted]) refused");
        let said = serde_json::to_string(&notice).unwrap();
        assert!(!said.contains("s3cr3t") && !said.contains("prompt"), "{said}");
        let unknown = Notice::of(&event, Kind::Failed, &Values::Unknown);
        assert!(!unknown.reason.contains("token"), "{}", unknown.reason);
    }

    #[test]
    fn the_id_is_that_of_the_fact_and_the_shape_is_fixed() {
        let notice = Notice::of(&failed("exit 1"), Kind::Failed, &values(&[]));
        let document = serde_json::to_value(&notice).unwrap();
        assert_eq!(document["id"], format!("{}:7", "e".repeat(32)));
        assert_eq!(document["event"], "failed");
        assert_eq!(document["task"]["name"], "fix it");
        assert_eq!(document["at"], "2023-11-14T22:13:20.000Z");
        assert_eq!((&document["attempt"], &document["state"]), (&2.into(), &"FAILED".into()));
        assert!(document.get("agent").is_none());
    }
}
