//! The commands about what agents' terminals show.

pub mod capture;
