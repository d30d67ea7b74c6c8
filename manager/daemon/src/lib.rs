//! The manager daemon: the shell around [`manager_core`]. It starts and stops the parts and owns none of their work.
//!
//! ```text
//! clients ─ server ─ session ─ request ─┬─ queries ──────────────┐
//!                                       ├─ stream (logs, wait …) ─┤
//! hosts ── inbound (reports, heartbeats) ───────────────────────── driver ── manager-core
//!       ── rpc (environments, blobs)                               │
//!       ── hosts (orders, asks) ◄── outputs, once durable ─────────┤
//! bus   ── writer (records), facts (events) ◄──────────────────────┘
//! ```
//! Start: lock, records and reports from the bus, the lead, the loop, then the socket: whoever can connect is served.
//! Stop: the socket goes, what was decided is written, every open request is answered, the lock goes with the process.

pub mod blobs;
pub mod bus;
pub mod clock;
pub mod driver;
mod error;
pub mod facts;
pub mod guard;
pub mod hosts;
pub mod lead;
pub mod notify;
pub mod parts;
pub mod queries;
pub mod retention;
pub mod secrets;
pub mod server;
pub mod start;
pub mod store;
pub mod stream;

pub use error::{DaemonError, stopping, unavailable};
pub use start::{Options, run};

use tokio::sync::watch;

/// Resolves when the level is true or nobody can raise it any more.
pub async fn raised(level: &mut watch::Receiver<bool>) {
    // The guard that `wait_for` gives must not live across another await.
    let _ = level.wait_for(|raised| *raised).await.map(|guard| *guard);
}
