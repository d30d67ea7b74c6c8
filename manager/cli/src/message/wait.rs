//! Waits until messages are decided, over a manager that is started anew meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use protocol::api::{Item, MessageUntil, Query, Reply};
use protocol::ids::MessageId;
use protocol::message::MessageView;

use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};

/// A manager that is away is asked again, at least so long after it was asked before.
const AGAIN: Duration = Duration::from_millis(200);

/// What is known of each when all have come to where they are waited for, or the time is up.
pub fn wait(
    context: &Context,
    client: Client,
    messages: &[MessageId],
    until: MessageUntil,
    deadline: Option<Instant>,
) -> Result<BTreeMap<MessageId, MessageView>, Failure> {
    let mut known: BTreeMap<MessageId, MessageView> = BTreeMap::new();
    let mut client = Some(client);
    let is_time = || deadline.is_none_or(|deadline| Instant::now() < deadline);
    while known.len() < messages.len() && is_time() {
        let asked_at = Instant::now();
        let open = messages.iter().filter(|id| !known.contains_key(id)).copied().collect();
        let request = Query::WaitMessages { messages: open, until };
        let mut connection = match client.take() {
            Some(client) => client,
            None => context.client()?,
        };
        let ended = connection.stream(&request, &Limits { deadline, interrupts: None }, |item| {
            if let Item::Message(view) = item {
                known.insert(view.message, *view);
            }
            Ok(Flow::More)
        });
        match ended {
            Ok(StreamEnd::TimedOut) => break,
            Ok(_) => {}
            Err(failure) if failure.exit_code() != exit::UNAVAILABLE => return Err(failure),
            Err(_) => std::thread::park_timeout(AGAIN.saturating_sub(asked_at.elapsed())),
        }
    }
    if known.len() < messages.len() {
        let open = messages.iter().filter(|id| !known.contains_key(id)).copied().collect();
        known.extend(
            look(&mut context.client()?, Vec::new(), open)?.into_iter().map(|view| (view.message, view)),
        );
    }
    Ok(known)
}

/// What is known of these now; all where none is named.
pub fn look(
    client: &mut Client,
    targets: Vec<String>,
    messages: Vec<MessageId>,
) -> Result<Vec<MessageView>, Failure> {
    match client.ask(&Query::ListMessages { targets, messages })? {
        Reply::Messages { messages, .. } => Ok(messages),
        other => Err(unexpected(other)),
    }
}
