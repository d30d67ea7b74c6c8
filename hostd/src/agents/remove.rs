//! Takes an ended agent away, all but its transcript and its end, unless it holds the only copy of work; looks at one
//! that is alive, whether it would.

use std::time::Duration;

use hostd_core::{AgentRecord, Input, Removal};
use protocol::order::Discard;

use super::collect::{collect_now, to_report};
use super::create::holds_no_work;
use crate::bus::Shipment;
use crate::machine::{Handle, Machine};
use crate::sys::cgroup::CgroupError;
use crate::workspace::{self, OnlyCopy};

const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Looks and tells what it saw.
pub async fn weigh(machine: Handle, record: AgentRecord) {
    let _permit = machine.ends.acquire().await;
    let folder = machine.folders.agent(record.agent);
    let loss = machine.workspaces.would_lose(&folder, &record.spec.outputs).await;
    let holds = held(loss).unwrap_or_default();
    machine.tell(Input::Weighed { agent: record.agent, holds }).await;
}

/// Removes and tells how it went.
pub async fn remove(machine: Handle, record: AgentRecord, discard: Discard) {
    let _permit = machine.ends.acquire().await;
    let outcome = match remove_now(&machine, &record, discard).await {
        Ok(outcome) => outcome,
        Err(reason) => Removal::Failed { reason },
    };
    machine.tell(Input::Removed { agent: record.agent, outcome }).await;
}

async fn remove_now(machine: &Handle, record: &AgentRecord, discard: Discard) -> Result<Removal, String> {
    let folder = machine.folders.agent(record.agent);
    let (mut collected, mut gone) = (None, Vec::new());
    if discard == Discard::Keep && !holds_no_work(record) {
        match bring_home(machine, record).await {
            (_, Some(holds)) => return Ok(Removal::Refused { holds }),
            (saved, None) => collected = saved.map(|saved| Box::new(to_report(record, &saved))),
        }
        gone = machine.workspaces.not_kept(&folder).await.unwrap_or_else(|error| {
            tracing::warn!(agent = %record.agent, error = protocol::chain(&error), "ignored files are not named");
            Vec::new()
        });
    }
    if let Ok(tmux) = &machine.tmux {
        // A session that is left shows a dead pane; it keeps nothing else.
        if let Err(error) = tmux.kill_session(&record.agent.to_string()).await {
            let error = protocol::chain(&error);
            tracing::warn!(agent = %record.agent, error, "the session of a removed agent may be left");
        }
    }
    end_group(machine, record).await?;
    machine.workspaces.remove(&folder).await.map_err(|error| protocol::chain(&error))?;
    let (handle, agent) = (machine.clone(), record.agent);
    tokio::task::spawn_blocking(move || handle.folders.archive(agent))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| protocol::chain(&error))?;
    let folder = machine.folders.archived(agent);
    machine.shipper.tell(Shipment::Moved { agent, folder }).await;
    Ok(Removal::Done { collected, gone })
}

/// What could be saved elsewhere, and what only this workspace has then. Unknown counts as held.
async fn bring_home(
    machine: &Machine,
    record: &AgentRecord,
) -> (Option<workspace::Collected>, Option<Vec<String>>) {
    let folder = machine.folders.agent(record.agent);
    let (mut saved, mut why) = (None, None);
    if record.spec.checkout.is_some() {
        match collect_now(machine, record).await {
            Ok(collected) => saved = Some(collected),
            Err(error) => why = Some(format!("its work cannot be collected: {}", protocol::chain(&error))),
        }
    }
    let mut holds = held(machine.workspaces.holds_only_copy(&folder, saved.as_ref()).await);
    if let Some(holds) = &mut holds {
        holds.extend(why);
    }
    (saved, holds)
}

fn held(loss: OnlyCopy) -> Option<Vec<String>> {
    match loss {
        OnlyCopy::No => None,
        OnlyCopy::Yes { what } => Some(what),
        OnlyCopy::Unknown(reason) => Some(vec![format!("what it holds cannot be told: {reason}")]),
    }
}

async fn end_group(machine: &Handle, record: &AgentRecord) -> Result<(), String> {
    let (machine, agent) = (machine.clone(), record.agent.to_string());
    let ended = tokio::task::spawn_blocking(move || -> Result<(), CgroupError> {
        let group = match machine.cgroups.open(&agent) {
            Err(error) if error.is_absent() => return Ok(()),
            opened => opened?,
        };
        group.kill(KILL_LIMIT)?;
        group.remove(KILL_LIMIT)
    });
    ended.await.map_err(|error| error.to_string())?.map_err(|error| protocol::chain(&error))
}
