//! A piece of what an agent printed, identified by its place, so that cutting anew after a crash loses nothing.

use serde::{Deserialize, Serialize};

/// `Nats-Msg-Id` is [`Chunk::message_id`]; readers merge by offset and trim overlaps; a hole reads as a gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// 32 hex digits, drawn when the agent's folder was made.
    pub epoch: String,
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Nothing follows.
    #[serde(default)]
    pub last: bool,
}

impl Chunk {
    pub const KIND: &str = "chunk";
    /// Shipped at this size, after 5 s, at the end, or at once while someone follows.
    pub const SIZE: usize = 64 << 10;

    #[must_use]
    pub fn message_id(&self) -> String {
        format!("{}:{}:{}", self.epoch, self.offset, self.bytes.len())
    }
}
