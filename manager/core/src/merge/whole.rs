//! What was merged, verified as a whole: each task's commands passed on what had been merged by then, and must pass on
//! all of it. Where they do not, the first merge after which they fail is looked for by halves and left out, and what
//! came after it is merged anew.
//!
//! ```text
//!  all tried ──▶ RECHECK the oldest verdict on the last merge ──green──▶ the next … ──▶ ADVANCE
//!                   │ red
//!                   ▼
//!               RECHECK half-way between the last that is green and the first that is red … ──▶ left out
//! ```
//! A row that is out stays out within the round, so there are at most as many searches as rows.

use protocol::ids::{AgentId, RunId, TaskId};
use protocol::merge::MergeOutcome;
use protocol::task::TaskSpec;
use protocol::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MergeRecord, MergeStep};
use crate::Core;
use crate::names;
use crate::run::attempt::Verdict;

/// Places are those of rows in the view, all of them merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recheck {
    /// Whose commands are run.
    pub of: TaskId,
    /// On the merge of this row.
    pub at: usize,
    /// They passed there.
    pub green: usize,
    /// They failed there.
    #[serde(default)]
    pub red: Option<Red>,
    pub agent: AgentId,
    pub restarts: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Red {
    pub at: usize,
    pub agent: AgentId,
    pub reason: String,
}

/// Tasks that would be verified in the same way.
fn is_verified_alike(one: &TaskSpec, other: &TaskSpec) -> bool {
    // What sealed values say is not known here.
    one.verify == other.verify
        && one.prepare == other.prepare
        && one.copy == other.copy
        && !one.has_environment
        && !other.has_environment
        && one.user == other.user
        && one.limits == other.limits
        && one.verify_timeout_ms == other.verify_timeout_ms
}

impl MergeRecord {
    fn merged_places(&self) -> Vec<usize> {
        let rows = self.view.rows.iter().enumerate();
        rows.filter(|(_, row)| row.outcome == MergeOutcome::Merged).map(|(place, _)| place).collect()
    }

    fn merged_at(&self, place: usize) -> Option<&String> {
        self.view.rows.get(place).and_then(|row| row.merged.as_ref())
    }
}

impl Core {
    /// Whether nothing is left to verify before the branch is moved; else that is begun.
    pub(super) fn is_whole(&mut self, now: Timestamp, run: RunId) -> bool {
        let Some(merge) = self.merge(run) else { return true };
        if !merge.view.verify {
            return true;
        }
        let Some((of, at, green)) = self.due_recheck(merge) else { return true };
        self.recheck(
            now,
            run,
            Recheck { of, at, green, red: None, agent: AgentId::from_parts(0, 0), restarts: 0 },
        );
        false
    }

    /// Commands whose last verdict is of an earlier merge than the last.
    fn due_recheck(&self, merge: &MergeRecord) -> Option<(TaskId, usize, usize)> {
        let places = merge.merged_places();
        let last = *places.last()?;
        let spec = |place: usize| {
            let row = merge.view.rows.get(place)?;
            let spec = &self.work.task(row.task)?.record.spec;
            Some((row.task, spec)).filter(|(_, spec)| !spec.verify.is_empty())
        };
        places.iter().find_map(|&green| {
            let (of, wanted) = spec(green)?;
            let later = |place: &usize| *place > green;
            let mut alike = places.iter().copied().filter(later).filter_map(spec);
            let is_said = green == last
                || merge.confirmed.contains(&of)
                || alike.any(|(_, spec)| is_verified_alike(spec, wanted));
            (!is_said).then_some((of, last, green))
        })
    }

