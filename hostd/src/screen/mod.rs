//! What agents' terminals show: transcripts rendered by a terminal emulator, for people who look.
//!
//! Nothing here asks tmux, starts anything, or changes what is known of an agent. A transcript is read from its end,
//! within a bound, however long it is.

mod capture;
mod colours;
mod terminal;
mod title;
mod transcript;

pub use self::capture::{Capture, capture};
pub use self::terminal::{Size, Terminal};
