//! When everything is stopped on purpose, nothing stays on the machine that only ended agents have: mounts of their
//! workspaces, their sessions, sockets, groups.
//!
//! While hostd lives, those workspaces stay mounted, since people look at them and go on in them by their paths; the next
//! hostd mounts them again. What a process still uses stays, and so does all of an agent that lives or whose end is not
//! known. Nothing here touches a file of an agent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use protocol::host_config::STOPPED_MARKER;
use protocol::ids::AgentId;

use crate::agents::stale_socket;
use crate::machine::{Handle, Machine};
use crate::sys::cgroup::{CgroupError, Cgroups};
use crate::workspace::WorkspaceError;

/// All of it; `down` waits longer for hostd than this.
const LIMIT: Duration = Duration::from_secs(20);
/// Workspaces that are unmounted at once: each writes out what is not on the disk yet.
const UNMOUNTS_AT_ONCE: usize = 8;
/// Until a server that was told to end is out of its group.
const VIEWERS_LIMIT: Duration = Duration::from_secs(2);

/// Whether anyone lives, or may live, beside the ended agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    Live,
    None,
}

/// Takes away what these agents, whose end is proven, have on the machine, if the operator wants everything stopped and
/// hostd is not merely started anew. What cannot be taken is told in the log.
pub async fn leave(machine: &Handle, ended: Vec<AgentId>, others: Others) {
    let all_stops = machine.config.run.join(STOPPED_MARKER).exists();
    let all = async {
        // With the last agent goes the last thing to look at, in any case.
        if all_stops || others == Others::None {
            views(machine, &ended, others).await;
        }
        if all_stops {
            sockets(machine, &ended).await;
            unmount(machine, &ended).await;
            groups(machine, ended, others).await;
        }
    };
    if tokio::time::timeout(LIMIT, all).await.is_err() {
        let limit = LIMIT.as_secs();
        tracing::warn!(limit, "not all that ended agents have on the machine could be taken away in time");
    }
}

async fn views(machine: &Machine, ended: &[AgentId], others: Others) {
    let Ok(tmux) = &machine.tmux else { return };
    let swept = async {
        match others {
            // What is not known to have ended is looked at on.
            Others::Live => {
                let names: BTreeSet<String> = ended.iter().map(ToString::to_string).collect();
                tmux.end_sessions(&names).await?;
                tmux.end_empty_servers().await?;
            }
            Others::None => tmux.stop_servers().await?,
        }
        for (shard, _) in tmux.stale_sockets().await? {
            tmux.remove_socket(shard).await?;
        }
        Ok::<_, crate::sys::tmux::TmuxError>(())
    };
    if let Err(error) = swept.await {
        tracing::warn!(error = protocol::chain(&error), "sessions of ended agents may be left");
    }
}

/// Of shims that were killed.
async fn sockets(machine: &Machine, ended: &[AgentId]) {
    let folders: Vec<PathBuf> = ended.iter().map(|agent| machine.folders.agent(*agent)).collect();
    let removed = tokio::task::spawn_blocking(move || {
        let stale = folders.iter().filter_map(|folder| stale_socket(folder));
        let failed: Vec<_> = stale.filter_map(|socket| std::fs::remove_file(socket).err()).collect();
        failed.into_iter().next().map_or(Ok(()), Err)
    });
    match removed.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the socket of a killed shim is left"),
        Err(error) => tracing::warn!(%error, "sockets of killed shims may be left"),
    }
}

async fn unmount(machine: &Handle, ended: &[AgentId]) {
    let unmounts = ended.iter().map(|agent| {
        let (machine, agent) = (machine.clone(), *agent);
        async move { (agent, unmount_one(&machine, &machine.folders.agent(agent)).await) }
    });
    let mut unmounts = std::pin::pin!(stream::iter(unmounts).buffer_unordered(UNMOUNTS_AT_ONCE));
    while let Some((agent, done)) = unmounts.next().await {
        match done {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(%agent, "the workspace of an ended agent stays mounted: a process uses it");
            }
            Err(error) => {
                let error = protocol::chain(&error);
                tracing::warn!(%agent, error, "the workspace of an ended agent stays mounted");
            }
        }
    }
}

async fn unmount_one(machine: &Machine, folder: &Path) -> Result<bool, WorkspaceError> {
    if machine.workspaces.facts().overlay.is_err() {
        return Ok(true);
    }
    machine.workspaces.unmount(folder).await
}

async fn groups(machine: &Machine, ended: Vec<AgentId>, others: Others) {
    let cgroups = machine.cgroups.clone();
    let removed = tokio::task::spawn_blocking(move || remove_groups(&cgroups, &ended, others)).await;
    match removed {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(error = protocol::chain(&error), "cgroups of ended agents may be left");
        }
        Err(error) => tracing::warn!(%error, "cgroups of ended agents may be left"),
    }
}

fn remove_groups(cgroups: &Cgroups, ended: &[AgentId], others: Others) -> Result<(), CgroupError> {
    let theirs: BTreeSet<String> = ended.iter().map(ToString::to_string).collect();
    let mut failed = None;
    for agent in cgroups.list()?.into_iter().filter(|agent| theirs.contains(agent)) {
        // One that a process is in is refused by the kernel, and keeps none of the others.
        let removed = cgroups.find(&agent).and_then(|group| group.remove(Duration::ZERO));
        failed = failed.or(removed.err());
    }
    if others == Others::None {
        failed = failed.or(cgroups.remove_instance(VIEWERS_LIMIT).err());
    }
    failed.map_or(Ok(()), Err)
}
