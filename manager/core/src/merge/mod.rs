//! Accepted work of a run into one branch, as a durable state machine in the run's record.
//!
//! ```text
//!  LOOK ──▶ MERGE ──merged──▶ VERIFY ──green──▶ MERGE … ──all tried──▶ ADVANCE ──▶ done, tasks MERGED
//!    │        │ conflict        │ red                                     │ moved meanwhile
//!    ▼        ▼                 ▼                                         ▼
//!  refused  left out, the next one is tried                     all again from the new tip, within a bound
//! ```
//! Between the last two lies RECHECK: what earlier tasks are verified by must pass on all of it (`whole.rs`).
//!
//! Each step is one question to the host, or one verification; a question may be asked again at any time, since the same
//! wish gives the same commit and a branch is moved by compare-and-swap. So a crash anywhere goes on, and nothing is
//! merged twice. What a person has checked out is never moved under his hands.

mod answer;
mod begin;
mod step;
mod whole;

use protocol::ids::{AgentId, TaskId};
use protocol::merge::{MergeOutcome, MergeState, MergeView};
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

pub use whole::{Recheck, Red};

/// What happens now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeStep {
    Look,
    Merge,
    Verify { candidate: String, agent: AgentId, restarts: u32 },
    Recheck(Recheck),
    Advance,
    Over,
}

/// A merge of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MergeRecord {
    pub view: MergeView,
    /// As it was asked for.
    pub wished_into: Option<String>,
    pub message: Option<String>,
    pub step: MergeStep,
    /// Counts the questions, so that a late answer is known.
    pub asked: u32,
    /// The branch when this round began; `None`: it was not there.
    pub tip: Option<String>,
    /// The commit that the round began at, and all that was merged since.
    pub start: String,
    pub merged: String,
    /// Tasks whose commands passed on `merged`, beside those that were merged last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<TaskId>,
}

impl MergeRecord {
    pub(crate) fn is_over(&self) -> bool {
        match self.view.state {
            MergeState::UnderWay => false,
            MergeState::Done | MergeState::Refused | MergeState::Unknown => true,
        }
    }

    /// The row that is worked on: the first that is not decided.
    pub(crate) fn current(&self) -> Option<usize> {
        self.view.rows.iter().position(|row| match row.outcome {
            MergeOutcome::Waiting | MergeOutcome::Verifying => true,
            MergeOutcome::Merged
            | MergeOutcome::Already
            | MergeOutcome::Conflict
            | MergeOutcome::Red
            | MergeOutcome::LeftOut
            | MergeOutcome::Failed
            | MergeOutcome::Unknown => false,
        })
    }

    /// The agent that a verification waits for, and the task whose commands it runs.
    pub(crate) fn verifies(&self) -> Option<(AgentId, TaskId)> {
        match &self.step {
            MergeStep::Verify { agent, .. } => {
                let row = self.current().and_then(|place| self.view.rows.get(place))?;
                Some((*agent, row.task))
            }
            MergeStep::Recheck(recheck) => Some((recheck.agent, recheck.of)),
            MergeStep::Look | MergeStep::Merge | MergeStep::Advance | MergeStep::Over => None,
        }
    }
}

/// When the question under way counts as lost, and how long the next wait is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Asking {
    pub(crate) until: Option<Timestamp>,
    pub(crate) wait_ms: u64,
}
