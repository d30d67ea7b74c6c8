//! Says every 2 s that this host lives, and every third time which reports it has.
//!
//! Depends on nothing slow: facts are read on a blocking thread while the beat before is still fresh, the digest has
//! a limit and is left out when it is late, and a beat is skipped while the bus is away (a queued one would say that
//! the host lived when nobody knows).

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use protocol::codec::Frame;
use protocol::ids::{Fencing, Incarnation};
use protocol::report::{DigestRow, Heartbeat, HostFacts};
use protocol::subject;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior};

use super::connect::Bus;
use crate::clock;
use crate::sys::facts::FactsReader;

const PERIOD: Duration = Duration::from_secs(2);
/// At first: a manager that starts at the same moment hears of this host at once.
const FIRST_PERIOD: Duration = Duration::from_millis(200);
const FIRST_BEATS: u64 = 25;
const DIGEST_EVERY: u64 = 3;
const DIGEST_LIMIT: Duration = Duration::from_millis(500);

/// The driver answers a digest for each sender.
pub type DigestSource = mpsc::Sender<oneshot::Sender<Vec<DigestRow>>>;

/// What a beat says that does not change with each.
#[derive(Clone, Debug)]
pub struct Heart {
    pub bus: Bus,
    pub incarnation: Incarnation,
    pub fencing: watch::Receiver<Fencing>,
    pub build: String,
    /// Folder whose disk holds the agents.
    pub disk: PathBuf,
    /// cgroups, overlay, limits: read once.
    pub fixed: HostFacts,
    pub digest: DigestSource,
    /// Percent of the disk that is used, for admission.
    pub disk_used: watch::Sender<u64>,
}

impl Heart {
    /// Beats until it is dropped.
    pub async fn run(self) {
        let reader = Arc::new(Mutex::new(FactsReader::new()));
        let mut ticks = steady(FIRST_PERIOD);
        let mut beats: u64 = 0;
        loop {
            ticks.tick().await;
            let facts = self.facts(&reader).await;
            if !self.bus.is_connected() {
                continue;
            }
            let digest = if beats.is_multiple_of(DIGEST_EVERY) { self.digest().await } else { None };
            beats = beats.wrapping_add(1);
            if beats == FIRST_BEATS {
                ticks = steady(PERIOD);
            }
            let beat = Heartbeat {
                region: self.bus.region.clone(),
                host: self.bus.host.clone(),
                incarnation: self.incarnation,
                fencing: *self.fencing.borrow(),
                now: clock::now(),
                build: self.build.clone(),
                facts,
                digest,
            };
            self.publish(&beat).await;
        }
    }

    async fn facts(&self, reader: &Arc<Mutex<FactsReader>>) -> HostFacts {
        let (reader, disk) = (Arc::clone(reader), self.disk.clone());
        let read =
            tokio::task::spawn_blocking(move || reader.lock().map(|mut reader| reader.load(&disk)).ok());
        let mut facts = self.fixed.clone();
        // A probe that hangs leaves the last known values out, not the beat.
        if let Ok(Ok(Some(load))) = tokio::time::timeout(Duration::from_millis(500), read).await {
            facts.memory_available_bytes = load.memory_available_bytes.unwrap_or_default();
            facts.load_percent = load.load_one.map_or(0, percent);
            if let Some(space) = load.disk {
                facts.disk_total_bytes = space.total_bytes;
                facts.disk_free_bytes = space.free_bytes;
                self.disk_used.send_if_modified(|used| {
                    let now = space.used_percent();
                    std::mem::replace(used, now) != now
                });
            }
        }
        facts
    }

    async fn digest(&self) -> Option<Vec<DigestRow>> {
        let (answer, answered) = oneshot::channel();
        self.digest.try_send(answer).ok()?;
        tokio::time::timeout(DIGEST_LIMIT, answered).await.ok()?.ok()
    }

    async fn publish(&self, beat: &Heartbeat) {
        let subject = subject::heartbeat(&self.bus.region, &self.bus.host);
        match Frame::of(Heartbeat::KIND, "", beat).and_then(|frame| frame.encode()) {
            Ok(bytes) => {
                let sent = self.bus.client.publish(subject, Bytes::from(bytes));
                let _ = tokio::time::timeout(Duration::from_millis(500), sent).await;
            }
            Err(error) => {
                tracing::error!(error = protocol::chain(&error), "a heartbeat could not be encoded");
            }
        }
    }
}

/// After a stall one beat is due, not all that were missed.
fn steady(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// A load of 1.0 is 100.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
fn percent(load: f64) -> u64 {
    (load * 100.0).clamp(0.0, 1e9) as u64
}
