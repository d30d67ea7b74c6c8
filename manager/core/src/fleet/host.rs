//! One host: how well it is heard, which run of it takes orders, and what is promised of it.
//!
//! Silence says something about the line, never about the agents.

use std::collections::{BTreeMap, BTreeSet};

use protocol::api::Reachability;
use protocol::ids::{AgentId, Incarnation, Region, RunId};
use protocol::report::{Heartbeat, HostFacts};
use protocol::time::Timestamp;

use crate::config::Config;

/// What one agent takes of its host, where its limits say so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_millis: u64,
    pub(crate) run: Option<RunId>,
}

/// The last heartbeat, without its digest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beat {
    pub(crate) heard_at: Timestamp,
    /// The host's clock minus ours.
    pub(crate) offset_ms: i64,
    pub(crate) build: String,
    pub(crate) facts: HostFacts,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) region: Region,
    pub(crate) incarnation: Incarnation,
    pub(crate) beat: Option<Beat>,
    pub(crate) agents: BTreeSet<AgentId>,
    slots: BTreeMap<AgentId, Slot>,
    memory_promised: u64,
    cpu_promised: u64,
    pub(crate) reports_asked_at: Option<Timestamp>,
    /// Reports that we lack, to be asked for when the pace allows.
    pub(crate) reports_missing: BTreeSet<AgentId>,
}

impl Host {
    pub(crate) fn new(region: Region) -> Self {
        Self {
            region,
            incarnation: Incarnation(0),
            beat: None,
            agents: BTreeSet::new(),
            slots: BTreeMap::new(),
            memory_promised: 0,
            cpu_promised: 0,
            reports_asked_at: None,
            reports_missing: BTreeSet::new(),
        }
    }

    pub(crate) fn hear(&mut self, now: Timestamp, heartbeat: &Heartbeat) {
        let ours = i64::try_from(now.0).unwrap_or(i64::MAX);
        let theirs = i64::try_from(heartbeat.now.0).unwrap_or(i64::MAX);
        self.beat = Some(Beat {
            heard_at: now,
            offset_ms: theirs.saturating_sub(ours),
            build: heartbeat.build.clone(),
            facts: heartbeat.facts.clone(),
        });
    }

    pub(crate) fn reachability(&self, now: Timestamp, config: &Config) -> Reachability {
        let Some(beat) = &self.beat else { return Reachability::Lost };
        let silent_ms = now.ms_since(beat.heard_at);
        if silent_ms >= config.lost_after_ms {
            Reachability::Lost
        } else if silent_ms >= config.late_after_ms {
            Reachability::Late
        } else {
            Reachability::Fresh
        }
    }

    /// When the reachability changes next, if nothing is heard until then.
    pub(crate) fn fades_at(&self, now: Timestamp, config: &Config) -> Option<Timestamp> {
        let heard_at = self.beat.as_ref()?.heard_at;
        [config.late_after_ms, config.lost_after_ms]
            .into_iter()
            .map(|after_ms| heard_at.after_ms(after_ms))
            .find(|at| *at > now)
    }

    /// Our `at` in the host's clock.
    pub(crate) fn in_its_time(&self, at: Timestamp) -> Timestamp {
        let offset_ms = self.beat.as_ref().map_or(0, |beat| beat.offset_ms);
        Timestamp(at.0.saturating_add_signed(offset_ms))
    }

    /// Sets or frees an agent's slot; true when one became free.
    pub(crate) fn set_slot(&mut self, agent: AgentId, slot: Option<Slot>) -> bool {
        let old = match slot {
            Some(slot) => {
                self.memory_promised = self.memory_promised.saturating_add(slot.memory_bytes);
                self.cpu_promised = self.cpu_promised.saturating_add(slot.cpu_millis);
                self.slots.insert(agent, slot)
            }
            None => self.slots.remove(&agent),
        };
        if let Some(old) = old {
            self.memory_promised = self.memory_promised.saturating_sub(old.memory_bytes);
            self.cpu_promised = self.cpu_promised.saturating_sub(old.cpu_millis);
        }
        old.is_some() && slot.is_none()
    }

    pub(crate) fn live(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    pub(crate) fn memory_unpromised(&self) -> u64 {
        let total = self.beat.as_ref().map_or(0, |beat| beat.facts.memory_total_bytes);
        total.saturating_sub(self.memory_promised)
    }

    pub(crate) fn cpu_unpromised(&self) -> u64 {
        let total = self.beat.as_ref().map_or(0, |beat| u64::from(beat.facts.cpus) * 1000);
        total.saturating_sub(self.cpu_promised)
    }

    /// Used to more than the share over which the host takes no agent. A host that says 0 has no such share.
    pub(crate) fn disk_is_full(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| {
            let facts = &beat.facts;
            let used = facts.disk_total_bytes.saturating_sub(facts.disk_free_bytes);
            let most = u128::from(facts.disk_total_bytes) * u128::from(facts.disk_share_max_percent);
            facts.disk_share_max_percent > 0 && u128::from(used) * 100 > most
        })
    }
}
