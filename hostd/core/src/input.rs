//! Everything that can happen to a host.

use protocol::agent::{End, ResourceLimits, StartStep};
use protocol::ids::{AgentId, Generation, MessageId};
use protocol::order::Order;
use protocol::report::{Collected, Isolation, SessionFacts, Usage, WorkspaceFacts};
use protocol::signals::Dialog;
use protocol::time::Timestamp;

use crate::record::AgentRecord;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// `epoch` is a fresh random identity for the transcript, should the order make an agent.
    Order {
        order: Box<Order>,
        epoch: String,
    },
    /// An agent's folder as this hostd found it when it started.
    Found {
        record: Box<AgentRecord>,
        found: Found,
    },
    /// The record could not be saved; the shell goes on trying. A `Create` that waited for it is carried out only
    /// if the agent is still in `Creating` by then.
    SaveFailed {
        agent: AgentId,
        reason: String,
    },
    /// The program was executed.
    Started {
        agent: AgentId,
        facts: Box<StartFacts>,
    },
    StartFailed {
        agent: AgentId,
        step: StartStep,
        detail: String,
    },
    /// Its start waits for its base.
    Preparing {
        agent: AgentId,
    },
    /// Its profile's sign of readiness was seen.
    Ready {
        agent: AgentId,
    },
    /// What its signals show has changed.
    Signalled {
        agent: AgentId,
        activity: Activity,
        evidence: Evidence,
    },
    /// The session for people exists, or was made again.
    Session {
        agent: AgentId,
        session: SessionFacts,
    },
    /// The program has ended, processes that it left have not.
    Exited {
        agent: AgentId,
        exit: ExitSeen,
    },
    /// Program and all it left are gone.
    Ended {
        agent: AgentId,
        exit: ExitSeen,
    },
    /// The supervisor of this start is gone without an exit record, and the agent's processes with it.
    SupervisorLost {
        agent: AgentId,
        launch: u32,
        detail: String,
    },
    /// Whether the agent's processes stand still, by the kernel's word; why it is not as asked, if it is not.
    Frozen {
        agent: AgentId,
        frozen: bool,
        failed: Option<String>,
    },
    /// What became of `limits`. Where they were refused, those before are in force.
    LimitsSet {
        agent: AgentId,
        limits: ResourceLimits,
        read: LimitsRead,
        refused: Option<String>,
    },
    Collected {
        agent: AgentId,
        collected: Box<Collected>,
    },
    /// Its work could not be collected now. Only the collection is tried again.
    CollectFailed {
        agent: AgentId,
        obstacle: Obstacle,
        reason: String,
    },
    /// What would be lost if it ended now and were removed; nothing: all of it is, or will be, elsewhere.
    Weighed {
        agent: AgentId,
        holds: Vec<String>,
    },
    Removed {
        agent: AgentId,
        outcome: Removal,
    },
    /// `None`: all is well again.
    Degraded {
        agent: AgentId,
        what: &'static str,
        degraded: bool,
    },
    /// The manager's answer to [`crate::Effect::AskLease`].
    Lease {
        agent: AgentId,
        generation: Generation,
        asked_at: Timestamp,
        length_ms: u64,
    },
    /// What became of an [`crate::Effect::Type`] or an [`crate::Effect::AskTyped`].
    Typed {
        agent: AgentId,
        message: MessageId,
        outcome: TypedOutcome,
    },
    /// How full the disk that holds the agents is.
    Disk {
        used_percent: u64,
    },
    /// Someone asks for the whole report again.
    ReportAgain {
        agent: AgentId,
    },
    /// Nobody needs what is kept of a destroyed agent.
    Forget {
        agent: AgentId,
    },
    /// Its archive and its report are gone.
    Forgotten {
        agent: AgentId,
    },
    Tick,
}

/// What a program does, as far as its signals show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// None of its signs is seen: nothing is guessed.
    #[default]
    Unknown,
    Busy,
    /// It waits for a person's answer.
    Asking(Dialog),
    /// It is at its prompt.
    Idle,
}

/// Where it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    #[default]
    Process,
    Screen,
}

/// What a folder and the processes of its agent prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// No shim ever ran: nothing was executed.
    NeverStarted,
    /// The shim lives; its inputs follow.
    Alive {
        facts: Box<StartFacts>,
        exited: Option<ExitSeen>,
    },
    Ended {
        exit: ExitSeen,
        facts: Box<StartFacts>,
    },
    Lost {
        detail: String,
        facts: Box<StartFacts>,
    },
    /// Another boot.
    Rebooted {
        facts: Box<StartFacts>,
    },
    /// Only the archive is left.
    Archived,
}

