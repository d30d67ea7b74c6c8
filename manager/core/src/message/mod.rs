//! The outbox: texts to agents, each durable before its sender is answered, sent to its host until a report shows what
//! became of it, and kept for a while after.
//!
//! ```text
//!  accepted ──> queued ──its turn: a number──> sent, again and again ──report──> delivered, not delivered, unknown
//!                 │                                   └──a recall──report──> cancelled, or one of those
//!                 ├──cancelled before it had a number──> cancelled
//!                 └──a report shows that the agent has ended──> not delivered
//! ```
//! An agent's messages go out one at a time in the order in which they were accepted, so that lost and doubled orders
//! cannot change it. What clients ask for is in `wish`, what follows from reports in `deliver`.

mod deliver;
mod wish;

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{AgentId, Incarnation, MessageId, RequestKey};
use protocol::message::MessageState;
use protocol::time::Timestamp;

use crate::record::MessageRecord;

/// The order of a message that was sent last, and when it goes out again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sending {
    message: MessageId,
    is_recall: bool,
    incarnation: Incarnation,
    wait_ms: u64,
    again_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Messages {
    all: BTreeMap<MessageId, MessageRecord>,
    /// Those that are not decided, of each agent, in their order.
    open: BTreeMap<AgentId, BTreeSet<(u64, MessageId)>>,
    /// By the request that made them and the place of their target in it.
    by_origin: BTreeMap<(RequestKey, u32), MessageId>,
    decided: BTreeSet<(Timestamp, MessageId)>,
    sending: BTreeMap<AgentId, Sending>,
    last_place: u64,
    open_bytes: u64,
    open_count: usize,
}

impl Messages {
    pub(crate) fn get(&self, id: MessageId) -> Option<&MessageRecord> {
        self.all.get(&id)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &MessageRecord> {
        self.all.values()
    }

    pub(crate) fn insert(&mut self, record: MessageRecord) {
        self.last_place = self.last_place.max(record.place);
        if let Some(origin) = &record.origin {
            self.by_origin.insert((origin.key.clone(), record.target), record.id);
        }
        if record.state.is_final() {
            self.decided.insert((record.decided_at.unwrap_or_default(), record.id));
        } else {
            self.open.entry(record.agent).or_default().insert((record.place, record.id));
            self.open_bytes = self.open_bytes.saturating_add(record.bytes);
            self.open_count += 1;
        }
        self.all.insert(record.id, record);
    }

    /// The undecided ones of an agent, in the order in which they are delivered.
    pub(crate) fn open_of(&self, agent: AgentId) -> impl Iterator<Item = &MessageRecord> {
        self.open.get(&agent).into_iter().flatten().filter_map(|(_, id)| self.all.get(id))
    }

    pub(crate) fn agents_with_open(&self) -> impl Iterator<Item = AgentId> {
        self.open.keys().copied()
    }

    /// Its text is needed no more.
    fn decide(&mut self, id: MessageId, state: MessageState, reason: &str, at: Timestamp) {
        let Some(record) = self.all.get_mut(&id).filter(|record| !record.state.is_final()) else { return };
        record.state = state;
        reason.clone_into(&mut record.reason);
        record.decided_at = Some(at);
        record.typing = None;
        self.open_bytes = self.open_bytes.saturating_sub(record.bytes);
        self.open_count = self.open_count.saturating_sub(1);
        self.decided.insert((at, id));
        if let Some(open) = self.open.get_mut(&record.agent) {
            open.remove(&(record.place, id));
            if open.is_empty() {
                self.open.remove(&record.agent);
            }
        }
    }

    /// Each goes to its host once more, under its number: what was sent may not have been taken.
    pub(crate) fn send_again(&mut self) {
        self.sending.clear();
    }

    fn change(&mut self, id: MessageId, change: impl FnOnce(&mut MessageRecord)) {
        if let Some(record) = self.all.get_mut(&id) {
            change(record);
        }
    }

    fn remove(&mut self, at: Timestamp, id: MessageId) {
        self.decided.remove(&(at, id));
        if let Some(origin) =
            self.all.remove(&id).and_then(|record| Some((record.origin?.key, record.target)))
        {
            self.by_origin.remove(&origin);
        }
    }
}
