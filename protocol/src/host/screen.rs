//! What a program shows on its terminal: a rendered screen, as anyone who looks at it sees it.

use serde::{Deserialize, Serialize};

use crate::agent::Phase;
use crate::ids::{AgentId, HostId};
use crate::time::Timestamp;

/// The largest terminal that a viewer may give a program, and that is rendered: more than anybody's has.
pub const ROWS_MAX: u16 = 500;
pub const COLS_MAX: u16 = 1_000;

/// The screen of a program's terminal, rendered from its transcript.
///
/// Text is what a terminal shows: no control characters. Where colours were asked for, lines hold SGR sequences
/// besides, and nothing else that begins with an escape.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenView {
    pub rows: u16,
    pub cols: u16,
    /// `None` while the program hides it.
    #[serde(default)]
    pub cursor: Option<CursorPlace>,
    /// As many as `rows`, top first, without the blanks at their ends.
    pub lines: Vec<String>,
    /// What has scrolled off above them, oldest first.
    #[serde(default)]
    pub history: Vec<String>,
    /// What the program calls its window; empty when it says nothing.
    #[serde(default)]
    pub title: String,
    /// The program draws a screen of its own, which has no history.
    #[serde(default)]
    pub alternate: bool,
    /// When the transcript was read, in the host's time.
    pub as_of: Timestamp,
    #[serde(default)]
    pub last_output: Option<Timestamp>,
    /// How much its program has printed, since it was started last.
    pub transcript_bytes: u64,
    /// From how many of the last bytes it was rendered. Fewer than all: a row that was not drawn since may be missing.
    pub rendered_bytes: u64,
    /// The program has ended.
    #[serde(default)]
    pub ended: bool,
}

/// Place of a cursor, from 0.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorPlace {
    pub row: u16,
    pub col: u16,
}

/// A screen, and whose it is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentScreen {
    pub agent: AgentId,
    pub name: String,
    pub host: HostId,
    pub phase: Phase,
    pub screen: ScreenView,
}
