//! A row of a list of agents: its cells, and its JSON.

use std::collections::BTreeMap;

use protocol::agent::{End, Phase, Role, TaskLink};
use protocol::api::Reachability;
use protocol::ids::{AgentId, HostId, Region};
use protocol::row::AgentRow;
use protocol::signals::PhaseReason;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::agent::view::{long_end, short_end};
use super::super::output::render::Listed;
use super::super::output::when::{age, date};
use super::columns::{COLUMNS, Column, WIDE};
use manager_plan::runfile::units::{human_duration, human_size};

pub struct Row {
    pub agent: AgentRow,
    pub now: Timestamp,
}

impl Row {
    fn end(&self) -> Option<&End> {
        self.agent.end.as_ref()
    }

    fn is_live(&self) -> bool {
        !self.agent.is_ended()
    }

    /// Since its last output, while it lives.
    pub fn quiet_ms(&self) -> Option<u64> {
        self.agent.last_output.filter(|_| self.is_live()).map(|at| self.now.ms_since(at))
    }

    fn phase(&self) -> String {
        let agent = &self.agent;
        let mut marks = Vec::new();
        marks.extend(agent.phase_reason.map(PhaseReason::as_str));
        if agent.stopping && self.is_live() {
            marks.push("stopping");
        }
        if agent.draining {
            marks.push("draining");
        }
        if agent.gone {
            marks.push("destroyed");
        }
        match agent.reachability {
            Reachability::Late => marks.push("late"),
            Reachability::Lost => marks.push("host lost"),
            Reachability::Unknown => marks.push("host unknown"),
            Reachability::Fresh => {}
        }
        if marks.is_empty() {
            agent.phase.to_string()
        } else {
            format!("{} ({})", agent.phase, marks.join(", "))
        }
    }

    pub fn cell(&self, column: Column) -> String {
        let agent = &self.agent;
        let figures = &agent.figures;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        match column {
            Column::Name => agent.name.clone(),
            Column::Phase => self.phase(),
            Column::Host => agent.host.to_string(),
            Column::Region => agent.region.to_string(),
            Column::Age => age(self.now, agent.created_at),
            Column::Created => date(agent.created_at),
            Column::Started => agent.started_at.map(date).unwrap_or_default(),
            Column::Exit => self.end().map(short_end).unwrap_or_default(),
            Column::Quiet => self.quiet_ms().map(human_duration).unwrap_or_default(),
            Column::Cpu => figures.cpu_ms.map(human_duration).unwrap_or_default(),
            Column::Mem => figures.memory_bytes.map(human_size).unwrap_or_default(),
            Column::Pids => figures.pids.map(|pids| pids.to_string()).unwrap_or_default(),
            Column::Disk => figures.disk_bytes.map(human_size).unwrap_or_default(),
            Column::Id => agent.id.to_string(),
            Column::Task => agent.task.as_ref().map_or_else(String::new, |task| {
                format!("{}/{}#{}", task.run_name, task.task_name, task.attempt)
            }),
            Column::Profile => text(&agent.profile),
            Column::User => agent.user.clone(),
            Column::Labels => {
                let labels = agent.labels.iter().map(|(key, value)| format!("{key}={value}"));
                labels.collect::<Vec<_>>().join(",")
            }
            Column::Workspace => text(&agent.workspace),
            Column::Branch => text(&agent.branch),
            Column::Wanted => agent.wanted.clone(),
            Column::Degraded => agent.degraded.join(","),
            Column::Reason if agent.reason.is_empty() => self.end().map(long_end).unwrap_or_default(),
            Column::Reason => agent.reason.clone(),
        }
    }
}

