//! Lists of agents that go on: [`watch`] tells what changes of their rows.

pub mod watch;
