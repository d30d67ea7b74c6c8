//! Waits for messages: one item per message when it is decided, or its program is at its prompt again, or neither can
//! come any more. By level: a message that is decided already is told at once.

use std::collections::{BTreeMap, BTreeSet};

use manager_core::Subject;
use protocol::api::{Item, MessageUntil, Reply};
use protocol::error::WireError;
use protocol::ids::MessageId;
use protocol::message::{MessageState, MessageView};

use crate::driver::changes::Interest;
use crate::driver::{Driver, Glance};
use crate::server::session::Items;
use crate::stopping;

/// # Errors
/// When one of them is not known; nothing is waited for then.
pub async fn wait(
    driver: Driver,
    messages: Vec<MessageId>,
    until: MessageUntil,
    items: Items,
) -> Result<Reply, WireError> {
    let ids = messages.clone();
    let found = driver.glance(move |glance| glance.core.messages(glance.now, &[], &ids)).await??;
    let mut open: BTreeMap<MessageId, MessageView> = found
        .into_iter()
        .filter(|view| messages.contains(&view.message))
        .map(|view| (view.message, view))
        .collect();
    let agents: BTreeSet<Subject> = open.values().map(|view| Subject::Agent(view.agent)).collect();
    let mut changes = driver.watch(Interest::Subjects(agents)).await?;
    while !open.is_empty() {
        changes.mark_unchanged();
        let ids: Vec<MessageId> = open.keys().copied().collect();
        let looked = driver.glance(move |glance| look(glance, &ids, until)).await?;
        for (id, view, is_settled) in looked {
            if is_settled {
                open.remove(&id);
                items.send(&Item::Message(Box::new(view))).await?;
            }
        }
        if open.is_empty() {
            break;
        }
        changes.changed().await.map_err(|_| stopping())?;
    }
    Ok(Reply::Done)
}

fn look(glance: &Glance<'_>, ids: &[MessageId], until: MessageUntil) -> Vec<(MessageId, MessageView, bool)> {
    let views = ids.iter().filter_map(|id| Some((*id, glance.core.message(glance.now, *id)?)));
    views
        .map(|(id, view)| {
            let settled = match until {
                MessageUntil::Decided => view.state.is_final(),
                MessageUntil::TurnDone => {
                    view.turn_done_at.is_some()
                        || (view.state.is_final() && view.state != MessageState::Delivered)
                        || glance.core.is_over(view.agent)
                }
            };
            (id, view, settled)
        })
        .collect()
}
