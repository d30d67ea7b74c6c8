//! Which agents a list is about: the words of a filter, looked up once, and what is asked of each agent.

use std::collections::BTreeMap;

use protocol::agent::{Phase, TaskLink};
use protocol::error::WireError;
use protocol::ids::{AgentId, HostId, RunId};
use protocol::row::RowFilter;

use crate::Core;
use crate::view::pattern::Pattern;

/// A filter whose run is found and whose patterns are read.
pub struct Selection {
    filter: RowFilter,
    run: Option<RunId>,
    patterns: Vec<Pattern>,
}

/// What a filter looks at.
pub(super) struct Candidate<'a> {
    pub(super) id: AgentId,
    pub(super) name: &'a str,
    pub(super) host: &'a HostId,
    pub(super) phase: Phase,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) task: Option<&'a TaskLink>,
    /// Listed without `all`.
    pub(super) is_current: bool,
}

impl Core {
    /// # Errors
    /// When the filter names a run that is not there.
    pub fn selection(&self, filter: &RowFilter) -> Result<Selection, WireError> {
        let run = filter.run.as_deref().map(|target| self.find_run(target)).transpose()?;
        let patterns = filter.names.iter().map(|text| Pattern::new(text)).collect();
        Ok(Selection { filter: filter.clone(), run, patterns })
    }
}

impl Selection {
    pub(super) fn takes(&self, candidate: &Candidate<'_>) -> bool {
        let filter = &self.filter;
        let named =
            |pattern: &Pattern| pattern.matches(candidate.name) || pattern.matches(&candidate.id.to_string());
        (filter.all || candidate.is_current)
            && (filter.phases.is_empty() || filter.phases.contains(&candidate.phase))
            && (filter.hosts.is_empty() || filter.hosts.contains(candidate.host))
            && (self.patterns.is_empty() || self.patterns.iter().any(named))
            && filter.labels.iter().all(|(name, value)| candidate.labels.get(name) == Some(value))
            && self.run.is_none_or(|run| candidate.task.is_some_and(|link| link.run == run))
    }
}
