//! Lists of agents that go on: [`watch`] tells what changes of their rows, [`top`] what they take of their hosts.

pub mod top;
pub mod watch;
