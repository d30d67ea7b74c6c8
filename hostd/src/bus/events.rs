//! Facts: to the spool on disk first, then to the stream, in order, until acknowledged.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use protocol::codec::Frame;
use protocol::event::{Event, Fact};
use protocol::ids::AgentId;
use protocol::subject;
use protocol::time::Timestamp;
use tokio::sync::mpsc;

use super::connect::Bus;
use crate::state::{EventSpool, Spooled};

/// Events sent before the first of them must be acknowledged.
const WINDOW: usize = 256;
/// After a failed publish.
const AGAIN: Duration = Duration::from_millis(500);
/// Facts that wait to be spooled. Full only when the disk stands still; then facts are dropped with an error in
/// the log: state is in the reports, which are not.
const CAPACITY: usize = 4096;

#[derive(Debug)]
struct Noted {
    at: Timestamp,
    /// `None` for facts of the host itself.
    agent: Option<AgentId>,
    name: String,
    fact: Fact,
}

#[derive(Clone, Debug)]
pub struct EventSink(mpsc::Sender<Noted>);

impl EventSink {
    pub fn note(&self, at: Timestamp, agent: Option<AgentId>, name: String, fact: Fact) {
        if let Err(error) = self.0.try_send(Noted { at, agent, name, fact }) {
            tracing::error!(%error, "a fact was dropped: the event spool does not keep up");
        }
    }
}

#[derive(Debug)]
pub struct Events {
    bus: Bus,
    incoming: mpsc::Receiver<Noted>,
    spool: EventSpool,
}

/// A spooled line: the event and where it goes.
#[derive(serde::Serialize, serde::Deserialize)]
struct Line {
    subject: String,
    event: Event,
}

impl Events {
    /// # Errors
    /// When the spool cannot be opened.
    pub fn open(
        bus: Bus,
        state: &Path,
        new_epoch: &str,
    ) -> Result<(EventSink, Self), crate::state::StateError> {
        let spool = EventSpool::open(state, new_epoch)?;
        let (sink, incoming) = mpsc::channel(CAPACITY);
        Ok((EventSink(sink), Self { bus, incoming, spool }))
    }

    /// Runs until every sink is gone; what is not acknowledged by then waits in the spool for the next life.
    pub async fn run(mut self) {
        let mut noted = Vec::new();
        let mut again = false;
        loop {
            let waits = again || self.spool.waiting().is_ok_and(|waiting| !waiting.is_empty());
            tokio::select! {
                count = self.incoming.recv_many(&mut noted, WINDOW) => {
                    if count == 0 {
                        return;
                    }
                }
                () = tokio::time::sleep(AGAIN), if waits => {}
            }
            for fact in noted.drain(..) {
                self.spool_one(fact);
            }
            again = !self.publish_waiting().await;
        }
    }

    fn spool_one(&mut self, noted: Noted) {
        let (region, host) = (&self.bus.region, &self.bus.host);
        let line = Line {
            subject: noted.agent.map_or_else(
                || subject::host_event(region, host),
                |agent| subject::agent_event(region, host, &agent),
            ),
            event: Event {
                at: noted.at,
                epoch: self.spool.epoch().to_owned(),
                seq: self.spool.next_seq(),
                region: region.clone(),
                host: Some(host.clone()),
                name: noted.name,
                fact: noted.fact,
                cursor: None,
            },
        };
        let appended = serde_json::to_string(&line).map_err(|error| error.to_string()).and_then(|json| {
            // A short synchronous write: this task does nothing else and no one waits for it.
            self.spool.append(&json).map_err(|error| protocol::chain(&error))
        });
        if let Err(error) = appended {
            tracing::error!(error, "a fact could not be spooled");
        }
    }

    /// True when nothing waits any more.
    async fn publish_waiting(&mut self) -> bool {
        let Ok(mut waiting) = self.spool.waiting() else { return false };
        let whole = waiting.len() <= WINDOW;
        waiting.truncate(WINDOW);
        let mut acks = Vec::with_capacity(waiting.len());
        for spooled in &waiting {
            match self.publish(spooled).await {
                Ok(ack) => acks.push((spooled.seq, ack)),
                Err(()) => break,
            }
        }
        let all = acks.len() == waiting.len();
        // The cursor moves over the contiguous acknowledged prefix only, and once for all of it.
        let mut prefix = None;
        let mut missed = false;
        for (seq, ack) in acks {
            let acknowledged = match ack {
                Some(ack) => ack.await.is_ok(),
                None => true,
            };
            if !acknowledged {
                missed = true;
                break;
            }
            prefix = Some(seq.saturating_add(1));
        }
        let saved = prefix.is_none_or(|below| self.spool.acknowledge(below).is_ok());
        all && whole && saved && !missed
    }

    /// `Ok(None)`: the line is not an event and is passed over, named in the log.
    async fn publish(
        &self,
        spooled: &Spooled,
    ) -> Result<Option<async_nats::jetstream::context::PublishAckFuture>, ()> {
        let decoded = serde_json::from_str::<Line>(&spooled.json).map_err(|error| error.to_string());
        let encoded = decoded.and_then(|line| {
            let frame = Frame::of(Event::KIND, "", &line.event).and_then(|frame| frame.encode());
            frame.map(|bytes| (line.subject, bytes)).map_err(|error| protocol::chain(&error))
        });
        let (subject, bytes) = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                tracing::error!(seq = spooled.seq, error, "a spooled event is unreadable and is passed over");
                return Ok(None);
            }
        };
        let message = async_nats::jetstream::message::PublishMessage::build()
            .message_id(format!("{}:{}", self.spool.epoch(), spooled.seq))
            .payload(Bytes::from(bytes));
        self.bus.stream.send_publish(subject, message).await.map(Some).map_err(|_| ())
    }
}
