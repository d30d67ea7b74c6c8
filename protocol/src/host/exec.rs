//! A program beside an agent whose standard input comes in pieces while it runs.
//!
//! It is opened by one request, whose items are its output and whose reply is its end. The pieces of its input go by the
//! id that the first item names, each answered by how much was taken so far: a piece that comes twice is taken once, and
//! one that found no room in time is sent again.

use serde::{Deserialize, Serialize};

use crate::agent::Environment;
use crate::api::Target;
use crate::ids::{AgentId, HostId, OrderId};

/// Largest piece of input.
pub const INPUT_PIECE: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOpen {
    pub target: Target,
    pub program: Vec<String>,
    pub environment: Environment,
    /// Else its standard input is at its end from the beginning.
    pub input: bool,
}

/// Which program a piece of input is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTalk {
    pub agent: AgentId,
    pub host: HostId,
    pub talk: OrderId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecInput {
    /// Of the first byte.
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Nothing comes after it.
    pub last: bool,
}

/// What became of its input so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputTaken {
    pub bytes: u64,
    /// Whether it may still read more.
    pub open: bool,
}
