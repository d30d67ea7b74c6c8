//! The bus as the daemon uses it beside its records: orders and asks out, heartbeats, requests and transcripts in, and
//! what the streams hold. The one file of the daemon that knows the client library; everything it hands on is a type
//! of `protocol`. Records, leadership and blobs are [`crate::store`]'s.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use async_nats::{Client, StatusCode, Subscriber, jetstream};
use bytes::Bytes;
use futures::StreamExt;
use nkeys::KeyPair;
use protocol::codec::{CodecError, Frame, Joiner};
use protocol::ids::{AgentId, HostId, OrderId, Region};
use protocol::order::{Answer, Ask, Order};
use protocol::report::{Heartbeat, HostReply, HostRequest};
use protocol::subject;
use protocol::transcript::Chunk;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Within which the client library must have taken a message: longer means that it is not connected.
const SEND_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("cannot sign what goes to {0}")]
    Sign(HostId, #[source] nkeys::error::Error),
    #[error("cannot encode what goes to {0}")]
    Encode(String, #[source] CodecError),
    #[error("the bus is not connected")]
    Away,
    #[error("cannot listen to {subject}")]
    Listen {
        subject: String,
        #[source]
        source: async_nats::SubscribeError,
    },
    #[error("nobody listens to {0}")]
    NobodyListens(String),
    #[error("cannot read stream {stream}")]
    Read {
        stream: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A handle on the connection; cheap to clone.
#[derive(Clone)]
pub struct Bus {
    client: Client,
    streams: jetstream::Context,
    signer: Arc<KeyPair>,
}

impl Bus {
    #[must_use]
    pub fn new(client: Client, signer: KeyPair) -> Self {
        let streams = jetstream::new(client.clone());
        Self { client, streams, signer: Arc::new(signer) }
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Sends an order. That it left says nothing about its arrival.
    ///
    /// # Errors
    /// When it was not handed to the connection.
    pub async fn order(&self, order: &Order) -> Result<(), BusError> {
        let to = subject::command(&order.region, &order.host, order.command.verb());
        let frame = self.signed(Order::KIND, order.id, &order.host, order)?;
        self.send(to, None, &frame).await
    }

    /// Asks a host; its answers come one by one.
    ///
    /// # Errors
    /// When it was not handed to the connection.
    pub async fn ask(&self, ask: &Ask) -> Result<Answers, BusError> {
        let to = subject::command(&ask.region, &ask.host, Ask::VERB);
        let frame = self.signed(Ask::KIND, ask.id, &ask.host, ask)?;
        let inbox = self.client.new_inbox();
        let answers = self.listen(inbox.clone()).await?;
        self.send(to.clone(), Some(inbox), &frame).await?;
        Ok(Answers { subject: to, frames: answers, joiner: Joiner::default() })
    }

    /// Heartbeats of all hosts, each with the host that may have sent it.
    ///
    /// # Errors
    /// When the connection has ended for good.
    pub async fn heartbeats(&self) -> Result<Incoming<Heartbeat>, BusError> {
        self.incoming(subject::ALL_HEARTBEATS.to_owned(), Heartbeat::KIND).await
    }

    /// Requests of all hosts.
    ///
    /// # Errors
    /// As [`Self::heartbeats`].
    pub async fn host_requests(&self) -> Result<Incoming<HostRequest>, BusError> {
        self.incoming(subject::ALL_RPC.to_owned(), HostRequest::KIND).await
    }

    /// What one agent prints from now on, as far as its host ships it.
    ///
    /// # Errors
    /// As [`Self::heartbeats`].
    pub async fn transcript(
        &self,
        region: &Region,
        host: &HostId,
        agent: &AgentId,
    ) -> Result<Incoming<Chunk>, BusError> {
        self.incoming(subject::transcript(region, host, agent), Chunk::KIND).await
    }

    /// Answers a request of a host.
    ///
    /// # Errors
    /// When it was not handed to the connection.
    pub async fn reply(&self, to: ReplyTo, id: &str, reply: &HostReply) -> Result<(), BusError> {
        let frame =
            Frame::of(HostReply::KIND, id, reply).map_err(|source| BusError::Encode(to.0.clone(), source))?;
        self.send(to.0, None, &frame).await
    }

    /// Messages that a stream keeps.
    ///
    /// # Errors
    /// When the stream cannot be reached.
    pub async fn kept(&self, stream: &'static str) -> Result<Kept, BusError> {
        let found = self.streams.get_stream(stream).await;
        let inner = found.map_err(|source| BusError::Read { stream, source: Box::new(source) })?;
        Ok(Kept { stream: inner, name: stream })
    }

    fn signed<T: Serialize>(
        &self,
        kind: &str,
        id: OrderId,
        host: &HostId,
        body: &T,
    ) -> Result<Frame, BusError> {
        let mut frame = Frame::of(kind, &id.to_string(), body)
            .map_err(|source| BusError::Encode(host.to_string(), source))?;
        frame.key_id = self.signer.public_key();
        frame.sig =
            self.signer.sign(&frame.signed_bytes()).map_err(|source| BusError::Sign(host.clone(), source))?;
        Ok(frame)
    }

    /// The library waits for room while it is not connected, so that there is a limit here.
    async fn send(&self, to: String, reply: Option<String>, frame: &Frame) -> Result<(), BusError> {
        let bytes = frame.encode().map_err(|source| BusError::Encode(to.clone(), source))?;
        let bytes = Bytes::from(bytes);
        let sending = async {
            match reply {
                Some(reply) => self.client.publish_with_reply(to, reply, bytes).await,
                None => self.client.publish(to, bytes).await,
            }
        };
        match tokio::time::timeout(SEND_LIMIT, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(BusError::Away),
        }
    }

    async fn listen(&self, subject: String) -> Result<Subscriber, BusError> {
        match tokio::time::timeout(SEND_LIMIT, self.client.subscribe(subject.clone())).await {
            Ok(listening) => listening.map_err(|source| BusError::Listen { subject, source }),
            Err(_) => Err(BusError::Away),
        }
    }

    async fn incoming<T>(&self, subject: String, kind: &'static str) -> Result<Incoming<T>, BusError> {
        let messages = self.listen(subject).await?;
        Ok(Incoming { messages, kind, body: std::marker::PhantomData })
    }
}

/// The answers to one ask.
#[derive(Debug)]
pub struct Answers {
    subject: String,
    frames: Subscriber,
    joiner: Joiner,
}

impl Answers {
    /// The next answer; `None` when none can come any more. A host that is not there is known at once. May be dropped
    /// half-way without loss.
    ///
    /// # Errors
    /// [`BusError::NobodyListens`].
    pub async fn next(&mut self) -> Result<Option<Answer>, BusError> {
        while let Some(message) = self.frames.next().await {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                return Err(BusError::NobodyListens(self.subject.clone()));
            }
            let joined = Frame::decode(&message.payload).and_then(|frame| self.joiner.push(frame));
            match joined.and_then(|frame| frame.map(|frame| body(&frame, Answer::KIND)).transpose()) {
                Ok(Some(answer)) => return Ok(Some(answer)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = %protocol::chain(&error), subject = self.subject, "an answer is unreadable");
                }
            }
        }
        Ok(None)
    }
}

fn body<T: DeserializeOwned>(frame: &Frame, kind: &'static str) -> Result<T, CodecError> {
    if frame.kind != kind {
        let error = serde::de::Error::custom(format!("its kind is {:?}, not {kind:?}", frame.kind));
        return Err(CodecError::Decode(error));
    }
    frame.body()
}

/// Where the reply to a message goes.
#[derive(Debug)]
pub struct ReplyTo(String);

/// A message with the sender that its subject names: a host can publish under its own name only.
#[derive(Debug)]
pub struct Received<T> {
    pub sender: Option<(Region, HostId)>,
    pub id: String,
    pub body: T,
    pub reply_to: Option<ReplyTo>,
}

/// Messages of one kind as they come.
#[derive(Debug)]
pub struct Incoming<T> {
    messages: Subscriber,
    kind: &'static str,
    body: std::marker::PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Incoming<T> {
    /// The next one that can be read; `None` when the connection has ended for good. May be dropped half-way.
    pub async fn next(&mut self) -> Option<Received<T>> {
        loop {
            let message = self.messages.next().await?;
            let from = message.subject.to_string();
            match Frame::decode(&message.payload)
                .and_then(|frame| body(&frame, self.kind).map(|body| (frame.id, body)))
            {
                Ok((id, body)) => {
                    return Some(Received {
                        sender: subject::sender(&from),
                        id,
                        body,
                        reply_to: message.reply.map(|reply| ReplyTo(reply.to_string())),
                    });
                }
                Err(error) => {
                    tracing::warn!(error = %protocol::chain(&error), subject = from, "a message is unreadable");
                }
            }
        }
    }
}

/// A message of a stream.
#[derive(Debug)]
pub struct KeptMessage<T> {
    pub sequence: u64,
    /// When the server took it, ms since the Unix epoch.
    pub stored_unix_ms: u64,
    pub body: Option<T>,
}

/// Reads a stream by direct gets, so that nothing of a reader is left on the server when it goes.
pub struct Kept {
    stream: Stream,
    name: &'static str,
}

impl Kept {
    /// The first message of `subject` at `sequence` or after it. Its body is `None` when it cannot be read.
    ///
    /// # Errors
    /// When the stream cannot be read; "there is none" is `Ok(None)`.
    pub async fn next<T: DeserializeOwned>(
        &self,
        subject: &str,
        kind: &'static str,
        sequence: u64,
    ) -> Result<Option<KeptMessage<T>>, BusError> {
        let got = self.stream.direct_get_next_for_subject(subject, Some(sequence)).await;
        self.found(got, kind)
    }

    /// The newest message of `subject`.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn last<T: DeserializeOwned>(
        &self,
        subject: &str,
        kind: &'static str,
    ) -> Result<Option<KeptMessage<T>>, BusError> {
        let got = self.stream.direct_get_last_for_subject(subject).await;
        self.found(got, kind)
    }

    /// Sequence of the oldest message of the stream, and of its newest.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn bounds(&self) -> Result<(u64, u64), BusError> {
        let info = self.stream.get_info().await;
        let info = info.map_err(|source| BusError::Read { stream: self.name, source: Box::new(source) })?;
        Ok((info.state.first_sequence, info.state.last_sequence))
    }

    /// When the stream was made, ms since the Unix epoch: one that was made anew has other messages at its sequences.
    #[must_use]
    pub fn born_unix_ms(&self) -> u64 {
        let nanos = self.stream.cached_info().created.unix_timestamp_nanos();
        u64::try_from(nanos / 1_000_000).unwrap_or(0)
    }

    fn found<T: DeserializeOwned>(
        &self,
        got: Result<jetstream::message::StreamMessage, jetstream::stream::DirectGetError>,
        kind: &'static str,
    ) -> Result<Option<KeptMessage<T>>, BusError> {
        match got {
            Ok(message) => {
                let read = Frame::decode(&message.payload).and_then(|frame| body(&frame, kind));
                if let Err(error) = &read {
                    let (stream, sequence) = (self.name, message.sequence);
                    tracing::warn!(error = %protocol::chain(error), stream, sequence, "a message is unreadable");
                }
                let stored_ms = message.time.unix_timestamp_nanos() / 1_000_000;
                Ok(Some(KeptMessage {
                    sequence: message.sequence,
                    stored_unix_ms: u64::try_from(stored_ms).unwrap_or(0),
                    body: read.ok(),
                }))
            }
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(source) => Err(BusError::Read { stream: self.name, source: Box::new(source) }),
        }
    }
}
