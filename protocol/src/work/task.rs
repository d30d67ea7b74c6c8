//! Runs and tasks: what is submitted, and what becomes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::{Blob, CommitMode, End, Environment, Prepare, ResourceLimits};
use crate::ids::{AgentId, HostId, Name, RunId, TaskId};
use crate::notify::Told;
use crate::report::Collected;
use crate::signals::Signals;
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

/// A submission of tasks.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    pub name: Name,
    /// Attempts and verifications of this run that may be live at once.
    #[serde(default)]
    pub max_parallel: Option<u32>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Tasks with a label (`KEY=VALUE`, or `KEY` for any value) that may be live at once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caps: BTreeMap<String, u32>,
    /// Hooks that are told of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Told>,
    /// Tasks may still be added: it does not end before it is closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub open: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands the field over by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// One unit of work with its acceptance, as checked by the client: programs are resolved, the base is a commit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Unique in its run.
    pub name: Name,
    /// Program and arguments.
    pub program: Vec<String>,
    #[serde(default)]
    pub prompt: Option<Blob>,
    #[serde(default)]
    pub profile: Option<String>,
    /// Absolute path of the repository; `None` for an empty workspace.
    #[serde(default)]
    pub repo: Option<String>,
    /// Resolved commit; present when `repo` is.
    #[serde(default)]
    pub base_commit: Option<String>,
    /// Names of tasks of the same run that must be accepted first.
    #[serde(default)]
    pub depends_on: Vec<Name>,
    /// Names of tasks of the same run that must be over first, whatever became of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Name>,
    /// Starts from the commit of this task, which is one of `depends_on`, instead of from `base_commit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_from: Option<Name>,
    /// Programs that are run in the workspace, one after another, before `program`; the first that fails ends the
    /// attempt with its code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<Vec<String>>,
    /// Run once per host and base, before anybody starts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Prepare>>,
    /// Files that git does not track and that each checkout is to have: paths and patterns below the repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<String>,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Enforced on the agent; memory and cpu also count in placement.
    #[serde(default)]
    pub limits: ResourceLimits,
    pub grace_ms: u64,
    #[serde(default)]
    pub retries: Retries,
    /// Programs that must all exit 0 in a fresh checkout of the recorded commit.
    #[serde(default)]
    pub verify: Vec<Vec<String>>,
    #[serde(default)]
    pub verify_timeout_ms: Option<u64>,
    pub accept: Accept,
    #[serde(default)]
    pub result: Option<String>,
    #[serde(default)]
    pub outputs: Vec<String>,
    pub commit: CommitMode,
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub has_environment: bool,
    #[serde(default)]
    pub ready_text: Option<String>,
    /// How the program shows what it does; without, it is RUNNING while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<Box<Signals>>,
    /// A host that is lost for so long loses the attempt, which is started elsewhere; at least five minutes.
    #[serde(default)]
    pub move_after_ms: Option<u64>,
    /// An attempt that changes nothing fails. Of a client that does not know this, it is only told.
    #[serde(default, skip_serializing_if = "is_false")]
    pub needs_change: bool,
}

impl TaskSpec {
    /// A task with nothing but a name.
    #[must_use]
    pub const fn bare(name: Name) -> Self {
        Self {
            name,
            program: Vec::new(),
            prompt: None,
            profile: None,
            repo: None,
            base_commit: None,
            depends_on: Vec::new(),
            after: Vec::new(),
            base_from: None,
            setup: Vec::new(),
            prepare: None,
            copy: Vec::new(),
            priority: 0,
            labels: BTreeMap::new(),
            limits: ResourceLimits { memory_bytes: None, cpu_millis: None, pids: None, time_ms: None },
            grace_ms: 0,
            retries: Retries { max: 0, backoff_ms: 0, backoff_max_ms: 0, jitter_percent: 0, on: Vec::new() },
            verify: Vec::new(),
            verify_timeout_ms: None,
            accept: Accept::Exit,
            result: None,
            outputs: Vec::new(),
            commit: CommitMode::Agent,
            user: None,
            has_environment: false,
            ready_text: None,
            signals: None,
            move_after_ms: None,
            needs_change: false,
        }
    }
}

