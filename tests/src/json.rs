//! `-o json` as the tests read it: what each list says, with the types of the wire where they are the same.

use std::collections::BTreeMap;

use protocol::agent::{End, Phase, Role};
use protocol::ids::{AgentId, RunId};
use protocol::report::Report;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The one shape of every list.
#[derive(Debug, Deserialize)]
pub struct List<T> {
    pub schema_version: u32,
    pub kind: String,
    pub items: Vec<T>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Agent {
    pub id: AgentId,
    pub name: String,
    pub role: Role,
    pub phase: Phase,
    pub wanted: String,
    pub reason: String,
    pub reachability: String,
    pub end: Option<End>,
    pub report: Option<Report>,
}

impl Agent {
    /// How it ended, in a few words: cause, code, signal.
    #[must_use]
    pub fn ending(&self) -> String {
        let Some(end) = &self.end else { return format!("{} without an end", self.phase) };
        let mut text = format!("{} {}", self.phase, end.cause);
        for (name, value) in [("code", end.code), ("signal", end.signal)] {
            if let Some(value) = value {
                text.push_str(&format!(" {name} {value}"));
            }
        }
        text
    }

    /// # Panics
    /// When its host has not reported it.
    #[must_use]
    pub fn report(&self) -> &Report {
        self.report.as_ref().expect("a report")
    }

    /// # Panics
    /// When it has no workspace.
    #[must_use]
    pub fn workspace(&self) -> std::path::PathBuf {
        self.report().workspace.as_ref().expect("a workspace").path.clone().into()
    }
}

#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub name: String,
    pub over: bool,
    pub accepted: u64,
    pub total: u64,
    pub counts: BTreeMap<String, u64>,
}

/// What became of one target of `stop` or `destroy`.
#[derive(Debug, Clone, Deserialize)]
pub struct Outcome {
    pub target: String,
    pub done: bool,
    pub error: Option<Fault>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Fault {
    pub code: String,
    pub message: String,
    pub hint: String,
}

/// One row of `why`.
#[derive(Debug, Clone, Deserialize)]
pub struct Reason {
    pub subject: String,
    pub state: String,
    pub why: String,
    pub remedy: String,
}

/// # Panics
/// When the text is no list of `T`.
#[must_use]
pub fn items<T: DeserializeOwned>(text: &[u8]) -> Vec<T> {
    let list: List<T> = serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(text)));
    assert_eq!(list.schema_version, protocol::api::SCHEMA_VERSION);
    list.items
}
