//! What agents take at this moment, for whoever looks: their cgroups' counters, read now, and the sizes of their
//! workspaces as last counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::Answer;
use protocol::top::Measured;

use crate::bus::Replier;
use crate::machine::{Handle, Machine};

/// Figures of one answer.
const PIECE: usize = 1_000;
/// An answer waits so long for sizes that are being counted; those that are not ready come with a later one.
const SIZES_WITHIN: Duration = Duration::from_millis(300);

pub(super) async fn figures(
    machine: &Handle,
    agents: Vec<AgentId>,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let folders: Vec<(AgentId, PathBuf)> =
        agents.iter().map(|agent| (*agent, machine.folders.agent(*agent))).collect();
    let counting = Arc::clone(machine);
    // Goes on by itself after the limit: a walk over files cannot be left, only one goes on at a time, and what it
    // counts is remembered.
    let counted = tokio::task::spawn_blocking(move || counting.sizes.count(&folders, crate::clock::now));
    let _ = tokio::time::timeout(SIZES_WITHIN, counted).await;
    for piece in agents.chunks(PIECE) {
        let (measuring, piece) = (Arc::clone(machine), piece.to_vec());
        let measured = tokio::task::spawn_blocking(move || {
            piece.into_iter().map(|agent| one(&measuring, agent)).collect::<Vec<_>>()
        });
        let measured = measured.await.map_err(|error| {
            WireError::new(ErrorCode::Failed, format!("the figures could not be read: {error}"))
        })?;
        replier.send(&Answer::Figures(measured)).await;
    }
    Ok(Answer::Done)
}

fn one(machine: &Machine, agent: AgentId) -> Measured {
    let group = machine.cgroups.open(&agent.to_string());
    let stats = group.and_then(|group| group.stats()).unwrap_or_default();
    // What a group that nothing is in has left is the kernel's, not the agent's.
    let stats = if stats.pids == Some(0) { Default::default() } else { stats };
    let size = machine.sizes.known(agent);
    Measured {
        agent,
        at_us: monotonic_us(),
        cpu_us: stats.cpu_usec,
        memory_bytes: stats.memory_bytes,
        pids: stats.pids,
        disk_bytes: size.map(|(bytes, _)| bytes),
        disk_as_of: size.map(|(_, as_of)| as_of),
    }
}

/// Stands still while the machine sleeps, as the counters do.
fn monotonic_us() -> u64 {
    let at = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(at.as_micros()).unwrap_or(u64::MAX)
}
