//! Which agents a command means, and the question before it changes many.

use std::collections::BTreeMap;
use std::io::BufRead;

use protocol::agent::Role;
use protocol::api::{AgentView, Query, Reply};
use protocol::error::ErrorCode;
use protocol::row::{AgentRow, RowFilter};

use super::super::args::agent::Targets;
use super::super::client::Client;
use super::super::context::{Context, unexpected};
use super::super::error::Failure;
use super::super::output::pipe::{can_ask, say_bytes};
use super::super::output::sanitise::safe_line;

/// The agents that a filter finds.
pub fn filtered(client: &mut Client, filter: RowFilter) -> Result<Vec<AgentRow>, Failure> {
    match client.ask(&Query::ListRows(filter))? {
        Reply::Rows { rows, .. } => Ok(rows),
        other => Err(unexpected(other)),
    }
}

/// Of the agents that a selector finds, those that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Live,
    Ended,
    /// Live ones, and those of persons that have ended: what `ls` shows.
    Current,
    /// All but the destroyed, ended attempts too.
    Present,
}

impl Which {
    fn takes(self, agent: &AgentRow) -> bool {
        let is_own = agent.role == Role::Own;
        !agent.gone
            && match self {
                Self::Live => !agent.is_ended(),
                Self::Ended => agent.is_ended() && is_own,
                Self::Current => !agent.is_ended() || is_own,
                Self::Present => true,
            }
    }
}

/// Targets as they were written, or the ids of those that a selector finds.
pub fn targets(client: &mut Client, wanted: &Targets, which: Which) -> Result<Vec<String>, Failure> {
    if wanted.labels.is_empty() {
        if wanted.targets.is_empty() {
            return Err(Failure::usage("no agent is named").hint("give NAMEs, or -l key=value"));
        }
        if wanted.targets.iter().any(|target| target.trim().is_empty()) {
            return Err(Failure::usage("an agent's name is empty; nothing was done")
                .hint("is a variable of your script unset?"));
        }
        let mut unique: Vec<String> = Vec::new();
        for target in &wanted.targets {
            if !unique.contains(target) {
                unique.push(target.clone());
            }
        }
        return Ok(unique);
    }
    if !wanted.targets.is_empty() {
        return Err(Failure::usage("names and -l are given; use one of them"));
    }
    let labels: BTreeMap<String, String> = wanted.labels.iter().cloned().collect();
    let found = filtered(client, RowFilter { all: true, labels, ..RowFilter::default() })?;
    Ok(found.iter().filter(|agent| which.takes(agent)).map(|agent| agent.id.to_string()).collect())
}

/// The targets of a change, once a person has said yes where that is needed, and a connection to ask for it.
pub fn confirmed(
    context: &Context,
    verb: &str,
    wanted: &Targets,
    which: Which,
    yes: bool,
) -> Result<(Client, Vec<String>), Failure> {
    let selected = !wanted.labels.is_empty();
    if !selected {
        confirm(verb, wanted.targets.len(), false, yes)?;
    }
    let mut client = context.client()?;
    let targets = targets(&mut client, wanted, which)?;
    if selected {
        confirm(verb, targets.len(), true, yes)?;
    }
    Ok((client, targets))
}

/// One agent.
pub fn one(client: &mut Client, target: &str) -> Result<AgentView, Failure> {
    match client.ask(&Query::ShowAgents { targets: vec![target.to_owned()] })? {
        Reply::Agents { mut agents, .. } if agents.len() == 1 => agents.pop().ok_or_else(|| missing(target)),
        Reply::Agents { .. } => Err(missing(target)),
        other => Err(unexpected(other)),
    }
}

pub fn missing(target: &str) -> Failure {
    Failure::new(ErrorCode::NotFound, format!("there is no agent {target:?}")).hint("phalanx ls -a")
}

/// A change of agents that were selected, or of several, needs a yes. Off a terminal that is `--yes`.
fn confirm(verb: &str, count: usize, selected: bool, yes: bool) -> Result<(), Failure> {
    if yes || count == 0 || (count == 1 && !selected) {
        return Ok(());
    }
    if !can_ask() {
        // Names that were written out one by one are meant; a selector may find more than was thought.
        let what = match (selected, count) {
            (true, 1) => "agent that a selector finds",
            (true, _) => "agents that a selector finds",
            (false, _) => "agents",
        };
        let message = format!("{verb} of {count} {what} needs a yes");
        return Err(Failure::usage(message).hint("add --yes"));
    }
    let agents = if count == 1 { "agent" } else { "agents" };
    say_bytes(safe_line(&format!("{verb} {count} {agents}? Type yes to go on: ")).as_bytes());
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && answer.trim() == "yes" {
        return Ok(());
    }
    Err(Failure::new(ErrorCode::Denied, format!("{verb} was not confirmed; nothing was done")))
}
