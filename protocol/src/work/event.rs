//! Facts with a date. The event stream holds nothing else: state is in reports and records.

use serde::{Deserialize, Serialize};

use crate::agent::{End, Phase};
use crate::ids::{AgentId, HostId, Region, RunId, TaskId};
use crate::signals::PhaseReason;
use crate::task::TaskState;
use crate::time::Timestamp;

/// Published as `<epoch>:<seq>` in `Nats-Msg-Id`; readers drop what they have seen.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Timestamp,
    /// 32 hex digits of the writer's spool.
    pub epoch: String,
    pub seq: u64,
    pub region: Region,
    /// `None` for the manager's own facts.
    #[serde(default)]
    pub host: Option<HostId>,
    /// Label of what it is about, for people.
    #[serde(default)]
    pub name: String,
    pub fact: Fact,
    /// Where the stream has it. Of readers only: whoever writes an event leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Event {
    pub const KIND: &str = "event";
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Fact {
    AgentPhase {
        agent: AgentId,
        phase: Phase,
        #[serde(default)]
        end: Option<End>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<PhaseReason>,
    },
    AgentDestroyed {
        agent: AgentId,
        discarded: bool,
    },
    TaskState {
        run: RunId,
        task: TaskId,
        attempt: u32,
        state: TaskState,
        #[serde(default)]
        reason: String,
    },
    RunSubmitted {
        run: RunId,
        tasks: u64,
    },
    RunEnded {
        run: RunId,
        accepted: u64,
        failed: u64,
        cancelled: u64,
    },
    HostStarted {
        incarnation: u64,
    },
    /// The bus lost some of what the manager had stored.
    RecordsLost {
        /// A sentence for a person.
        what: String,
        /// The manager had all of it and wrote it back.
        restored: bool,
    },
    /// A base that workspaces start from was changed by somebody, and is made anew. An older reader shows an unknown fact.
    BaseReplaced {
        repo: String,
        commit: String,
        /// Some of the files that differed; none where only times or its git folder did.
        #[serde(default)]
        changed: Vec<String>,
    },
    /// Of readers only: here the stream had events that it no longer keeps.
    Gap {
        /// How many; absent where that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<u64>,
    },
    #[serde(other)]
    Unknown,
}
