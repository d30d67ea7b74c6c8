//! What runs now, proven by locks, beside what the supervisor last wrote. Changes nothing.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::boot::{self, AtBoot};
use super::layout::Layout;
use super::lock;
use super::losses::{self, Loss};
use super::nats::port;
use super::start::is_up;
use super::supervisor::board::Status;
use super::supervisor::component::{HOSTD, MANAGER, NATS, current_program};

/// The state of the parts of this installation.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Facts {
    pub home: PathBuf,
    /// The manager takes connections.
    pub answering: bool,
    /// `phalanx down` was the last word.
    pub stopped_on_purpose: bool,
    /// Whether it starts with the machine.
    pub at_boot: AtBoot,
    pub bus_port: Option<u16>,
    pub parts: Vec<Part>,
    /// What the supervisor wrote last; may be old when it does not run.
    pub supervisor_says: Option<Status>,
    /// What the bus lost of the manager's records in the last days.
    pub losses: Vec<Loss>,
}

#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Part {
    pub name: String,
    pub state: PartState,
}

#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PartState {
    Running { pid: u32 },
    NotRunning,
    Unknown { why: String },
}

/// Looks at every part.
pub fn facts(layout: &Layout) -> Facts {
    let parts = ["supervisor", NATS, MANAGER, HOSTD].into_iter().map(|name| {
        let state = match lock::holder(&layout.lock(name)) {
            Ok(Some(process)) => PartState::Running { pid: process.pid() },
            Ok(None) => PartState::NotRunning,
            Err(error) => PartState::Unknown { why: error.to_string() },
        };
        Part { name: name.to_owned(), state }
    });
    Facts {
        home: layout.home().to_path_buf(),
        answering: is_up(layout),
        stopped_on_purpose: layout.stopped_marker().exists(),
        at_boot: boot::at_boot(layout, current_program().ok().as_deref()),
        bus_port: port::read(layout).ok().flatten(),
        parts: parts.collect(),
        supervisor_says: Status::read(&layout.status_file()),
        // A file that is broken is doctor's to tell.
        losses: losses::told(layout, losses::now_ms()).unwrap_or_default(),
    }
}
