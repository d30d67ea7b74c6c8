//! The shim as a process: real programs, terminals, tmux, disks and cgroups.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it saw by failing"
)]

mod attach;
mod cgroup;
mod ends;
mod limits;
mod output;
mod records;
mod support;
mod typing;
mod view;
mod viewers;
