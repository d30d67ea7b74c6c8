//! The manager of a fleet, and everything that `phalanx` is.
//!
//! [`manager_core`] decides; `daemon` carries out and answers; `store` keeps records on the bus; `embedded` brings a
//! whole installation up on one machine; `cli`, `runfile` and `report` are what an operator works with.

pub mod cli;
pub mod daemon;
pub mod embedded;
pub mod report;
pub mod runfile;
pub mod store;
