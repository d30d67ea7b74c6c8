//! Everything of hostd that touches the machine: cgroups, tmux, processes, facts of the host.
//!
//! Each module is an adapter: a few steps of IO with a pure parser beside it. None of them decides
//! what should happen; the core does, and the shell carries it out by calling these.

pub mod cgroup;
pub mod facts;
pub mod files;
pub mod process;
pub mod spawn;
pub mod tmux;
