//! Notifications as they are written: `hook` is where one goes, `asked` what a run asks for. What one says and how it gets there
//! is the package `manager-notify`'s.

pub mod asked;
pub mod hook;
