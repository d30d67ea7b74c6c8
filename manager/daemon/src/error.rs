//! Why the daemon does not start or ends.

use protocol::error::{ErrorCode, WireError};

use super::server::ListenError;
use crate::store::StoreError;
use crate::store::seal::SealError;
use manager_installation::layout::LayoutError;
use manager_installation::lock::LockError;
use manager_installation::nats::keys::KeyError;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("the state folder cannot be used")]
    Layout(#[from] LayoutError),
    #[error("another manager may be running")]
    Lock(#[from] LockError),
    #[error("the store cannot be used")]
    Store(#[from] StoreError),
    #[error("orders cannot be signed")]
    OrderKey(#[from] KeyError),
    #[error("secrets cannot be sealed")]
    FleetKey(#[from] SealError),
    #[error("{0:?} is no region")]
    Region(String),
    #[error("the reports of hosts could not be read")]
    Reports,
    #[error("the bus cannot be listened to")]
    Bus(#[from] super::bus::BusError),
    #[error("the spool of blobs cannot be made")]
    Spool(#[source] std::io::Error),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("{0} writes were not taken by the bus before the end; their requests were not acknowledged")]
    Unwritten(u64),
    #[error("a part of the manager ended by itself")]
    Part,
}

/// Not now, or not known.
#[must_use]
pub fn unavailable(message: String) -> WireError {
    WireError::new(ErrorCode::Unavailable, message)
}

/// The daemon ends before the answer is there.
#[must_use]
pub fn stopping() -> WireError {
    unavailable("the manager is stopping".to_owned()).hint("ask again once it is back")
}
