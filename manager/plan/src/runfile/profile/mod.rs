//! Profiles: how a coding agent is started and how it shows what it does, as data. The built-in ones are in
//! `built_in`, the shape of `signals:` in a file in `signals`.

mod built_in;
pub mod signals;

use protocol::signals::Signals;

pub use self::built_in::built_in;

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Started for a task; reads its prompt from the file that `PHALANX_PROMPT_FILE` names.
    pub command: Vec<String>,
    /// Started for a person, without a prompt.
    pub interactive: Vec<String>,
    /// Text in its output that shows that it is ready.
    pub ready: Option<String>,
    /// How `interactive` shows what it does.
    pub signals: Option<Box<Signals>>,
}

impl Profile {
    /// How the program of a task shows what it does: a command of its own prints no screen that these are the signs of.
    #[must_use]
    pub fn signals_of_task(&self) -> Option<Box<Signals>> {
        self.signals.clone().filter(|_| self.command == self.interactive)
    }
}
