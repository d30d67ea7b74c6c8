//! Runs of tasks: what becomes of each, how the work is verified, and tasks that come one by one.

mod cancelling;
mod caps;
mod preparing;
mod runs;
mod streams;
mod verified;
