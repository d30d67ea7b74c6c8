//! The wall clock of this host. The boot clock, which nobody can set, is in `sys::facts`.

use std::time::{SystemTime, UNIX_EPOCH};

use protocol::time::Timestamp;

/// Wall clock.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
