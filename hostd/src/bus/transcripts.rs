//! Ships what agents print to the transcript stream. The file on disk is the spool, the stream a replica.
//!
//! Bytes go at 64 KiB, after 5 s, at once at the end or while someone follows. A chunk is known by its place, so
//! shipping again after a crash doubles nothing. How far an agent is shipped lies beside its transcript.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use protocol::codec::Frame;
use protocol::ids::AgentId;
use protocol::subject;
use protocol::time::Timestamp;
use protocol::transcript::Chunk;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connect::Bus;
use crate::clock;
use crate::state::replace;
use crate::sys::process::register;

/// Unshipped bytes wait at most so long.
const AT_LATEST: Duration = Duration::from_secs(5);
/// Pace of looking at the files of agents that nobody follows.
const LOOK: Duration = Duration::from_secs(1);
/// Pace for followed agents where the kernel gives no inotify instance.
const LOOK_WITHOUT_INOTIFY: Duration = Duration::from_millis(100);
/// Chunks that wait for their acknowledgement at once, at most one an agent.
const WINDOW: usize = 32;
const CAPACITY: usize = 4096;

/// What the shipper is told.
#[derive(Debug)]
pub enum Shipment {
    /// Begin, or go on where the last life stopped.
    Begin { agent: AgentId, folder: PathBuf, epoch: String },
    /// Ship at once until then.
    Follow { agent: AgentId, until: Timestamp },
    /// Nothing follows: ship the rest.
    End { agent: AgentId },
    /// The folder has moved to the archive.
    Moved { agent: AgentId, folder: PathBuf },
}

/// Full only while the bus stands still; then a job waits with its agent's transcript on disk.
#[derive(Clone, Debug)]
pub struct ShipperSink(mpsc::Sender<Shipment>);

impl ShipperSink {
    pub async fn tell(&self, shipment: Shipment) {
        let _ = self.0.send(shipment).await;
    }
}

#[derive(Debug)]
pub struct Shipper {
    bus: Bus,
    incoming: mpsc::Receiver<Shipment>,
    entries: BTreeMap<AgentId, Entry>,
    growth: Option<Growth>,
    watched: BTreeMap<WatchDescriptor, AgentId>,
}

#[derive(Debug)]
struct Entry {
    folder: PathBuf,
    epoch: String,
    shipped: u64,
    waits_since: Option<Instant>,
    followed_until: Timestamp,
    watch: Option<WatchDescriptor>,
    ended: bool,
    under_way: bool,
}

impl Shipper {
    #[must_use]
    pub fn new(bus: Bus) -> (ShipperSink, Self) {
        let (sink, incoming) = mpsc::channel(CAPACITY);
        let growth = Growth::new()
            .inspect_err(|error| tracing::warn!(%error, "no inotify: followed transcripts are polled"))
            .ok();
        (
            ShipperSink(sink),
            Self { bus, incoming, entries: BTreeMap::new(), growth, watched: BTreeMap::new() },
        )
    }

    /// Runs until every sink is gone.
    pub async fn run(mut self) {
        let mut shipping = FuturesUnordered::new();
        let mut look = Instant::now();
        loop {
            while shipping.len() < WINDOW {
                let Some(cut) = self.next_due() else { break };
                shipping.push(ship(self.bus.clone(), cut));
            }
            tokio::select! {
                told = self.incoming.recv() => match told {
                    Some(shipment) => self.take(shipment),
                    None => return,
                },
                Some(outcome) = shipping.next(), if !shipping.is_empty() => self.shipped(outcome),
                grown = grown(self.growth.as_ref()) => self.mark_grown(&grown),
                () = tokio::time::sleep_until(look), if !self.entries.is_empty() => {
                    self.look();
                    let polled = self.growth.is_none() && self.entries.values().any(Entry::is_followed);
                    look = Instant::now() + if polled { LOOK_WITHOUT_INOTIFY } else { LOOK };
                }
            }
        }
    }

