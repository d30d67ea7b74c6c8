//! Questions that the core's views answer, from one look at the state: they never wait for the store or a host.

use protocol::api::{AgentFilter, AgentView, HostView, Reachability, Reply, StatusView};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, MessageId, RunId};
use protocol::row::RowFilter;
use protocol::task::RunView;
use protocol::time::Timestamp;

use super::driver::Glance;
use super::hosts::Address;

/// What stays the same for as long as the manager runs.
#[derive(Clone, Debug)]
pub struct ShellFacts {
    pub build: String,
    pub started_at: Timestamp,
}

/// An agent that was looked up.
#[derive(Clone, Debug)]
pub struct Found {
    pub view: AgentView,
    /// Only transcript and end are left of it, or it never existed.
    pub gone: bool,
}

#[must_use]
pub fn status(glance: &Glance<'_>, facts: &ShellFacts, bus_connected: bool) -> StatusView {
    let shell = manager_core::ShellFacts {
        build: facts.build.clone(),
        started_at: facts.started_at,
        unwritten: glance.unwritten,
        bus_connected,
    };
    glance.core.status(glance.now, &shell)
}

#[must_use]
pub fn hosts(glance: &Glance<'_>) -> Vec<HostView> {
    glance.core.hosts(glance.now)
}

/// # Errors
/// When the filter names a run that is not there: an empty list would say that it has no agents.
pub fn list(glance: &Glance<'_>, filter: &AgentFilter) -> Result<Reply, WireError> {
    Ok(Reply::Agents { agents: glance.core.agents(glance.now, filter)?, as_of: glance.now })
}

/// # Errors
/// As [`list`].
pub fn rows(glance: &Glance<'_>, filter: &RowFilter) -> Result<Reply, WireError> {
    Ok(Reply::Rows { rows: glance.core.rows(glance.now, filter)?, as_of: glance.now })
}

/// # Errors
/// When one of them is not found.
pub fn show(glance: &Glance<'_>, targets: &[String]) -> Result<Reply, WireError> {
    let agents = targets.iter().map(|target| {
        let mut view = find(glance, target)?.view;
        view.messages = glance.core.waiting_messages(glance.now, view.id);
        Ok(view)
    });
    Ok(Reply::Agents { agents: agents.collect::<Result<_, WireError>>()?, as_of: glance.now })
}

/// # Errors
/// When an agent or a message is not found.
pub fn messages(glance: &Glance<'_>, targets: &[String], messages: &[MessageId]) -> Result<Reply, WireError> {
    let messages = glance.core.messages(glance.now, targets, messages)?;
    Ok(Reply::Messages { messages, as_of: glance.now })
}

/// # Errors
/// When nothing, or more than one thing, is called so.
pub fn find(glance: &Glance<'_>, target: &str) -> Result<Found, WireError> {
    let id = glance.core.find_agent_of(target)?;
    agent(glance, id)
        .ok_or_else(|| WireError::new(ErrorCode::NotFound, format!("no agent {target:?}")).hint("phalanx ls"))
}

#[must_use]
pub fn agent(glance: &Glance<'_>, id: AgentId) -> Option<Found> {
    let view = glance.core.agent_view(glance.now, id)?;
    Some(Found { view, gone: glance.core.is_gone(id) })
}

#[must_use]
pub fn runs(glance: &Glance<'_>) -> Vec<RunView> {
    glance.core.runs()
}

/// # Errors
/// When nothing, or more than one thing, is called so.
pub fn run(glance: &Glance<'_>, target: &str) -> Result<RunView, WireError> {
    let id = glance.core.find_run(target)?;
    run_by_id(glance, id)
        .ok_or_else(|| WireError::new(ErrorCode::NotFound, format!("no run {target:?}")).hint("phalanx runs"))
}

#[must_use]
pub fn run_by_id(glance: &Glance<'_>, id: RunId) -> Option<RunView> {
    glance.core.run_view(id)
}

/// # Errors
/// As [`run`].
pub fn show_run(glance: &Glance<'_>, target: &str) -> Result<Reply, WireError> {
    let run = run(glance, target)?;
    let tasks = glance.core.tasks(glance.now, run.id);
    Ok(Reply::Run { run: Box::new(run), tasks })
}

/// # Errors
/// When nothing, or more than one thing, is called so.
pub fn task(glance: &Glance<'_>, target: &str) -> Result<Reply, WireError> {
    let id = glance.core.find_task(target)?;
    let view = glance.core.task_view(glance.now, id);
    view.map(|view| Reply::Task(Box::new(view))).ok_or_else(|| {
        WireError::new(ErrorCode::NotFound, format!("no task {target:?}")).hint("phalanx tasks")
    })
}

/// # Errors
/// When nothing, or more than one thing, is called so.
pub fn why(glance: &Glance<'_>, target: &str) -> Result<Reply, WireError> {
    glance.core.why(glance.now, target).map(Reply::Why)
}

#[must_use]
pub fn reachability(glance: &Glance<'_>, host: &HostId) -> Reachability {
    glance.core.reachability(glance.now, host)
}

/// Where a host is, once it was heard of.
#[must_use]
pub fn address(glance: &Glance<'_>, host: &HostId) -> Option<Address> {
    let view = hosts(glance).into_iter().find(|view| view.host == *host)?;
    Some(Address { region: view.region, host: view.host, clock_offset_ms: view.clock_offset_ms })
}

/// A host that can be asked, the freshest there is.
#[must_use]
pub fn any_host(glance: &Glance<'_>) -> Option<HostId> {
    let rank = |view: &HostView| match view.reachability {
        Reachability::Fresh => 0,
        Reachability::Late => 1,
        Reachability::Lost | Reachability::Unknown => 2,
    };
    hosts(glance).into_iter().min_by_key(rank).map(|view| view.host)
}
