//! The store, the JWTs and the host's rights against a real nats-server on a free port.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test program: what cannot go on panics"
)]

mod figures;
mod journal;
mod lying;
mod rights;
mod server;
mod values;
mod watching;
