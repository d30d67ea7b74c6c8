//! Notifications: what happens in the fleet, brought to a person's own program or web hook. `notice` is what one says,
//! `send` how it gets there, `view` how a hook is shown. Which hooks there are is the settings'; reading the facts and
//! retrying is the daemon's.

pub mod notice;
pub mod send;
pub mod view;
