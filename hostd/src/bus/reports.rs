//! Puts whole reports into the agents' keys until each is acknowledged.
//!
//! Level-based: of reports of one agent only the newest is kept, so a bus that is away costs memory for one report
//! an agent and nothing is lost when it is back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use protocol::codec::Frame;
use protocol::ids::{AgentId, Seq};
use protocol::report::Report;
use protocol::subject;
use tokio::sync::mpsc;

use super::connect::Bus;

/// Puts that may wait for their acknowledgement at once.
const WINDOW: usize = 256;
/// After a failed put.
const AGAIN: Duration = Duration::from_millis(250);

/// The newest report of each agent that the writer has not taken.
type Newest = Arc<Mutex<BTreeMap<AgentId, Box<Report>>>>;

/// The way in. Coalesces: an agent's report takes the place of the one that still waits, so it is never full.
#[derive(Clone, Debug)]
pub struct ReportSink {
    newest: Newest,
    /// Says that there is something to take; once is enough.
    told: mpsc::Sender<()>,
}

impl ReportSink {
    pub fn put(&self, report: Box<Report>) {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).insert(report.agent, report);
        // Full: the writer is told already. Closed only at shutdown: the next incarnation reports everything anyway.
        let _ = self.told.try_send(());
    }
}

#[derive(Debug)]
pub struct Reports {
    bus: Bus,
    newest: Newest,
    told: mpsc::Receiver<()>,
    waiting: BTreeMap<AgentId, Box<Report>>,
    under_way: BTreeMap<AgentId, Seq>,
}

impl Reports {
    #[must_use]
    pub fn new(bus: Bus) -> (ReportSink, Self) {
        let newest = Newest::default();
        let (sink, told) = mpsc::channel(1);
        let writer =
            Self { bus, newest: newest.clone(), told, waiting: BTreeMap::new(), under_way: BTreeMap::new() };
        (ReportSink { newest, told: sink }, writer)
    }

    /// Runs until every sink is gone and what waits is acknowledged or cannot be.
    pub async fn run(mut self) {
        let mut puts = FuturesUnordered::new();
        let mut open = true;
        let mut pause = tokio::time::Instant::now();
        while open || !self.waiting.is_empty() || !puts.is_empty() {
            while puts.len() < WINDOW && tokio::time::Instant::now() >= pause {
                let Some(report) = self.next_due() else { break };
                let bus = self.bus.clone();
                puts.push(async move {
                    let outcome = put(&bus, &report).await;
                    (report, outcome)
                });
            }
            tokio::select! {
                told = self.told.recv(), if open => match told {
                    Some(()) => self.take(),
                    None => open = false,
                },
                Some((report, outcome)) = puts.next(), if !puts.is_empty() => {
                    self.under_way.remove(&report.agent);
                    if let Err(why) = outcome {
                        if !open {
                            return;
                        }
                        tracing::debug!(agent = %report.agent, why, "a report waits for the bus");
                        // A newer one that came meanwhile stays.
                        self.waiting.entry(report.agent).or_insert(report);
                        pause = tokio::time::Instant::now() + AGAIN;
                    }
                }
                () = tokio::time::sleep_until(pause),
                    if !self.waiting.is_empty() && pause > tokio::time::Instant::now() => {}
            }
        }
    }

    fn take(&mut self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.append(&mut newest);
    }

    /// One whose agent has no put under way: two at once could arrive in the wrong order.
    fn next_due(&mut self) -> Option<Box<Report>> {
        let agent = *self.waiting.keys().find(|agent| !self.under_way.contains_key(agent))?;
        let report = self.waiting.remove(&agent)?;
        self.under_way.insert(agent, report.seq);
        Some(report)
    }
}

impl Bus {
    /// Takes the report of an agent away: nothing is to be known of it any more.
    ///
    /// # Errors
    /// What the bus says; then the report stays.
    pub async fn forget_report(&self, agent: AgentId) -> Result<(), String> {
        let subject = subject::agent_report(&self.region, &self.host, &agent);
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("KV-Operation", "DEL");
        let acknowledged = self
            .stream
            .publish_with_headers(subject, headers, Bytes::new())
            .await
            .map_err(|error| error.to_string())?;
        acknowledged.await.map(|_| ()).map_err(|error| error.to_string())
    }
}

async fn put(bus: &Bus, report: &Report) -> Result<(), String> {
    let subject = subject::agent_report(&report.region, &report.host, &report.agent);
    let bytes = Frame::of(Report::KIND, "", report)
        .and_then(|frame| frame.encode())
        .map_err(|error| error.to_string())?;
    let acknowledged =
        bus.stream.publish(subject, Bytes::from(bytes)).await.map_err(|error| error.to_string())?;
    acknowledged.await.map(|_| ()).map_err(|error| error.to_string())
}
