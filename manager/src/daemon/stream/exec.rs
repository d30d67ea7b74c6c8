//! `exec`: a program beside an agent; its output as items, its end as the reply.

use protocol::agent::Environment;
use protocol::api::{Item, Reachability, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, Question};

use crate::daemon::driver::changes::Interest;
use crate::daemon::hosts::Hosts;
use crate::daemon::queries;
use crate::daemon::server::session::Items;

/// Runs it and hands on what comes. Has no limit of its own, but ends, as unknown, when the host is lost.
///
/// # Errors
/// The host's refusal; `Unavailable` when its end is not known.
pub async fn exec(
    hosts: Hosts,
    target: String,
    program: Vec<String>,
    environment: Environment,
    stdin: Vec<u8>,
    items: Items,
) -> Result<Reply, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let subject = manager_core::Subject::Host(view.host.clone());
    let mut changes = hosts.driver.watch(Interest::Subjects([subject].into())).await?;
    let question = Question::Exec { agent: view.id, program, environment, stdin };
    let mut answers = hosts.ask(&view.host, question, None).await?;
    let unknown = |why: &str| {
        WireError::new(ErrorCode::Unavailable, format!("{why}; whether the program goes on is unknown"))
    };
    loop {
        tokio::select! {
            answer = answers.next() => match answer? {
                // A host may say by it that the program goes on.
                Some(Answer::Output { bytes, .. }) if bytes.is_empty() => {}
                Some(Answer::Output { stream, bytes }) => items.send(&Item::Output { stream, bytes }).await?,
                Some(Answer::Exited { code, signal }) => return Ok(Reply::Exited { code, signal }),
                Some(_) => {}
                None => return Err(unknown("the host ended its answer without an exit code")),
            },
            changed = changes.changed() => {
                let host = view.host.clone();
                let known = hosts.driver.glance(move |glance| queries::reachability(glance, &host)).await?;
                if changed.is_err() || known == Reachability::Lost {
                    return Err(unknown("the host is lost"));
                }
            }
        }
    }
}
