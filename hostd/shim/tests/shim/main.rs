//! The shim as a process: real programs, terminals, tmux, disks and cgroups.

mod attach;
mod cgroup;
mod ends;
mod limits;
mod output;
mod records;
mod support;
mod typing;
mod viewers;
