//! A text to an agent: what is typed, what became of it, and how its sender sees it. Orders carry it to the host
//! ([`crate::order::Command::Send`]), reports carry its outcome back ([`MessageFacts`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::ids::{AgentId, MessageId};
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// Longest text of one message, in bytes: an order must fit into one message of the bus.
pub const TEXT_LIMIT: usize = 512 << 10;

/// A text for a program's terminal. `Debug` never shows it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageText(pub String);

impl fmt::Debug for MessageText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes>", self.0.len())
    }
}

/// What is typed, and when.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typing {
    pub text: MessageText,
    /// Whether Enter follows the text.
    #[serde(default)]
    pub press_enter: bool,
    /// Also while the program works; never while it asks a person, is frozen, or is not ready.
    #[serde(default)]
    pub at_once: bool,
    /// Several lines may be submitted one by one, where the program takes no pastes. Without it such a text is not
    /// delivered; an older host types it anyway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each_line: bool,
}

wire_enum!(
    /// What is known of a message. `Unknown` is an outcome too: it may or may not have been typed.
    MessageState {
        /// Not typed yet; it will be.
        Queued = "queued",
        /// All of it is in the program's terminal.
        Delivered = "delivered",
        /// Nothing of it is, and nothing will be.
        NotDelivered = "not-delivered",
        /// Taken back before it was typed.
        Cancelled = "cancelled",
    }
);

impl MessageState {
    #[must_use]
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Queued)
    }
}

/// What a host says of one message of an agent.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFact {
    pub message: MessageId,
    pub state: MessageState,
    /// Why it waits or was not delivered, for a person.
    #[serde(default)]
    pub reason: String,
    /// When the state was reached.
    pub at: Timestamp,
    /// When the program was at its prompt again after the delivery, where its profile can tell.
    #[serde(default)]
    pub turn_done_at: Option<Timestamp>,
}

/// The last messages of an agent, in the order of their numbers.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageFacts {
    /// The highest number that was taken: an order with it or a lower one is a late double.
    pub last_number: u64,
    #[serde(default)]
    pub list: Vec<MessageFact>,
}

impl MessageFacts {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.last_number == 0 && self.list.is_empty()
    }

    #[must_use]
    pub fn of(&self, message: MessageId) -> Option<&MessageFact> {
        self.list.iter().find(|fact| fact.message == message)
    }
}

/// What a wait for a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MessageUntil {
    /// It was delivered, or will not be.
    Decided,
    /// The program was at its prompt again after the delivery.
    TurnDone,
}

/// A message as its sender sees it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageView {
    pub message: MessageId,
    pub agent: AgentId,
    /// Label of the agent.
    pub name: String,
    pub state: MessageState,
    #[serde(default)]
    pub reason: String,
    /// The beginning of its first line.
    #[serde(default)]
    pub preview: String,
    pub bytes: u64,
    pub press_enter: bool,
    #[serde(default)]
    pub at_once: bool,
    pub accepted_at: Timestamp,
    /// When the state became final, by the clock that decided it.
    #[serde(default)]
    pub decided_at: Option<Timestamp>,
    #[serde(default)]
    pub turn_done_at: Option<Timestamp>,
}

/// What became of one target of a `send`: a message, or why there is none.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    pub target: String,
    #[serde(default)]
    pub agent: Option<AgentId>,
    #[serde(default)]
    pub message: Option<MessageId>,
    #[serde(default)]
    pub error: Option<WireError>,
}

/// Whether a text holds control characters (C0 but TAB and LF, DEL, C1): in a paste they would end it or be commands.
#[must_use]
pub fn has_controls(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\t' && c != '\n')
}
