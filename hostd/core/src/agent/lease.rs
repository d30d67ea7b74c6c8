//! The lease of an agent that may be moved: asked for in time, taken where it gives more.

use protocol::ids::Generation;
use protocol::time::Timestamp;

use super::Agent;
use crate::effect::Effect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseClock {
    pub(super) ask_at: Timestamp,
    /// The deadline that the supervisor has, as far as this hostd knows.
    until: Timestamp,
}

impl Agent {
    /// The lease is asked for at thirds of its length.
    pub(super) fn lease_pace_ms(&self) -> u64 {
        (self.record.spec.lease_ms.unwrap_or_default() / 3).max(1)
    }

    pub(super) fn start_lease(&mut self, ask_at: Timestamp) {
        let until = self.record.first_lease_until();
        self.lease = until.map(|until| LeaseClock { ask_at, until });
    }

    /// The deadline counts from before the question was asked: an answer that took long gives less, and one that
    /// was overtaken gives nothing.
    pub fn lease(&mut self, generation: Generation, asked_at: Timestamp, length_ms: u64) -> Vec<Effect> {
        let until = asked_at.after_ms(length_ms);
        match self.lease.as_mut() {
            Some(lease)
                if generation == self.record.generation && self.stage.is_live() && lease.until < until =>
            {
                lease.until = until;
                vec![Effect::SetLease { agent: self.record.agent, until }]
            }
            Some(_) | None => Vec::new(),
        }
    }
}
