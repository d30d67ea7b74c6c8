//! The commands about runs and tasks.

pub mod cancel;
pub mod change;
pub mod follow;
pub mod list;
pub mod plan;
pub mod report;
pub mod show;
pub mod stream;
pub mod submit;
pub mod view;
pub mod wait;
pub mod why;
