//! The lease of an agent that may be moved: asked of the manager, enforced by the shim on the boot clock.

use hostd_core::Input;
use protocol::ids::{AgentId, Generation};
use protocol::shim::Request;
use protocol::time::Timestamp;

use super::super::shim_link::ShimLink;
use crate::clock;
use crate::machine::Machine;
use crate::sys::facts::boottime_ms;

/// Asks for a longer lease. No answer leaves the deadline where it is: the shim ends the agent then.
pub async fn ask_lease(machine: &Machine, agent: AgentId, generation: Generation) {
    let asked_at = clock::now();
    match machine.requests.lease(agent, generation).await {
        Ok(length_ms) => machine.tell(Input::Lease { agent, generation, asked_at, length_ms }).await,
        Err(error) => {
            tracing::warn!(%agent, error = protocol::chain(&error), "the lease was not renewed");
        }
    }
}

/// Moves the shim's deadline to the wall-clock time `until`.
pub async fn set_lease(machine: &Machine, agent: AgentId, until: Timestamp) {
    let Some(boottime) = boottime_ms() else { return };
    let deadline_boottime_ms = boottime.saturating_add(until.ms_since(clock::now()));
    let folder = machine.folders.agent(agent);
    let renewed =
        async { ShimLink::open(&folder).await?.ask(&Request::RenewLease { deadline_boottime_ms }).await };
    if let Err(error) = renewed.await {
        let error = protocol::chain(&error);
        tracing::warn!(%agent, error, "the shim did not take the longer lease");
    }
}
