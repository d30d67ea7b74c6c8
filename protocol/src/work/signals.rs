//! How a program shows what it does: signs to look for on its terminal and among its processes, and what they mean.
//!
//! A profile gives the signs, the host looks for them. A screen that shows none of them says nothing: no phase is
//! guessed from it.

use serde::{Deserialize, Serialize};

use crate::wire_enum::wire_enum;

/// Rows that are looked at where nothing else is said.
pub const ROWS: u16 = 12;
/// What a compiled pattern may take, in bytes.
pub const PATTERN_LIMIT: usize = 1 << 20;

/// Signs of one program. For each question any of its signs is enough. They are looked for in this order: `asking`,
/// `busy`, `idle`; the first that is found says what the program does.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// How many rows of the screen are looked at, from the last one that is not blank upwards: an answer that merely
    /// prints such words stands above them.
    #[serde(default = "default_rows")]
    pub rows: u16,
    /// It can take its first message. Where none is given, the first `idle` or `busy` says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ready: Vec<Sign>,
    /// It waits for a person's answer: permission, question, login.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asking: Vec<Sign>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy: Vec<Sign>,
    /// Its turn is done: it is at its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<Sign>,
}

const fn default_rows() -> u16 {
    ROWS
}

impl Default for Signals {
    fn default() -> Self {
        Self { rows: ROWS, ready: Vec::new(), asking: Vec::new(), busy: Vec::new(), idle: Vec::new() }
    }
}

impl Signals {
    /// Whether it will be known when the program is ready.
    #[must_use]
    pub fn tell_ready(&self) -> bool {
        !(self.ready.is_empty() && self.busy.is_empty() && self.idle.is_empty())
    }
}

/// One sign: all that is given of it must hold. Patterns are regular expressions; `^` and `$` are the ends of a row,
/// `\z` is the end of what is looked at.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sign {
    /// In the rows that are looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<String>,
    /// In what stands before the cursor in its row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// In the title that the program gives its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
}

wire_enum!(
    /// Which other processes the program has. A word of a newer peer never holds.
    Children {
        /// None that lives.
        None = "none",
    }
);

wire_enum!(
    /// What a phase is due to, where it has more than one cause.
    PhaseReason {
        /// PAUSED: at its prompt.
        TurnDone = "turn-done",
        /// PAUSED: on request.
        Frozen = "frozen",
        /// BLOCKED: it waits for a person's answer.
        Question = "question",
    }
);

/// What a program asks a person, as its screen shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialog {
    pub text: String,
    /// In their order, with their numbers; empty where none are known.
    #[serde(default)]
    pub choices: Vec<String>,
}
