//! The plan: a pure function from hosts, queue and caps to placements, and why each other task waits. Data in, data
//! out; `dispatch` carries it out.
//!
//! What does not fit is passed over: smaller tasks behind it may start. A cap of a run stops that run only, a cap of a
//! label what has the label; hosts without room stop everything, which is where the plan ends early.

use std::collections::btree_set::Iter;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use protocol::ids::{HostId, RunId, TaskId};
use protocol::task::Waiting;

use super::caps::{Caps, Free};
use super::queue::{Asks, Demand, Lane, Level, Queue, Ready};
use crate::config::Strategy;

/// What one host that can be heard has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub host: HostId,
    pub live: u32,
    /// `None` for no cap.
    pub cap: Option<u32>,
    pub memory_unpromised: u64,
    pub cpu_unpromised: u64,
    pub disk_is_full: bool,
    /// Live agents by run; only needed to spread.
    pub live_by_run: BTreeMap<RunId, u32>,
}

impl Room {
    fn is_open(&self) -> bool {
        !self.disk_is_full && self.cap.is_none_or(|cap| self.live < cap)
    }

    fn fits(&self, demand: &Demand) -> bool {
        (demand.memory_bytes == 0 || demand.memory_bytes <= self.memory_unpromised)
            && (demand.cpu_millis == 0 || demand.cpu_millis <= self.cpu_unpromised)
    }

    fn take(&mut self, demand: &Demand, run: RunId) {
        self.live = self.live.saturating_add(1);
        self.memory_unpromised = self.memory_unpromised.saturating_sub(demand.memory_bytes);
        self.cpu_unpromised = self.cpu_unpromised.saturating_sub(demand.cpu_millis);
        *self.live_by_run.entry(run).or_insert(0) += 1;
    }
}

/// What a run has live, and may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLoad {
    pub live: u32,
    pub cap: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub task: TaskId,
    pub host: HostId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub placements: Vec<Placement>,
    /// One reason per task that is not placed; empty unless asked for.
    pub waiting: BTreeMap<TaskId, Waiting>,
}

/// How much a plan says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Ends at the first thing that stops everything.
    Placements,
    /// Also why each other task waits.
    Reasons,
}

/// See the module's page. `after` is the host that was chosen last, for [`Strategy::RoundRobin`].
#[must_use]
pub fn plan(
    mut rooms: Vec<Room>,
    queue: &Queue,
    loads: &BTreeMap<RunId, RunLoad>,
    caps: &Caps,
    strategy: Strategy,
    after: Option<&HostId>,
    depth: Depth,
) -> Plan {
    let mut plan = Plan::default();
    let mut free = caps.free();
    let mut loads = loads.clone();
    let mut blocked: BTreeMap<Demand, Waiting> = BTreeMap::new();
    let mut after = after.cloned();
    let mut closed = None;
    for level in queue.levels() {
        let mut cursors = Cursors::of(level, &loads);
        while closed.is_none()
            && let Some((run, asks, task)) = cursors.next(&mut loads, &blocked, &free)
        {
            let (demand, set) = asks;
            match choose(&rooms, &demand, Some(run), strategy, after.as_ref()) {
                Ok(host) => {
                    if let Some(room) = rooms.iter_mut().find(|room| room.host == host) {
                        room.take(&demand, run);
                    }
                    cursors.placed(run, asks, &mut loads);
                    free.take(set);
                    after = Some(host.clone());
                    plan.placements.push(Placement { task, host });
                }
                Err(why @ (Waiting::Memory { .. } | Waiting::Cpu { .. })) => {
                    blocked.insert(demand, why);
                }
                Err(
                    why @ (Waiting::NoHost
                    | Waiting::HostCap { .. }
                    | Waiting::DiskShare { .. }
                    | Waiting::Turn { .. }
                    | Waiting::Dependencies { .. }
                    | Waiting::Backoff { .. }
                    | Waiting::RunCap { .. }
                    | Waiting::LabelCap { .. }
                    | Waiting::Unknown),
                ) => closed = Some(why),
            }
        }
        if closed.is_some() {
            break;
        }
    }
    match depth {
        Depth::Placements => {}
        Depth::Reasons => {
            plan.waiting = reasons(&plan.placements, queue, &loads, (&blocked, &free), closed.as_ref());
        }
    }
    plan
}

/// What is left of one lane.
type Cursor<'a> = Peekable<Iter<'a, (u32, TaskId)>>;

/// Iterators over the lanes of each run of one level, and the runs by how much they have live.
struct Cursors<'a> {
    lanes: BTreeMap<RunId, BTreeMap<Asks, Cursor<'a>>>,
    turn: BTreeSet<(u32, RunId)>,
}

