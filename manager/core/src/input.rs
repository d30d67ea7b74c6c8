//! Everything that can happen to the manager, as the shell hands it in.

use protocol::agent::Blob;
use protocol::api::Mutation;
use protocol::error::WireError;
use protocol::ids::{AgentId, Fencing, Generation, HostId, TaskId};
use protocol::order::Answer;
use protocol::report::{Heartbeat, Report};

use crate::effect::AskToken;

/// Late, repeated and unexpected inputs are normal: they yield no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A mutation of a client; queries are answered from the views. It is answered by exactly one
    /// [`crate::Effect::Reply`] with this `reply_to`, in this call or a later one. `seed` is 128 random bits.
    Client {
        reply_to: u64,
        request: Box<Mutation>,
        seed: u128,
    },
    /// A host's word on one agent. The shell has checked that the host may write it.
    Report(Box<Report>),
    /// Its host has taken away the report of this agent. The shell has checked that the host may.
    Forgotten(AgentId),
    Heartbeat(Box<Heartbeat>),
    /// The lead was taken anew under this number, which is stored.
    Leads(Fencing),
    /// What became of an [`crate::Effect::Ask`]. An outcome that is not known is `Err(Unavailable)`.
    Answered {
        token: AskToken,
        answer: Result<Answer, WireError>,
    },
    /// What became of an [`crate::Effect::KeepLog`]; `None` when there is no log to be had.
    LogKept {
        agent: AgentId,
        blob: Option<Blob>,
    },
    /// What became of an [`crate::Effect::KeepInputs`]; `None` when it could not be stored.
    InputsKept {
        task: TaskId,
        blob: Option<Blob>,
    },
    /// A host asks for a longer lease of an agent. Answered by exactly one [`crate::Effect::Lease`] of this call. The
    /// shell has checked that it is this host that asks.
    LeaseAsked {
        reply_to: u64,
        host: HostId,
        agent: AgentId,
        generation: Generation,
    },
    /// [`crate::Core::deadline`] has come.
    Tick,
}
