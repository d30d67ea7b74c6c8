//! Changes the limits of a running agent: all of them, or none. What is told afterwards is read back.
//!
//! Memory that the agent holds cannot be taken from it: such a limit is refused, since the kernel would end the agent
//! for it. Time is enforced by the shim, all else by the kernel.

use hostd_core::{AgentRecord, Input, LimitsRead};
use protocol::agent::ResourceLimits;
use protocol::shim::Request;

use super::super::exit::read_shim;
use super::super::shim_link::ShimLink;
use crate::machine::{Handle, Machine};
use crate::sys::cgroup::{AgentGroup, Limits};
use crate::sys::facts::boottime_ms;

/// The limits of a record's spec come into force, or those before stay.
pub async fn set_limits(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let wanted = record.spec.limits;
    let before = record.limits.unwrap_or(wanted);
    let refused = change(&machine, &record, &before, &wanted).await.err();
    let in_force = if refused.is_some() { before } else { wanted };
    let handle = machine.clone();
    let read = tokio::task::spawn_blocking(move || {
        let group = handle.cgroups.open(&agent.to_string()).ok()?;
        Some(limits_read(&handle, &group, in_force.time_ms))
    });
    let read = read.await.ok().flatten().unwrap_or_default();
    if let Some(why) = &refused {
        tracing::warn!(%agent, why, "limits were refused");
    }
    machine.tell(Input::LimitsSet { agent, limits: wanted, read, refused }).await;
}

async fn change(
    machine: &Handle,
    record: &AgentRecord,
    before: &ResourceLimits,
    wanted: &ResourceLimits,
) -> Result<(), String> {
    let new_time = (before.time_ms != wanted.time_ms).then_some(wanted.time_ms);
    if let Some(Some(time_ms)) = new_time {
        check_time(machine, record, time_ms)?;
    }
    enforce(machine, record, *before, *wanted).await?;
    let Some(wall_time_ms) = new_time else { return Ok(()) };
    let folder = machine.folders.agent(record.agent);
    let set = async { ShimLink::open(&folder).await?.ask(&Request::SetWallTime { wall_time_ms }).await };
    if let Err(error) = set.await {
        // All or none: what the kernel took is taken back.
        enforce(machine, record, *wanted, *before).await?;
        return Err(format!("the time limit: {}", protocol::chain(&error)));
    }
    Ok(())
}

/// Time counts from the start of the program: a limit that is over already would end it at once.
fn check_time(machine: &Machine, record: &AgentRecord, time_ms: u64) -> Result<(), String> {
    let shim = read_shim(&machine.folders.agent(record.agent), record.launch)?;
    let (Some(shim), Some(now)) = (shim, boottime_ms()) else {
        return Err("how long it has run cannot be told".to_owned());
    };
    let ran_ms = now.saturating_sub(shim.started_boottime_ms);
    if ran_ms >= time_ms {
        return Err(format!(
            "it has run for {} s, longer than a time limit of {} s; the limit counts from its start",
            ran_ms / 1000,
            time_ms.div_ceil(1000)
        ));
    }
    Ok(())
}

async fn enforce(
    machine: &Handle,
    record: &AgentRecord,
    before: ResourceLimits,
    wanted: ResourceLimits,
) -> Result<(), String> {
    if limits_of(&before) == limits_of(&wanted) {
        return Ok(());
    }
    let (machine, agent) = (machine.clone(), record.agent.to_string());
    let enforced = tokio::task::spawn_blocking(move || -> Result<(), String> {
        let mut group = machine.cgroups.open(&agent).map_err(|error| protocol::chain(&error))?;
        check_memory(&group, &before, &wanted)?;
        check_pids(&group, &before, &wanted)?;
        group.set_limits(&limits_of(&wanted));
        let changed = |limit: &str| match limit {
            "memory" | "swap" => before.memory_bytes != wanted.memory_bytes,
            "cpu" => before.cpu_millis != wanted.cpu_millis,
            _ => before.pids != wanted.pids,
        };
        let lacks: Vec<String> = group
            .lacking
            .iter()
            .filter(|lack| changed(lack.limit))
            .map(|lack| format!("{} limit not enforced: {}", lack.limit, lack.reason))
            .collect();
        if lacks.is_empty() {
            return Ok(());
        }
        group.set_limits(&limits_of(&before));
        Err(lacks.join("; "))
    });
    enforced.await.map_err(|error| error.to_string())?
}

fn check_memory(group: &AgentGroup, before: &ResourceLimits, wanted: &ResourceLimits) -> Result<(), String> {
    let Some(limit) = wanted.memory_bytes.filter(|_| wanted.memory_bytes != before.memory_bytes) else {
        return Ok(());
    };
    // What cannot be read is the kernel's to refuse.
    match group.held_memory() {
        Ok(Some(held)) if held > limit => Err(format!(
            "it holds {} MiB of memory, more than a limit of {} MiB: the kernel would end it",
            held.div_ceil(1 << 20),
            limit >> 20
        )),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The kernel would end none of them, and start no other one.
fn check_pids(group: &AgentGroup, before: &ResourceLimits, wanted: &ResourceLimits) -> Result<(), String> {
    let Some(limit) = wanted.pids.filter(|_| wanted.pids != before.pids) else { return Ok(()) };
    match group.stats().ok().and_then(|stats| stats.pids) {
        Some(held) if held > limit => Err(format!(
            "it has {held} processes and threads, more than a limit of {limit}: it could start no other one"
        )),
        Some(_) | None => Ok(()),
    }
}

/// The part of an agent's limits that the kernel enforces.
#[must_use]
pub(in super::super) fn limits_of(limits: &ResourceLimits) -> Limits {
    Limits {
        memory_bytes: limits.memory_bytes,
        cpu_millis: limits.cpu_millis.map(|value| u32::try_from(value).unwrap_or(u32::MAX)),
        pids: limits.pids.map(|value| u32::try_from(value).unwrap_or(u32::MAX)),
    }
}

/// What is in force and what is lacking, in the words of reports.
#[must_use]
pub(in super::super) fn limits_read(
    machine: &Machine,
    group: &AgentGroup,
    time_ms: Option<u64>,
) -> LimitsRead {
    let mut enforced = Vec::new();
    if let Some(bytes) = group.enforced.memory_bytes {
        enforced.push(format!("memory {bytes} B"));
    }
    if let Some(millis) = group.enforced.cpu_millis {
        enforced.push(format!("cpu {}.{:03} cores", millis / 1000, millis % 1000));
    }
    if let Some(pids) = group.enforced.pids {
        enforced.push(format!("pids {pids}"));
    }
    if let Some(time_ms) = time_ms {
        enforced.push(format!("time {time_ms} ms"));
    }
    let mut degraded: Vec<String> = group
        .lacking
        .iter()
        .map(|lack| format!("{} limit not enforced: {}", lack.limit, lack.reason))
        .collect();
    if group.agent_procs.is_empty() {
        degraded.push("no-cgroup".to_owned());
    }
    if machine.tmux.is_err() {
        degraded.push("no-session".to_owned());
    }
    LimitsRead { enforced, degraded }
}
