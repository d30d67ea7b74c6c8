//! What an operator writes down and the manager goes by: task files, settings, and the hooks that both may name. Reads and
//! checks all of it, reporting every problem at once with its place, and carries out none of it.

pub mod config;
pub mod notify;
pub mod runfile;
