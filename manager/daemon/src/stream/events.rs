//! `events`: the facts of the stream EV, of hosts and manager alike, each once.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::str::FromStr;

use protocol::api::{Item, Reply};
use protocol::codec::{CodecError, Frame};
use protocol::error::{ErrorCode, WireError};
use protocol::event::{Event, Fact};
use protocol::ids::{AgentId, Region};
use protocol::subject::ALL_EVENTS;
use protocol::time::Timestamp;
use tokio::task::JoinSet;

use crate::bus::{BusError, Kept};
use crate::clock::Clock;
use crate::hosts::Hosts;
use crate::queries;
use crate::server::session::Items;
use crate::store::Store;
use crate::store::journal::{Log, Stored};
use crate::store::streams::EVENTS;

/// How much earlier than a fact's own date the stream may have got it: a host's clock may be ahead.
const CLOCK_SLACK_MS: u64 = 300_000;
/// Facts that are remembered to know one that was stored twice.
const REMEMBERED: usize = 10_000;
const PAGE: usize = 1_000;

/// Shows facts after the cursor `after`, else since `since`, else all that are kept; then, with `follow`, those that
/// come.
///
/// # Errors
/// When a target is not found, the cursor is none, or the stream cannot be read.
pub async fn events(
    hosts: Hosts,
    store: Store,
    (since, targets, after): (Option<Timestamp>, Vec<String>, Option<String>),
    follow: bool,
    items: Items,
) -> Result<Reply, WireError> {
    let after: Option<Place> = after.as_deref().map(str::parse).transpose()?;
    let agents = hosts
        .driver
        .glance(move |glance| {
            targets
                .iter()
                .map(|target| queries::find(glance, target).map(|found| found.view.id))
                .collect::<Result<BTreeSet<AgentId>, _>>()
        })
        .await??;
    let away = |error: &dyn std::error::Error| crate::unavailable(protocol::chain(error));
    let kept = hosts.bus.kept(EVENTS).await.map_err(|error| away(&error))?;
    let mut sieve = Sieve {
        since,
        agents,
        seen: Seen::default(),
        next: None,
        born: kept.born_unix_ms(),
        region: hosts.region.clone(),
        clock: hosts.clock.clone(),
    };
    let mut next = match (after, since) {
        (Some(after), _) => {
            let bounds = kept.bounds().await.map_err(|error| away(&error))?;
            sieve.go_on(&store, after, bounds, &items).await?
        }
        (None, Some(since)) => first_stored_since(&kept, since).await.map_err(|error| away(&error))?,
        (None, None) => 0,
    };
    loop {
        let page = store.read_log(Log::Events, ALL_EVENTS, next, PAGE).await.map_err(|error| away(&error))?;
        next = page.next;
        for stored in page.messages {
            sieve.show(stored, &items).await?;
        }
        if !page.more {
            break;
        }
    }
    if follow {
        let mut tasks = JoinSet::new();
        let mut coming = store.follow_log(Log::Events, ALL_EVENTS.to_owned(), next, &mut tasks);
        while let Some(stored) = coming.recv().await {
            sieve.show(stored, &items).await?;
        }
        return Err(crate::stopping());
    }
    Ok(Reply::Done)
}

/// Where an event lies: in which stream, by when that was made, and at which of its sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    born: u64,
    sequence: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.born, self.sequence)
    }
}

