//! The commands about finished work: `diff`, `patch`.

pub mod diff;
pub mod files;
pub mod paint;
pub mod patch;
