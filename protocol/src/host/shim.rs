//! What hostd and a shim say to each other: the records in an agent's folder and the talk on its control socket.
//!
//! `launch.json` is written by hostd; `shim.json` and `exit.json` by the shim, whole, by rename. A running shim is
//! never replaced, so every released version of these shapes is read for ever: fields are only added (with a default),
//! unknown fields are skipped, and an unknown cause or step reads as `Unknown`.

use std::fmt;
use std::path::PathBuf;

pub use crate::containment::{Keep, LaunchUser, View};
use serde::{Deserialize, Serialize};

/// Version of the three records. A reader takes any version.
pub const RECORD_VERSION: u32 = 1;
/// Version of the control socket's talk, offered in its [`Hello`](crate::codec::Hello).
pub const SOCKET_VERSION: u16 = 1;

/// Names in an agent's folder.
pub mod file {
    pub const LAUNCH: &str = "launch.json";
    pub const SHIM: &str = "shim.json";
    pub const EXIT: &str = "exit.json";
    pub const OUTPUT: &str = "out.raw";
    pub const SOCKET: &str = "shim.sock";
    pub const LOCK: &str = "shim.lock";
    pub const LOG: &str = "shim.log";
}

/// Frame kinds of the control socket.
pub mod kind {
    /// Client to shim; body is a [`Request`](super::Request). Answered by one [`REPLY`] with the same id.
    pub const REQUEST: &str = "shim.request";
    /// Shim to client; body is a [`Reply`](super::Reply).
    pub const REPLY: &str = "shim.reply";
    /// Shim to a watching or attached client, unasked; body is an [`Event`](super::Event).
    pub const EVENT: &str = "shim.event";
    /// Shim to an attached client; body is what the program printed, as it is.
    pub const OUTPUT: &str = "shim.output";
    /// Attached client to shim; body is what a person typed, as it is. Not answered.
    pub const INPUT: &str = "shim.input";
}

/// `launch.json`: one launch of one program. A shim serves exactly one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub version: u32,
    /// Id of the agent; the shim copies it into its records and reads nothing into it.
    pub agent: String,
    /// A path, or a name to look for in the `PATH` of the environment file.
    pub program: String,
    /// The arguments after the program's name, handed over as they are; no shell is involved.
    #[serde(default)]
    pub args: Vec<String>,
    pub cwd: PathBuf,
    /// `K=V` pairs, each ended by NUL: the program's whole environment. Unlinked by the shim once read.
    #[serde(default)]
    pub env_file: Option<PathBuf>,
    #[serde(default = "default_rows")]
    pub rows: u16,
    #[serde(default = "default_cols")]
    pub cols: u16,
    /// `cgroup.procs` files of the agent's own leaf, one per hierarchy; the child joins each before it becomes the
    /// program.
    #[serde(default)]
    pub agent_procs: Vec<PathBuf>,
    /// Whether a leaf that cannot be joined fails the start; otherwise it is reported as degraded.
    #[serde(default)]
    pub cgroup_required: bool,
    /// `cgroup.kill` files of the leaf: a `1` ends all of it at once, frozen or not.
    #[serde(default)]
    pub kill_files: Vec<PathBuf>,
    /// `cgroup.freeze` (v2) or `freezer.state` (v1) files of the leaf: thawed when the program is to end.
    #[serde(default)]
    pub freeze_files: Vec<PathBuf>,
    /// `cgroup.events` of the leaf: its `populated` says whether anything is left.
    #[serde(default)]
    pub events_file: Option<PathBuf>,
    /// Whom the program runs as, taken on after the leaf is joined; `None`: whoever the shim runs as.
    #[serde(default)]
    pub user: Option<LaunchUser>,
    /// Longest life of the program and its descendants, from `started_at_ms`.
    #[serde(default)]
    pub wall_time_ms: Option<u64>,
    /// Time between SIGTERM and SIGKILL when a limit ends the program.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// End of the lease on the host's `CLOCK_BOOTTIME`.
    #[serde(default)]
    pub lease_deadline_boottime_ms: Option<u64>,
    /// Limit of open files of the program.
    #[serde(default)]
    pub nofile: Option<u64>,
    /// Inherited descriptor that gets one line, a [`Ready`] as JSON, and is then closed.
    #[serde(default)]
    pub ready_fd: Option<i32>,
    /// How often the agent was started, this time included; the shim copies it into its records.
    #[serde(default = "default_launch", skip_serializing_if = "is_default_launch")]
    pub launch: u32,
    /// Of the agent's transcript; copied into the exit record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// What the shim and all below it see of the file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
    /// Whether the program can neither trace nor signal what it has not started, from Linux 6.12 on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scoped: bool,
}

const fn default_launch() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_default_launch(launch: &u32) -> bool {
    *launch == default_launch()
}

