//! A client of the manager: what it asks, and how the answers show agents, hosts and hooks.

pub mod api;
pub mod change;
pub mod notify;
mod request;
pub mod row;
pub mod status;
pub mod view;
