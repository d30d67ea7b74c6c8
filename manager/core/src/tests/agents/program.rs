//! One agent of a host in the world for tests, and what its host takes from an order.

use protocol::agent::{AgentSpec, End};
use protocol::ids::Generation;
use protocol::message::{MessageFacts, MessageState};
use protocol::report::{Collected, Unmet};
use protocol::time::Timestamp;

#[derive(Clone, Debug)]
pub(in super::super) struct Program {
    pub(in super::super) spec: AgentSpec,
    pub(in super::super) generation: Generation,
    pub(in super::super) end: Option<End>,
    pub(in super::super) draining: bool,
    pub(in super::super) collected: Option<Collected>,
    pub(in super::super) destroyed: bool,
    pub(in super::super) starts: u32,
    /// What a destroy without the operator's word would lose.
    pub(in super::super) work: Vec<String>,
    pub(in super::super) holds: Vec<String>,
    /// Its supervisor ends it then.
    pub(in super::super) lease_until: Option<Timestamp>,
    pub(in super::super) unmet: Vec<Unmet>,
    /// Why its host takes no new limits.
    pub(in super::super) refuses: Option<String>,
    /// Its host knows of no changes.
    pub(in super::super) is_old: bool,
    pub(in super::super) messages: MessageFacts,
    /// What a message becomes at once.
    pub(in super::super) types: MessageState,
}

impl Program {
    /// What a host takes from a newer order; an old one takes the number of the order only.
    pub(in super::super) fn take(&mut self, generation: Generation, spec: &AgentSpec) {
        if generation <= self.generation {
            return;
        }
        self.generation = generation;
        if self.is_old {
            return;
        }
        let before = self.spec.clone();
        self.spec = AgentSpec {
            name: spec.name.clone(),
            labels: spec.labels.clone(),
            limits: if self.refuses.is_some() { before.limits } else { spec.limits },
            frozen: spec.frozen,
            ..before.clone()
        };
        let why = self.refuses.clone().filter(|_| spec.limits != before.limits);
        self.unmet = why.map(|why| Unmet { what: String::from("limits"), why }).into_iter().collect();
        if spec.launch > before.launch && self.end.is_some() {
            self.spec.launch = spec.launch;
            (self.end, self.collected) = (None, None);
            self.starts += 1;
        }
    }
}

/// What a host keeps of an agent that was to end before it ever was there.
pub(in super::super) fn tombstone(spec: AgentSpec, generation: Generation) -> Program {
    Program {
        spec,
        generation,
        end: None,
        draining: false,
        collected: None,
        destroyed: false,
        starts: 0,
        work: Vec::new(),
        holds: Vec::new(),
        lease_until: None,
        unmet: Vec::new(),
        refuses: None,
        is_old: false,
        messages: MessageFacts::default(),
        types: MessageState::Delivered,
    }
}
