//! What operators see, computed when asked: what is wanted beside what was reported, and how old that is.

mod agents;
mod compare;
mod find;
mod messages;
mod pattern;
mod runs;
mod why;

pub use agents::ShellFacts;
pub use compare::ToCompare;
pub(crate) use why::waiting_words;
