//! What a command prints: data on stdout in the format that was asked for, progress on stderr, nothing unsafe on
//! either, and a quiet end when nobody reads any more.

pub mod pipe;
pub mod progress;
pub mod redraw;
pub mod render;
pub mod sanitise;
pub mod table;
pub mod when;
