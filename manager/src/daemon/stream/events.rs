//! `events`: the facts of the stream EV, of hosts and manager alike, each once.

use std::collections::{BTreeSet, VecDeque};

use protocol::api::{Item, Reply};
use protocol::codec::Frame;
use protocol::error::WireError;
use protocol::event::{Event, Fact};
use protocol::ids::AgentId;
use protocol::subject::ALL_EVENTS;
use protocol::time::Timestamp;
use tokio::task::JoinSet;

use crate::daemon::bus::BusError;
use crate::daemon::hosts::Hosts;
use crate::daemon::queries;
use crate::daemon::server::session::Items;
use crate::store::Store;
use crate::store::journal::{Log, Stored};
use crate::store::streams::EVENTS;

/// How much earlier than a fact's own date the stream may have got it: a host's clock may be ahead.
const CLOCK_SLACK_MS: u64 = 300_000;
/// Facts that are remembered to know one that was stored twice.
const REMEMBERED: usize = 10_000;
const PAGE: usize = 1_000;

/// Shows facts since `since` (all that are kept without it), then, with `follow`, those that come.
///
/// # Errors
/// When a target is not found, or the stream cannot be read.
pub async fn events(
    hosts: Hosts,
    store: Store,
    (since, targets): (Option<Timestamp>, Vec<String>),
    follow: bool,
    items: Items,
) -> Result<Reply, WireError> {
    let agents = hosts
        .driver
        .glance(move |glance| {
            targets
                .iter()
                .map(|target| queries::find(glance, target).map(|found| found.view.id))
                .collect::<Result<BTreeSet<AgentId>, _>>()
        })
        .await??;
    let mut sieve = Sieve { since, agents, seen: Seen::default() };
    let away = |error: &dyn std::error::Error| crate::daemon::unavailable(crate::chain(error));
    let mut next = match since {
        Some(since) => first_stored_since(&hosts, since).await.map_err(|error| away(&error))?,
        None => 0,
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
        return Err(crate::daemon::stopping());
    }
    Ok(Reply::Done)
}

/// The lowest sequence that the stream took at `since` or after it: it took them in the order of its clock.
async fn first_stored_since(hosts: &Hosts, since: Timestamp) -> Result<u64, BusError> {
    let since_ms = since.0.saturating_sub(CLOCK_SLACK_MS);
    let kept = hosts.bus.kept(EVENTS).await?;
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
}

impl Sieve {
    async fn show(&mut self, stored: Stored, items: &Items) -> Result<(), WireError> {
        let event = match Frame::decode(&stored.payload).and_then(|frame| frame.body::<Event>()) {
            Ok(event) => event,
            Err(error) => {
                let (subject, sequence) = (stored.subject, stored.sequence);
                tracing::warn!(error = %crate::chain(&error), subject, sequence, "an event is unreadable");
                return Ok(());
            }
        };
        let new = self.since.is_none_or(|since| event.at >= since);
        let asked =
            self.agents.is_empty() || agent_of(&event).is_some_and(|agent| self.agents.contains(&agent));
        if new && asked && self.seen.is_first(&event) {
            items.send(&Item::Event(Box::new(event))).await?;
        }
        Ok(())
    }
}

fn agent_of(event: &Event) -> Option<AgentId> {
    match &event.fact {
        Fact::AgentPhase { agent, .. } | Fact::AgentDestroyed { agent, .. } => Some(*agent),
        Fact::TaskState { .. }
        | Fact::RunSubmitted { .. }
        | Fact::RunEnded { .. }
        | Fact::HostStarted { .. }
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
        };
        let mut seen = Seen::default();
        assert!(seen.is_first(&event(1)));
        assert!(seen.is_first(&event(2)));
        assert!(!seen.is_first(&event(1)));
    }
}
