//! hostd: looks after the agents of one machine and tells the manager what it sees.
//!
//! [`hostd_core`] decides; this crate carries out. `driver` is the one loop; `agents` has the jobs of one agent's
//! life, `messages` those of a text to it; `asks` answers questions; `bus` is all that is said and heard; `containment` keeps agents apart;
//! `screen` renders what terminals show; `state` is what is kept on disk; `sys` and `workspace` touch the machine; `daemon` puts
//! it together.

pub mod activity;
pub mod agents;
pub mod asks;
pub mod bus;
pub mod clock;
pub mod containment;
pub mod daemon;
pub mod driver;
pub mod house;
pub mod machine;
pub mod messages;
pub mod screen;
pub mod state;
pub mod supervisor;
pub mod sys;
pub mod workspace;

/// Version of this build, as peers see it.
pub const BUILD: &str = concat!("hostd ", env!("CARGO_PKG_VERSION"));
