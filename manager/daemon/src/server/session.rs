//! One connection: the greeting, then requests side by side, each answered by items and exactly one reply or error.
//!
//! Bounds: [`CONCURRENT`] requests at once (one more is refused at once), [`FRAMES_WAITING`] frames for a client that
//! reads slowly (then the streams that feed it wait). A client that is gone ends its streams; a change that it asked
//! for goes on, and its key gives the answer later. What a request means is the [`Requests`]'s.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use protocol::api::{ERROR, ITEM, Item, REPLY, REQUEST, Reply, Request};
use protocol::codec::{CodecError, Frame, Hello};
use protocol::error::{ErrorCode, WireError};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinSet};

use super::frames::{FrameReader, write_frame};
use super::peer::Peer;
use crate::raised;

/// Requests of one connection that are worked on at once.
pub const CONCURRENT: usize = 64;
const FRAMES_WAITING: usize = 32;
/// Within which a client must have said what it speaks.
const GREETING_LIMIT: Duration = Duration::from_secs(10);
/// Within which a client must take what was left to say when the connection ends.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Answers requests.
pub trait Requests: Clone + Send + Sync + 'static {
    /// The one reply; what comes before it goes to `items`.
    fn answer(
        &self,
        peer: Peer,
        request: Request,
        items: Items,
    ) -> impl Future<Output = Result<Reply, WireError>> + Send;
}

/// The client of a stream is gone, so that nobody is interested in the rest.
#[derive(Debug, thiserror::Error)]
#[error("the client is gone")]
pub struct ClientGone;

impl From<ClientGone> for WireError {
    fn from(gone: ClientGone) -> Self {
        Self::new(ErrorCode::Unavailable, gone.to_string())
    }
}

/// Where the items of one answer go. Full: the sender waits for the client to read.
#[derive(Clone, Debug)]
pub struct Items {
    id: String,
    frames: mpsc::Sender<Frame>,
}

impl Items {
    /// # Errors
    /// When the connection has ended.
    pub async fn send(&self, item: &Item) -> Result<(), ClientGone> {
        let frame = encode(ITEM, &self.id, item);
        self.frames.send(frame).await.map_err(|_| ClientGone)
    }

    /// Whether the next item would be taken at once: the client keeps up.
    #[must_use]
    pub fn have_room(&self) -> bool {
        self.frames.capacity() > 0
    }

    /// Items that are received here as frames: for tests and for callers within the process.
    #[must_use]
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<Frame>) {
        let (frames, received) = mpsc::channel(capacity);
        (Self { id: String::new(), frames }, received)
    }
}

/// A value that cannot be encoded is our fault and is said, not swallowed.
fn encode<T: Serialize>(kind: &str, id: &str, value: &T) -> Frame {
    match Frame::of(kind, id, value) {
        Ok(frame) => frame,
        Err(error) => {
            tracing::error!(%error, kind, "an answer could not be encoded");
            let failed = WireError::new(ErrorCode::Failed, "the answer could not be encoded");
            Frame::of(ERROR, id, &failed).unwrap_or_else(|_| Frame::new(ERROR, id, Vec::new()))
        }
    }
}

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    ByClient,
    /// It did not follow the protocol; it was told so.
    Refused,
    Stopping,
}

/// Serves one connection to its end. `stop` turning true (or its sender gone) ends it with an answer to all that is
/// still open.
pub async fn serve<S, R>(stream: S, peer: Peer, requests: R, mut stop: watch::Receiver<bool>) -> Ended
where
    S: AsyncRead + AsyncWrite + Send,
    R: Requests,
{
    let (reading, writing) = tokio::io::split(stream);
    let (frames, outgoing) = mpsc::channel(FRAMES_WAITING);
    let sending = send_all(writing, outgoing);
    tokio::pin!(sending);
    let mut reader = FrameReader::new(reading);
    let ended = tokio::select! {
        () = &mut sending => return Ended::ByClient,
        ended = converse(&mut reader, peer, requests, frames, &mut stop) => ended,
    };
    if ended != Ended::ByClient {
        // `converse` has dropped the sender: what is queued goes out, then `sending` ends.
        let _ = tokio::time::timeout(FAREWELL_LIMIT, sending).await;
    }
    ended
}

async fn send_all<W: AsyncWrite + Unpin>(mut stream: W, mut frames: mpsc::Receiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        if write_frame(&mut stream, frame).await.is_err() {
            return;
        }
    }
}

