//! What a host keeps of an agent on its disk, so that any later hostd decides the same.

use protocol::agent::{AgentSpec, End, ResourceLimits, first_launch};
use protocol::ids::{AgentId, Generation, MessageId};
use protocol::message::MessageState;
use protocol::order::Discard;
use protocol::report::Collected;
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

pub const RECORD_VERSION: u32 = 1;

/// `agent.json` in the agent's folder. Fields are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    pub version: u32,
    pub agent: AgentId,
    pub generation: Generation,
    pub wanted: Wanted,
    pub spec: AgentSpec,
    pub created_at: Timestamp,
    /// 32 hex digits: identity of the transcript.
    pub epoch: String,
    /// Once it is asked to stop, an end is `requested` whatever the program makes of it.
    #[serde(default)]
    pub stop_requested: bool,
    #[serde(default)]
    pub end: Option<End>,
    #[serde(default)]
    pub collected: Option<Collected>,
    #[serde(default)]
    pub removed: bool,
    /// How often it was started, the current or last time included; `spec.launch` is how often it shall be.
    #[serde(default = "first_launch", skip_serializing_if = "is_first")]
    pub launch: u32,
    /// When the order for that start was taken; `None`: with the one that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launched_at: Option<Timestamp>,
    /// The limits in force while those of the spec are not, or not known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceLimits>,
    /// How earlier starts ended, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<End>,
    /// Texts that were sent to it; what they say lies in files of their own until they are decided.
    #[serde(default, skip_serializing_if = "MessageLedger::is_empty")]
    pub messages: MessageLedger,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_first(launch: &u32) -> bool {
    *launch == first_launch()
}

impl AgentRecord {
    /// The deadline that the supervisor is started with. It counts from the acceptance of the order, which lies
    /// before the order's `expires`: from there the manager can tell when the agent is gone at the latest, however
    /// long its start took.
    #[must_use]
    pub fn first_lease_until(&self) -> Option<Timestamp> {
        let taken_at = self.launched_at.unwrap_or(self.created_at);
        self.spec.lease_ms.map(|length_ms| taken_at.after_ms(length_ms))
    }
}

/// What the last order asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    Running,
    Stopped { grace_ms: u64 },
    Destroyed { discard: Discard },
}

/// The last messages of an agent, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageLedger {
    /// The highest number that was ever taken.
    pub last_number: u64,
    #[serde(default)]
    pub entries: Vec<MessageEntry>,
}

impl MessageLedger {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.last_number == 0 && self.entries.is_empty()
    }

    pub(crate) fn open(&self) -> impl Iterator<Item = &MessageEntry> {
        self.entries.iter().filter(|entry| !entry.state.is_final())
    }

    pub(crate) fn open_mut(&mut self, message: MessageId) -> Option<&mut MessageEntry> {
        self.entries.iter_mut().find(|entry| entry.message == message && !entry.state.is_final())
    }
}

/// One message, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageEntry {
    pub message: MessageId,
    pub number: u64,
    /// Of the text: 64 lower-case hex digits.
    #[serde(default)]
    pub sha256: String,
    #[serde(default)]
    pub press_enter: bool,
    #[serde(default)]
    pub at_once: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each_line: bool,
    pub state: MessageState,
    #[serde(default)]
    pub reason: String,
    /// When the state was reached.
    pub at: Timestamp,
    /// The shim was, or was about to be, asked to type it, in this start of the agent.
    #[serde(default)]
    pub asked: Option<u32>,
    #[serde(default)]
    pub turn_done_at: Option<Timestamp>,
}

impl MessageEntry {
    pub(crate) fn new(message: MessageId, number: u64, at: Timestamp) -> Self {
        Self {
            message,
            number,
            sha256: String::new(),
            press_enter: false,
            at_once: false,
            each_line: false,
            state: MessageState::Queued,
            reason: String::new(),
            at,
            asked: None,
            turn_done_at: None,
        }
    }

    pub(crate) fn decide(&mut self, state: MessageState, reason: &str, at: Timestamp) {
        self.state = state;
        reason.clone_into(&mut self.reason);
        self.at = at;
    }
}
