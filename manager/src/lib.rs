//! (in construction)
pub mod cli;
pub mod daemon;
pub mod embedded;
pub mod report;
pub mod runfile;
pub mod store;