/// An agent as a row of `ls`. Every field is there, whatever is known: a template or script that reads one never meets
/// a gap.
#[derive(Serialize, JsonSchema)]
pub struct AgentDocument {
    id: AgentId,
    name: String,
    role: Role,
    region: Region,
    host: HostId,
    reachability: Reachability,
    /// CREATING until the first report.
    phase: Phase,
    phase_reason: Option<PhaseReason>,
    reason: String,
    /// `running`, `stopped` or `destroyed`; `unowned` when the manager has no record of it.
    wanted: String,
    /// Destroyed: only its transcript and its end are left.
    gone: bool,
    as_of: Timestamp,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    end: Option<End>,
    stopping: bool,
    /// The program has ended, processes that it left have not.
    draining: bool,
    /// What does not work as promised.
    degraded: Vec<String>,
    labels: BTreeMap<String, String>,
    profile: Option<String>,
    task: Option<TaskLink>,
    /// Whom it runs as; empty until the first report.
    user: String,
    /// Path on its host.
    workspace: Option<String>,
    branch: Option<String>,
    last_output: Option<Timestamp>,
    /// Since its start.
    cpu_ms: u64,
    /// Between the last two looks; 1000 is one core.
    cpu_millis: Option<u64>,
    memory_bytes: u64,
    /// Processes and threads.
    pids: Option<u64>,
    /// What the workspace takes on the disk beyond what it shares with others.
    disk_bytes: Option<u64>,
    disk_as_of: Option<Timestamp>,
    /// Since its last output, while it lives.
    quiet_for_ms: Option<u64>,
    age_ms: u64,
    /// How old the last report is.
    knowledge_age_ms: u64,
}

impl Listed for Row {
    const KIND: &'static str = "AgentList";
    const HEADER: &'static [&'static str] = &["NAME", "PHASE", "HOST", "AGE", "EXIT", "QUIET", "CPU", "MEM"];
    const WIDE: &'static [&'static str] = &["ID", "TASK", "PROFILE", "USER", "LABELS", "WORKSPACE", "REASON"];

    type Document<'a>
        = AgentDocument
    where
        Self: 'a;

    fn document(&self) -> AgentDocument {
        let agent = self.agent.clone();
        let figures = agent.figures;
        AgentDocument {
            id: agent.id,
            name: agent.name,
            role: agent.role,
            region: agent.region,
            host: agent.host,
            reachability: agent.reachability,
            phase: agent.phase,
            phase_reason: agent.phase_reason,
            reason: agent.reason,
            wanted: agent.wanted,
            gone: agent.gone,
            as_of: agent.as_of,
            created_at: agent.created_at,
            started_at: agent.started_at,
            end: agent.end,
            stopping: agent.stopping,
            draining: agent.draining,
            degraded: agent.degraded,
            labels: agent.labels,
            profile: agent.profile,
            task: agent.task,
            user: agent.user,
            workspace: agent.workspace,
            branch: agent.branch,
            last_output: agent.last_output,
            cpu_ms: figures.cpu_ms.unwrap_or(0),
            cpu_millis: figures.cpu_millis,
            memory_bytes: figures.memory_bytes.unwrap_or(0),
            pids: figures.pids,
            disk_bytes: figures.disk_bytes,
            disk_as_of: figures.disk_as_of,
            quiet_for_ms: self.quiet_ms(),
            age_ms: self.now.ms_since(agent.created_at),
            knowledge_age_ms: self.now.ms_since(agent.as_of),
        }
    }

    fn name(&self) -> String {
        self.agent.name.clone()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let more = if wide { WIDE } else { &[] };
        COLUMNS.iter().chain(more).map(|column| self.cell(*column)).collect()
    }
}

/// How old the knowledge is, when not all of it is fresh.
pub fn staleness(rows: &[Row]) -> Option<String> {
    let stale = rows.iter().filter(|row| row.agent.reachability != Reachability::Fresh);
    let oldest = stale.min_by_key(|row| row.agent.as_of)?;
    let (host, age) = (&oldest.agent.host, age(oldest.now, oldest.agent.as_of));
    let how = oldest.agent.reachability;
    Some(format!(
        "Not all of this is fresh: host {host} is {how}, last heard {age} ago; its rows say what was true then."
    ))
}
