//! Files on their way in: what came of each, by its name, until it is whole. In memory only: a hostd that ends forgets
//! them, and the files, which have no name yet, go with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::error::{ErrorCode, WireError};
use protocol::files::FileWrite;
use protocol::ids::AgentId;
use sha2::{Digest, Sha256};

use super::files::wire_error;
use crate::sys::files::{FileError, Staged};

/// Uploads at once; more are refused.
const UPLOADS: usize = 64;
/// One that nothing came for is given up.
const IDLE: Duration = Duration::from_secs(120);
/// Names of finished uploads that are remembered: a last step that comes again is not an error.
const FINISHED: usize = 1_000;

#[derive(Debug, Default)]
pub struct Uploads(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    open: BTreeMap<String, Arc<Mutex<Upload>>>,
    finished: VecDeque<String>,
}

#[derive(Debug)]
struct Upload {
    agent: AgentId,
    /// `None` once it is finished or has failed.
    staged: Option<Staged>,
    hash: Sha256,
    bytes: u64,
    touched: Instant,
}

impl Uploads {
    /// One step; blocks. `begin` makes the file at the first.
    ///
    /// # Errors
    /// What the file system says; a step that does not follow; content that does not have its digest.
    pub fn step(
        &self,
        agent: AgentId,
        write: &FileWrite,
        begin: impl FnOnce() -> Result<Staged, FileError>,
    ) -> Result<(), WireError> {
        let Some(upload) = self.open(agent, write, begin)? else { return Ok(()) };
        let done = lock(&upload).take(agent, write);
        if done.is_err() || write.finish.is_some() {
            let mut known = lock(&self.0);
            known.open.remove(&write.upload);
            if done.is_ok() {
                known.finished.push_back(write.upload.clone());
                if known.finished.len() > FINISHED {
                    known.finished.pop_front();
                }
            }
        }
        done
    }

    /// Gives up what nothing came for.
    pub fn sweep(&self) {
        let is_idle = |upload: &Arc<Mutex<Upload>>| {
            upload.try_lock().is_ok_and(|upload| upload.touched.elapsed() > IDLE)
        };
        lock(&self.0).open.retain(|_, upload| !is_idle(upload));
    }

    /// `None` for one that is finished already.
    fn open(
        &self,
        agent: AgentId,
        write: &FileWrite,
        begin: impl FnOnce() -> Result<Staged, FileError>,
    ) -> Result<Option<Arc<Mutex<Upload>>>, WireError> {
        let mut known = lock(&self.0);
        if known.finished.contains(&write.upload) {
            return Ok(None);
        }
        if let Some(upload) = known.open.get(&write.upload) {
            return Ok(Some(Arc::clone(upload)));
        }
        if write.offset > 0 {
            let message = "this transfer was given up (hostd was restarted, or nothing came for two minutes); \
                           nothing was changed";
            return Err(WireError::new(ErrorCode::Unavailable, message).hint("the same command again"));
        }
        if known.open.len() >= UPLOADS {
            return Err(super::busy());
        }
        let staged = begin().map_err(|error| wire_error(&write.path, &error))?;
        let upload =
            Upload { agent, staged: Some(staged), hash: Sha256::new(), bytes: 0, touched: Instant::now() };
        let upload = Arc::new(Mutex::new(upload));
        known.open.insert(write.upload.clone(), Arc::clone(&upload));
        Ok(Some(upload))
    }
}

impl Upload {
    fn take(&mut self, agent: AgentId, write: &FileWrite) -> Result<(), WireError> {
        let failed = |error: FileError| wire_error(&write.path, &error);
        let wrong = |message: &str| Err(WireError::new(ErrorCode::Conflict, message));
        self.touched = Instant::now();
        let Some(staged) = self.staged.as_mut().filter(|_| self.agent == agent) else {
            return wrong("this upload is another one's, or over");
        };
        let length = u64::try_from(write.bytes.len()).unwrap_or(u64::MAX);
        let end = write.offset.saturating_add(length);
        if write.offset == self.bytes {
            staged.write(&write.bytes).map_err(failed)?;
            self.hash.update(&write.bytes);
            self.bytes = end;
        } else if end > self.bytes {
            return wrong("a piece of this upload is missing");
        }
        let Some(finish) = &write.finish else { return Ok(()) };
        let digest = data_encoding::HEXLOWER.encode(&self.hash.finalize_reset());
        let staged = self.staged.take();
        if digest != finish.sha256 {
            let message = "what came is not what was sent (its digest differs); nothing was changed";
            return Err(WireError::new(ErrorCode::Failed, message).hint("the same command again"));
        }
        staged.map_or(Ok(()), |staged| staged.finish(finish.mode)).map_err(failed)
    }
}

/// A step that broke off leaves a state that the next step judges by its offset.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
