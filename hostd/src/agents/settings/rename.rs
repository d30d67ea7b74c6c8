//! Shows an agent's new name in the session that people look at. All else knows the agent by its id.

use hostd_core::AgentRecord;

use crate::machine::Handle;

pub async fn rename(machine: Handle, record: AgentRecord) {
    let Ok(tmux) = &machine.tmux else { return };
    let (agent, label) = (record.agent, record.spec.name.to_string());
    // A session that is made later takes the name from the record.
    if let Err(error) = tmux.rename(&agent.to_string(), &label).await {
        tracing::warn!(%agent, error = protocol::chain(&error), "the session of a renamed agent shows its old name");
    }
}
