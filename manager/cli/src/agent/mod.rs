//! The commands about agents.

pub mod attach;
pub mod change;
pub mod create;
pub mod environment;
pub mod events;
pub mod exec;
pub mod logs;
pub mod select;
pub mod show;
pub mod view;
pub mod wait;
