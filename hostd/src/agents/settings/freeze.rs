//! Lets all processes of an agent stand still, and go on. The kernel's word is told, not what was asked of it.

use std::time::Duration;

use hostd_core::Input;
use protocol::ids::AgentId;

use crate::machine::Handle;
use crate::sys::cgroup::CgroupError;

/// A process that is in the kernel, on a disk that stands still say, freezes when it comes back.
const LIMIT: Duration = Duration::from_secs(2);

pub async fn freeze(machine: Handle, agent: AgentId) {
    change(machine, agent, true).await;
}

pub async fn thaw(machine: Handle, agent: AgentId) {
    change(machine, agent, false).await;
}

async fn change(machine: Handle, agent: AgentId, wanted: bool) {
    let handle = machine.clone();
    let changed = tokio::task::spawn_blocking(move || -> Result<(bool, Option<CgroupError>), CgroupError> {
        let group = handle.cgroups.open(&agent.to_string())?;
        let failed = if wanted { group.freeze(LIMIT) } else { group.thaw(LIMIT) }.err();
        Ok((group.frozen()?, failed))
    });
    let (frozen, failed) = match changed.await {
        Ok(Ok((frozen, failed))) => (frozen, failed.map(|error| protocol::chain(&error))),
        // What cannot be told is not what was asked for.
        Ok(Err(error)) => (!wanted, Some(protocol::chain(&error))),
        Err(error) => (!wanted, Some(error.to_string())),
    };
    let failed = failed.or_else(|| (frozen != wanted).then(|| "the kernel does not say so".to_owned()));
    if let Some(why) = &failed {
        tracing::warn!(%agent, wanted, why, "an agent could not be frozen or thawed; tried again soon");
    }
    machine.tell(Input::Frozen { agent, frozen, failed }).await;
}
