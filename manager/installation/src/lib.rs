//! The fleet of one machine, started without set-up: where its state lies, the embedded bus and its
//! credentials, the supervisor that keeps nats-server, manager and hostd running, and starting, stopping,
//! checking all of it.
//!
//! Everything here but the supervisor is blocking std code, so that the command line needs no async runtime.
//! What goes over the bus is [`manager_daemon::store`]'s; what hostd does with its configuration is hostd's.

pub mod atomic_file;
pub mod boot;
pub mod doctor;
pub mod host_setup;
pub mod layout;
pub mod ledger;
pub mod lock;
pub mod losses;
pub mod nats;
pub mod process;
pub mod start;
pub mod status;
pub mod stop;
pub mod supervisor;

pub use layout::Layout;
