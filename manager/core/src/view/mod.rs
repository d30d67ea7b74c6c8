//! What operators see, computed when asked: what is wanted beside what was reported, and how old that is.

mod agents;
mod compare;
mod doing;
mod find;
mod messages;
mod pattern;
mod row_log;
mod runs;
mod select;
mod why;

pub use agents::ShellFacts;
pub use compare::ToCompare;
pub use row_log::{Following, RowCursor, RowLog, RowNews};
pub use select::Selection;
pub(crate) use why::waiting_words;
