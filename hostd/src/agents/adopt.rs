//! What a new hostd finds of an agent that an earlier one made: only the folder and the cgroup are asked.
//!
//! In this order: a final exit record → ended, or rebooted where its machine went down; another boot → rebooted; a live
//! shim → alive; a shim proven dead → its processes are ended first, then it is lost. What cannot be told is asked again
//! until it can.

use std::path::Path;
use std::time::Duration;

use hostd_core::{AgentRecord, Found, Input, StartFacts, Wanted};
use protocol::shim::{EndCause, ExitRecord, ShimRecord, file};
use protocol::time::Timestamp;

use super::create::facts_of;
use super::exit::{Believed, believed_exit, exit_seen, read_shim, stats_of};
use super::user::agent_user;
use super::watch::{Watched, empty, lost, process, watch};
use crate::containment::isolation_of;
use crate::machine::Handle;
use crate::state;
use crate::sys::cgroup::AgentGroup;
use crate::workspace::{Workspace, WorkspaceError};

/// Between two looks at what cannot be told.
const AGAIN: Duration = Duration::from_secs(1);
/// What an ended agent left is told of, mounted or not.
const MOUNT_LIMIT: Duration = Duration::from_secs(10);

/// Tells what was found, and watches what is alive to its end.
pub async fn adopt(machine: Handle, record: AgentRecord) {
    let found = loop {
        match look(&machine, &record).await {
            Ok(found) => break found,
            Err(why) => {
                tracing::warn!(agent = %record.agent, why, "what became of an agent cannot be told: unknown");
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    let (found, watched) = found;
    let stays = !matches!(record.wanted, Wanted::Destroyed { .. });
    if stays && watched.is_none() && !matches!(found, Found::NeverStarted) {
        mount_again(&machine, &record).await;
    }
    machine.tell(Input::Found { record: Box::new(record), found }).await;
    if let Some(watched) = watched {
        watch(&machine, *watched).await;
    }
}

/// People reach the workspace of an ended agent by its path; a stop of everything or a reboot took its mount away.
/// Before it is told of: from then on it may be started or removed.
async fn mount_again(machine: &Handle, record: &AgentRecord) {
    let _permit = machine.ends.acquire().await;
    let folder = machine.folders.agent(record.agent);
    let failed = match tokio::time::timeout(MOUNT_LIMIT, machine.workspaces.remount(&folder)).await {
        Ok(Ok(_) | Err(WorkspaceError::NoWorkspace { .. })) => return,
        Ok(Err(error)) => protocol::chain(&error),
        Err(_) => format!("not done within {} s", MOUNT_LIMIT.as_secs()),
    };
    let agent = record.agent;
    tracing::warn!(%agent, why = failed, "the workspace of an ended agent is not mounted; it is when it is needed");
}

type Look = (Found, Option<Box<Watched>>);

async fn look(machine: &Handle, record: &AgentRecord) -> Result<Look, String> {
    let folder = machine.folders.agent(record.agent);
    let shim = read_shim(&folder, record.launch)?;
    let exit = believed_exit(&folder, record, shim.as_ref())?.record;
    let Some(shim) = shim else {
        return match exit {
            // A start that failed has an exit record and nothing else.
            Some(exit) => Ok((Found::Ended { exit: exit_seen(&exit, None), facts: Box::default() }, None)),
            None if is_held(&folder)? => Err("its supervisor is about to begin".to_owned()),
            None => Ok((Found::NeverStarted, None)),
        };
    };
    let other_boot = shim.boot_id != machine.boot_id;
    let mut group = open_group(machine, record).await?;
    group.set_shim(process(shim.shim));
    let facts = Box::new(facts(machine, record, &shim, &group, &folder));
    let stats = stats_of(&group);
    // The machine went down, and asked all processes to end before.
    let by_shutdown = |exit: &ExitRecord| other_boot && exit.cause == EndCause::ShimTerminated;
    if exit.as_ref().is_some_and(by_shutdown) {
        return Ok((Found::Rebooted { facts }, None));
    }
    if let Some(exit) = exit.as_ref().filter(|exit| exit.drained || other_boot) {
        return if other_boot || empty(&group, record.agent).await {
            Ok((Found::Ended { exit: exit_seen(exit, stats.as_ref()), facts }, None))
        } else {
            Err("its program has ended, other processes of it have not".to_owned())
        };
    }
    if other_boot {
        return Ok((Found::Rebooted { facts }, None));
    }
    let process = process(shim.shim);
    if process.is_alive().map_err(|error| error.to_string())? {
        let frozen = group.frozen().map_err(|error| protocol::chain(&error))?;
        let facts = Box::new(StartFacts { frozen, ..*facts });
        let exited = exit.as_ref().map(|exit| exit_seen(exit, stats.as_ref()));
        let watched =
            Watched { record: record.clone(), folder, shim: process, group, exited: exited.is_some() };
        return Ok((Found::Alive { facts, exited }, Some(Box::new(watched))));
    }
    // The shim may have written its last word between the first read and its end.
    let Believed { record: exit, refused } = believed_exit(&folder, record, Some(&shim))?;
    if !empty(&group, record.agent).await {
        return Err("its supervisor is gone and its processes cannot be ended".to_owned());
    }
    Ok(match exit {
        Some(exit) => (Found::Ended { exit: exit_seen(&exit, stats.as_ref()), facts }, None),
        None => (Found::Lost { detail: lost(process, refused), facts }, None),
    })
}

/// Whether a shim has the folder: it takes the lock first and writes its record after.
fn is_held(folder: &Path) -> Result<bool, String> {
    let path = folder.join(file::LOCK);
    state::is_held(&path).map_err(|error| format!("{}: {error}", path.display()))
}

async fn open_group(machine: &Handle, record: &AgentRecord) -> Result<AgentGroup, String> {
    let (machine, agent) = (machine.clone(), record.agent.to_string());
    // Ended and taken away, or another boot: one that is not there counts as an empty one.
    tokio::task::spawn_blocking(move || machine.cgroups.find(&agent))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| protocol::chain(&error))
}

fn facts(
    machine: &Handle,
    record: &AgentRecord,
    shim: &ShimRecord,
    group: &AgentGroup,
    folder: &Path,
) -> StartFacts {
    let started_at = Timestamp(shim.started_at_ms);
    let user = agent_user(record.spec.user.as_deref());
    let manifest = machine.workspaces.manifest(folder);
    let (Ok(user), Ok(Some(manifest))) = (user, manifest) else {
        return StartFacts { started_at, ..StartFacts::default() };
    };
    let workspace = Workspace::found(folder, manifest);
    let isolation = isolation_of(folder);
    StartFacts { started_at, isolation, ..facts_of(machine, &workspace, group, &user, shim.wall_time_ms) }
}
