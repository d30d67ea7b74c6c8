//! What a host decides about its agents, without doing any of it.
//!
//! [`Core::handle`] takes an [`Input`] with the time and yields [`Effect`]s in the order in which they must happen.
//! It owns no clock, file, thread or randomness; late, repeated and unexpected input is normal and yields nothing.
//! The rules it keeps:
//!
//! 1. An order that is not for this incarnation, is older than what the agent knows, comes from an older leader or
//!    has expired changes nothing.
//! 2. A stopped agent never comes back by itself: an agent is started once for each number that an order names.
//! 3. A record is saved before anything follows from it; a report comes after the save that it tells of.
//! 4. Only proof ends an agent: an exit record, another boot, a dead supervisor whose processes are gone.
//! 5. A text is typed once or told as not delivered or unknown; it answers no dialog and joins no person's draft.
//! 6. Nothing is removed while it holds the only copy of work, unless an operator said so.

#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

mod agent;
mod effect;
mod host;
mod input;
mod record;

pub use agent::{Agent, Stage};
pub use effect::Effect;
pub use host::{Config, Core, may_be_forgotten};
pub use input::{
    Activity, Evidence, ExitCause, ExitSeen, Found, Input, LimitsRead, Obstacle, Removal, StartFacts,
    TypedOutcome,
};
pub use record::{AgentRecord, MessageEntry, MessageLedger, RECORD_VERSION, Wanted};
