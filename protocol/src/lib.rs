//! What crosses a process border in Phalanx: ids, subjects, frames, orders, reports, requests and records.
//!
//! Pure: no IO, no clock, no randomness. Types are checked when they are decoded, once. Compatibility: frames hold
//! maps with named fields, fields are only added (with a default), and words of an enum that an old reader does not
//! know become `Unknown`. Golden bytes in `tests/` keep every released form readable.

pub mod agent;
pub mod api;
pub mod change;
pub mod codec;
pub mod compare;
pub mod error;
pub mod event;
pub mod exec;
pub mod files;
pub mod host_config;
pub mod house;
pub mod ids;
pub mod merge;
pub mod message;
pub mod notify;
pub mod order;
pub mod report;
mod request_key;
pub mod row;
pub mod screen;
pub mod shim;
pub mod signals;
pub mod snapshot;
pub mod status;
pub mod subject;
pub mod task;
pub mod time;
pub mod top;
pub mod transcript;
pub mod view;
mod wire_enum;
