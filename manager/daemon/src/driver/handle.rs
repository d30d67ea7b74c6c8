//! The way into the loop: questions that are answered at once, wishes that are answered when they are durable, and what
//! happened. Holds nothing itself.

use manager_core::{Core, Input, RowLog, StoredRecord};
use protocol::api::{Mutation, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Generation, HostId};
use protocol::time::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use super::changes::Interest;
use super::commit::Keys;

/// A look at the state of the loop.
pub struct Glance<'a> {
    pub core: &'a Core,
    pub rows: &'a RowLog,
    pub now: Timestamp,
    pub unwritten: u64,
}

pub(super) type Query = Box<dyn FnOnce(&Glance<'_>) + Send>;
pub(super) type Answered = Result<Reply, WireError>;
/// Length of a lease in ms.
pub(super) type Granted = Result<u64, WireError>;

/// What comes through the handle.
pub(super) enum Asked {
    Query(Query),
    Watch {
        interest: Interest,
        reply: oneshot::Sender<watch::Receiver<u64>>,
    },
    Change {
        request: Box<Mutation>,
        reply: oneshot::Sender<Answered>,
    },
    /// What the store must have.
    Held {
        reply: oneshot::Sender<(Vec<StoredRecord>, Keys)>,
    },
    /// Their present values are to be written again; answered when they are durable.
    WriteBack {
        keys: Keys,
        reply: oneshot::Sender<()>,
    },
    Lease {
        host: HostId,
        agent: AgentId,
        generation: Generation,
        reply: oneshot::Sender<Granted>,
    },
}

/// The way in, for clients. Full: the caller is told at once that it must come again.
#[derive(Clone, Debug)]
pub struct Driver {
    pub(super) asked: mpsc::Sender<Asked>,
    pub(super) facts: mpsc::Sender<Input>,
}

/// The loop has ended or cannot take more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum NotTaken {
    #[error("the manager has more to do than it can take")]
    Full,
    #[error("the manager is stopping")]
    Stopping,
}

impl From<NotTaken> for WireError {
    fn from(error: NotTaken) -> Self {
        Self::new(ErrorCode::Unavailable, error.to_string()).hint("ask again with the same --key in a moment")
    }
}

impl Driver {
    /// What `look` sees in the present state; never waits for the store.
    ///
    /// # Errors
    /// When the loop has ended or too much is asked.
    pub async fn glance<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Glance<'_>) -> T + Send + 'static,
    ) -> Result<T, NotTaken> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::Query(Box::new(move |glance| {
            let _ = reply.send(look(glance));
        })))?;
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    /// Notices of every change of `interest` from now on.
    ///
    /// # Errors
    /// As [`Self::glance`].
    pub async fn watch(&self, interest: Interest) -> Result<watch::Receiver<u64>, NotTaken> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::Watch { interest, reply })?;
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    /// A change that a client asks for; answered when it is durable.
    ///
    /// # Errors
    /// The core's refusal, or that it was not taken.
    pub async fn change(&self, request: Mutation) -> Result<Reply, WireError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::Change { request: Box::new(request), reply })?;
        answer.await.map_err(|_| WireError::from(NotTaken::Stopping))?
    }

    /// A longer lease that `host` asks for its agent; given when it is durable.
    ///
    /// # Errors
    /// The core's refusal, or that it was not taken.
    pub async fn lease(
        &self,
        host: HostId,
        agent: AgentId,
        generation: Generation,
    ) -> Result<u64, WireError> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::Lease { host, agent, generation, reply })?;
        answer.await.map_err(|_| WireError::from(NotTaken::Stopping))?
    }

    /// Every record that the store must have, but those of which the last value is not durable yet: their keys.
    ///
    /// # Errors
    /// When the loop has ended or too much is asked.
    pub async fn held(&self) -> Result<(Vec<StoredRecord>, Keys), NotTaken> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::Held { reply })?;
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    /// Has the present values of these keys written again, after all that was decided before; a key without a value
    /// is deleted. Returns when the store has them.
    ///
    /// # Errors
    /// As [`Self::held`].
    pub async fn write_back(&self, keys: Keys) -> Result<(), NotTaken> {
        let (reply, answer) = oneshot::channel();
        self.ask(Asked::WriteBack { keys, reply })?;
        answer.await.map_err(|_| NotTaken::Stopping)
    }

    fn ask(&self, asked: Asked) -> Result<(), NotTaken> {
        self.asked.try_send(asked).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::Full,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Stopping,
        })
    }

    /// Something that happened. Waits while the loop is busy.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn happened(&self, input: Input) -> Result<(), NotTaken> {
        self.facts.send(input).await.map_err(|_| NotTaken::Stopping)
    }
}
