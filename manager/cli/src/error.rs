//! How a command fails: what is said, as text or JSON, and the exit code.

use std::io;

use protocol::error::{ErrorCode, WireError};
use schemars::JsonSchema;
use serde::Serialize;

use super::output::render::value;
use super::output::sanitise::{safe_json, safe_line, safe_text};

/// Exit codes that no [`ErrorCode`] has.
pub mod exit {
    pub const OK: u8 = 0;
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const MISSING: u8 = 3;
    pub const DENIED: u8 = 4;
    pub const CONFLICT: u8 = 5;
    pub const EXHAUSTED: u8 = 6;
    pub const SOME_ACCEPTED: u8 = 7;
    pub const NONE_ACCEPTED: u8 = 8;
    pub const UNAVAILABLE: u8 = 9;
    pub const TIMED_OUT: u8 = 124;
    /// Of `exec`: the fault is ours, not the program's.
    pub const EXEC_FAULT: u8 = 125;
    pub const INTERRUPTED: u8 = 130;
    pub const TERMINATED: u8 = 143;
}

/// Why a command did not end well.
#[derive(Debug)]
pub enum Failure {
    /// Everything was said already.
    Told(u8),
    /// Whoever read our output went away: a quiet end.
    Closed,
    Error {
        error: WireError,
        exit: u8,
    },
}

/// What a command that failed prints on stderr, with `-o json` and `-o jsonl`.
#[derive(Serialize, JsonSchema)]
pub struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize, JsonSchema)]
struct ErrorBody<'a> {
    /// Stable; the exit code follows from it but for `run` and `exec`.
    code: ErrorCode,
    message: &'a str,
    /// The same command may work later.
    retryable: bool,
    /// The command that mends it; empty when there is none.
    hint: &'a str,
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        WireError::new(code, message).into()
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    #[must_use]
    pub fn hint(self, text: impl Into<String>) -> Self {
        match self {
            Self::Error { error, exit } => Self::Error { error: error.hint(text), exit },
            other @ (Self::Told(_) | Self::Closed) => other,
        }
    }

    #[must_use]
    pub fn exit(self, exit: u8) -> Self {
        match self {
            Self::Error { error, .. } => Self::Error { error, exit },
            other @ (Self::Told(_) | Self::Closed) => other,
        }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Told(exit) => *exit,
            Self::Closed => exit::OK,
            Self::Error { exit, .. } => *exit,
        }
    }

    /// What goes to stderr; `None` when there is nothing to say.
    pub fn rendered(&self, as_json: bool) -> Option<String> {
        let Self::Error { error, .. } = self else { return None };
        if as_json {
            let document = ErrorDocument {
                error: ErrorBody {
                    code: error.code,
                    message: &error.message,
                    retryable: error.code.is_retryable(),
                    hint: &error.hint,
                },
            };
            return Some(safe_json(&value(&document).to_string()));
        }
        let mut text = format!("error: {}", safe_text(error.message.as_bytes()));
        if !error.hint.is_empty() {
            text.push_str(&format!("\n  try: {}", safe_line(&error.hint)));
        }
        Some(text)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        let exit = error.code.exit_code();
        Self::Error { error, exit }
    }
}

/// An error of writing our own output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::new(ErrorCode::Failed, format!("cannot write the output: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_the_remedy_as_text_and_as_json() {
        let failure = Failure::new(ErrorCode::Unavailable, "the manager is away").hint("phalanx up");
        assert_eq!(failure.exit_code(), 9);
        assert_eq!(failure.rendered(false).unwrap(), "error: the manager is away\n  try: phalanx up");
        let json: serde_json::Value = serde_json::from_str(&failure.rendered(true).unwrap()).unwrap();
        assert_eq!(json["error"]["code"], "unavailable");
        assert_eq!(json["error"]["retryable"], true);
        assert_eq!(json["error"]["hint"], "phalanx up");
    }

    #[test]
    fn escapes_of_an_agent_do_not_reach_the_terminal_through_an_error() {
        let failure = Failure::new(ErrorCode::NotFound, "no agent \x1b]52;c;x\x07named \u{9b}2J");
        assert!(!failure.rendered(false).unwrap().contains(['\x1b', '\u{9b}']));
        assert!(!failure.rendered(true).unwrap().contains(['\x1b', '\u{9b}']));
    }

    #[test]
    fn a_closed_pipe_is_a_quiet_end() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit_code(), failure.rendered(false)), (0, None));
    }
}
