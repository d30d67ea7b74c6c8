//! `capture`: the screen of one agent, rendered by its host.

use protocol::api::{AgentScreen, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, Question};

use crate::hosts::{GIT, Hosts};
use crate::queries;

/// # Errors
/// When nothing is called so, or its host cannot be asked: there is no screen to show then, not an empty one.
pub async fn capture(hosts: Hosts, target: String, history: u32, colours: bool) -> Result<Reply, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let question = Question::Screen { agent: view.id, history, colours };
    match hosts.ask_once(&view.host, question, GIT).await? {
        Answer::Screen(screen) => Ok(Reply::Screen(Box::new(AgentScreen {
            agent: view.id,
            name: view.name,
            host: view.host,
            phase: view.phase,
            screen: *screen,
        }))),
        _ => Err(WireError::new(ErrorCode::Failed, "the host gave another answer than a screen")),
    }
}
