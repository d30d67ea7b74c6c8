//! The manager's decisions, and nothing else: no clock, no randomness, no files, no threads, no logging.
//!
//! [`Core::handle`] takes one [`Input`] and answers with [`Effect`]s, whose order is part of the contract: what must
//! be durable first, then orders, asks, replies and events. [`Core::deadline`] says when it wants an
//! [`Input::Tick`]. Equal inputs give equal outputs, so that a simulation can replay a seed.
//!
//! Rules kept here, each with a test of that name: only a report changes what is believed; one reconcile step sends
//! every order; a stopped agent never comes back by itself; no two attempts of a task are live; caps hold at every
//! instant; one durable counter bounds all starts of a task; unknown is never taken for dead, done or success;
//! every request is answered once; a message is sent under one number until a report shows its outcome.
//!
//! Left to the shell: the bus, the store, signatures, sealing, blobs, streams of clients (it reads the views again
//! after each `handle` and hears what changed from [`Effect::Changed`]).

#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

mod blobs;
mod client;
mod config;
mod effect;
mod engine;
mod fleet;
mod input;
mod load;
mod merge;
mod message;
pub mod names;
mod outbox;
pub mod record;
mod retain;
mod run;
#[cfg(test)]
mod tests;
mod timers;
mod view;

pub use blobs::{judge, names_in};
pub use config::{Config, RunBounds, Strategy};
pub use effect::{AskToken, Effect, EnvironmentOwner, OrderDraft, Subject};
pub use engine::Core;
pub use input::Input;
pub use load::rewritten;
pub use merge::{MergeRecord, MergeStep, Recheck, Red};
pub use record::{Quarantined, StoredRecord};
pub use retain::OverRun;
pub use run::caps::{Caps, check as check_cap};
pub use run::placement::{Depth, Placement, Plan, Room, RunLoad, plan};
pub use run::queue::{Demand, Queue, Ready};
pub use view::{Following, RowCursor, RowLog, RowNews, Selection, ShellFacts, ToCompare};
