//! What agents' terminals show: transcripts rendered by a terminal emulator, for people who look, and for the signs
//! by which it is known what a program does.
//!
//! Nothing here asks tmux, starts anything, or types. A transcript is read from its end, within a bound, however long
//! it is. What a sign means for an agent is the core's to decide.

mod capture;
mod colours;
mod signs;
mod standing;
mod terminal;
mod title;
mod transcript;
mod watched;
mod watcher;

pub use self::capture::{Capture, capture};
pub use self::standing::{Looked, Standing, standing};
pub use self::terminal::{Size, Terminal};
pub use self::watched::Watch;
pub use self::watcher::{WatchSink, Watcher};
