//! What people look at: transcripts and files.

mod files;
mod logs;
