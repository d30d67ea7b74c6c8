//! Views of agents, hosts and the whole.

use std::collections::BTreeMap;

use protocol::agent::{Phase, Role};
use protocol::api::{AgentFilter, AgentView, HostView, Reachability, StatusView};
use protocol::error::WireError;
use protocol::ids::{AgentId, HostId, Incarnation};
use protocol::row::{AgentRow, Figures, RowFilter};
use protocol::task::TaskState;
use protocol::time::Timestamp;

use crate::Core;
use crate::effect::EnvironmentOwner;
use crate::fleet::agent::{Agent, Standing};
use crate::record::Wanted;
use crate::view::select::{Candidate, Selection};

/// What only the shell knows of the manager's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellFacts {
    pub build: String,
    pub started_at: Timestamp,
    /// Records that wait for the bus.
    pub unwritten: u64,
    pub bus_connected: bool,
}

impl Core {
    /// Whole views, in the order of ids.
    ///
    /// # Errors
    /// As [`Core::rows`].
    pub fn agents(&self, now: Timestamp, filter: &AgentFilter) -> Result<Vec<AgentView>, WireError> {
        let wanted = self.matching(&self.selection(&RowFilter::from(filter.clone()))?);
        Ok(wanted.into_iter().filter_map(|(id, _)| self.agent_view(now, id)).collect())
    }

    #[must_use]
    pub fn agent_view(&self, now: Timestamp, id: AgentId) -> Option<AgentView> {
        let agent = self.fleet.agent(id)?;
        let spec = agent.spec()?.clone();
        let host_id = agent.host()?;
        let host = self.fleet.host(host_id)?;
        let report = agent.observed.as_deref();
        let created_at = created_at(agent)?;
        let figures = agent.figures.as_ref();
        Some(AgentView {
            id,
            name: spec.name.to_string(),
            role: spec.role,
            region: host.region.clone(),
            host: host_id.clone(),
            reachability: host.reachability(now, &self.config),
            phase: phase_of(agent),
            reason: reason_of(agent).to_owned(),
            wanted: wanted_words(agent).to_owned(),
            as_of: report.map_or(created_at, |report| report.as_of),
            created_at,
            report: report.cloned(),
            last_output: figures.and_then(|row| row.last_output),
            memory_bytes: figures.map_or(0, |row| row.memory_bytes),
            cpu_ms: used_cpu_ms(agent),
            generation: agent.desired.as_ref().map(|desired| desired.generation),
            unmet: agent.unmet(),
            spec,
            messages: Vec::new(),
        })
    }

    /// Agents as rows of a list, in the order of their ids: about the order in which they were made.
    ///
    /// # Errors
    /// When the filter names a run that is not there: an empty list would say that it has no agents.
    pub fn rows(&self, now: Timestamp, filter: &RowFilter) -> Result<Vec<AgentRow>, WireError> {
        let wanted = self.matching(&self.selection(filter)?);
        Ok(wanted.into_iter().filter_map(|(id, agent)| self.row(now, id, agent)).collect())
    }

    /// The one meaning of a filter, whatever is then shown of those that it finds.
    fn matching(&self, selection: &Selection) -> Vec<(AgentId, &Agent)> {
        let is_wanted = |id: AgentId, agent: &Agent| {
            let Some(spec) = agent.spec() else { return false };
            let phase = phase_of(agent);
            let host = agent.host();
            !agent.is_void()
                && host.is_some_and(|host| {
                    selection.takes(&Candidate {
                        id,
                        name: spec.name.as_str(),
                        host,
                        phase,
                        labels: &spec.labels,
                        task: spec.task.as_ref(),
                        is_current: is_current(agent),
                    })
                })
        };
        self.fleet.agents().filter(|(id, agent)| is_wanted(*id, agent)).collect()
    }

    pub(super) fn row(&self, now: Timestamp, id: AgentId, agent: &Agent) -> Option<AgentRow> {
        let spec = agent.spec()?;
        let host_id = agent.host()?;
        let host = self.fleet.host(host_id)?;
        let report = agent.observed.as_deref();
        let workspace = report.and_then(|report| report.workspace.as_ref());
        let phase = phase_of(agent);
        let created_at = created_at(agent)?;
        let mut row = AgentRow {
            id,
            name: spec.name.to_string(),
            role: spec.role,
            region: host.region.clone(),
            host: host_id.clone(),
            reachability: host.reachability(now, &self.config),
            phase,
            phase_reason: report.and_then(|report| report.phase_reason),
            reason: reason_of(agent).to_owned(),
            wanted: wanted_words(agent).to_owned(),
            gone: is_gone(agent),
            as_of: report.map_or(created_at, |report| report.as_of),
            created_at,
            started_at: report.and_then(|report| report.started_at),
            end: report.and_then(|report| report.end.clone()).filter(|_| phase.is_ended()),
            stopping: report.is_some_and(|report| report.stopping),
            draining: report.is_some_and(|report| report.draining),
            degraded: report.map(|report| report.degraded.clone()).unwrap_or_default(),
            labels: spec.labels.clone(),
            profile: spec.profile.clone(),
            task: spec.task.clone(),
            user: report.map(|report| report.user.clone()).unwrap_or_default(),
            workspace: workspace.map(|workspace| workspace.path.clone()),
            branch: workspace.and_then(|workspace| workspace.branch.clone()),
            last_output: None,
            figures: Figures::default(),
        };
        refresh_figures(&mut row, agent);
        Some(row)
    }