wire_enum!(
    /// Who says that the work is good.
    Accept {
        /// The `verify` programs.
        Verify = "verify",
        /// Exit 0 and the declared outputs; flagged `unverified`.
        Exit = "exit",
        /// A person.
        Review = "review",
    }
);

/// Limits on starts beyond the first. One durable counter per task bounds them all.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// Starts beyond the first that are charged to the task.
    pub max: u32,
    /// Wait before the first retry; doubles each time.
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    /// Share of the wait that is drawn at random, percent.
    pub jitter_percent: u8,
    /// Classes that are tried again.
    pub on: Vec<FailureClass>,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            max: 0,
            backoff_ms: 1_000,
            backoff_max_ms: 60_000,
            jitter_percent: 20,
            on: vec![FailureClass::Agent, FailureClass::Verify, FailureClass::Limit],
        }
    }
}

wire_enum!(
    /// Whose fault a failed attempt is.
    FailureClass {
        /// Host, bus or supervisor: tried again without charge, within a bound.
        Infrastructure = "infrastructure",
        /// The program could not be started.
        Start = "start",
        /// The program failed.
        Agent = "agent",
        /// The work did not verify.
        Verify = "verify",
        /// A limit was reached.
        Limit = "limit",
        /// A quota or budget is spent.
        Quota = "quota",
    }
);

impl FailureClass {
    /// Whether it says nothing of the work: it is tried again, is never charged and is no verdict.
    #[must_use]
    pub const fn is_infrastructure(self) -> bool {
        match self {
            Self::Infrastructure => true,
            Self::Start | Self::Agent | Self::Verify | Self::Limit | Self::Quota | Self::Unknown => false,
        }
    }
}

wire_enum!(
    /// Where a task stands.
    TaskState {
        /// Waits; the reason is machine-readable.
        Queued = "QUEUED",
        /// An attempt is desired on a host, not yet seen running.
        Assigned = "ASSIGNED",
        Running = "RUNNING",
        Verifying = "VERIFYING",
        /// Waits for a person.
        Review = "REVIEW",
        Accepted = "ACCEPTED",
        Merged = "MERGED",
        Rejected = "REJECTED",
        Failed = "FAILED",
        Cancelled = "CANCELLED",
    }
);

impl TaskState {
    /// Nothing more happens by itself.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Accepted | Self::Merged | Self::Rejected | Self::Failed | Self::Cancelled | Self::Unknown
        )
    }

    /// An attempt or a verification holds a slot.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Assigned | Self::Running | Self::Verifying)
    }
}

/// Why a task waits.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Waiting {
    /// In the queue; nothing is wrong.
    Turn {
        ahead: u64,
    },
    /// For these tasks to be accepted.
    Dependencies {
        on: Vec<Name>,
    },
    Backoff {
        until: Timestamp,
    },
    RunCap {
        cap: u32,
    },
    HostCap {
        cap: u32,
    },
    /// So many with this label are live: in its run, or in the whole installation.
    LabelCap {
        label: String,
        cap: u32,
        of_run: bool,
    },
    NoHost,
    /// No host has so much unpromised memory.
    Memory {
        wanted_bytes: u64,
        largest_free_bytes: u64,
    },
    Cpu {
        wanted_millis: u64,
        largest_free_millis: u64,
    },
    DiskShare {
        host: HostId,
    },
    #[serde(other)]
    Unknown,
}

/// What a task left to those that wait for it. As JSON, a list of these is the file that `PHALANX_INPUTS_FILE` names.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInput {
    pub task: Name,
    pub id: TaskId,
    pub state: TaskState,
    /// Why it is in this state, for a person.
    pub reason: String,
    /// Accepted by exit code alone.
    pub unverified: bool,
    /// The recorded commit of its last attempt, under `result_ref` of its repository.
    pub commit: Option<String>,
    pub base_commit: Option<String>,
    pub result_ref: Option<String>,
    pub branch: Option<String>,
    /// The text of its `result:` file, which is JSON.
    pub result: Option<String>,
    pub outputs: Vec<crate::report::Output>,
}

