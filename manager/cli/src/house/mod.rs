//! Keeping house from the command line: what takes space, and the taking away of what nobody needs.

pub mod du;
pub mod gc;
pub mod plan;
pub mod survey;
