//! The commands about this machine and the fleet as a whole.

mod boot;
pub mod doctor;
pub mod hosts;
pub mod notify;
pub mod start;
pub mod status;
