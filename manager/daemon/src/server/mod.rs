//! The manager's Unix socket: who may connect, and one [`session`] per connection.
//!
//! The socket has mode 0600 in a folder of mode 0700, and the kernel is asked for the caller's user besides. At most
//! [`CONNECTIONS`] at once; one more is told so and closed.

pub mod frames;
pub mod peer;
pub mod request;
pub mod session;

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::api::ERROR;
use protocol::codec::Frame;
use protocol::error::{ErrorCode, WireError};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use session::Requests;

use super::raised;

/// The build that is named to peers.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");
/// Connections that are served at once.
pub const CONNECTIONS: usize = 4096;
/// After a failed accept, as when no descriptor is left: until the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Within which one that is turned away must take the reason.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// Why the socket cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {path}")]
pub struct ListenError {
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// The socket, removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Listens at `path`, which may be of any length, in place of whatever lies there. The caller holds the lock that
    /// says that nobody else serves it.
    ///
    /// # Errors
    /// When the folder is missing or cannot be written.
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError { path: path.to_path_buf(), source };
        let listener = bind(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_path_buf() })
    }

    /// Serves until `accept` turns true, then waits for the sessions, which end when `stop` turns true.
    pub async fn run<R: Requests>(
        self,
        requests: R,
        mut accept: watch::Receiver<bool>,
        stop: watch::Receiver<bool>,
    ) {
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = raised(&mut accept) => break,
                Some(_) = sessions.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let full = sessions.len() >= CONNECTIONS;
                        sessions.spawn(welcome(stream, full, requests.clone(), stop.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        // New callers find no socket at once, instead of a connection that nobody serves.
        drop(self);
        while sessions.join_next().await.is_some() {}
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Binds through the folder's descriptor, since `sockaddr_un` holds 108 bytes only (unix(7)).
fn bind(path: &Path) -> io::Result<UnixListener> {
    let missing = || io::Error::new(io::ErrorKind::InvalidInput, "a socket path needs a folder and a name");
    let folder = std::fs::File::open(path.parent().ok_or_else(missing)?)?;
    let name = path.file_name().ok_or_else(missing)?;
    let short = Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
    match std::fs::remove_file(&short) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn welcome<R: Requests>(stream: UnixStream, full: bool, requests: R, stop: watch::Receiver<bool>) {
    let refusal = match peer::identify(&stream) {
        Ok(_) if full => {
            WireError::new(ErrorCode::Unavailable, "the manager serves as many clients as it can")
                .hint("try again when some have ended")
        }
        Ok(peer) => {
            session::serve(stream, peer, requests, stop).await;
            return;
        }
        Err(error) => WireError::new(ErrorCode::Denied, error.to_string()),
    };
    let mut stream = stream;
    if let Ok(frame) = Frame::of(ERROR, "", &refusal) {
        let _ = tokio::time::timeout(REFUSAL_LIMIT, frames::write_frame(&mut stream, frame)).await;
    }
}