/// What is known of an agent once its program was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartFacts {
    pub started_at: Timestamp,
    pub workspace: Option<WorkspaceFacts>,
    pub enforced: Vec<String>,
    pub degraded: Vec<String>,
    pub user: String,
    pub isolation: Option<Isolation>,
    /// Its processes stand still.
    pub frozen: bool,
}

/// What the kernel enforces now, and what is short of what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsRead {
    pub enforced: Vec<String>,
    pub degraded: Vec<String>,
}

/// What the exit record says, and what the kernel counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitSeen {
    /// Of which start.
    pub launch: u32,
    pub cause: ExitCause,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The kernel killed a process of the agent for its memory limit.
    pub out_of_memory: bool,
    pub at: Timestamp,
    pub transcript_bytes: u64,
    pub usage: Usage,
    pub detail: String,
}

/// Who ended it, as the supervisor recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    Program,
    TimeLimit,
    Lease,
    /// Its supervisor was asked to end, as by a machine that goes down, and asked it too.
    Supervisor,
    /// It was never executed.
    Start(StartStep),
}

/// What the shim said of a message, or why it said nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypedOutcome {
    /// All of it is in the program's terminal.
    Delivered,
    /// Not a byte of it is, and it cannot be.
    NotDelivered { reason: String },
    /// Not a byte of it is, for now.
    Waits { reason: String },
    /// Asked about it: not a byte of it is.
    NotTyped,
    /// A part of it is.
    Unknown { reason: String },
    /// The shim gave no answer: it is asked again.
    NotKnown,
}

/// What kept work from being collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Its repository is away, or a disk is full: waited for as long as a person may need.
    Outside,
    /// It may pass or not.
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    Done {
        /// What was brought home once more before, where there was anything.
        collected: Option<Box<Collected>>,
        /// What went with it and is in no commit.
        gone: Vec<String>,
    },
    /// It would lose these.
    Refused { holds: Vec<String> },
    /// Tried, and something is left; it is tried again.
    Failed { reason: String },
}

impl Input {
    /// The agent it is about; `None` for orders and facts of the host.
    #[must_use]
    pub fn agent(&self) -> Option<AgentId> {
        match self {
            Self::Order { order, .. } => Some(order.command.agent()),
            Self::Found { record, .. } => Some(record.agent),
            Self::SaveFailed { agent, .. }
            | Self::Started { agent, .. }
            | Self::StartFailed { agent, .. }
            | Self::Preparing { agent }
            | Self::Ready { agent }
            | Self::Signalled { agent, .. }
            | Self::Session { agent, .. }
            | Self::Exited { agent, .. }
            | Self::Ended { agent, .. }
            | Self::SupervisorLost { agent, .. }
            | Self::Frozen { agent, .. }
            | Self::LimitsSet { agent, .. }
            | Self::Collected { agent, .. }
            | Self::CollectFailed { agent, .. }
            | Self::Weighed { agent, .. }
            | Self::Removed { agent, .. }
            | Self::Degraded { agent, .. }
            | Self::Lease { agent, .. }
            | Self::ReportAgain { agent }
            | Self::Forget { agent }
            | Self::Forgotten { agent }
            | Self::Typed { agent, .. } => Some(*agent),
            Self::Disk { .. } | Self::Tick => None,
        }
    }
}

/// The end that an exit record means for an agent that was, or was not, asked to stop.
#[must_use]
pub(crate) fn end_of(exit: &ExitSeen, stop_requested: bool) -> End {
    use protocol::agent::EndCause;
    let (cause, step) = match exit.cause {
        ExitCause::Start(step) => (EndCause::StartFailed, Some(step)),
        ExitCause::TimeLimit => (EndCause::TimeLimit, None),
        ExitCause::Lease => (EndCause::Lease, None),
        ExitCause::Program | ExitCause::Supervisor if stop_requested => (EndCause::Requested, None),
        ExitCause::Supervisor => (EndCause::SupervisorLost, None),
        ExitCause::Program if exit.out_of_memory && exit.signal == Some(9) => (EndCause::OutOfMemory, None),
        ExitCause::Program if exit.signal.is_some() => (EndCause::Signalled, None),
        ExitCause::Program => (EndCause::Exited, None),
    };
    let mut detail = exit.detail.clone();
    if detail.is_empty() && exit.out_of_memory && cause == EndCause::Exited {
        "the kernel killed a process of it at the memory limit".clone_into(&mut detail);
    }
    End { cause, code: exit.code, signal: exit.signal, step, detail, at: exit.at }
}