impl FromStr for Place {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let parsed = text.split_once('-').and_then(|(born, sequence)| {
            Some(Self { born: u64::from_str_radix(born, 16).ok()?, sequence: sequence.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            WireError::new(ErrorCode::Invalid, format!("{text:?} is no cursor of an event"))
                .hint("take one from a line of `phalanx events -o jsonl`")
        })
    }
}

/// The lowest sequence that the stream took at `since` or after it: it took them in the order of its clock.
async fn first_stored_since(kept: &Kept, since: Timestamp) -> Result<u64, BusError> {
    let since_ms = since.0.saturating_sub(CLOCK_SLACK_MS);
    let (first, newest) = kept.bounds().await?;
    let (mut low, mut high) = (first, newest.saturating_add(1));
    while low < high {
        let middle = low + (high - low) / 2;
        match kept.next::<Event>(ALL_EVENTS, Event::KIND, middle).await? {
            Some(message) if message.stored_unix_ms < since_ms => low = message.sequence.saturating_add(1),
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// Which facts are shown.
struct Sieve {
    since: Option<Timestamp>,
    /// Empty: of everything.
    agents: BTreeSet<AgentId>,
    seen: Seen,
    /// The sequence that follows what was read; every one of the stream is an event, so that a jump is a loss.
    next: Option<u64>,
    born: u64,
    clock: Clock,
    region: Region,
}

impl Sieve {
    /// Begins behind `after`; where to read from. What was before it is remembered, so that a fact that the stream has
    /// on both sides of it is not shown again.
    async fn go_on(
        &mut self,
        store: &Store,
        after: Place,
        (first, newest): (u64, u64),
        items: &Items,
    ) -> Result<u64, WireError> {
        if after.born != self.born || after.sequence > newest {
            self.gap(None, 0, items).await?;
            return Ok(0);
        }
        let from = after.sequence.saturating_add(1);
        if first > from {
            self.gap(Some(first - from), first.saturating_sub(1), items).await?;
        }
        let begun = from.max(first);
        let before = after.sequence.saturating_sub(u64::try_from(PAGE).unwrap_or(u64::MAX)).max(1);
        let page = store.read_log(Log::Events, ALL_EVENTS, before, PAGE).await;
        let page = page.map_err(|error| crate::unavailable(protocol::chain(&error)))?;
        for stored in page.messages.iter().take_while(|stored| stored.sequence < begun) {
            if let Ok(event) = decoded(stored) {
                self.seen.is_first(&event);
            }
        }
        self.next = Some(begun);
        Ok(begun)
    }

    async fn show(&mut self, stored: Stored, items: &Items) -> Result<(), WireError> {
        let sequence = stored.sequence;
        if let Some(missing) = self.next.and_then(|next| sequence.checked_sub(next)).filter(|gone| *gone > 0)
        {
            self.gap(Some(missing), sequence.saturating_sub(1), items).await?;
        }
        self.next = Some(sequence.saturating_add(1));
        let mut event = match decoded(&stored) {
            Ok(event) => event,
            Err(error) => {
                let subject = stored.subject;
                tracing::warn!(error = %protocol::chain(&error), subject, sequence, "an event is unreadable");
                return Ok(());
            }
        };
        let new = self.since.is_none_or(|since| event.at >= since);
        let asked =
            self.agents.is_empty() || agent_of(&event).is_some_and(|agent| self.agents.contains(&agent));
        if new && asked && self.seen.is_first(&event) {
            event.cursor = Some(Place { born: self.born, sequence }.to_string());
            items.send(&Item::Event(Box::new(event))).await?;
        }
        Ok(())
    }

    /// Tells that events are missing; `sequence` is that of the last of them.
    async fn gap(&self, missing: Option<u64>, sequence: u64, items: &Items) -> Result<(), WireError> {
        let event = Event {
            at: self.clock.now(),
            epoch: String::new(),
            seq: 0,
            region: self.region.clone(),
            host: None,
            name: String::new(),
            fact: Fact::Gap { missing },
            cursor: Some(Place { born: self.born, sequence }.to_string()),
        };
        Ok(items.send(&Item::Event(Box::new(event))).await?)
    }
}

fn decoded(stored: &Stored) -> Result<Event, CodecError> {
    Frame::decode(&stored.payload).and_then(|frame| frame.body::<Event>())
}

fn agent_of(event: &Event) -> Option<AgentId> {
    match &event.fact {
        Fact::AgentPhase { agent, .. } | Fact::AgentDestroyed { agent, .. } => Some(*agent),
        Fact::TaskState { .. }
        | Fact::RunSubmitted { .. }
        | Fact::RunEnded { .. }
        | Fact::RecordsLost { .. }
        | Fact::HostStarted { .. }
        | Fact::BaseReplaced { .. }
        | Fact::Gap { .. }
        | Fact::Unknown => None,
    }
}

/// The last facts by their writer's number: the stream drops a repeated one for a while only.
#[derive(Default)]
struct Seen {
    known: BTreeSet<(String, u64)>,
    order: VecDeque<(String, u64)>,
}

impl Seen {
    fn is_first(&mut self, event: &Event) -> bool {
        let id = (event.epoch.clone(), event.seq);
        if !self.known.insert(id.clone()) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_was_stored_twice_is_shown_once() {
        let event = |seq| Event {
            at: Timestamp(1),
            epoch: "e".to_owned(),
            seq,
            region: "hub".parse().unwrap(),
            host: None,
            name: String::new(),
            fact: Fact::HostStarted { incarnation: 1 },
            cursor: None,
        };
        let mut seen = Seen::default();
        assert!(seen.is_first(&event(1)));
        assert!(seen.is_first(&event(2)));
        assert!(!seen.is_first(&event(1)));
    }
}
