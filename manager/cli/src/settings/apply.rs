//! One change of one or many agents: the yes, the request, the wait, and one outcome each.

use std::time::{Duration, Instant};

use protocol::api::{AgentView, Change as Wanted, Mutation, Outcome, Reachability, Until};
use protocol::error::{ErrorCode, WireError};

use super::super::agent::change::{ask, show};
use super::super::agent::select::{self, Which};
use super::super::agent::view::{end, has_wanted_limits, long_end};
use super::super::agent::wait::{is_met, wait};
use super::super::args::agent::{Change, Targets};
use super::super::client::Client;
use super::super::context::{Context, request_key};
use super::super::error::Failure;

/// A host that is well says within a moment what became of a change.
const APPLY_LIMIT: Duration = Duration::from_secs(15);
/// A start makes a workspace.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Wish {
    pub verb: &'static str,
    /// Of those that a selector finds.
    pub which: Which,
    pub until: Until,
}

pub(super) fn apply(
    context: &Context,
    wish: &Wish,
    agents: &Targets,
    how: &Change,
    change: Wanted,
) -> Result<u8, Failure> {
    let key = request_key(how.key.as_deref())?;
    let (mut client, targets) = select::confirmed(context, wish.verb, agents, wish.which, how.yes)?;
    let mut outcomes = if targets.is_empty() {
        Vec::new()
    } else {
        ask(&mut client, wish.verb, &Mutation::ChangeAgents { key, targets, change })?
    };
    if !how.no_wait {
        settle(&mut client, wish, &mut outcomes)?;
    }
    show(context, wish.verb, outcomes)
}

/// Waits for what was accepted; what did not come into force becomes the outcome's error.
fn settle(client: &mut Client, wish: &Wish, outcomes: &mut [Outcome]) -> Result<(), Failure> {
    let accepted = outcomes.iter().filter(|outcome| outcome.error.is_none());
    let ids: Vec<String> = accepted.filter_map(|o| o.agent).map(|agent| agent.to_string()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let limit = if wish.until == Until::Started { START_LIMIT } else { APPLY_LIMIT };
    let waited = wait(client, ids, wish.until, Some(Instant::now() + limit), false)?;
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.error.is_none()) {
        let Some(id) = outcome.agent else { continue };
        outcome.error = match waited.views.iter().find(|view| view.id == id) {
            Some(view) if is_met(view, wish.until) || is_all_but_refused_limits(wish, view) => None,
            Some(view) => Some(not_in_force(wish.verb, view)),
            None if waited.timed_out => Some(late(client, wish.verb, &id.to_string())),
            // The stream ended without a word of it: it is gone.
            None => Some(WireError::new(ErrorCode::Conflict, "it was destroyed meanwhile")),
        };
    }
    Ok(())
}

/// Limits that were refused before are told until the next change; they are no part of this one.
fn is_all_but_refused_limits(wish: &Wish, view: &AgentView) -> bool {
    wish.until == Until::Applied
        && wish.verb != "limit"
        && has_wanted_limits(view)
        && view.unmet.iter().all(|unmet| unmet.what == "limits")
}

fn not_in_force(verb: &str, view: &AgentView) -> WireError {
    if verb == "start" {
        let why = end(view).map_or_else(|| view.reason.clone(), long_end);
        return WireError::new(ErrorCode::Failed, why).hint(format!("phalanx logs {}", view.id));
    }
    let why: Vec<&str> =
        view.unmet.iter().map(|unmet| unmet.why.as_str()).filter(|why| !why.is_empty()).collect();
    let why = if why.is_empty() { view.phase.as_str().to_owned() } else { why.join("; ") };
    if verb == "limit" && has_wanted_limits(view) {
        return WireError::new(ErrorCode::Conflict, format!("refused, and its limits are as before: {why}"))
            .hint("give another limit");
    }
    WireError::new(ErrorCode::Failed, format!("not in force: {why}"))
        .hint(format!("phalanx show {}", view.id))
}

/// Nothing was heard in time: not done, and not refused.
fn late(client: &mut Client, verb: &str, id: &str) -> WireError {
    let view = select::one(client, id).ok();
    let lost = view.as_ref().is_some_and(|view| view.reachability == Reachability::Lost);
    let why = if lost {
        "its host is not heard; it is told when it is heard again".to_owned()
    } else {
        let open: Vec<String> =
            view.iter().flat_map(|view| &view.unmet).map(|unmet| unmet.what.clone()).collect();
        let open = if open.is_empty() { String::new() } else { format!(" ({})", open.join(", ")) };
        format!("its host has not said that it is in force{open}; its hostd may be older than this phalanx")
    };
    WireError::new(ErrorCode::Unavailable, format!("{verb} is wanted; {why}")).hint("phalanx hosts -o wide")
}
