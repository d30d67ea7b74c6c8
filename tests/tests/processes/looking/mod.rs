//! What people look at: terminals, transcripts and files.

mod attach;
mod events;
mod exec;
mod files;
mod logs;
mod outer;
mod top;
mod watching;
