//! Blobs as clients bring them and hosts fetch them, a piece at a time. Pieces of one that is being brought lie in a
//! file of `manager/spool/` until the last is there and the digest is right; then the store has it. Those that hosts
//! fetch are held in memory for a while, since many agents of a run read the same one. What nothing names any more is
//! [`sweep`]'s.

mod sweep;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use protocol::agent::Blob;
use protocol::error::{ErrorCode, WireError};
use protocol::time::Timestamp;
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt, SeekFrom};

use super::clock::Clock;
use crate::store::{self, Store, StoreError};

/// Largest blob.
pub const BLOB_LIMIT: u64 = 64 << 20;
/// Largest piece for a host: fits into one message.
const PART: u64 = 512 << 10;
/// Bytes of blobs that are held in memory.
const HELD_BYTES: usize = 96 << 20;
/// A file in the spool that nobody added to for so long was given up.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(3600);

/// All blobs.
pub struct Blobs {
    store: Store,
    clock: Clock,
    spool: PathBuf,
    /// How long one that nothing names stays in any case.
    grace_ms: u64,
    /// Held shared while blobs are brought or named, and alone while some are taken away: see [`sweep`].
    gate: tokio::sync::RwLock<()>,
    /// Those that are there, with the time at which somebody was last told so. Forgotten after the grace.
    seen: Mutex<HashMap<String, Timestamp>>,
    held: Mutex<VecDeque<(String, Bytes)>>,
    /// One piece at a time: clients that bring the same content share its file.
    bringing: tokio::sync::Mutex<()>,
}

impl Blobs {
    /// Makes the spool empty: what it holds is of a manager that is gone.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(store: Store, clock: Clock, grace_ms: u64, manager_folder: &Path) -> io::Result<Self> {
        let spool = manager_folder.join("spool");
        match std::fs::remove_dir_all(&spool) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&spool)?;
        Ok(Self {
            store,
            clock,
            spool,
            grace_ms,
            gate: tokio::sync::RwLock::new(()),
            seen: Mutex::default(),
            held: Mutex::default(),
            bringing: tokio::sync::Mutex::new(()),
        })
    }

    /// Takes a piece; the last one checks the whole and stores it. A piece may come twice.
    ///
    /// # Errors
    /// A wrong name, place, size or digest; or the store's.
    pub async fn put_piece(
        &self,
        sha256: &str,
        offset: u64,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), WireError> {
        check_name(sha256)?;
        let end = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if end > BLOB_LIMIT {
            return Err(invalid(format!("a blob has at most {BLOB_LIMIT} bytes")));
        }
        let _turn = self.bringing.lock().await;
        let _open = self.gate.read().await;
        if self.is_there(sha256).await? {
            return Ok(());
        }
        let path = self.spool.join(sha256);
        append(&path, offset, bytes).await?;
        if !last {
            return Ok(());
        }
        let mut content = fs::read(&path).await.map_err(|error| of_spool(&error))?;
        // What lies behind is of a client that brought something else under this name.
        content.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        let _ = fs::remove_file(&path).await;
        let wanted = sha256.to_owned();
        let content = Bytes::from(content);
        let digest = {
            let content = content.clone();
            tokio::task::spawn_blocking(move || store::blobs::name_of(&content)).await
        };
        if !digest.is_ok_and(|digest| digest == wanted) {
            return Err(
                invalid(format!("what was sent is not {sha256}")).hint("send it again from its beginning")
            );
        }
        self.store.blobs().put(content).await.map_err(|error| of_store(&error))?;
        self.saw(sha256);
        Ok(())
    }

    /// Stores what the manager itself has.
    ///
    /// # Errors
    /// The store's.
    pub async fn put(&self, content: &[u8]) -> Result<Blob, WireError> {
        let bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let _open = self.gate.read().await;
        let put = self.store.blobs().put(Bytes::copy_from_slice(content)).await;
        let sha256 = put.map_err(|error| of_store(&error))?;
        self.saw(&sha256);
        Ok(Blob { sha256, bytes })
    }

    /// Bytes from `offset` on, as many as `max` and one message allow, and the size of the whole.
    ///
    /// # Errors
    /// `NotFound`, or the store's.
    pub async fn part(&self, sha256: &str, offset: u64, max: u64) -> Result<(Vec<u8>, u64), WireError> {
        check_name(sha256)?;
        let content = match self.held(sha256) {
            Some(content) => content,
            None => {
                let got = self.store.blobs().get(sha256).await.map_err(|error| of_store(&error))?;
                let content = got.ok_or_else(|| {
                    WireError::new(ErrorCode::NotFound, format!("there is no blob {sha256}"))
                })?;
                self.hold(sha256, content.clone());
                content
            }
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let length = usize::try_from(max.min(PART)).unwrap_or(usize::MAX).min(content.len() - from);
        let total = u64::try_from(content.len()).unwrap_or(u64::MAX);
        Ok((content.slice(from..from + length).to_vec(), total))
    }

    fn held(&self, sha256: &str) -> Option<Bytes> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|(name, _)| name == sha256).map(|(_, content)| content.clone())
    }

    /// The oldest make room.
    fn hold(&self, sha256: &str, content: Bytes) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|(name, _)| name == sha256) {
            return;
        }
        held.push_back((sha256.to_owned(), content));
        while held.len() > 1 && held.iter().map(|(_, content)| content.len()).sum::<usize>() > HELD_BYTES {
            held.pop_front();
        }
    }

    /// Takes away what clients began to bring and gave up.
    pub async fn clear_spool(&self) {
        let _turn = self.bringing.lock().await;
        let Ok(mut files) = fs::read_dir(&self.spool).await else { return };
        while let Ok(Some(file)) = files.next_entry().await {
            let changed = file.metadata().await.and_then(|meta| meta.modified());
            let age = changed.ok().and_then(|changed| SystemTime::now().duration_since(changed).ok());
            if age.is_some_and(|age| age > GIVEN_UP_AFTER) {
                let _ = fs::remove_file(file.path()).await;
            }
        }
    }
}

/// Puts a piece where it belongs; one that would leave a hole is refused.
async fn append(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), WireError> {
    let written = async {
        let mut file: File =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).await?;
        let length = file.metadata().await?.len();
        if offset > length {
            return Ok(Some(length));
        }
        file.seek(SeekFrom::Start(offset)).await?;
        file.write_all(bytes).await?;
        file.flush().await?;
        Ok(None)
    };
    match written.await.map_err(|error: io::Error| of_spool(&error))? {
        None => Ok(()),
        Some(length) => Err(invalid(format!("the piece begins at {offset}, but {length} bytes are here"))),
    }
}

fn check_name(sha256: &str) -> Result<(), WireError> {
    let fits = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if fits { Ok(()) } else { Err(invalid("a blob is named by 64 lower-case hex digits".to_owned())) }
}

fn invalid(message: String) -> WireError {
    WireError::new(ErrorCode::Invalid, message)
}

fn of_spool(error: &io::Error) -> WireError {
    let message = format!("the manager cannot keep a piece: {error}");
    if error.kind() == io::ErrorKind::StorageFull {
        return WireError::new(ErrorCode::Exhausted, message).hint("free some disk space, then try again");
    }
    WireError::new(ErrorCode::Failed, message)
}

fn of_store(error: &StoreError) -> WireError {
    let code = match error {
        StoreError::DamagedBlob { .. } => ErrorCode::Failed,
        _ => ErrorCode::Unavailable,
    };
    WireError::new(code, protocol::chain(error))
}
