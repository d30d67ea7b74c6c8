//! Errors as they cross the wire: a stable code, a sentence, and the command that mends it.

use serde::{Deserialize, Serialize};

use crate::wire_enum::wire_enum;

wire_enum!(
    /// Stable over releases; scripts read it.
    ErrorCode {
        /// The request makes no sense; nothing was done.
        Invalid = "invalid",
        NotFound = "not-found",
        Denied = "denied",
        /// It clashes with what is there.
        Conflict = "conflict",
        /// Quota, budget or disk share.
        Exhausted = "exhausted",
        /// Not now, or not known: try again.
        Unavailable = "unavailable",
        TimedOut = "timed-out",
        /// Tried, and it did not work.
        Failed = "failed",
    }
);

impl ErrorCode {
    /// Exit code of the command line for it.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::NotFound => 3,
            Self::Denied => 4,
            Self::Conflict => 5,
            Self::Exhausted => 6,
            Self::Unavailable | Self::Unknown => 9,
            Self::TimedOut => 124,
        }
    }

    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Exhausted | Self::Unknown)
    }
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    pub code: ErrorCode,
    /// What failed, on what and why.
    pub message: String,
    /// The command or step that mends it; empty when there is none.
    #[serde(default)]
    pub hint: String,
}

impl WireError {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: String::new() }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

/// An error with what caused it, in one line. What an error has said of its cause already is not said twice.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}
