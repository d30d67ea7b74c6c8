//! Orders and asks as they come in: decoded, verified against the key of the managers, and bound to this host.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use protocol::codec::Frame;
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, Ask, Order};
use protocol::subject;

use super::connect::{Bus, BusError};

/// What was heard.
#[derive(Debug)]
pub enum Heard {
    Order(Box<Order>),
    Ask { ask: Box<Ask>, replier: Box<Replier> },
}

/// Where the answers to one ask go.
#[derive(Clone, Debug)]
pub struct Replier {
    bus: Bus,
    to: async_nats::Subject,
    id: String,
}

impl Replier {
    /// Id of the ask that is answered.
    #[must_use]
    pub fn ask(&self) -> &str {
        &self.id
    }

    /// Publishes one answer. A bus that is away drops it: the asker's time limit tells it so.
    pub async fn send(&self, answer: &Answer) {
        let encoded = Frame::of(Answer::KIND, &self.id, answer).and_then(|frame| frame.encode());
        match encoded {
            Ok(bytes) => {
                let sent = self.bus.client.publish(self.to.clone(), Bytes::from(bytes)).await;
                if let Err(error) = sent {
                    tracing::warn!(error = protocol::chain(&error), "an answer could not be sent");
                }
            }
            Err(error) => {
                tracing::error!(error = protocol::chain(&error), "an answer could not be encoded");
            }
        }
    }

    pub async fn refuse(&self, error: WireError) {
        self.send(&Answer::Refused(error)).await;
    }
}

/// The subscription. Bounded: what comes while it is full is dropped by the client with an event; orders come again.
pub struct Inbox {
    bus: Bus,
    key: nkeys::KeyPair,
    key_id: String,
    messages: async_nats::Subscriber,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    #[error("{0:?} is not the public key of a manager")]
    Key(String),
    #[error(transparent)]
    Bus(#[from] BusError),
}

impl Inbox {
    /// # Errors
    /// A key that is none, or a refused subscription.
    pub async fn open(bus: &Bus, order_key: &str) -> Result<Self, InboxError> {
        let key =
            nkeys::KeyPair::from_public_key(order_key).map_err(|_| InboxError::Key(order_key.to_owned()))?;
        let all = subject::commands(&bus.region, &bus.host);
        let messages = bus
            .client
            .subscribe(all.clone())
            .await
            .map_err(|source| BusError::Subscribe { subject: all, source })?;
        // Until the server knows of it, orders are lost: they would come again, but later.
        bus.flush(Duration::from_secs(1)).await;
        Ok(Self { bus: bus.clone(), key, key_id: order_key.to_owned(), messages })
    }

    /// The next message that verifies; `None` once the connection is closed for good.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            let message = self.messages.next().await?;
            match self.verify(&message) {
                Ok(heard) => return Some(heard),
                Err(why) => {
                    tracing::warn!(subject = %message.subject, why, "a message was not taken as an order");
                    if let Some(to) = message.reply {
                        let replier = Replier { bus: self.bus.clone(), to, id: String::new() };
                        replier.refuse(WireError::new(ErrorCode::Denied, why)).await;
                    }
                }
            }
        }
    }

    fn verify(&self, message: &async_nats::Message) -> Result<Heard, &'static str> {
        let frame = Frame::decode(&message.payload).map_err(|_| "it cannot be decoded")?;
        if frame.key_id != self.key_id {
            return Err("it is signed with a key that is not the managers'");
        }
        self.key.verify(&frame.signed_bytes(), &frame.sig).map_err(|_| "its signature does not verify")?;
        match frame.kind.as_str() {
            Order::KIND => {
                let order: Order = frame.body().map_err(|_| "its order cannot be decoded")?;
                Ok(Heard::Order(Box::new(order)))
            }
            Ask::KIND => {
                let ask: Ask = frame.body().map_err(|_| "its question cannot be decoded")?;
                if ask.host != self.bus.host || ask.region != self.bus.region {
                    return Err("it is meant for another host");
                }
                let to = message.reply.clone().ok_or("it asks and names no inbox")?;
                let replier = Replier { bus: self.bus.clone(), to, id: ask.id.to_string() };
                Ok(Heard::Ask { ask: Box::new(ask), replier: Box::new(replier) })
            }
            _ => Err("its kind is neither order nor ask"),
        }
    }
}
