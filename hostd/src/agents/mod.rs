//! The jobs of one agent's life: make it, watch it, stop it, collect what it left, take it away.
//!
//! A job is a sequence of steps on the machine; it decides nothing about the agent. Its outcome goes to the driver
//! as an input. Each is repeatable: a hostd that was killed in the middle leaves what the next one finishes.

mod adopt;
mod collect;
mod create;
mod environment;
mod exit;
mod prepare;
mod remove;
mod session;
mod settings;
mod shim_link;
mod stop;
mod user;
mod watch;

pub use adopt::adopt;
pub use collect::collect;
pub use create::create;
pub use environment::{environment_of, name_agent};
pub use exit::{begin_of_launch, shim_of};
pub use prepare::{Waiters, end_left_over};
pub use remove::{remove, weigh};
pub use settings::{ask_lease, freeze, rename, set_lease, set_limits, thaw};
pub use shim_link::{LinkError, ShimLink, stale_socket};
pub use stop::{kill, terminate};
pub use user::agent_user;
