//! What an agent is asked to be ([`AgentSpec`]), what it is ([`Phase`]) and how it ended ([`End`]).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Name, RunId, TaskId};
use crate::signals::Signals;
use crate::time::Timestamp;
use crate::wire_enum::wire_enum;

wire_enum!(
    /// What an operator sees of an agent.
    Phase {
        /// Accepted; workspace, limits and session are being made.
        Creating = "CREATING",
        /// Alive and working.
        Running = "RUNNING",
        /// Alive, waits for a person.
        Blocked = "BLOCKED",
        /// Alive, at its prompt or frozen.
        Paused = "PAUSED",
        /// Ended on request, or by itself with exit 0.
        Stopped = "STOPPED",
        /// Ended with a code, a signal, out of memory, by a reboot, or with its supervisor.
        Crashed = "CRASHED",
        /// Could not be started, or ended because a limit was reached.
        Failed = "FAILED",
    }
);

impl Phase {
    /// STOPPED, CRASHED or FAILED: the program is gone and its slot is free.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Crashed | Self::Failed)
    }
}

wire_enum!(
    /// Why an agent ended.
    EndCause {
        /// By itself, with `code`.
        Exited = "exited",
        /// By `signal`, from whomever.
        Signalled = "signalled",
        /// The kernel killed it at its memory limit.
        OutOfMemory = "out-of-memory",
        /// An operator or the manager asked for it.
        Requested = "requested",
        /// Its wall-clock limit was reached.
        TimeLimit = "time-limit",
        /// Its lease was not renewed.
        Lease = "lease",
        /// It never ran; `step` says what failed.
        StartFailed = "start-failed",
        /// Its shim is gone without an exit record.
        SupervisorLost = "supervisor-lost",
        /// The host was rebooted under it.
        Rebooted = "rebooted",
    }
);

wire_enum!(
    /// The step of a start that failed. `Host`, `Limits` and `Session` are the host's fault, the rest the request's.
    StartStep {
        /// The host takes no more: disk share, missing capability.
        Host = "host",
        /// Repository, base or checkout.
        Workspace = "workspace",
        /// The checkout could not be made although the request was right.
        Checkout = "checkout",
        /// Resource limits could not be enforced.
        Limits = "limits",
        /// The user does not exist or may not be taken.
        User = "user",
        /// Environment or prompt could not be fetched.
        Environment = "environment",
        /// The supervisor could not be started.
        Supervisor = "supervisor",
        /// No such program.
        ProgramMissing = "program-missing",
        /// The program may not be executed.
        ProgramDenied = "program-denied",
        /// The program could not be executed for another reason.
        Exec = "exec",
        /// What was to be prepared in its base failed.
        Prepare = "prepare",
    }
);

impl StartStep {
    /// Whether the host is to blame, so that the task is not charged.
    #[must_use]
    pub const fn is_infrastructure(self) -> bool {
        matches!(self, Self::Host | Self::Checkout | Self::Limits | Self::Environment | Self::Supervisor)
    }
}

/// How an agent ended, by code, signal and cause.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub cause: EndCause,
    #[serde(default)]
    pub code: Option<i32>,
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub step: Option<StartStep>,
    /// One sentence for a person; empty when cause, code and signal say it all.
    #[serde(default)]
    pub detail: String,
    pub at: Timestamp,
}

impl End {
    /// The phase that follows from cause and code alone.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.cause {
            EndCause::Requested => Phase::Stopped,
            EndCause::Exited if self.code == Some(0) => Phase::Stopped,
            EndCause::StartFailed | EndCause::TimeLimit | EndCause::Lease => Phase::Failed,
            EndCause::Exited
            | EndCause::Signalled
            | EndCause::OutOfMemory
            | EndCause::SupervisorLost
            | EndCause::Rebooted
            | EndCause::Unknown => Phase::Crashed,
        }
    }

    /// By itself and with code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.cause == EndCause::Exited && self.code == Some(0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cause, self.code, self.signal) {
            (EndCause::Exited, Some(code), _) => write!(f, "exit {code}")?,
            (EndCause::Signalled, _, Some(signal)) => write!(f, "signal {signal}")?,
            (cause, ..) => f.write_str(cause.as_str())?,
        }
        if let Some(step) = self.step {
            write!(f, " ({step})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// Resource limits of one agent; `None` is no limit.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// 1000 is one core.
    #[serde(default)]
    pub cpu_millis: Option<u64>,
    #[serde(default)]
    pub pids: Option<u64>,
    /// Wall-clock time from the start of the program.
    #[serde(default)]
    pub time_ms: Option<u64>,
}

wire_enum!(
    /// Why an agent exists.
    Role {
        /// A person made it with `create`.
        Own = "own",
        /// It is an attempt of a task.
        Attempt = "attempt",
        /// It verifies the recorded commit of an attempt.
        Verify = "verify",
    }
);

/// The attempt that an agent is, or that it verifies.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLink {
    pub run: RunId,
    pub task: TaskId,
    /// From 1.
    pub attempt: u32,
    pub run_name: String,
    pub task_name: String,
}

