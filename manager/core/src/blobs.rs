//! Which blobs are named, by what the manager knows and by the bytes of any record, and which of those that lie on the
//! bus may go. A blob has no owner: it is there for as long as something names it. Bringing, keeping and taking away are
//! the shell's.

use std::collections::BTreeSet;

use protocol::agent::{AgentSpec, Blob};
use protocol::house::Holding;
use protocol::ids::AgentId;
use protocol::time::Timestamp;

use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{Feedback, Wanted, desired_key};

/// Length of the name of a blob, lower-case hex digits.
const NAME_LENGTH: usize = 64;

/// Why something stays that a look found.
const FRESH: &str = "it was brought just now, and what it is for may follow";
const UNREAD: &str = "a record names it that the manager has not read, or that is about to go";

impl Core {
    /// Every blob that a task or an agent may still need.
    #[must_use]
    pub fn named_blobs(&self) -> BTreeSet<String> {
        let mut named = BTreeSet::new();
        let mut name = |blob: Option<&Blob>| {
            if let Some(blob) = blob {
                named.insert(blob.sha256.clone());
            }
        };
        for task in self.work.tasks() {
            let record = &task.record;
            name(record.spec.prompt.as_ref());
            name(record.inputs.as_ref());
            match &record.feedback {
                Feedback::Kept { blob } => name(Some(blob)),
                Feedback::None | Feedback::Wanted { .. } => {}
            }
        }
        for (id, agent) in self.fleet.agents() {
            if let Some(spec) = agent.spec().filter(|_| !self.is_spent(id)) {
                let AgentSpec { prompt, feedback, inputs, .. } = spec;
                [prompt, feedback, inputs].into_iter().for_each(|blob| name(blob.as_ref()));
            }
        }
        named
    }

    /// Keys of the records of agents that were destroyed. They are kept for as long as the host keeps what they left,
    /// and name what nobody reads any more.
    #[must_use]
    pub fn spent_records(&self) -> BTreeSet<String> {
        self.fleet.agents().filter(|(id, _)| self.is_spent(*id)).map(|(id, _)| desired_key(id)).collect()
    }

    /// Seen to be gone, and never to be started again.
    fn is_spent(&self, id: AgentId) -> bool {
        let is_wanted = self.fleet.desired(id).is_some_and(|desired| desired.wanted != Wanted::Destroyed);
        !is_wanted && self.fleet.standing(id) == Standing::Gone
    }
}

/// Everything in these bytes that may be the name of a blob. Fields that a later build added and records that cannot be
/// read name what they name as well; what only looks like a name does no harm.
pub fn names_in(bytes: &[u8]) -> impl Iterator<Item = String> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let texts = bytes.split(move |byte| !is_digit(byte)).filter(|text| text.len() >= NAME_LENGTH);
    texts.flat_map(|text| text.windows(NAME_LENGTH)).map(|name| String::from_utf8_lossy(name).into_owned())
}

/// What of all that lies on the bus nothing names, and why some of it stays all the same. `known` is what the core
/// names, `stored` what the bytes of all stored records that are not spent do: one may be ahead of the other. `since` is
/// when a thing was brought, or asked for again by one who then need not bring it.
#[must_use]
pub fn judge(
    lying: Vec<Holding>,
    known: &BTreeSet<String>,
    stored: &BTreeSet<String>,
    now: Timestamp,
    grace_ms: u64,
) -> Vec<Holding> {
    let unneeded = lying.into_iter().filter(|holding| !known.contains(&holding.label));
    let judged = unneeded.map(|mut holding| {
        if holding.kept.is_none() {
            let is_fresh = holding.since.after_ms(grace_ms) > now;
            let why = if stored.contains(&holding.label) { Some(UNREAD) } else { is_fresh.then_some(FRESH) };
            holding.kept = why.map(str::to_owned);
        }
        holding
    });
    judged.collect()
}
