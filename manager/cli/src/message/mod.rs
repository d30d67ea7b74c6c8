//! Commands about messages: sending a text to agents, and what became of it.

pub mod list;
pub mod send;
pub mod text;
pub mod view;
pub mod wait;
