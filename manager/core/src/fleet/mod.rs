//! All agents and hosts, with the indexes that keep an input from costing more than what it touches.
//!
//! Decides nothing about tasks and writes nothing: `reconcile` and `observe` do, on [`crate::Core`].

pub(crate) mod agent;
mod forget;
pub(crate) mod host;
mod lead;
mod observe;
mod reconcile;

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::AgentSpec;
use protocol::ids::{AgentId, HostId, Name, Region};
use protocol::report::{DigestRow, Report};

use agent::{Agent, Standing};
use host::{Host, Slot};

use crate::record::DesiredRecord;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fleet {
    agents: BTreeMap<AgentId, Agent>,
    hosts: BTreeMap<HostId, Host>,
    /// Every agent by its label, the gone ones too: their transcripts can still be asked for.
    names: BTreeMap<Name, BTreeSet<AgentId>>,
}

impl Fleet {
    pub(crate) fn agent(&self, id: AgentId) -> Option<&Agent> {
        self.agents.get(&id)
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.agents.iter().map(|(id, agent)| (*id, agent))
    }

    pub(crate) fn host(&self, id: &HostId) -> Option<&Host> {
        self.hosts.get(id)
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&HostId, &Host)> {
        self.hosts.iter()
    }

    /// The host, made known if it was not.
    pub(crate) fn host_entry(&mut self, id: &HostId, region: &Region) -> &mut Host {
        self.hosts.entry(id.clone()).or_insert_with(|| Host::new(region.clone()))
    }

    pub(crate) fn host_mut(&mut self, id: &HostId) -> Option<&mut Host> {
        self.hosts.get_mut(id)
    }

    pub(crate) fn report(&self, id: AgentId) -> Option<&Report> {
        self.agents.get(&id)?.observed.as_deref()
    }

    pub(crate) fn desired(&self, id: AgentId) -> Option<&DesiredRecord> {
        self.agents.get(&id)?.desired.as_ref()
    }

    /// An agent that nobody knows is as unknown as one that was never heard of.
    pub(crate) fn standing(&self, id: AgentId) -> Standing {
        self.agents.get(&id).map_or(Standing::Unheard, Agent::standing)
    }

    pub(crate) fn insert(&mut self, id: AgentId, desired: DesiredRecord, may_exist: bool) {
        let (host, region) = (desired.host.clone(), desired.region.clone());
        self.name(id, &desired.spec.name.clone());
        match self.agents.get_mut(&id) {
            Some(agent) => agent.desired = Some(desired),
            None => {
                self.agents.insert(id, Agent::wanted(desired, may_exist));
            }
        }
        self.host_entry(&host, &region).agents.insert(id);
        self.refresh(id);
    }

    pub(crate) fn insert_unowned(&mut self, report: Box<Report>) {
        let (id, host, region) = (report.agent, report.host.clone(), report.region.clone());
        self.name(id, &report.spec.name.clone());
        self.agents.insert(id, Agent::unowned(report));
        self.host_entry(&host, &region).agents.insert(id);
        self.refresh(id);
    }

    pub(crate) fn remove(&mut self, id: AgentId) {
        let Some(agent) = self.agents.remove(&id) else { return };
        if let Some(host) = agent.host().and_then(|host| self.hosts.get_mut(host)) {
            host.set_slot(id, None);
            host.agents.remove(&id);
        }
        if let Some(name) = agent.spec().map(|spec| &spec.name)
            && let Some(ids) = self.names.get_mut(name)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.names.remove(name);
            }
        }
    }

    fn name(&mut self, id: AgentId, name: &Name) {
        self.names.entry(name.clone()).or_default().insert(id);
    }

    /// The label of one agent is another from now on.
    fn renamed(&mut self, id: AgentId, before: &Name) {
        let Some(now) = self.agents.get(&id).and_then(Agent::spec).map(|spec| spec.name.clone()) else {
            return;
        };
        if now == *before {
            return;
        }
        if let Some(ids) = self.names.get_mut(before) {
            ids.remove(&id);
            if ids.is_empty() {
                self.names.remove(before);
            }
        }
        self.name(id, &now);
    }

    /// Changes an agent and brings its slot up to date; true when a slot became free.
    pub(crate) fn update(&mut self, id: AgentId, change: impl FnOnce(&mut Agent)) -> bool {
        if let Some(agent) = self.agents.get_mut(&id) {
            let before = agent.spec().map(|spec| spec.name.clone());
            change(agent);
            if let Some(before) = before {
                self.renamed(id, &before);
            }
        }
        self.refresh(id)
    }

    /// Figures do not change a slot, so a digest of many agents stays cheap.
    pub(crate) fn update_figures(&mut self, row: &DigestRow) {
        if let Some(agent) = self.agents.get_mut(&row.agent) {
            agent.figures = Some(row.clone());
        }
    }

    fn refresh(&mut self, id: AgentId) -> bool {
        let Some(agent) = self.agents.get(&id) else { return false };
        let slot = if agent.holds_slot() { agent.spec().map(slot_of) } else { None };
        let Some(host) = agent.host().and_then(|host| self.hosts.get_mut(host)) else { return false };
        host.set_slot(id, slot)
    }

    /// Agents of this label that are there or may be, oldest first.
    pub(crate) fn named_live(&self, name: &Name) -> impl Iterator<Item = AgentId> {
        self.named(name).filter(|id| self.standing(*id) != Standing::Gone)
    }

    /// Agents of this label, the gone ones too, oldest first.
    pub(crate) fn named(&self, name: &Name) -> impl Iterator<Item = AgentId> {
        self.names.get(name).into_iter().flatten().copied()
    }

    pub(crate) fn is_taken(&self, name: &Name) -> bool {
        self.named_live(name).next().is_some()
    }
}

fn slot_of(spec: &AgentSpec) -> Slot {
    Slot {
        memory_bytes: spec.limits.memory_bytes.unwrap_or(0),
        cpu_millis: spec.limits.cpu_millis.unwrap_or(0),
        run: spec.task.as_ref().map(|link| link.run),
    }
}
