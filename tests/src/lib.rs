//! What the tests of the whole are made of: the simulation of a fleet (`sim`), and an installation with real
//! binaries in a folder of its own (`install`).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, which fails by panicking"
)]

pub mod bytes;
pub mod install;
pub mod json;
pub mod programs;
pub mod scratch;
pub mod sim;
pub mod wait;