    /// Whether only transcript and end are left of it, or it never existed: what `wait --for destroyed` waits for.
    #[must_use]
    pub fn is_gone(&self, id: AgentId) -> bool {
        self.fleet.standing(id) == Standing::Gone
    }

    /// Whether its program has ended, as its host has reported.
    #[must_use]
    pub fn is_over(&self, id: AgentId) -> bool {
        matches!(self.fleet.standing(id), Standing::Ended | Standing::Gone)
    }

    #[must_use]
    pub fn hosts(&self, now: Timestamp) -> Vec<HostView> {
        self.fleet
            .hosts()
            .map(|(id, host)| HostView {
                region: host.region.clone(),
                host: id.clone(),
                reachability: host.reachability(now, &self.config),
                last_seen: host.beat.as_ref().map(|beat| beat.heard_at).unwrap_or_default(),
                clock_offset_ms: host.beat.as_ref().map_or(0, |beat| beat.offset_ms),
                build: host.beat.as_ref().map(|beat| beat.build.clone()).unwrap_or_default(),
                facts: host.beat.as_ref().map(|beat| beat.facts.clone()).unwrap_or_default(),
                live_agents: u64::try_from(host.live()).unwrap_or(u64::MAX),
            })
            .collect()
    }

    /// Of the last life of a host that was heard of.
    #[must_use]
    pub fn incarnation(&self, host: &HostId) -> Option<Incarnation> {
        self.fleet.host(host).map(|host| host.incarnation)
    }

    #[must_use]
    pub fn reachability(&self, now: Timestamp, host: &HostId) -> Reachability {
        self.fleet.host(host).map_or(Reachability::Lost, |host| host.reachability(now, &self.config))
    }

    #[must_use]
    pub fn status(&self, now: Timestamp, shell: &ShellFacts) -> StatusView {
        let mut agents = BTreeMap::new();
        for (_, agent) in self.fleet.agents().filter(|(_, agent)| !is_gone(agent)) {
            let phase = phase_of(agent);
            *agents.entry(phase.to_string()).or_insert(0) += 1;
        }
        StatusView {
            build: shell.build.clone(),
            started_at: shell.started_at,
            now,
            fencing: self.config.fencing.0,
            unwritten: shell.unwritten,
            bus_connected: shell.bus_connected,
            hosts: self.hosts(now),
            agents,
            runs: u64::try_from(self.work.runs().count()).unwrap_or(u64::MAX),
            queued_tasks: self.work.runs().map(|run| run.count(&[TaskState::Queued])).sum(),
        }
    }

    /// Whose sealed values are this agent's environment; `None` when it has none of its own making.
    #[must_use]
    pub fn environment_owner(&self, id: AgentId) -> Option<EnvironmentOwner> {
        let desired = self.fleet.desired(id)?;
        if !desired.spec.has_environment {
            return None;
        }
        Some(
            desired
                .spec
                .task
                .as_ref()
                .map_or(EnvironmentOwner::Agent(id), |link| EnvironmentOwner::Task(link.task)),
        )
    }
}

/// An end before a start that is wanted says nothing of that start.
fn phase_of(agent: &Agent) -> Phase {
    match &agent.observed {
        Some(report) if !agent.awaits_launch() => report.phase,
        Some(_) | None => Phase::Creating,
    }
}

/// What moves all the time, as last heard.
pub(super) fn refresh_figures(row: &mut AgentRow, agent: &Agent) {
    let figures = agent.figures.as_ref();
    row.last_output = figures.and_then(|row| row.last_output);
    row.figures = Figures {
        cpu_ms: Some(used_cpu_ms(agent)).filter(|ms| *ms > 0),
        memory_bytes: figures.map(|row| row.memory_bytes).filter(|bytes| *bytes > 0),
        ..Figures::default()
    };
}

/// Listed without `--all`: not the gone, and of attempts and verifications only those that go on.
pub(super) fn is_current(agent: &Agent) -> bool {
    let of_task = agent.spec().is_some_and(|spec| spec.role != Role::Own);
    match agent.standing() {
        Standing::Gone => false,
        Standing::Ended => !of_task,
        Standing::Unheard | Standing::Live => true,
    }
}

/// As [`AgentRow::of`] says it: destroyed, or not wanted any more before its host ever heard of it.
fn is_gone(agent: &Agent) -> bool {
    let unheard = agent.observed.is_none();
    let unwanted = agent.desired.as_ref().is_some_and(|desired| desired.wanted == Wanted::Destroyed);
    agent.standing() == Standing::Gone || (unheard && unwanted)
}

fn reason_of(agent: &Agent) -> &str {
    match &agent.observed {
        None if agent.standing() == Standing::Gone => "it never reached its host",
        None => "its host has not reported it yet",
        Some(_) if agent.awaits_launch() => "it is to be started again",
        Some(report) => &report.reason,
    }
}

fn wanted_words(agent: &Agent) -> &'static str {
    agent.desired.as_ref().map_or("unowned", |desired| desired.wanted.as_str())
}

fn created_at(agent: &Agent) -> Option<Timestamp> {
    let observed = agent.observed.as_ref().map(|report| report.created_at);
    agent.desired.as_ref().map(|desired| desired.created_at).or(observed)
}

/// The figures of a live one are younger than its report, those of an ended one are gone.
fn used_cpu_ms(agent: &Agent) -> u64 {
    let measured = agent.figures.as_ref().map_or(0, |row| row.cpu_ms);
    measured.max(agent.observed.as_ref().map_or(0, |report| report.usage.cpu_ms))
}
