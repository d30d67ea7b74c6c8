//! Stdout and stderr without panics: a reader that went away is [`Failure::Closed`], never an error message.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use super::super::error::Failure;

/// Stdout, buffered; flushed by [`Stdout::done`], at once with [`Stdout::flush`].
pub struct Stdout(BufWriter<StdoutLock<'static>>);

impl Default for Stdout {
    fn default() -> Self {
        Self(BufWriter::with_capacity(64 * 1024, io::stdout().lock()))
    }
}

impl Stdout {
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(Failure::from)
    }

    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    pub fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(Failure::from)
    }

    pub fn done(mut self) -> Result<(), Failure> {
        self.flush()
    }
}

/// A line on stderr. One that cannot be written is of no interest to anybody.
pub fn say(line: &str) {
    let mut text = line.to_owned();
    text.push('\n');
    say_bytes(text.as_bytes());
}

pub fn say_bytes(bytes: &[u8]) {
    let mut stderr = io::stderr().lock();
    if stderr.write_all(bytes).is_ok() {
        let _ = stderr.flush();
    }
}

pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether stderr is a terminal that can redraw a line.
pub fn stderr_can_redraw() -> bool {
    io::stderr().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether a person can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}
