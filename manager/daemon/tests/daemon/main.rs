//! The manager daemon on a real nats-server, with a scripted host on the real subjects and clients on the real socket;
//! and its loop on ports that the test holds.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test program: what cannot go on panics"
)]

mod client;
mod faults;
mod figures;
mod host;
mod life;
mod looping;
mod peers;
#[path = "../bus_store/server.rs"]
#[expect(dead_code, reason = "shared with the tests of the store, which use more of it")]
mod server;
mod sessions;
mod streams;
mod sweeping;
mod world;
