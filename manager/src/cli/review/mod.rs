//! The commands about finished work: `diff`, `patch`, `accept`, `reject`.

pub mod decide;
pub mod diff;
pub mod files;
pub mod paint;
pub mod patch;
