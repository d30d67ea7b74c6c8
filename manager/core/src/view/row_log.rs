//! What changed of the rows of agents, in the order in which it came about: so that a watcher can be told each change
//! once, and can go on where it was. Holds the last changes only; whoever is further behind begins anew.
//!
//! Every entry has the row before and after, so that any filter can say of it what it means: whoever asks twice for
//! what follows a cursor gets the same answer, and nothing need be remembered of anybody who asks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use protocol::api::Reachability;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId};
use protocol::row::{AgentRow, RowChange};
use protocol::time::Timestamp;

use crate::Core;
use crate::effect::Subject;
use crate::view::agents::{is_current, refresh_figures};
use crate::view::select::{Candidate, Selection};

/// Changes that are kept at least; more where there are many agents, which may all change at once.
const KEPT_LEAST: usize = 4_096;
const KEPT_PER_AGENT: usize = 2;

/// A place between two changes, of one life of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCursor {
    epoch: u64,
    /// Changes before it.
    count: u64,
}

impl fmt::Display for RowCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.epoch, self.count)
    }
}

impl FromStr for RowCursor {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let parsed = text.split_once('-').and_then(|(epoch, count)| {
            let epoch = u64::from_str_radix(epoch, 16).ok()?;
            Some(Self { epoch, count: count.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            WireError::new(ErrorCode::Invalid, format!("{text:?} is no cursor of a list of agents"))
                .hint("take one from a line of `phalanx ls --watch -o jsonl`")
        })
    }
}

/// A row as it was told.
#[derive(Debug, PartialEq)]
struct Seen {
    row: AgentRow,
    is_current: bool,
}

#[derive(Debug)]
struct Entry {
    before: Option<Arc<Seen>>,
    after: Option<Arc<Seen>>,
}

/// One change as a filter sees it, and the place after it.
#[derive(Clone, Debug, PartialEq)]
pub struct RowNews {
    pub change: RowChange,
    pub row: AgentRow,
    pub cursor: RowCursor,
}

/// What follows a cursor.
#[derive(Clone, Debug, PartialEq)]
pub enum Following {
    Changes {
        news: Vec<RowNews>,
        /// Behind all that was looked at; `news` may end before it.
        cursor: RowCursor,
        /// There is more than was asked for.
        more: bool,
    },
    /// What follows is not known.
    Lost { why: &'static str },
}

#[derive(Debug)]
pub struct RowLog {
    epoch: u64,
    latest: BTreeMap<AgentId, Arc<Seen>>,
    reachable: BTreeMap<HostId, Reachability>,
    entries: VecDeque<Entry>,
    /// Changes before the first of `entries`.
    dropped: u64,
}

impl RowLog {
    /// `epoch` tells this log from those of other managers; changes from now on are kept.
    #[must_use]
    pub fn new(epoch: u64, core: &Core, now: Timestamp) -> Self {
        let mut log = Self {
            epoch,
            latest: BTreeMap::new(),
            reachable: BTreeMap::new(),
            entries: VecDeque::new(),
            dropped: 0,
        };
        log.latest =
            core.fleet.agents().filter_map(|(id, _)| Some((id, Arc::new(seen(core, now, id)?)))).collect();
        log
    }

    /// Takes in that something of `subject` may be different.
    pub fn note(&mut self, core: &Core, now: Timestamp, subject: &Subject) {
        match subject {
            Subject::Agent(agent) => self.look(core, now, *agent),
            Subject::Host(host) => {
                let reachability = core.reachability(now, host);
                // Every heartbeat is a change of its host; only a line that became worse or better is one of rows.
                if self.reachable.insert(host.clone(), reachability) != Some(reachability)
                    && let Some(host) = core.fleet.host(host)
                {
                    host.agents.iter().for_each(|agent| self.look(core, now, *agent));
                }
            }
            Subject::Run(_) => {}
        }
    }

