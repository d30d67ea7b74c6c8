//! Commands that look at many agents at once.

pub mod columns;
pub mod list;
pub mod row;
