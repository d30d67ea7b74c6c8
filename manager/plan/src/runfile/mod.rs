//! Task files: YAML documents, JSON rows and lines of commands → a checked plan of tasks, or every problem with its
//! place. Resolving repositories, sending and waiting are the command line's.

pub mod fields;
pub mod format;
pub mod include;
pub mod map;
pub mod parse;
pub mod problem;
pub mod profile;
pub mod prompt;
pub mod schema;
pub mod slug;
pub mod task;
pub mod template;
pub mod units;
pub mod validate;

pub use parse::{Before, Options, Plan, Source, parse};