async fn converse<S: AsyncRead + Unpin, R: Requests>(
    reader: &mut FrameReader<S>,
    peer: Peer,
    requests: R,
    frames: mpsc::Sender<Frame>,
    stop: &mut watch::Receiver<bool>,
) -> Ended {
    let refuse = async |error: WireError| {
        let _ = frames.send(encode(ERROR, "", &error)).await;
        Ended::Refused
    };
    let hello = Hello::ours(super::BUILD);
    let _ = frames.send(encode(Hello::KIND, "", &hello)).await;
    match tokio::time::timeout(GREETING_LIMIT, reader.next()).await {
        Ok(Ok(Some(frame))) => match frame.body::<Hello>() {
            Ok(theirs) if frame.kind == Hello::KIND && theirs.speaks_with_us() => {}
            Ok(theirs) if frame.kind == Hello::KIND => return refuse(other_version(&theirs.build)).await,
            _ => return refuse(invalid("the first frame is no greeting")).await,
        },
        Ok(Ok(None)) => return Ended::ByClient,
        Ok(Err(error)) => return refuse(undecodable(&error)).await,
        Err(_) => return refuse(WireError::new(ErrorCode::TimedOut, "no greeting came")).await,
    }
    let (received, mut incoming) = mpsc::channel(1);
    let pumping = pump(reader, received);
    tokio::pin!(pumping);
    let mut open = Open { peer, requests, frames: frames.clone(), jobs: JoinSet::new(), ids: HashMap::new() };
    loop {
        tokio::select! {
            biased;
            () = raised(stop) => {
                open.farewell().await;
                return Ended::Stopping;
            }
            Some(done) = open.jobs.join_next_with_id() => open.finish(done).await,
            Some(frame) = incoming.recv() => open.begin(frame).await,
            result = &mut pumping => return match result {
                Ok(()) => Ended::ByClient,
                Err(error) => refuse(undecodable(&error)).await,
            },
        }
    }
}

/// Reads frames until the end. A future of its own, since a read that is dropped half-way loses bytes.
async fn pump<S: AsyncRead + Unpin>(
    reader: &mut FrameReader<S>,
    frames: mpsc::Sender<Frame>,
) -> Result<(), CodecError> {
    while let Some(frame) = reader.next().await? {
        if frames.send(frame).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The requests of a connection that are being worked on.
struct Open<R> {
    peer: Peer,
    requests: R,
    frames: mpsc::Sender<Frame>,
    jobs: JoinSet<Result<Reply, WireError>>,
    ids: HashMap<Id, String>,
}

impl<R: Requests> Open<R> {
    async fn begin(&mut self, frame: Frame) {
        let id = frame.id.clone();
        let request = match frame.body::<Request>() {
            Ok(request) if frame.kind == REQUEST => request,
            Ok(_) => return self.fail(&id, &invalid("this frame is no request")).await,
            Err(error) => return self.fail(&id, &undecodable(&error)).await,
        };
        if self.jobs.len() >= CONCURRENT {
            let full = WireError::new(
                ErrorCode::Unavailable,
                format!("this connection already waits for {CONCURRENT} answers"),
            )
            .hint("ask again when some of them have come");
            return self.fail(&id, &full).await;
        }
        let (requests, peer) = (self.requests.clone(), self.peer);
        let items = Items { id: id.clone(), frames: self.frames.clone() };
        let job = self.jobs.spawn(async move { requests.answer(peer, request, items).await });
        self.ids.insert(job.id(), id);
    }

    async fn finish(&mut self, done: Result<(Id, Result<Reply, WireError>), tokio::task::JoinError>) {
        let (job, result) = match done {
            Ok((job, result)) => (job, result),
            Err(error) => {
                tracing::error!(%error, "a request ended without an answer");
                (error.id(), Err(WireError::new(ErrorCode::Failed, "the manager failed at this request")))
            }
        };
        let Some(id) = self.ids.remove(&job) else { return };
        match result {
            Ok(reply) => {
                let _ = self.frames.send(encode(REPLY, &id, &reply)).await;
            }
            Err(error) => self.fail(&id, &error).await,
        }
    }

    async fn fail(&self, id: &str, error: &WireError) {
        let _ = self.frames.send(encode(ERROR, id, error)).await;
    }

    /// Answers what is open: first with what is known, else that it is not known.
    async fn farewell(&mut self) {
        while let Some(done) = self.jobs.try_join_next_with_id() {
            self.finish(done).await;
        }
        self.jobs.shutdown().await;
        let stopping = WireError::new(ErrorCode::Unavailable, "the manager is stopping")
            .hint("ask again with the same --key once it is back");
        for id in std::mem::take(&mut self.ids).into_values() {
            self.fail(&id, &stopping).await;
        }
    }
}

fn invalid(message: &str) -> WireError {
    WireError::new(ErrorCode::Invalid, message)
}

fn undecodable(error: &CodecError) -> WireError {
    match error {
        CodecError::Version(_) => {
            WireError::new(ErrorCode::Unavailable, error.to_string()).hint(OTHER_VERSION_HINT)
        }
        _ => invalid(&format!("the request cannot be understood: {error}")),
    }
}

const OTHER_VERSION_HINT: &str =
    "run `phalanx down && phalanx up` with the newer build; agents go on meanwhile";

fn other_version(theirs: &str) -> WireError {
    WireError::new(
        ErrorCode::Unavailable,
        format!("this manager is build {}, which does not speak the version of build {theirs}", super::BUILD),
    )
    .hint(OTHER_VERSION_HINT)
}