    fn look(&mut self, core: &Core, now: Timestamp, agent: AgentId) {
        let after = seen(core, now, agent);
        let before = self.latest.get(&agent);
        let is_same = match (before, &after) {
            (Some(before), Some(after)) => is_told(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if is_same {
            return;
        }
        let after = after.map(Arc::new);
        let before = match &after {
            Some(after) => self.latest.insert(agent, Arc::clone(after)),
            None => self.latest.remove(&agent),
        };
        self.entries.push_back(Entry { before, after });
        let kept = KEPT_LEAST.max(self.latest.len().saturating_mul(KEPT_PER_AGENT));
        while self.entries.len() > kept {
            self.entries.pop_front();
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    fn count(&self) -> u64 {
        self.dropped.saturating_add(u64::try_from(self.entries.len()).unwrap_or(u64::MAX))
    }

    /// All rows that fit, with the place that they are of.
    #[must_use]
    pub fn all(&self, core: &Core, selection: &Selection) -> (Vec<AgentRow>, RowCursor) {
        let fits = self.latest.values().filter(|seen| takes(selection, seen));
        let rows = fits.map(|seen| fresh(core, seen)).collect();
        (rows, RowCursor { epoch: self.epoch, count: self.count() })
    }

    /// At most `most` changes after `cursor`.
    #[must_use]
    pub fn after(&self, cursor: RowCursor, selection: &Selection, most: usize) -> Following {
        if cursor.epoch != self.epoch {
            return Following::Lost { why: "the manager was restarted since" };
        }
        let Some(skipped) = cursor.count.checked_sub(self.dropped) else {
            return Following::Lost { why: "more has changed since than is kept" };
        };
        if cursor.count > self.count() {
            return Following::Lost { why: "the cursor is of a time that has not come" };
        }
        let mut news = Vec::new();
        let mut at = cursor;
        for entry in self.entries.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)) {
            if news.len() >= most {
                return Following::Changes { news, cursor: at, more: true };
            }
            at.count = at.count.saturating_add(1);
            let fits = |seen: &Option<Arc<Seen>>| seen.as_ref().is_some_and(|seen| takes(selection, seen));
            let change = match (fits(&entry.before), fits(&entry.after)) {
                (false, true) => RowChange::Added,
                (true, true) => RowChange::Changed,
                (true, false) => RowChange::Gone,
                (false, false) => continue,
            };
            if let Some(seen) = entry.after.as_ref().or(entry.before.as_ref()) {
                news.push(RowNews { change, row: seen.row.clone(), cursor: at });
            }
        }
        Following::Changes { news, cursor: at, more: false }
    }
}

fn seen(core: &Core, now: Timestamp, id: AgentId) -> Option<Seen> {
    let agent = core.fleet.agent(id).filter(|agent| !agent.is_void())?;
    Some(Seen { row: core.row(now, id, agent)?, is_current: is_current(agent) })
}

/// With the figures of this moment, which the log does not follow.
fn fresh(core: &Core, seen: &Seen) -> AgentRow {
    let mut row = seen.row.clone();
    if let Some(agent) = core.fleet.agent(row.id) {
        refresh_figures(&mut row, agent);
    }
    row
}

/// Whether what is told of `after` is what was told of `before`: figures and dates move all the time.
fn is_told(before: &Seen, after: &Seen) -> bool {
    let row = AgentRow {
        figures: before.row.figures,
        last_output: before.row.last_output,
        as_of: before.row.as_of,
        ..after.row.clone()
    };
    before.is_current == after.is_current && before.row == row
}

fn takes(selection: &Selection, seen: &Seen) -> bool {
    let row = &seen.row;
    selection.takes(&Candidate {
        id: row.id,
        name: &row.name,
        host: &row.host,
        phase: row.phase,
        labels: &row.labels,
        task: row.task.as_ref(),
        is_current: seen.is_current,
    })
}