/// One try of a task.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    pub agent: AgentId,
    pub host: HostId,
    pub assigned_at: Timestamp,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub end: Option<End>,
    #[serde(default)]
    pub collected: Option<Collected>,
    #[serde(default)]
    pub verification: Option<Verification>,
    /// Set when the attempt failed.
    #[serde(default)]
    pub failure: Option<Failure>,
}

#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    pub reason: String,
    /// Counts against `retries.max`.
    pub charged: bool,
}

/// The check of one recorded commit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// The agent that ran it; its transcript is the log.
    pub agent: AgentId,
    pub commit: String,
    #[serde(default)]
    pub end: Option<End>,
    /// `None` while unknown.
    #[serde(default)]
    pub passed: Option<bool>,
    /// The same programs at the base, run when the commit fails: whether the base fails too.
    #[serde(default)]
    pub base_agent: Option<AgentId>,
    #[serde(default)]
    pub base_passed: Option<bool>,
    /// How many times infrastructure ended it before a verdict.
    #[serde(default)]
    pub restarts: u32,
    /// Whether the agents of the work and of the verification could reach nothing that the verdict rests on. Absent
    /// where a host does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
}

wire_enum!(
    /// What a person says of finished work.
    Verdict {
        Accepted = "accepted",
        /// Not good yet: it is tried again, with what the person said.
        Rejected = "rejected",
        RejectedForGood = "rejected-for-good",
    }
);

/// Who said what of which attempt.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub verdict: Verdict,
    pub attempt: u32,
    pub by: String,
    pub at: Timestamp,
    /// The begin of it, where it was long; the next attempt gets the whole.
    #[serde(default)]
    pub comment: String,
}

wire_enum!(
    /// Where the branch of accepted work stands.
    Landing {
        /// Its host is asked for it until it answers.
        Due = "due",
        Made = "made",
        /// It cannot be made; the task's reason says why, and the work stays under its ref.
        Refused = "refused",
    }
);

/// A task as operators and reports see it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    pub id: TaskId,
    pub run: RunId,
    pub run_name: Name,
    pub spec: TaskSpec,
    pub state: TaskState,
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// Why it is in this state, for a person.
    #[serde(default)]
    pub reason: String,
    /// Accepted by exit code alone.
    #[serde(default)]
    pub unverified: bool,
    pub attempts: Vec<Attempt>,
    /// Branch in the repository, once accepted.
    #[serde(default)]
    pub branch: Option<String>,
    /// Where the making of that branch stands; `None` where none is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<Landing>,
    pub submitted_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Of persons, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<Decision>,
}

impl TaskView {
    /// From the first start to the end of the work and its verification, or until now; `None` before any attempt. A
    /// person who looks at the work, and the merge of it, are no part of that.
    #[must_use]
    pub fn took_ms(&self, now: Timestamp) -> Option<u64> {
        let begun = self.attempts.first().map(|attempt| attempt.started_at.unwrap_or(attempt.assigned_at))?;
        let work_is_done = matches!(
            self.state,
            TaskState::Review | TaskState::Accepted | TaskState::Merged | TaskState::Rejected
        );
        let verified = |attempt: &Attempt| attempt.verification.as_ref()?.end.as_ref().map(|end| end.at);
        let last = self.attempts.last().filter(|_| work_is_done);
        let done = last.and_then(|attempt| verified(attempt).max(attempt.ended_at)).or(self.ended_at);
        Some(done.unwrap_or(now).ms_since(begun))
    }
}

/// A run as operators and reports see it.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    pub id: RunId,
    pub spec: RunSpec,
    pub submitted_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    pub counts: BTreeMap<String, u64>,
    pub total: u64,
}

/// A task with the values that are never stored in the clear.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitTask {
    pub spec: TaskSpec,
    #[serde(default)]
    pub environment: Environment,
}
