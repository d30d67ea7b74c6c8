//! The client's side of the manager's socket: hello, request, items, reply. Blocking and without a runtime, so that a
//! list costs a connect and one round trip. Starting the manager is `context.rs`'s.

pub mod follow;
pub mod reader;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::api::{AnyRequest, ERROR, ITEM, Item, REPLY, REQUEST, Reply};
use protocol::codec::{CodecError, Frame, Hello, socket_bytes};
use protocol::error::{ErrorCode, WireError};

use self::reader::{Interrupts, Next, Reader};
use super::error::Failure;
use manager_installation::layout::connect_socket;
use protocol::chain;

/// This build, as it is told to the other side.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
/// An answer that is no stream must come within this.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const WRITE_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot connect to the manager")]
    Connect(#[source] std::io::Error),
    #[error("cannot talk to the manager")]
    Talk(#[source] CodecError),
    #[error("the manager closed the connection before it answered")]
    Closed,
    #[error("the manager did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    #[error("the manager (build {theirs}) and this phalanx (build {BUILD}) speak different versions")]
    Version { theirs: String },
    #[error("the manager sent a frame of kind {0:?}, which is none we know here")]
    Kind(String),
    #[error("the manager answered with something else than was asked for")]
    Unexpected,
    #[error(transparent)]
    Refused(#[from] WireError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let said = chain(&error);
        match error {
            ClientError::Refused(error) => error.into(),
            ClientError::Version { .. } => {
                Self::new(ErrorCode::Unavailable, said).hint("phalanx down && phalanx up   (agents go on)")
            }
            ClientError::Talk(CodecError::Encode(_) | CodecError::TooLarge { .. }) => {
                Self::new(ErrorCode::Invalid, said)
            }
            ClientError::Kind(_) | ClientError::Unexpected | ClientError::Talk(CodecError::Version(_)) => {
                Self::new(ErrorCode::Unavailable, said).hint("phalanx down && phalanx up   (agents go on)")
            }
            ClientError::Connect(_) | ClientError::Talk(_) | ClientError::Closed | ClientError::Silent(_) => {
                Self::new(ErrorCode::Unavailable, said).hint("phalanx status")
            }
        }
    }
}

/// How a stream of items ended.
#[derive(Debug)]
pub enum StreamEnd {
    Reply(Reply),
    /// The caller had enough.
    Enough,
    TimedOut,
    /// By this signal.
    Interrupted(i32),
}

/// Closes the connection of a client.
pub struct HangUp(Option<UnixStream>);

impl HangUp {
    pub fn now(&self) {
        if let Some(stream) = &self.0 {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// A request whose answers are taken one by one.
pub struct Asked(String);

/// One step of a stream.
#[derive(Debug)]
pub enum Streamed {
    Item(Box<Item>),
    Reply(Box<Reply>),
    TimedOut,
    Interrupted(i32),
}

/// What the caller of a stream wants after an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    More,
    Enough,
}

/// Until when a stream is followed.
#[derive(Default)]
pub struct Limits<'a> {
    pub deadline: Option<Instant>,
    pub interrupts: Option<&'a Interrupts>,
}

pub struct Client {
    stream: UnixStream,
    reader: Reader,
    greeted: bool,
    asked: u64,
}

impl Client {
    pub fn open(socket: &Path) -> Result<Self, ClientError> {
        let stream = connect_socket(socket).map_err(ClientError::Connect)?;
        stream.set_write_timeout(Some(WRITE_LIMIT)).map_err(ClientError::Connect)?;
        Ok(Self { stream, reader: Reader::default(), greeted: false, asked: 0 })
    }

    /// For another thread, to end what this client waits for.
    pub fn hang_up(&self) -> HangUp {
        HangUp(self.stream.try_clone().ok())
    }

    /// One request, one reply; items on the way are dropped.
    pub fn ask(&mut self, request: &impl AnyRequest) -> Result<Reply, Failure> {
        let limits = Limits { deadline: Some(Instant::now() + ANSWER_LIMIT), interrupts: None };
        match self.stream(request, &limits, |_| Ok(Flow::More))? {
            StreamEnd::Reply(reply) => Ok(reply),
            StreamEnd::Enough | StreamEnd::Interrupted(_) => Err(ClientError::Unexpected.into()),
            StreamEnd::TimedOut => Err(ClientError::Silent(ANSWER_LIMIT).into()),
        }
    }

    /// One request, its items one by one, and how it ended. After anything but a reply the connection is of no
    /// further use.
    pub fn stream(
        &mut self,
        request: &impl AnyRequest,
        limits: &Limits<'_>,
        mut take: impl FnMut(Item) -> Result<Flow, Failure>,
    ) -> Result<StreamEnd, Failure> {
        let asked = self.begin(request)?;
        loop {
            match self.next(&asked, limits)? {
                Streamed::Item(item) => {
                    if take(*item)? == Flow::Enough {
                        return Ok(StreamEnd::Enough);
                    }
                }
                Streamed::Reply(reply) => return Ok(StreamEnd::Reply(*reply)),
                Streamed::TimedOut => return Ok(StreamEnd::TimedOut),
                Streamed::Interrupted(signal) => return Ok(StreamEnd::Interrupted(signal)),
            }
        }
    }

    /// Sends a request; what comes of it is [`Self::next`]'s.
    pub fn begin(&mut self, request: &impl AnyRequest) -> Result<Asked, Failure> {
        Ok(Asked(self.send(request)?))
    }

    /// What comes next of this request. After a time-out or a signal the same may be asked again: nothing is lost.
    pub fn next(&mut self, asked: &Asked, limits: &Limits<'_>) -> Result<Streamed, Failure> {
        loop {
            let next = self.reader.next(&mut self.stream, limits.deadline, limits.interrupts);
            let frame = match next.map_err(ClientError::Talk)? {
                Next::Frame(frame) => frame,
                Next::Closed => return Err(ClientError::Closed.into()),
                Next::TimedOut => return Ok(Streamed::TimedOut),
                Next::Interrupted(signal) => return Ok(Streamed::Interrupted(signal)),
            };
            if frame.kind == Hello::KIND {
                self.greet(&frame)?;
                continue;
            }
            if frame.kind == ERROR {
                let error: WireError = frame.body().map_err(ClientError::Talk)?;
                return Err(error.into());
            }
            if !self.greeted || frame.id != asked.0 {
                continue; // the rest of an answer that was cut short
            }
            return match frame.kind.as_str() {
                ITEM => Ok(Streamed::Item(Box::new(frame.body().map_err(ClientError::Talk)?))),
                REPLY => Ok(Streamed::Reply(Box::new(frame.body().map_err(ClientError::Talk)?))),
                _ => Err(ClientError::Kind(frame.kind).into()),
            };
        }
    }

    fn greet(&mut self, frame: &Frame) -> Result<(), ClientError> {
        let hello: Hello = frame.body().map_err(ClientError::Talk)?;
        if !hello.speaks_with_us() {
            return Err(ClientError::Version { theirs: hello.build });
        }
        self.greeted = true;
        Ok(())
    }

    /// The hello goes out together with the first request: one round trip in all.
    fn send(&mut self, request: &impl AnyRequest) -> Result<String, ClientError> {
        self.asked += 1;
        let id = self.asked.to_string();
        let mut bytes = Vec::new();
        if self.asked == 1 {
            let hello = Frame::of(Hello::KIND, "", &Hello::ours(BUILD)).map_err(ClientError::Talk)?;
            bytes.extend(socket_bytes(&hello).map_err(ClientError::Talk)?);
        }
        let frame = Frame::of(REQUEST, &id, request).map_err(ClientError::Talk)?;
        for piece in frame.split() {
            bytes.extend(socket_bytes(&piece).map_err(ClientError::Talk)?);
        }
        match self.stream.write_all(&bytes) {
            Ok(()) => Ok(id),
            // Whoever hung up may have said why first: that is read instead.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(id),
            Err(error) => Err(ClientError::Talk(CodecError::Io(error))),
        }
    }
}
