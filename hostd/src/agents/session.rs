//! The session that people attach to: at once for agents that people made, later for attempts, which may end first.

use std::time::Duration;

use hostd_core::{AgentRecord, Input};
use protocol::agent::Role;
use protocol::report::SessionFacts;

use crate::machine::Machine;
use crate::sys::tmux::SessionSpec;

/// A task that ends sooner needs no session.
const LATER: Duration = Duration::from_secs(2);

/// Makes the session when it is due. Cancelled when the agent ends first.
pub(super) async fn ensure_session(machine: &Machine, record: &AgentRecord) {
    let Ok(tmux) = &machine.tmux else { return };
    if record.spec.role != Role::Own {
        tokio::time::sleep(LATER).await;
    }
    let spec = SessionSpec {
        agent: record.agent.to_string(),
        label: record.spec.name.to_string(),
        dir: machine.folders.agent(record.agent),
    };
    match tmux.ensure_session(&spec).await {
        Ok(at) => {
            let session = SessionFacts {
                folder: machine.config.state.join("tmux").display().to_string(),
                socket: at.socket,
                session: at.session_id,
            };
            machine.tell(Input::Session { agent: record.agent, session }).await;
        }
        Err(error) => {
            let error = crate::chain(&error);
            tracing::warn!(agent = %record.agent, error, "no session for people could be made");
            machine.tell(Input::Degraded { agent: record.agent, what: "no-session", degraded: true }).await;
        }
    }
}
