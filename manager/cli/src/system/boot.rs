//! What `up --enable`, `down`, `down --disable`, `status` and `doctor` say of the start with the machine.

use protocol::error::ErrorCode;

use super::super::context::Context;
use super::super::error::Failure;
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::safe_line;
use manager_installation::boot::{self, AtBoot, BootError, Entry, Start};
use manager_installation::nats;
use manager_installation::supervisor::component::current_program;
use protocol::chain;

/// What goes wrong with it has its remedy beside it.
fn failure(error: &BootError) -> Failure {
    let (code, remedy) = match error {
        BootError::Neither => {
            (ErrorCode::NotFound, "install cron, or let what starts this machine call: phalanx up")
        }
        BootError::NoUserManager { .. } => {
            (ErrorCode::NotFound, "log in as this user (not by su), or: sudo loginctl enable-linger USER")
        }
        BootError::Text { .. } => {
            (ErrorCode::Invalid, "give it a plain name, or let something else call: phalanx up")
        }
        BootError::TooLong { .. } => (ErrorCode::Invalid, "a shorter PATH: PATH=… phalanx up --enable"),
        BootError::File { .. }
        | BootError::Run { .. }
        | BootError::Layout(_)
        | BootError::Busy(_)
        | BootError::Refused { .. } => (ErrorCode::Failed, "phalanx doctor"),
    };
    Failure::new(code, chain(error)).hint(remedy)
}

/// What `up --enable` is to enable, and whether it was so before.
pub(super) struct Enabled {
    entry: Entry,
    was_before: bool,
}

/// Before anything is started: what cannot be enabled is refused as a whole.
pub(super) fn enable(context: &Context) -> Result<Enabled, Failure> {
    let failed = |error: &dyn std::error::Error| Failure::new(ErrorCode::Failed, chain(error));
    let program = current_program().map_err(|error| failed(&error))?;
    // A boot has no other search path than this one; what runs now may have been started with another.
    nats::binary::find(&context.layout).map_err(|error| failed(&error).hint("phalanx doctor"))?;
    let was_before = look(context) != AtBoot::NotEnabled;
    let start = Start::new(program, &context.layout, std::env::vars_os());
    let entry = boot::enable(&start).map_err(|error| failure(&error))?;
    Ok(Enabled { entry, was_before })
}

impl Enabled {
    pub(super) fn tell(&self, context: &Context, out: &mut Stdout) -> Result<(), Failure> {
        if !context.quiet {
            out.line(&safe_line(&format!("starts at boot: {}", self.entry)))?;
        }
        if !self.entry.lacks.is_empty() {
            say(&safe_line(&format!("warning: {}", self.entry.lacks)));
        }
        Ok(())
    }

    /// What cannot be started now is not left to be started at boot.
    pub(super) fn withdraw(&self, context: &Context) {
        if self.was_before {
            return;
        }
        if let Err(error) = boot::disable(&context.layout) {
            say(&safe_line(&format!("warning: it still starts at boot: {}", chain(&error))));
        }
    }
}

pub(super) fn disable(context: &Context, out: &mut Stdout) -> Result<(), Failure> {
    let gone = boot::disable(&context.layout).map_err(|error| failure(&error))?;
    if !context.quiet {
        if gone.is_empty() {
            out.line("nothing started it at boot")?;
        }
        for entry in gone {
            out.line(&safe_line(&format!("starts no longer at boot: {entry}")))?;
        }
    }
    Ok(())
}

/// After a plain `down`: it is not for good.
pub(super) fn will_start(context: &Context, out: &mut Stdout) -> Result<(), Failure> {
    if let AtBoot::Enabled { entries } = look(context) {
        for entry in entries.iter().filter(|_| !context.quiet) {
            let text = match entry.lacks.as_str() {
                "" => format!("it starts again at boot ({entry}); not so with: phalanx down --disable"),
                lacks => format!(
                    "it is to start again at boot ({entry}; {lacks}); not so with: phalanx down --disable"
                ),
            };
            out.line(&safe_line(&text))?;
        }
    }
    Ok(())
}

fn look(context: &Context) -> AtBoot {
    boot::at_boot(&context.layout, current_program().ok().as_deref())
}

/// A line for each thing that starts it.
pub(super) fn describe(at_boot: &AtBoot) -> String {
    let line = |text: &str| format!("at boot: {}\n", safe_line(text));
    match at_boot {
        AtBoot::NotEnabled => line("not started; enable it with: phalanx up --enable"),
        AtBoot::Unknown { why } => line(&format!("unknown: {why}")),
        AtBoot::Enabled { entries } => {
            let words = entries.iter().map(|entry| match entry.lacks.as_str() {
                "" => line(&format!("started by {entry}")),
                lacks => line(&format!("{entry}: {lacks}")),
            });
            words.collect()
        }
    }
}