const fn default_rows() -> u16 {
    40
}

const fn default_cols() -> u16 {
    120
}

const fn default_grace_ms() -> u64 {
    10_000
}

/// The line on `ready_fd`: the program has been exec'd, or why it was not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub version: u32,
    pub pid: i32,
    #[serde(default)]
    pub child: Option<ProcessRef>,
    #[serde(default)]
    pub failure: Option<StartFailure>,
}

/// A process that cannot be mistaken for a later one with the same number (within one boot).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: clock ticks after boot.
    pub start_time: u64,
}

/// `shim.json`: written before the program runs, and anew when a limit changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    pub version: u32,
    pub agent: String,
    pub shim: ProcessRef,
    /// The program.
    pub child: ProcessRef,
    pub boot_id: String,
    pub started_at_ms: u64,
    pub started_boottime_ms: u64,
    pub build: String,
    pub socket_version: u16,
    #[serde(default)]
    pub wall_time_ms: Option<u64>,
    #[serde(default)]
    pub lease_deadline_boottime_ms: Option<u64>,
    /// That of its [`Launch`]; a record of an earlier one says nothing of this start.
    #[serde(default = "default_launch", skip_serializing_if = "is_default_launch")]
    pub launch: u32,
}

/// `exit.json`: how the program ended. Written when it ends and again, `drained`, when nothing of it is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub version: u32,
    pub agent: String,
    pub build: String,
    pub boot_id: String,
    pub cause: EndCause,
    /// Exit code, when the program exited.
    #[serde(default)]
    pub code: Option<i32>,
    /// Signal, when one ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    #[serde(default)]
    pub core_dumped: bool,
    #[serde(default)]
    pub started_at_ms: u64,
    pub exited_at_ms: u64,
    pub exited_boottime_ms: u64,
    /// Length of `out.raw`; final once `drained`.
    pub out_len: u64,
    #[serde(default)]
    pub usage: Usage,
    /// Whether processes it started were alive when it ended.
    #[serde(default)]
    pub descendants_left: bool,
    /// The limit that ended those it left behind.
    #[serde(default)]
    pub descendants_ended_by: Option<Limit>,
    #[serde(default)]
    pub drained: bool,
    /// Size of the terminal at the end; 0 where an older shim did not say.
    #[serde(default)]
    pub rows: u16,
    #[serde(default)]
    pub cols: u16,
    /// That of its [`Launch`].
    #[serde(default = "default_launch", skip_serializing_if = "is_default_launch")]
    pub launch: u32,
    /// Who wrote it. Older shims say neither this nor the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shim: Option<ProcessRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
}

/// Resources of the program and of the descendants it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub user_ms: u64,
    pub system_ms: u64,
    pub max_rss_kb: u64,
}

/// Why the program ended. A limit stays the cause even when the program answered its SIGTERM with exit 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EndCause {
    Exited,
    Signalled,
    WallTime,
    Lease,
    /// The shim itself was asked to end (SIGTERM: the machine shuts down).
    ShimTerminated,
    StartFailed(StartFailure),
    /// From a newer shim.
    #[serde(other)]
    Unknown,
}

/// What can make a shim end its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    WallTime,
    Lease,
    ShimTerminated,
    #[serde(other)]
    Unknown,
}

impl From<Limit> for EndCause {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::WallTime => Self::WallTime,
            Limit::Lease => Self::Lease,
            Limit::ShimTerminated => Self::ShimTerminated,
            Limit::Unknown => Self::Unknown,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    pub step: StartStep,
    /// 0 where the operating system had no part in it.
    #[serde(default)]
    pub errno: i32,
    /// For people; names the thing that was missing.
    pub message: String,
}

/// How far a start came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartStep {
    /// `launch.json` could not be read or understood.
    Launch,
    /// The environment file.
    Environment,
    /// Terminal, fork or record: the machine lacks something.
    Supervise,
    Cgroup,
    User,
    Cwd,
    /// The program is missing or must not be executed.
    Exec,
    /// The program is there, what its first line or header names is not.
    Interpreter,
    #[serde(other)]
    Unknown,
}

