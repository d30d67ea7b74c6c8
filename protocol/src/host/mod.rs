//! A host: what it is ordered and asked, what it reports, and what hostd and its shims say to each other. Answers that a
//! client gets as they are lie here too.

pub mod compare;
pub mod exec;
pub mod files;
pub mod host_config;
pub mod house;
pub mod order;
pub mod report;
pub mod screen;
pub mod shim;
pub mod snapshot;
pub mod top;
pub mod transcript;
