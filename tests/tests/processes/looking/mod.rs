//! What people look at: terminals, transcripts and files.

mod attach;
mod files;
mod logs;