wire_enum!(
    /// What becomes of work that the agent left uncommitted.
    CommitMode {
        /// Only the agent's own commits count; the rest is kept on a side ref and flagged.
        Agent = "agent",
        /// The rest becomes a commit on top, which is the recorded one.
        Auto = "auto",
    }
);

wire_enum!(
    /// How a checkout is made.
    CheckoutKind {
        /// Overlay where the host can, else a shared clone.
        Auto = "auto",
        Overlay = "overlay",
        Clone = "clone",
        Worktree = "worktree",
    }
);

/// Which files an agent starts with.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// Absolute path of the repository on the host.
    pub repo: String,
    /// The commit it starts from, resolved when the request was accepted.
    pub commit: String,
    /// Branch to be on; `None` for a detached checkout (verification).
    #[serde(default)]
    pub branch: Option<String>,
    pub kind: CheckoutKind,
    /// Ref in the repository that receives the result.
    #[serde(default)]
    pub result_ref: Option<String>,
    /// An ancestor of `commit` whose files are probably at hand on the host: a checkout from there costs little.
    #[serde(default)]
    pub near: Option<String>,
    /// A snapshot whose files are laid over it, uncommitted: a commit on top of `commit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// What its base holds beyond the commit. A host that does not know the field starts from the bare commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<Box<Prepare>>,
    /// Files of the person's checkout that git does not track and that are copied into it: paths and patterns. A host
    /// that does not know the field copies none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<String>,
}

/// Programs that are run once per host, base and environment, in the layer that all checkouts of the base lie on.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    pub programs: Vec<Vec<String>>,
    /// For all of them together.
    pub timeout_ms: u64,
}

/// Bytes kept in the blob store under their SHA-256.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blob {
    /// 64 lower-case hex digits.
    pub sha256: String,
    pub bytes: u64,
}

/// Everything a host needs to start an agent, but for the values of its environment.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSpec {
    pub name: Name,
    pub role: Role,
    #[serde(default)]
    pub task: Option<TaskLink>,
    /// Program and arguments; executed as they are, never through a shell.
    pub program: Vec<String>,
    #[serde(default)]
    pub profile: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub limits: ResourceLimits,
    /// How long a program gets between the request to end and the kill.
    pub grace_ms: u64,
    #[serde(default)]
    pub checkout: Option<Checkout>,
    pub commit: CommitMode,
    /// The host asks the manager for the values.
    #[serde(default)]
    pub has_environment: bool,
    /// Becomes the file that `PHALANX_PROMPT_FILE` names.
    #[serde(default)]
    pub prompt: Option<Blob>,
    /// Log of the failed attempt before; becomes the file that `PHALANX_FEEDBACK_FILE` names.
    #[serde(default)]
    pub feedback: Option<Blob>,
    /// What the tasks before it left; becomes the file that `PHALANX_INPUTS_FILE` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Blob>,
    /// JSON file, relative to the workspace, that the agent must leave.
    #[serde(default)]
    pub result: Option<String>,
    /// Files, relative to the workspace, that must exist at the end.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Text in the output that shows that the program is ready.
    #[serde(default)]
    pub ready_text: Option<String>,
    /// How the program shows what it does; without, it is RUNNING while it lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<Box<Signals>>,
    #[serde(default)]
    pub user: Option<String>,
    /// Length of the lease under which it runs; `None`: it is never moved and needs none.
    #[serde(default)]
    pub lease_ms: Option<u64>,
    /// Its processes stand still where they are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub frozen: bool,
    /// Number of the wanted start, from 1. A higher one starts an agent that has ended once more.
    #[serde(default = "first_launch", skip_serializing_if = "is_first_launch")]
    pub launch: u32,
}

impl AgentSpec {
    /// An agent of a person's, with nothing beyond what must be said.
    #[must_use]
    pub fn own(name: Name, program: Vec<String>, grace_ms: u64) -> Self {
        Self {
            name,
            role: Role::Own,
            task: None,
            program,
            profile: None,
            labels: BTreeMap::new(),
            limits: ResourceLimits::default(),
            grace_ms,
            checkout: None,
            commit: CommitMode::Agent,
            has_environment: false,
            prompt: None,
            feedback: None,
            inputs: None,
            result: None,
            outputs: Vec::new(),
            ready_text: None,
            signals: None,
            user: None,
            lease_ms: None,
            frozen: false,
            launch: first_launch(),
        }
    }
}

/// The number of the start that `create` asks for.
#[must_use]
pub const fn first_launch() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_first_launch(launch: &u32) -> bool {
    *launch == first_launch()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Values of an environment. `Debug` never shows them.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Environment(pub BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
