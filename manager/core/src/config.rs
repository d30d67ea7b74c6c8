//! What the shell tells the core once: the term it leads in, caps, paces and limits. Whoever reads a file or a flag
//! for them is the shell.

use std::collections::BTreeMap;

use protocol::ids::Fencing;

/// How a host is chosen among those with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each in its turn.
    RoundRobin,
    /// The one with the fewest live agents.
    LeastLoaded,
    /// The fullest one that still has room, so that others stay free.
    BinPack,
    /// The one with the fewest agents of the same run.
    Spread,
}

/// Runs that are over and of which records are kept; `None` for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunBounds {
    /// The ones that ended last.
    pub most: Option<u64>,
    /// For so long after their end.
    pub older_ms: Option<u64>,
}

/// All times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The lease's number; every order carries it.
    pub fencing: Fencing,
    pub strategy: Strategy,
    /// Agents that may be live on one host at once; `None` for no cap.
    pub host_cap: Option<u32>,
    /// Tasks with a label (`KEY=VALUE`, or `KEY` for any value) that may be live at once.
    pub label_caps: BTreeMap<String, u32>,
    /// A host that was not heard for so long is late.
    pub late_after_ms: u64,
    /// … and lost after this. Lost says nothing about its agents.
    pub lost_after_ms: u64,
    /// An order is worth nothing after this, by the host's clock.
    pub order_expires_ms: u64,
    /// Wait before an unanswered order is sent again; doubles each time.
    pub resend_first_ms: u64,
    pub resend_max_ms: u64,
    /// How long a `destroy` waits for the host's word.
    pub destroy_answer_ms: u64,
    /// How long the answer to a request is kept under its key.
    pub request_kept_ms: u64,
    /// How long a retry waits for the failing log.
    pub feedback_wait_ms: u64,
    /// Least time between two asks for reports of one host.
    pub ask_reports_pace_ms: u64,
    /// An ask that nobody answered counts as lost after this.
    pub ask_lost_ms: u64,
    /// Starts of a task that infrastructure may ruin without charge.
    pub uncharged_max: u32,
    /// Times that infrastructure may end the verification of one attempt.
    pub verification_restarts_max: u32,
    /// Tasks of one submission.
    pub tasks_max: usize,
    /// Messages that wait, and as many again that are decided.
    pub messages_max: usize,
    /// Their texts; well below what the store gives the outbox.
    pub messages_bytes_max: u64,
    /// How long a message is kept after it was decided.
    pub message_kept_ms: u64,
}

impl Config {
    #[must_use]
    pub fn new(fencing: Fencing) -> Self {
        Self {
            fencing,
            strategy: Strategy::LeastLoaded,
            host_cap: None,
            label_caps: BTreeMap::new(),
            late_after_ms: 6_000,
            lost_after_ms: 15_000,
            order_expires_ms: 30_000,
            resend_first_ms: 1_000,
            resend_max_ms: 10_000,
            destroy_answer_ms: 30_000,
            request_kept_ms: 24 * 60 * 60 * 1_000,
            feedback_wait_ms: 10_000,
            ask_reports_pace_ms: 2_000,
            ask_lost_ms: 30_000,
            uncharged_max: 10,
            verification_restarts_max: 5,
            tasks_max: 100_000,
            messages_max: 10_000,
            messages_bytes_max: 24 << 20,
            message_kept_ms: 24 * 60 * 60 * 1_000,
        }
    }
}
