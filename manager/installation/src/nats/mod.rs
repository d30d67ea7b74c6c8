//! The embedded bus: the nats-server program, its keys and JWTs, its configuration and its port.
//! Starting it is the supervisor's; speaking to it is [`manager_daemon::store`]'s.

pub mod accounts;
pub mod binary;
pub mod conf;
pub mod install;
pub mod jwt;
pub mod keys;
pub mod port;
pub mod setup;

/// The region and JetStream domain of the first server of a fleet.
pub const HUB: &str = "hub";
