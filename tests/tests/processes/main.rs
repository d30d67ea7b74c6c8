//! Processes: the real binaries, nats-server, tmux, git and cgroups. A file per promise to the user. Each test has an
//! installation of its own; what does not blur blame shares one, as steps of one test.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod batch;
mod boot;
mod changes;
mod crowd;
mod destroying;
mod ends;
mod half_created;
mod house;
mod input;
mod limits;
mod looking;
mod notifying;
mod recovery;
mod review;
mod screen;
mod scripts;
mod talking;
mod verbs;
