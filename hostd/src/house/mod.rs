//! Keeping house on a host: what takes space, what of it may go, and the taking away of what nobody needs.
//!
//! Nothing here destroys an agent or touches its workspace: that is an order, with its own proof that no work is lost.
//! What goes from here is what was left after: archives of destroyed agents, bases that nothing lies on, refs whose
//! work is in the person's own refs, groups, sessions and sockets of ended agents. Each is looked at again just before.
//! And when everything is stopped on purpose, what ended agents have on the machine beside their folders.

mod free;
mod leave;
mod leftovers;
mod measure;
mod retention;
mod sizes;
mod survey;

use std::path::Path;

use protocol::time::Timestamp;

pub use free::{forget, free};
pub use leave::{Others, leave};
pub use retention::keep;
pub use sizes::Sizes;
pub use survey::{Looks, survey};

/// When a file was last written; 0, which is old, when that cannot be told.
fn written_at(path: &Path) -> Timestamp {
    let modified = path.symlink_metadata().and_then(|facts| facts.modified()).ok();
    let since = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    Timestamp(since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or(0))
}
