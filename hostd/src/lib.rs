//! hostd: looks after the agents of one machine and tells the manager what it sees.
//!
//! [`hostd_core`] decides; this crate carries out. `driver` is the one loop; `agents` has the jobs of one agent's
//! life; `bus` is all that is said and heard; `state` what is kept on disk; `sys` and `workspace` touch the machine.

pub mod bus;
pub mod clock;
pub mod state;
pub mod sys;
pub mod workspace;
