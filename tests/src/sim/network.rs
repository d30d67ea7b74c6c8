//! Everything that travels between processes, and how badly.
//!
//! In a storm a fifth is lost, a fifth comes twice, and delays of a millisecond to a minute put all out of
//! order. A host that is cut off neither sends nor receives. The bus's own store is behind the same network.

use manager_core::AskToken;
use protocol::error::WireError;
use protocol::ids::{AgentId, Generation, Incarnation, Seq};
use protocol::order::{Answer, Order, Question};
use protocol::report::{Heartbeat, Report};
use protocol::time::Timestamp;

use super::dice::Dice;

/// One life of a process; what was meant for an earlier one does not reach the next.
pub type Life = u64;

#[derive(Clone, Debug)]
pub enum Mail {
    Order {
        machine: usize,
        order: Box<Order>,
    },
    AskReports {
        machine: usize,
        agents: Vec<AgentId>,
    },
    Ask {
        machine: usize,
        from: Life,
        token: AskToken,
        question: Question,
    },
    Answer {
        machine: usize,
        to: Life,
        token: AskToken,
        answer: Answer,
    },
    Heartbeat {
        machine: usize,
        heartbeat: Box<Heartbeat>,
    },
    /// A host's put to its agent's key.
    Put {
        machine: usize,
        from: Life,
        report: Box<Report>,
    },
    PutAcked {
        machine: usize,
        to: Life,
        agent: AgentId,
        position: (Incarnation, Seq),
    },
    /// The manager's watch on the keys.
    Watched {
        report: Box<Report>,
    },
    LeaseAsked {
        machine: usize,
        from: Life,
        agent: AgentId,
        generation: Generation,
        asked_at: Timestamp,
    },
    LeaseGiven {
        machine: usize,
        to: Life,
        agent: AgentId,
        generation: Generation,
        asked_at: Timestamp,
        ms: u64,
    },
    /// A client's request, by its number; the key is in it.
    Request {
        action: usize,
    },
    Reply {
        action: usize,
        result: Result<protocol::api::Reply, WireError>,
    },
}

impl Mail {
    /// The host whose line it takes.
    fn machine(&self) -> Option<usize> {
        match self {
            Self::Order { machine, .. }
            | Self::AskReports { machine, .. }
            | Self::Ask { machine, .. }
            | Self::Answer { machine, .. }
            | Self::Heartbeat { machine, .. }
            | Self::Put { machine, .. }
            | Self::PutAcked { machine, .. }
            | Self::LeaseAsked { machine, .. }
            | Self::LeaseGiven { machine, .. } => Some(*machine),
            Self::Watched { .. } | Self::Request { .. } | Self::Reply { .. } => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Network {
    pub stormy: bool,
    /// Hosts that are cut off, by how many cuts at once.
    cuts: std::collections::BTreeMap<usize, u32>,
}

impl Network {
    #[must_use]
    pub fn in_storm() -> Self {
        Self { stormy: true, ..Self::default() }
    }

    pub fn cut(&mut self, machine: usize) {
        *self.cuts.entry(machine).or_default() += 1;
    }

    pub fn mend(&mut self, machine: usize) {
        if let Some(cuts) = self.cuts.get_mut(&machine) {
            *cuts = cuts.saturating_sub(1);
        }
    }

    pub fn mend_all(&mut self) {
        self.cuts.clear();
    }

    /// Asked when mail is sent and again when it arrives.
    #[must_use]
    pub fn carries(&self, mail: &Mail) -> bool {
        mail.machine().is_none_or(|machine| self.cuts.get(&machine).is_none_or(|cuts| *cuts == 0))
    }

    /// After how many ms each copy arrives.
    pub fn copies(&self, dice: &mut Dice) -> Vec<u64> {
        if !self.stormy {
            return vec![dice.between(1, 20)];
        }
        let copies = match dice.below(10) {
            0 | 1 => 0,
            2 | 3 => 2,
            _ => 1,
        };
        (0..copies)
            .map(|_| match dice.below(100) {
                0..=1 => dice.between(1_000, 60_000),
                2..=19 => dice.between(300, 3_000),
                _ => dice.between(1, 300),
            })
            .collect()
    }
}
