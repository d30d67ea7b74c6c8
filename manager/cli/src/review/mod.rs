//! The commands about finished work: `diff`, `patch`, `accept`, `reject`, `merge`.

pub mod decide;
pub mod diff;
pub mod files;
pub mod merge;
pub mod paint;
pub mod patch;