    fn take(&mut self, shipment: Shipment) {
        match shipment {
            Shipment::Begin { agent, folder, epoch } => {
                let shipped = read_shipped(&folder);
                let entry = self.entries.entry(agent).or_insert(Entry {
                    folder,
                    epoch,
                    shipped,
                    waits_since: None,
                    followed_until: Timestamp::default(),
                    watch: None,
                    ended: false,
                    under_way: false,
                });
                // Started again before the rest of its last start was shipped.
                entry.ended = false;
            }
            Shipment::Follow { agent, until } => {
                let growth = self.growth.as_ref();
                if let Some(entry) = self.entries.get_mut(&agent) {
                    entry.followed_until = entry.followed_until.max(until);
                    if entry.watch.is_none() {
                        let path = entry.path();
                        entry.watch = growth.and_then(|growth| {
                            growth.inotify.add_watch(&path, AddWatchFlags::IN_MODIFY).ok()
                        });
                        if let Some(watch) = entry.watch {
                            self.watched.insert(watch, agent);
                        }
                    }
                    entry.notice(true);
                }
            }
            Shipment::End { agent } => {
                if let Some(entry) = self.entries.get_mut(&agent) {
                    entry.ended = true;
                    entry.notice(true);
                }
                self.drop_finished(agent);
            }
            Shipment::Moved { agent, folder } => {
                if let Some(entry) = self.entries.get_mut(&agent) {
                    entry.folder = folder;
                }
            }
        }
    }

    fn look(&mut self) {
        let now = clock::now();
        for entry in self.entries.values_mut() {
            entry.notice(false);
            if entry.followed_until < now
                && let (Some(watch), Some(growth)) = (entry.watch.take(), self.growth.as_ref())
            {
                let _ = growth.inotify.rm_watch(watch);
                self.watched.remove(&watch);
            }
        }
    }

    fn mark_grown(&mut self, grown: &[WatchDescriptor]) {
        for watch in grown {
            if let Some(entry) = self.watched.get(watch).and_then(|agent| self.entries.get_mut(agent)) {
                entry.notice(true);
            }
        }
    }

    fn next_due(&mut self) -> Option<Cut> {
        let (agent, entry) = self.entries.iter_mut().find(|(_, entry)| entry.is_due())?;
        entry.under_way = true;
        Some(Cut {
            agent: *agent,
            folder: entry.folder.clone(),
            epoch: entry.epoch.clone(),
            offset: entry.shipped,
            ended: entry.ended,
        })
    }

    fn shipped(&mut self, outcome: Outcome) {
        let Some(entry) = self.entries.get_mut(&outcome.agent) else { return };
        entry.under_way = false;
        match outcome.shipped {
            Ok(bytes) => {
                entry.shipped = entry.shipped.saturating_add(bytes);
                entry.waits_since = None;
                entry.notice(bytes > 0);
            }
            Err(why) => {
                tracing::debug!(agent = %outcome.agent, why, "a transcript waits for the bus");
                // Due again after the usual wait: the bytes are safe on disk.
                entry.waits_since = Some(Instant::now());
            }
        }
        self.drop_finished(outcome.agent);
    }

    fn drop_finished(&mut self, agent: AgentId) {
        if self
            .entries
            .get(&agent)
            .is_some_and(|entry| entry.ended && !entry.under_way && entry.pending() == 0)
            && let Some(entry) = self.entries.remove(&agent)
            && let (Some(watch), Some(growth)) = (entry.watch, self.growth.as_ref())
        {
            let _ = growth.inotify.rm_watch(watch);
            self.watched.remove(&watch);
        }
    }
}

/// An inotify instance and what tells that it has something.
#[derive(Debug)]
struct Growth {
    inotify: Inotify,
    readable: AsyncFd<OwnedFd>,
}

impl Growth {
    fn new() -> std::io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let copy = inotify.as_fd().try_clone_to_owned()?;
        Ok(Self { inotify, readable: register(copy, Interest::READABLE)? })
    }
}

