//! Commands that look at many agents at once.

pub mod changes;
pub mod columns;
pub mod lines;
pub mod list;
pub mod logs;
pub mod row;
pub mod top;
