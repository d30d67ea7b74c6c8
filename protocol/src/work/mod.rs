//! What is spoken of: agents and what they are told, runs and their tasks, what becomes of their work, and dated facts.

pub mod agent;
pub mod containment;
pub mod event;
pub mod merge;
pub mod message;
pub mod signals;
pub mod task;
