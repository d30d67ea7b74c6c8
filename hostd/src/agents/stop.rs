//! Asks an agent to end, and makes it.

use std::time::Duration;

use hostd_core::AgentRecord;
use nix::sys::signal::Signal;
use protocol::shim::Request;

use super::shim_link::ShimLink;
use crate::machine::Handle;
use crate::sys::process::kill_below;

/// Until the kernel says that nothing is left; the core asks again later.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// SIGTERM to the program's process group; to every process where the shim cannot be reached.
pub async fn terminate(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let folder = machine.folders.agent(agent);
    let asked = async {
        ShimLink::open(&folder).await?.ask(&Request::Signal { signo: Signal::SIGTERM as i32 }).await
    };
    let Err(error) = asked.await else { return };
    tracing::warn!(%agent, error = protocol::chain(&error), "the shim did not pass the signal on: sent to each process");
    blocking(machine, &record, |group| group.signal_all(Signal::SIGTERM).map(|_| ())).await;
}

/// Ends every process of the agent, frozen ones too: its group's, and those below its shim that went to another group,
/// as root may.
pub async fn kill(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let shim = super::exit::read_shim(&machine.folders.agent(agent), record.launch).ok().flatten();
    blocking(machine, &record, |group| group.kill(KILL_LIMIT)).await;
    let Some(shim) = shim.map(|record| super::watch::process(record.shim)) else { return };
    match tokio::task::spawn_blocking(move || kill_below(shim, KILL_LIMIT)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => tracing::warn!(%agent, "processes of an agent outlive their kill; tried again soon"),
        Ok(Err(error)) => {
            tracing::warn!(%agent, %error, "what is below a shim could not be ended; tried again soon");
        }
        Err(error) => tracing::error!(%agent, %error, "ending an agent broke off"),
    }
}

async fn blocking(
    machine: Handle,
    record: &AgentRecord,
    act: impl FnOnce(&crate::sys::cgroup::AgentGroup) -> Result<(), crate::sys::cgroup::CgroupError>
    + Send
    + 'static,
) {
    let (agent, launch) = (record.agent, record.launch);
    let acted = tokio::task::spawn_blocking(move || {
        let mut group = machine.cgroups.open(&agent.to_string())?;
        if let Ok(Some(record)) = super::exit::read_shim(&machine.folders.agent(agent), launch) {
            group.set_shim(super::watch::process(record.shim));
        }
        act(&group)
    });
    match acted.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_absent() => {}
        Ok(Err(error)) => {
            let error = protocol::chain(&error);
            tracing::warn!(%agent, error, "an agent could not be ended; tried again soon");
        }
        Err(error) => tracing::error!(%agent, %error, "ending an agent broke off"),
    }
}
