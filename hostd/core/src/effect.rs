//! Everything that can be asked of the shell of a host. The order of effects is part of the contract.

use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, Generation, MessageId};
use protocol::message::MessageText;
use protocol::order::Discard;
use protocol::report::Report;
use protocol::time::Timestamp;

use crate::record::AgentRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep the text of a message. Comes before the `Save` of the record that names it, and is on the disk before it.
    KeepText {
        agent: AgentId,
        message: MessageId,
        text: MessageText,
    },
    /// Save the record; what follows for this agent waits until it is on the disk.
    Save(Box<AgentRecord>),
    /// Keep the highest fencing that a leader has shown.
    SaveFencing(Fencing),
    /// Make workspace, limits, session and program. Answered by `Started` or `StartFailed`, then `Ended`.
    /// Whatever an earlier try or an earlier start left is reused or cleaned. Void once the agent is past that start.
    Create {
        agent: AgentId,
        launch: u32,
    },
    /// Its start shall not wait for its base any longer. Answered by `StartFailed`, unless the base is there by then.
    CallOff(AgentId),
    /// Ask the program to end.
    Terminate(AgentId),
    /// End every process of the agent.
    Kill(AgentId),
    /// Let its processes stand still, or go on. Answered by `Frozen`.
    Freeze(AgentId),
    Thaw(AgentId),
    /// Put the limits of its record's spec in force. Answered by `LimitsSet`.
    SetLimits(AgentId),
    /// Show its name where people look at it.
    Rename(AgentId),
    /// Bring what it left to where it is kept. Answered by `Collected` or `CollectFailed`.
    Collect(AgentId),
    /// Look what would be lost if it ended now and were removed. Changes nothing. Answered by `Weighed`.
    Weigh(AgentId),
    /// Take away all but transcript and end. Answered by `Removed`.
    Remove {
        agent: AgentId,
        discard: Discard,
    },
    /// Ask the manager for a lease. Answered by `Lease`, or not at all.
    AskLease {
        agent: AgentId,
        generation: Generation,
    },
    /// Move the supervisor's deadline forward.
    SetLease {
        agent: AgentId,
        until: Timestamp,
    },
    /// Take away the report and the archive of a destroyed agent. Answered by `Forgotten`, or tried again by whoever
    /// asked for it.
    Forget(AgentId),
    /// Type a message, unless [`crate::Agent::may_type`] says no by then. Answered by `Typed`.
    Type {
        agent: AgentId,
        message: MessageId,
    },
    /// Ask the shim what became of a message; nothing is typed. Answered by `Typed`.
    AskTyped {
        agent: AgentId,
        message: MessageId,
    },
    /// The text of a message is needed no more.
    ForgetText {
        agent: AgentId,
        message: MessageId,
    },
    /// Put the report; a newer one of the same agent may replace it on the way.
    Report(Box<Report>),
    /// Append a fact to the event spool.
    Event {
        agent: AgentId,
        name: String,
        fact: Fact,
    },
}