impl Entry {
    fn path(&self) -> PathBuf {
        self.folder.join(protocol::shim::file::OUTPUT)
    }

    fn pending(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |facts| facts.len()).saturating_sub(self.shipped)
    }

    fn is_followed(&self) -> bool {
        self.followed_until >= clock::now()
    }

    /// Looks at the file; `at_once` makes what is there due now.
    fn notice(&mut self, at_once: bool) {
        let pending = self.pending();
        if pending == 0 {
            self.waits_since = None;
        } else if (at_once && (self.ended || self.is_followed())) || pending >= Chunk::SIZE as u64 {
            self.waits_since = Instant::now().checked_sub(AT_LATEST);
        } else if self.waits_since.is_none() {
            self.waits_since = Some(Instant::now());
        }
    }

    fn is_due(&self) -> bool {
        !self.under_way && self.waits_since.is_some_and(|since| since.elapsed() >= AT_LATEST)
    }
}

/// A piece to ship.
struct Cut {
    agent: AgentId,
    folder: PathBuf,
    epoch: String,
    offset: u64,
    ended: bool,
}

struct Outcome {
    agent: AgentId,
    shipped: Result<u64, String>,
}

async fn ship(bus: Bus, cut: Cut) -> Outcome {
    let agent = cut.agent;
    Outcome { agent, shipped: ship_cut(&bus, cut).await }
}

async fn ship_cut(bus: &Bus, cut: Cut) -> Result<u64, String> {
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<(Cut, Vec<u8>, bool)> {
        let file = std::fs::File::open(cut.folder.join(protocol::shim::file::OUTPUT))?;
        let mut bytes = vec![0_u8; Chunk::SIZE];
        let count = file.read_at(&mut bytes, cut.offset)?;
        bytes.truncate(count);
        let end = cut.offset.saturating_add(u64::try_from(count).unwrap_or(0));
        let last = cut.ended && file.metadata()?.len() <= end;
        Ok((cut, bytes, last))
    });
    let (cut, bytes, last) = read.await.map_err(|error| error.to_string())?.map_err(|e| e.to_string())?;
    if bytes.is_empty() {
        return Ok(0);
    }
    let count = u64::try_from(bytes.len()).unwrap_or(0);
    let shipped = cut.offset.saturating_add(count);
    let chunk = Chunk { epoch: cut.epoch, offset: cut.offset, bytes, last };
    let message_id = chunk.message_id();
    let encoded = Frame::of(Chunk::KIND, "", &chunk)
        .and_then(|frame| frame.encode())
        .map_err(|error| error.to_string())?;
    let message = async_nats::jetstream::message::PublishMessage::build()
        .message_id(message_id)
        .payload(Bytes::from(encoded));
    let subject = subject::transcript(&bus.region, &bus.host, &cut.agent);
    let ack = bus.stream.send_publish(subject, message).await.map_err(|error| error.to_string())?;
    ack.await.map_err(|error| error.to_string())?;
    // Not on the runtime's threads: a disk that stands still must not hold up the heartbeat.
    let saved = tokio::task::spawn_blocking(move || save_shipped(&cut.folder, shipped));
    saved.await.map(|()| count).map_err(|error| error.to_string())
}

/// Which watched files have grown; never returns without inotify.
async fn grown(growth: Option<&Growth>) -> Vec<WatchDescriptor> {
    let Some(growth) = growth else { return std::future::pending().await };
    loop {
        let Ok(mut guard) = growth.readable.readable().await else { return std::future::pending().await };
        let read = guard.try_io(|_| growth.inotify.read_events().map_err(std::io::Error::from));
        if let Ok(Ok(events)) = read {
            return events.into_iter().map(|event| event.wd).collect();
        }
    }
}

fn read_shipped(folder: &Path) -> u64 {
    std::fs::read_to_string(folder.join("shipped"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn save_shipped(folder: &Path, shipped: u64) {
    // Losing it only means that some chunks are sent again, which readers drop.
    let _ = replace(&folder.join("shipped"), shipped.to_string().as_bytes());
}
