//! Notifications: what happens in the fleet, brought to a person's own program or web hook. `hook` is where they go, `asked` what a run asks for,
//! `notice` what one says, `send` how it gets there, `ledger` how far each hook has come. Reading the facts and retrying
//! is the daemon's.

pub mod asked;
pub mod hook;
pub mod ledger;
pub mod notice;
pub mod send;
