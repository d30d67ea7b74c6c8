//! The session that people attach to: at once for agents that people made, later for attempts, which may end first.

use std::time::Duration;

use hostd_core::{AgentRecord, Input};
use protocol::agent::Role;
use protocol::report::SessionFacts;

use crate::machine::Machine;
use crate::sys::tmux::SessionSpec;

/// A task that ends sooner needs no session.
const LATER: Duration = Duration::from_secs(2);
/// After a session could not be made or looked at.
const AGAIN: Duration = Duration::from_secs(30);

/// Keeps the session there from when it is due: a server that was killed takes away a view, for as long as it takes to
/// see that. Goes on until it is dropped, when the agent has ended.
pub(super) async fn keep_session(machine: &Machine, record: &AgentRecord) {
    let Ok(tmux) = &machine.tmux else { return };
    if record.spec.role != Role::Own {
        tokio::time::sleep(LATER).await;
    }
    let agent = record.agent;
    let mut lacking = false;
    loop {
        // It may have another name by now.
        let name = machine.folders.record(agent).map_or_else(|_| record.spec.name.clone(), |r| r.spec.name);
        let spec = SessionSpec {
            agent: agent.to_string(),
            label: name.to_string(),
            dir: machine.folders.agent(agent),
        };
        let failed = match tmux.ensure_session(&spec).await {
            Ok(at) => {
                let session = SessionFacts {
                    folder: machine.config.state.join("tmux").display().to_string(),
                    socket: at.socket,
                    session: at.session_id,
                };
                machine.tell(Input::Session { agent, session }).await;
                if std::mem::take(&mut lacking) {
                    machine.tell(Input::Degraded { agent, what: "no-session", degraded: false }).await;
                }
                tmux.server_ended(at.shard).await
            }
            Err(error) => {
                if !std::mem::replace(&mut lacking, true) {
                    machine.tell(Input::Degraded { agent, what: "no-session", degraded: true }).await;
                }
                Err(error)
            }
        };
        if let Err(error) = failed {
            tracing::warn!(%agent, error = protocol::chain(&error), "no session for people; tried again");
            tokio::time::sleep(AGAIN).await;
        }
    }
}