    fn recheck(&mut self, now: Timestamp, run: RunId, recheck: Recheck) {
        self.asked_nothing(run);
        self.change_merge(run, |merge| {
            merge.asked = merge.asked.saturating_add(1);
            let turn = merge.asked.saturating_mul(100).saturating_add(recheck.restarts);
            let agent = names::task_agent(now, recheck.of, merge.view.number, "merge", turn);
            let name = |place: usize| merge.view.rows.get(place).map(|row| row.name.to_string());
            let of =
                merge.view.rows.iter().find(|row| row.task == recheck.of).map(|row| row.name.to_string());
            let (of, at) = (of.unwrap_or_default(), name(recheck.at).unwrap_or_default());
            merge.view.checking = Some(format!("what verifies {of}, once {at} is merged"));
            merge.step = MergeStep::Recheck(Recheck { agent, ..recheck });
        });
    }

    /// The commit that a recheck is about.
    pub(super) fn recheck_commit(&self, run: RunId, recheck: &Recheck) -> Option<String> {
        self.merge(run)?.merged_at(recheck.at).cloned()
    }

    pub(super) fn rechecked(
        &mut self,
        now: Timestamp,
        run: RunId,
        recheck: Recheck,
        verdict: Option<String>,
    ) {
        let Some(merge) = self.merge(run) else { return };
        let places = merge.merged_places();
        let (green, red) = match (verdict, recheck.red) {
            (None, None) => {
                // On all of it.
                return self.change_merge(run, |merge| {
                    merge.confirmed.push(recheck.of);
                    merge.view.checking = None;
                    merge.step = MergeStep::Merge;
                });
            }
            (None, Some(red)) => (recheck.at, red),
            (Some(reason), _) => (recheck.green, Red { at: recheck.at, agent: recheck.agent, reason }),
        };
        let between: Vec<usize> =
            places.into_iter().filter(|place| *place > green && *place < red.at).collect();
        match between.get(between.len() / 2) {
            Some(&at) => {
                let next = Recheck { at, green, red: Some(red), restarts: 0, ..recheck };
                self.recheck(now, run, next);
            }
            None => self.leave_out(run, recheck.of, &red),
        }
    }

    fn leave_out(&mut self, run: RunId, of: TaskId, red: &Red) {
        self.asked_nothing(run);
        self.change_merge(run, |merge| {
            let broken = merge.view.rows.iter().find(|row| row.task == of).map(|row| row.name.to_string());
            let broken = broken.unwrap_or_default();
            let before = merge
                .view
                .rows
                .iter()
                .take(red.at)
                .rev()
                .find_map(|row| row.merged.clone().filter(|_| row.outcome.is_in()));
            merge.merged = before.unwrap_or_else(|| merge.start.clone());
            for (place, row) in merge.view.rows.iter_mut().enumerate().skip(red.at) {
                if place == red.at {
                    row.outcome = MergeOutcome::Red;
                    row.reason = format!("with it the verification of {broken} fails: {}", red.reason);
                    (row.agent, row.merged) = (Some(red.agent), None);
                } else if row.outcome.is_in() {
                    row.outcome = MergeOutcome::Waiting;
                    row.reason.clear();
                    (row.agent, row.merged) = (None, None);
                }
            }
            merge.confirmed.clear();
            merge.view.checking = None;
            merge.step = MergeStep::Merge;
        });
    }

    /// What became of a verification that the merge waits for.
    pub(super) fn look_at_recheck(&mut self, now: Timestamp, run: RunId, recheck: Recheck, verdict: Verdict) {
        match verdict {
            Verdict::Good => self.rechecked(now, run, recheck, None),
            Verdict::ByHand => {
                let reason = String::from("the verification of all that was merged was stopped by hand");
                self.merge_refused(now, run, reason, String::from("phalanx merge again"));
            }
            Verdict::Bad { class, reason } if class.is_infrastructure() => {
                if recheck.restarts < self.config.verification_restarts_max {
                    let restarts = recheck.restarts.saturating_add(1);
                    return self.recheck(now, run, Recheck { restarts, ..recheck });
                }
                let reason = format!("all that was merged could not be verified: {reason}");
                self.merge_refused(now, run, reason, String::from("phalanx merge again"));
            }
            Verdict::Bad { reason, .. } => self.rechecked(now, run, recheck, Some(reason)),
        }
    }
}
