//! A connection to an agent's shim: requests and their replies, and the events it pushes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::codec::{CodecError, Frame, Hello, frame_length, socket_bytes};
use protocol::shim::{self, Event, Refusal, Reply, Request, kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// A shim answers at once: it does nothing else but relay.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("cannot reach the shim")]
    Connect(#[source] io::Error),
    #[error("the talk with the shim broke off")]
    Broken(#[source] CodecError),
    #[error("the shim speaks none of our versions ({0:?})")]
    Version(Vec<u16>),
    #[error("the shim did not answer within {0} s")]
    Silent(u64),
    #[error("the shim refused: {}", .0.message)]
    Refused(Refusal),
}

#[derive(Debug)]
pub struct ShimLink {
    stream: UnixStream,
    asked: u64,
}

/// The socket that a killed shim left in the folder of an agent: nobody listens on it. None where that cannot be told.
#[must_use]
pub fn stale_socket(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(shim::file::SOCKET);
    path.symlink_metadata().ok()?;
    let folder = File::open(folder).ok()?;
    let short = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), shim::file::SOCKET);
    match std::os::unix::net::UnixStream::connect(short) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Some(path),
        Ok(_) | Err(_) => None,
    }
}

impl ShimLink {
    /// Connects to the shim of an agent's folder; a folder's path may be of any length.
    ///
    /// # Errors
    /// No shim listens, or it speaks another version.
    pub async fn open(folder: &Path) -> Result<Self, LinkError> {
        within(LIMIT, async {
            // The descriptor makes the path short: socket paths are limited to 107 bytes.
            let folder = File::open(folder).map_err(LinkError::Connect)?;
            let short = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), shim::file::SOCKET);
            let stream = UnixStream::connect(short).await.map_err(LinkError::Connect)?;
            let mut link = Self { stream, asked: 0 };
            let hello = Hello { versions: vec![shim::SOCKET_VERSION], build: crate::BUILD.to_owned() };
            link.write(&Frame::of(Hello::KIND, "", &hello).map_err(LinkError::Broken)?).await?;
            let theirs = link.read().await?.ok_or(LinkError::Broken(CodecError::Torn))?;
            let theirs: Hello = theirs.body().map_err(LinkError::Broken)?;
            if theirs.versions.contains(&shim::SOCKET_VERSION) {
                Ok(link)
            } else {
                Err(LinkError::Version(theirs.versions))
            }
        })
        .await
    }

    /// Asks and waits for the reply; events that come between are passed over.
    ///
    /// # Errors
    /// A refusal, silence, or a broken connection.
    pub async fn ask(&mut self, request: &Request) -> Result<Reply, LinkError> {
        self.ask_within(request, LIMIT).await
    }

    /// As [`Self::ask`], of what takes the program's time too.
    ///
    /// # Errors
    /// A refusal, silence, or a broken connection.
    pub async fn ask_within(&mut self, request: &Request, limit: Duration) -> Result<Reply, LinkError> {
        self.asked += 1;
        let id = self.asked.to_string();
        within(limit, async {
            self.write(&Frame::of(kind::REQUEST, &id, request).map_err(LinkError::Broken)?).await?;
            loop {
                let frame = self.read().await?.ok_or(LinkError::Broken(CodecError::Torn))?;
                if frame.kind == kind::REPLY && frame.id == id {
                    return match frame.body().map_err(LinkError::Broken)? {
                        Reply::Refused(refusal) => Err(LinkError::Refused(refusal)),
                        reply => Ok(reply),
                    };
                }
            }
        })
        .await
    }

    /// Asks for events. The answer may come after the first of them, so it is not waited for here.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn watch(&mut self) -> Result<(), LinkError> {
        self.write(&Frame::of(kind::REQUEST, "watch", &Request::Watch).map_err(LinkError::Broken)?).await
    }

    /// The next event; `None` when the shim is gone. Waits as long as it takes.
    ///
    /// # Errors
    /// A broken connection.
    pub async fn event(&mut self) -> Result<Option<Event>, LinkError> {
        while let Some(frame) = self.read().await? {
            if frame.kind == kind::EVENT {
                return frame.body().map(Some).map_err(LinkError::Broken);
            }
        }
        Ok(None)
    }

    async fn write(&mut self, frame: &Frame) -> Result<(), LinkError> {
        for piece in frame.clone().split() {
            let bytes = socket_bytes(&piece).map_err(LinkError::Broken)?;
            self.stream.write_all(&bytes).await.map_err(|error| LinkError::Broken(CodecError::Io(error)))?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<Option<Frame>, LinkError> {
        let broken = |error| LinkError::Broken(CodecError::Io(error));
        let mut length = [0_u8; 4];
        match self.stream.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(broken(error)),
        }
        let mut bytes = vec![0_u8; frame_length(length).map_err(LinkError::Broken)?];
        self.stream.read_exact(&mut bytes).await.map_err(broken)?;
        Frame::decode(&bytes).map(Some).map_err(LinkError::Broken)
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, LinkError>>,
) -> Result<T, LinkError> {
    tokio::time::timeout(limit, work).await.unwrap_or(Err(LinkError::Silent(limit.as_secs())))
}
