//! An agent as one row of a list: what tables show and filters select by. The whole of it, with its spec and its last
//! report, is [`crate::api::AgentView`]; a list of a thousand of those is a megabyte.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::{End, Phase, Role, TaskLink};
use crate::api::{AgentFilter, AgentView, Reachability, Target};
use crate::ids::{AgentId, HostId, Region};
use crate::report::{Life, WorkspaceFacts};
use crate::signals::PhaseReason;
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// What is empty or not known is left out on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRow {
    pub id: AgentId,
    pub name: String,
    pub role: Role,
    pub region: Region,
    pub host: HostId,
    pub reachability: Reachability,
    /// CREATING until the first report.
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_reason: Option<PhaseReason>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `running`, `stopped` or `destroyed`; `unowned` when the manager has no record of it.
    pub wanted: String,
    /// Destroyed: only its transcript and its end are left.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gone: bool,
    pub as_of: Timestamp,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopping: bool,
    /// The program has ended, processes that it left have not.
    #[serde(default, skip_serializing_if = "is_false")]
    pub draining: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskLink>,
    /// Whom it runs as; empty until the first report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Path on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output: Option<Timestamp>,
    #[serde(default)]
    pub figures: Figures,
}

/// What an agent takes of its host, as last measured there. What was not measured is absent, never 0.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Between the last two looks; 1000 is one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// What the workspace takes on the disk beyond what it shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Of `disk_bytes`: counting files is slow, so it is older than the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_as_of: Option<Timestamp>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl AgentRow {
    /// The row that a view comes to.
    #[must_use]
    pub fn of(view: &AgentView) -> Self {
        let report = view.report.as_ref();
        let workspace = report.and_then(|report| report.workspace.as_ref());
        Self {
            id: view.id,
            name: view.name.clone(),
            role: view.role,
            region: view.region.clone(),
            host: view.host.clone(),
            reachability: view.reachability,
            phase: view.phase,
            phase_reason: report.and_then(|report| report.phase_reason),
            reason: view.reason.clone(),
            wanted: view.wanted.clone(),
            gone: match report {
                Some(report) => report.life == Life::Destroyed,
                // It was not wanted any more before its host ever heard of it.
                None => view.wanted == "destroyed",
            },
            as_of: view.as_of,
            created_at: view.created_at,
            started_at: report.and_then(|report| report.started_at),
            // An end from before a start that is wanted says nothing of that start.
            end: report.and_then(|report| report.end.clone()).filter(|_| view.phase.is_ended()),
            stopping: report.is_some_and(|report| report.stopping),
            draining: report.is_some_and(|report| report.draining),
            degraded: report.map(|report| report.degraded.clone()).unwrap_or_default(),
            labels: view.spec.labels.clone(),
            profile: view.spec.profile.clone(),
            task: view.spec.task.clone(),
            user: report.map(|report| report.user.clone()).unwrap_or_default(),
            workspace: workspace.map(|workspace: &WorkspaceFacts| workspace.path.clone()),
            branch: workspace.and_then(|workspace| workspace.branch.clone()),
            last_output: view.last_output,
            figures: Figures {
                cpu_ms: Some(view.cpu_ms).filter(|ms| *ms > 0),
                memory_bytes: Some(view.memory_bytes).filter(|bytes| *bytes > 0),
                ..Figures::default()
            },
        }
    }

    /// Whether its program is gone, so that it takes nothing but disk.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.phase.is_ended()
    }
}

/// Which agents are listed. What is empty selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowFilter {
    /// Also ended attempts and destroyed agents.
    #[serde(default)]
    pub all: bool,
    /// Every pair must match.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub phases: Vec<Phase>,
    #[serde(default)]
    pub run: Option<Target>,
    #[serde(default)]
    pub hosts: Vec<HostId>,
    /// Names and ids, with `*` for any text and `?` for any one character.
    #[serde(default)]
    pub names: Vec<String>,
}

impl From<AgentFilter> for RowFilter {
    fn from(filter: AgentFilter) -> Self {
        let AgentFilter { all, labels, phases, run } = filter;
        Self { all, labels, phases, run, ..Self::default() }
    }
}

/// Asks for the rows of a list and for what changes of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchRows {
    pub filter: RowFilter,
    /// Of an earlier answer, to go on after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Also [`RowItem::Figures`].
    #[serde(default)]
    pub figures: bool,
}

wire_enum!(
    /// What became of a row, as a filter sees it.
    RowChange {
        /// It came to be, or fits the filter from now on.
        Added = "added",
        Changed = "changed",
        /// It is no more, or does not fit any longer.
        Gone = "gone",
    }
);

/// One item of a [`WatchRows`]. Each cursor stands for all that was told up to its item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowItem {
    /// All that fit, and nothing told before counts any more.
    All {
        rows: Vec<AgentRow>,
        cursor: String,
        /// Why the cursor that was asked for could not be gone on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reset: Option<String>,
    },
    /// One change, in the order in which they came about. Figures and dates of the last output and report alone are none.
    One { change: RowChange, row: Box<AgentRow>, cursor: String },
    /// Rows of which the figures differ from those that were told last.
    Figures(Vec<AgentRow>),
}
