//! Workspaces against real git, real mounts and repositories that mean harm.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed step of a test is a failed test; clippy exempts test functions, not their helpers"
)]

mod comparing;
mod contract;
mod fixture;
mod many;
mod merging;
mod preparing;
mod repository;
mod snapshots;
mod source;
mod taking_away;
mod trust;
mod users;