/// What a client asks on the control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Output frames begin, after what redraws the screen. The terminal takes on the size.
    Attach {
        rows: u16,
        cols: u16,
        read_only: bool,
    },
    Detach,
    Resize {
        rows: u16,
        cols: u16,
    },
    Type(TypeText),
    Modes,
    Status,
    /// Only forward; in `shim.json` before it is answered.
    RenewLease {
        deadline_boottime_ms: u64,
    },
    /// Counted from `started_boottime_ms`; `None` takes the limit away. In `shim.json` before it is answered.
    SetWallTime {
        wall_time_ms: Option<u64>,
    },
    /// Events begin, with those that have already happened.
    Watch,
    /// To the program's process group.
    Signal {
        signo: i32,
    },
    /// Types a text once: asked again with the same id, the answer is the first outcome, and nothing is typed. A shim
    /// that does not know this request refuses it, so nothing is typed twice by one either.
    Message {
        id: String,
        text: TypeText,
    },
    /// What became of a message, without typing anything; [`RefusalReason::NotTyped`] when not a byte of it was.
    Typed {
        id: String,
    },
    /// Presses Enter once more on a message whose text the program left standing. Refused
    /// ([`RefusalReason::Changed`]) unless this message's Enter is the last thing that was typed, has been read, and
    /// the program has printed nothing beyond `out_len`, which its asker has looked at.
    PressAgain {
        id: String,
        out_len: u64,
    },
}

/// Text for the program, typed in one piece: nothing an attached person types comes between it and its Enter.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeText {
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    pub how: TypeHow,
    /// Press Enter, this long after the text where it was bracketed and at once where it was not.
    #[serde(default)]
    pub enter_after_ms: Option<u64>,
    /// Refuse (`draft`) while an attached person may have typed something without sending it.
    #[serde(default)]
    pub refuse_on_draft: bool,
    /// How long the program may leave it unread.
    #[serde(default = "default_type_timeout_ms")]
    pub timeout_ms: u64,
    /// Refuse ([`RefusalReason::SeveralLines`]) more than one line where the program takes no pastes: each would be
    /// submitted on its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_lines: bool,
}

const fn default_type_timeout_ms() -> u64 {
    10_000
}

impl fmt::Debug for TypeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypeText")
            .field("bytes", &format_args!("<{} bytes>", self.bytes.len()))
            .field("how", &self.how)
            .field("enter_after_ms", &self.enter_after_ms)
            .field("refuse_on_draft", &self.refuse_on_draft)
            .field("timeout_ms", &self.timeout_ms)
            .field("refuse_lines", &self.refuse_lines)
            .finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TypeHow {
    /// As a bracketed paste where the program has asked for that, else as keys with LF as Enter. Control characters
    /// but TAB and LF are refused: they would end the paste or be commands to the program.
    Auto,
    /// As keys, never bracketed; control characters refused likewise.
    Plain,
    /// Exactly these bytes: for keys such as Esc.
    Keys,
}

/// Answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Typed(Typed),
    /// DEC private modes that are set, in the order in which they were.
    Modes {
        set: Vec<u16>,
    },
    Status(Box<Status>),
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    pub outcome: TypeOutcome,
    pub bracketed: bool,
    /// Bytes attached people had typed since the last Enter when the text was.
    pub draft_possible: u64,
    /// Length of `out.raw` when the Enter after a bracketed paste was pressed: what the program showed before it. None
    /// from an older shim, and where no Enter was pressed apart from the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TypeOutcome {
    /// All of it, with its Enter, is in the program's terminal.
    Delivered,
    /// Not a byte of it is.
    NotDelivered,
    /// A part is; Enter was not pressed.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub reason: RefusalReason,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalReason {
    /// The request cannot be decoded: perhaps it is newer than this shim.
    UnknownRequest,
    /// The program has ended.
    Ended,
    /// An attached person's unsent text would be joined.
    Draft,
    ControlCharacters,
    /// The program has left too much of what was typed before unread.
    Busy,
    TooLarge,
    /// The client is attached read-only, or not at all.
    NotAttached,
    /// A lease only moves forward, and not once it has run out.
    LeaseNotRenewable,
    /// The machine refused; the message has its error.
    Failed,
    /// The terminal collects whole lines for the program and would cut this one short.
    LineTooLong,
    /// Nothing of this message was typed.
    NotTyped,
    /// The program takes no pastes, and the text has several lines.
    SeveralLines,
    /// Something was typed or printed since: it may no longer be this message's text that Enter would submit.
    Changed,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub child_alive: bool,
    pub out_len: u64,
    /// 0 before the first output.
    pub last_output_at_ms: u64,
    pub attached: u32,
    #[serde(default)]
    pub degraded: Vec<String>,
    /// Once it is on disk; a little later than the end of `child_alive`.
    #[serde(default)]
    pub exit: Option<ExitRecord>,
    pub rows: u16,
    pub cols: u16,
    #[serde(default)]
    pub draft_possible: u64,
    #[serde(default)]
    pub wall_time_ms: Option<u64>,
    #[serde(default)]
    pub lease_deadline_boottime_ms: Option<u64>,
}

/// What a shim says unasked. End of the stream without [`Event::Drained`]: the shim is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// `exit.json` is on disk.
    Exited(Box<ExitRecord>),
    /// `exit.json` is final; the shim ends now.
    Drained(Box<ExitRecord>),
    /// All that is degraded now; empty when it is mended.
    Degraded { what: Vec<String> },
}