impl<'a> Cursors<'a> {
    fn of(level: &'a Level, loads: &BTreeMap<RunId, RunLoad>) -> Self {
        let lanes = level
            .iter()
            .map(|(run, lanes)| {
                let lanes =
                    lanes.iter().map(|(asks, lane): (&Asks, &'a Lane)| (*asks, lane.iter().peekable()));
                (*run, lanes.collect())
            })
            .collect();
        let turn = level.keys().map(|run| (live(loads, *run), *run)).collect();
        Self { lanes, turn }
    }

    /// The first task of the run whose turn it is. Runs at their cap, or with nothing that fits, drop out.
    fn next(
        &mut self,
        loads: &mut BTreeMap<RunId, RunLoad>,
        blocked: &BTreeMap<Demand, Waiting>,
        free: &Free<'_>,
    ) -> Option<(RunId, Asks, TaskId)> {
        while let Some((_, run)) = self.turn.first().copied() {
            let load = loads.entry(run).or_default();
            let first = self.lanes.get_mut(&run).and_then(|lanes| {
                let heads = lanes
                    .iter_mut()
                    .filter(|((demand, set), _)| !blocked.contains_key(demand) && free.full(*set).is_none());
                heads.filter_map(|(asks, lane)| lane.peek().map(|(place, task)| (*place, *asks, *task))).min()
            });
            match first {
                Some((_, asks, task)) if load.cap.is_none_or(|cap| load.live < cap) => {
                    return Some((run, asks, task));
                }
                Some(_) | None => {
                    self.turn.pop_first();
                }
            }
        }
        None
    }

    fn placed(&mut self, run: RunId, asks: Asks, loads: &mut BTreeMap<RunId, RunLoad>) {
        if let Some(lane) = self.lanes.get_mut(&run).and_then(|lanes| lanes.get_mut(&asks)) {
            lane.next();
        }
        let load = loads.entry(run).or_default();
        self.turn.remove(&(load.live, run));
        load.live = load.live.saturating_add(1);
        self.turn.insert((load.live, run));
    }
}

fn live(loads: &BTreeMap<RunId, RunLoad>, run: RunId) -> u32 {
    loads.get(&run).map_or(0, |load| load.live)
}

/// One host for one task, or what would have to change.
pub(crate) fn choose(
    rooms: &[Room],
    demand: &Demand,
    run: Option<RunId>,
    strategy: Strategy,
    after: Option<&HostId>,
) -> Result<HostId, Waiting> {
    if rooms.is_empty() {
        return Err(Waiting::NoHost);
    }
    let open: Vec<&Room> = rooms.iter().filter(|room| room.is_open()).collect();
    if open.is_empty() {
        let full = rooms.iter().filter(|room| !room.disk_is_full).find_map(|room| room.cap);
        return Err(match (full, rooms.iter().find(|room| room.disk_is_full)) {
            (Some(cap), _) => Waiting::HostCap { cap },
            (None, Some(room)) => Waiting::DiskShare { host: room.host.clone() },
            (None, None) => Waiting::NoHost,
        });
    }
    let fitting = open.iter().filter(|room| room.fits(demand));
    let chosen = match strategy {
        Strategy::LeastLoaded => fitting.min_by_key(|room| (room.live, &room.host)),
        Strategy::BinPack => fitting.min_by_key(|room| (std::cmp::Reverse(room.live), &room.host)),
        Strategy::Spread => fitting.min_by_key(|room| {
            let same_run = run.and_then(|run| room.live_by_run.get(&run)).copied().unwrap_or(0);
            (same_run, room.live, &room.host)
        }),
        Strategy::RoundRobin => {
            fitting.min_by_key(|room| (after.is_some_and(|after| room.host <= *after), &room.host))
        }
    };
    chosen.map(|room| room.host.clone()).ok_or_else(|| {
        let largest_free_bytes = open.iter().map(|room| room.memory_unpromised).max().unwrap_or(0);
        let largest_free_millis = open.iter().map(|room| room.cpu_unpromised).max().unwrap_or(0);
        if demand.cpu_millis > largest_free_millis && demand.memory_bytes <= largest_free_bytes {
            Waiting::Cpu { wanted_millis: demand.cpu_millis, largest_free_millis }
        } else {
            Waiting::Memory { wanted_bytes: demand.memory_bytes, largest_free_bytes }
        }
    })
}

/// The first in line hears what holds the line up, the others how many go before them.
fn reasons(
    placements: &[Placement],
    queue: &Queue,
    loads: &BTreeMap<RunId, RunLoad>,
    (blocked, free): (&BTreeMap<Demand, Waiting>, &Free<'_>),
    closed: Option<&Waiting>,
) -> BTreeMap<TaskId, Waiting> {
    let placed: BTreeSet<TaskId> = placements.iter().map(|placement| placement.task).collect();
    let mut line: Vec<&Ready> = queue.iter().filter(|ready| !placed.contains(&ready.task)).collect();
    line.sort_by_key(|ready| (ready.priority, ready.run, ready.place));
    let mut in_run: BTreeMap<RunId, u64> = BTreeMap::new();
    let mut waiting = BTreeMap::new();
    for (in_all, ready) in (0_u64..).zip(line) {
        let load = loads.get(&ready.run).copied().unwrap_or_default();
        let ahead_in_run = in_run.entry(ready.run).or_insert(0);
        let capped = load.cap.filter(|cap| load.live >= *cap);
        let labelled = free.full(ready.caps).map(|cap| Waiting::LabelCap {
            label: cap.label.clone(),
            cap: cap.most,
            of_run: cap.run.is_some(),
        });
        let why = match (blocked.get(&ready.demand).cloned().or(labelled), capped, closed) {
            (Some(why), ..) => why,
            (None, Some(cap), _) if *ahead_in_run == 0 => Waiting::RunCap { cap },
            (None, Some(_), _) => Waiting::Turn { ahead: *ahead_in_run },
            (None, None, Some(why)) if in_all == 0 => why.clone(),
            (None, None, Some(Waiting::NoHost)) => Waiting::NoHost,
            (None, None, Some(_) | None) => Waiting::Turn { ahead: in_all },
        };
        *ahead_in_run += 1;
        waiting.insert(ready.task, why);
    }
    waiting
}
