//! What ended agents still have on the machine beside their folders, found while hostd lives: groups that no process is
//! in, sessions that only show what has been, sockets that nobody listens on. Only of this installation: its own groups,
//! its own tmux folder, its own agents' folders. That an agent has ended is read from its record at the moment of the act.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostd_core::AgentRecord;
use protocol::house::{Holding, HouseItem};
use protocol::ids::AgentId;
use protocol::time::Timestamp;

use super::written_at;
use crate::agents::stale_socket;
use crate::machine::{Handle, Machine};
use crate::sys::tmux::ShardState;

/// What could go.
pub(super) async fn find(machine: &Handle, records: &[AgentRecord]) -> Vec<Holding> {
    let mut found = groups(machine).await.unwrap_or_else(|why| {
        tracing::warn!(why, "cgroups of ended agents cannot be looked for");
        Vec::new()
    });
    found.extend(sessions(machine).await);
    found.extend(sockets(machine, records).await);
    for holding in &mut found {
        let agent = match &holding.item {
            HouseItem::Group { agent } | HouseItem::Session { agent } => agent,
            _ => continue,
        };
        if let Some(record) = records.iter().find(|record| record.agent == *agent) {
            holding.label = record.spec.name.to_string();
        }
    }
    found
}

fn holding(item: HouseItem, label: String, since: Timestamp) -> Holding {
    Holding { item, label, bytes: 0, since, kept: None }
}

/// When the agent ended; why nothing of it may go.
fn ended(machine: &Machine, agent: AgentId) -> Result<Timestamp, String> {
    let present = machine.folders.agent(agent);
    if present.exists() {
        // A start is on the disk before anything of it is made.
        let record = machine.folders.record(agent).map_err(|error| protocol::chain(&error))?;
        return record.end.map(|end| end.at).ok_or_else(|| "it is live".to_owned());
    }
    let archived = machine.folders.archived(agent).join("agent.json");
    // Neither: destroyed long ago, and forgotten.
    Ok(if archived.exists() { written_at(&archived) } else { Timestamp(agent.unix_ms()) })
}

async fn groups(machine: &Handle) -> Result<Vec<Holding>, String> {
    let machine = machine.clone();
    let looked = tokio::task::spawn_blocking(move || {
        let names = machine.cgroups.list().map_err(|error| protocol::chain(&error))?;
        let mut found = Vec::new();
        for name in names {
            let Ok(agent) = name.parse::<AgentId>() else { continue };
            let Ok(since) = ended(&machine, agent) else { continue };
            let deserted = machine.cgroups.find(&name).and_then(|group| group.is_deserted());
            if matches!(deserted, Ok(true)) {
                found.push(holding(HouseItem::Group { agent }, name, since));
            }
        }
        Ok(found)
    });
    looked.await.map_err(|error| error.to_string())?
}

/// A server that cannot be asked keeps its sessions.
async fn sessions(machine: &Handle) -> Vec<Holding> {
    let Ok(tmux) = &machine.tmux else { return Vec::new() };
    let servers = match tmux.list().await {
        Ok(servers) => servers,
        Err(error) => {
            tracing::warn!(error = protocol::chain(&error), "sessions of ended agents cannot be looked for");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (_, state) in servers {
        let ShardState::Running(sessions) = state else { continue };
        for session in sessions {
            let Ok(agent) = session.agent.parse::<AgentId>() else { continue };
            if let Ok(since) = ended(machine, agent) {
                found.push(holding(HouseItem::Session { agent }, session.agent, since));
            }
        }
    }
    found
}

async fn sockets(machine: &Handle, records: &[AgentRecord]) -> Vec<Holding> {
    let mut paths: Vec<PathBuf> = Vec::new();
    if let Ok(tmux) = &machine.tmux {
        match tmux.stale_sockets().await {
            Ok(stale) => paths.extend(stale.into_iter().map(|(_, path)| path)),
            Err(error) => {
                tracing::warn!(error = protocol::chain(&error), "sockets of tmux cannot be looked at");
            }
        }
    }
    let there = records.iter().filter(|record| !record.removed && record.end.is_some());
    let folders: Vec<PathBuf> = there.map(|record| machine.folders.agent(record.agent)).collect();
    let looked = tokio::task::spawn_blocking(move || {
        folders.iter().filter_map(|folder| stale_socket(folder)).collect::<Vec<_>>()
    });
    paths.extend(looked.await.unwrap_or_default());
    let of_path = |path: PathBuf| {
        let (since, path) = (written_at(&path), path.display().to_string());
        holding(HouseItem::Socket { path: path.clone() }, path, since)
    };
    paths.into_iter().map(of_path).collect()
}

/// Takes one of them away, after looking again. Gone is done.
pub(super) async fn take(
    machine: &Handle,
    records: &[AgentRecord],
    item: &HouseItem,
    before: Timestamp,
) -> Result<(), String> {
    match item {
        HouseItem::Group { agent } => {
            is_due(machine, *agent, before)?;
            let (machine, agent) = (machine.clone(), agent.to_string());
            let removed = tokio::task::spawn_blocking(move || {
                // One that a process is in is refused by the kernel.
                machine.cgroups.find(&agent)?.remove(Duration::ZERO)
            });
            removed.await.map_err(|error| error.to_string())?.map_err(|error| protocol::chain(&error))
        }
        HouseItem::Session { agent } => {
            is_due(machine, *agent, before)?;
            let tmux = machine.tmux.as_ref().map_err(Clone::clone)?;
            let ended = tmux.end_sessions(&BTreeSet::from([agent.to_string()])).await;
            ended.map(|_| ()).map_err(|error| protocol::chain(&error))
        }
        HouseItem::Socket { path } => socket(machine, records, Path::new(path), before).await,
        _ => Err("it is no leftover".to_owned()),
    }
}

fn is_due(machine: &Machine, agent: AgentId, before: Timestamp) -> Result<(), String> {
    if ended(machine, agent)? > before { Err(super::free::YOUNG.to_owned()) } else { Ok(()) }
}

/// Only one that this installation made and that is found stale now: the request names a path, and proves nothing.
async fn socket(
    machine: &Handle,
    records: &[AgentRecord],
    path: &Path,
    before: Timestamp,
) -> Result<(), String> {
    let name = path.display().to_string();
    let stale = sockets(machine, records).await;
    let Some(found) = stale.iter().find(|holding| holding.label == name) else {
        let there = path.symlink_metadata().is_ok();
        return if there { Err("it is in use, or none of ours".to_owned()) } else { Ok(()) };
    };
    if found.since > before {
        return Err(super::free::YOUNG.to_owned());
    }
    if let Ok(tmux) = &machine.tmux {
        let servers = tmux.stale_sockets().await.map_err(|error| protocol::chain(&error))?;
        if let Some((shard, _)) = servers.iter().find(|(_, socket)| socket == path) {
            return tmux.remove_socket(*shard).await.map_err(|error| protocol::chain(&error));
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
        _ => Ok(()),
    }
}
