//! What is changed of an agent while it runs: its lease, its limits, whether it stands still, its name for people.
//!
//! Each job carries one step out and tells what the machine says afterwards; which step is due is the core's.

mod freeze;
mod lease;
mod limits;
mod rename;

pub use freeze::{freeze, thaw};
pub use lease::{ask_lease, set_lease};
pub use limits::set_limits;
pub(super) use limits::{limits_of, limits_read};
pub use rename::rename;
