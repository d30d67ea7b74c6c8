//! What crosses a process border in Phalanx: ids, subjects, frames, orders, reports, requests and records.
//!
//! Pure: no IO, no clock, no randomness. Types are checked when they are decoded, once. Compatibility: frames hold
//! maps with named fields, fields are only added (with a default), and words of an enum that an old reader does not
//! know become `Unknown`. Golden bytes in `tests/` keep every released form readable.
//!
//! Folders are for whoever looks for something; a module has one name, which does not tell its folder.

mod client;
mod host;
mod wire;
mod work;

pub use client::{api, change, notify, row, status, view};
pub use host::{
    compare, exec, files, host_config, house, order, report, screen, shim, snapshot, top, transcript,
};
pub use wire::error::chain;
use wire::wire_enum;
pub use wire::{codec, error, ids, subject, time};
pub use work::{agent, containment, event, merge, message, signals, task};
