//! The number under which this manager leads, beside the highest that a host knows. A host drops the orders of an older
//! leader, so a manager whose store has forgotten its own number (a bus that was wiped or restored) would be refused
//! by every host for ever: it takes the lead above what they know.
//!
//! Whether it may lead at all is the shell's to see to: by a lock where there is one manager, by compare-and-set on
//! the stored number otherwise.

use protocol::ids::Fencing;
use protocol::time::Timestamp;

use crate::Core;

/// No leader comes so far by taking turns; a host that says more is wrong, and is not followed: the number could
/// never be raised again.
const PLAUSIBLE_MOST: Fencing = Fencing(1 << 48);

/// Whether orders under `ours` are refused by a host that knows `theirs`.
pub(super) fn must_rise(ours: Fencing, theirs: Fencing) -> bool {
    theirs > ours && theirs <= PLAUSIBLE_MOST
}

impl Core {
    /// What went out under the old number may have been refused: all of it goes out again, at once.
    pub(crate) fn leads(&mut self, now: Timestamp, fencing: Fencing) {
        if fencing <= self.config.fencing {
            return;
        }
        self.config.fencing = fencing;
        let agents: Vec<_> = self.fleet.agents().map(|(id, _)| id).collect();
        for id in agents {
            self.fleet.update(id, |agent| agent.sending = None);
            self.touch_agent(id);
        }
        self.messages.send_again();
        self.ask_merges_again();
        self.land_again(now);
        self.touched.plan |= !self.work.queue.is_empty();
    }
}
