//! Answers that come in pieces: transcripts, differences, events, waiting for agents, following a run, running a program
//! beside an agent. Each ends when its client is gone, since the task that feeds it is the client's.

pub mod capture;
pub mod compare;
pub mod events;
pub mod exec;
pub mod files;
pub mod follow;
pub mod house;
pub mod kept;
pub mod logs;
pub mod messages;
mod redact;
pub mod rows;
pub mod transcript;
pub mod wait;
