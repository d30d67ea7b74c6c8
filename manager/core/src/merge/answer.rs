//! What the host says of a merge. Unknown is asked again; a refusal of one merge leaves that task out.

use protocol::error::{ErrorCode, WireError};
use protocol::ids::RunId;
use protocol::merge::{ConflictFile, MergeOutcome, MergeResult, MergeTarget};
use protocol::order::Answer;
use protocol::time::Timestamp;

use super::MergeStep;
use crate::Core;
use crate::timers::Timer;

/// Times that a merge is begun anew since its branch moved.
const ROUNDS_MAX: u32 = 5;

impl Core {
    /// `number` and `asked` tell an answer to an earlier question.
    pub(crate) fn merge_answered(
        &mut self,
        now: Timestamp,
        (run, number, asked): (RunId, u32, u32),
        answer: Result<Answer, WireError>,
    ) {
        let merge = self.work.run(run).and_then(|run| run.record.merge.as_ref());
        let Some(merge) = merge.filter(|merge| !merge.is_over()) else { return };
        if (merge.view.number, merge.asked) != (number, asked) {
            return;
        }
        let step = merge.step.clone();
        match (step, answer) {
            (_, Ok(Answer::Refused(error)) | Err(error)) => self.merge_not_answered(now, run, &error),
            (MergeStep::Look, Ok(Answer::MergeTarget(target))) => self.merge_target(now, run, target),
            (MergeStep::Merge, Ok(Answer::MergeResult(result))) => self.merge_result(now, run, result),
            (MergeStep::Advance, Ok(Answer::Landed { .. })) => self.merge_done(now, run),
            (MergeStep::Advance, Ok(Answer::MergeTarget(target))) => self.branch_moved(now, run, target),
            // An answer to something else says nothing: it is asked for again.
            (
                MergeStep::Look
                | MergeStep::Merge
                | MergeStep::Verify { .. }
                | MergeStep::Recheck(_)
                | MergeStep::Advance
                | MergeStep::Over,
                Ok(_),
            ) => {}
        }
    }

    fn next_question(&mut self, run: RunId) {
        self.asked_nothing(run);
        self.change_merge(run, |merge| merge.asked = merge.asked.saturating_add(1));
    }

    fn merge_target(&mut self, now: Timestamp, run: RunId, target: MergeTarget) {
        self.next_question(run);
        let branch = target.branch.clone();
        self.change_merge(run, |merge| {
            merge.view.into.clone_from(&branch);
            merge.view.from.clone_from(&target.tip);
            merge.tip.clone_from(&target.tip);
            merge.start.clone_from(&target.start);
            merge.merged.clone_from(&target.start);
            merge.step = MergeStep::Merge;
            for moved in target.moved {
                let rows = merge.view.rows.iter_mut();
                for row in rows.filter(|row| row.branch.as_ref() == Some(&moved.branch)) {
                    row.moved = Some(moved.clone());
                }
            }
        });
        let dry_run = self
            .work
            .run(run)
            .and_then(|run| run.record.merge.as_ref())
            .is_some_and(|merge| merge.view.dry_run);
        if let Some(at) = target.checked_out.filter(|_| !dry_run) {
            let changes = if target.dirty { " and has changes that are not committed" } else { "" };
            let reason =
                format!("branch {branch} is checked out in {at}{changes}; its files would not follow");
            let remedy =
                format!("--into NEW-BRANCH, then `git merge NEW-BRANCH` there; or leave {branch} there");
            self.merge_refused(now, run, reason, remedy);
        }
    }

    fn merge_result(&mut self, now: Timestamp, run: RunId, result: MergeResult) {
        self.next_question(run);
        match result {
            MergeResult::Merged { commit } => {
                let merge = self.work.run(run).and_then(|run| run.record.merge.as_ref());
                let Some(merge) = merge else { return };
                let task = merge.current().and_then(|place| merge.view.rows.get(place)).map(|row| row.task);
                if merge.view.verify && task.is_some_and(|task| self.has_verify(task)) {
                    self.verify_merged(now, run, commit, 0);
                } else {
                    self.row_merged(run, commit);
                }
            }
            MergeResult::Already => {
                let merge = self.work.run(run).and_then(|run| run.record.merge.as_ref());
                let tip = merge.map(|merge| merge.merged.clone());
                self.change_row(run, |row| row.merged = tip);
                self.decide_row(run, MergeOutcome::Already, String::from("the branch has it"));
            }
            MergeResult::Conflict { files } => {
                let reason = conflict_words(&files);
                self.change_row(run, |row| row.files = files);
                self.decide_row(run, MergeOutcome::Conflict, reason);
            }
        }
    }

    fn branch_moved(&mut self, now: Timestamp, run: RunId, target: MergeTarget) {
        self.next_question(run);
        let merge = self.work.run(run).and_then(|run| run.record.merge.as_ref());
        let rounds = merge.map_or(0, |merge| merge.view.rounds).saturating_add(1);
        if rounds > ROUNDS_MAX {
            let reason = format!("branch {} moved {rounds} times while it was merged into", target.branch);
            return self.merge_refused(
                now,
                run,
                reason,
                String::from("merge when it rests, or --into another"),
            );
        }
        self.change_merge(run, |merge| {
            merge.view.rounds = rounds;
            merge.confirmed.clear();
            for row in &mut merge.view.rows {
                row.outcome = MergeOutcome::Waiting;
                row.reason.clear();
                row.files.clear();
                (row.merged, row.agent) = (None, None);
            }
        });
        self.merge_target(now, run, target);
    }

    fn merge_not_answered(&mut self, now: Timestamp, run: RunId, error: &WireError) {
        if error.code.is_retryable() || error.code == ErrorCode::TimedOut {
            let (first, most) = (self.config.resend_first_ms, self.config.resend_max_ms);
            if let Some(held) = self.work.run_mut(run) {
                held.asking.wait_ms = held.asking.wait_ms.saturating_mul(2).clamp(first, most);
                let at = now.after_ms(held.asking.wait_ms);
                held.asking.until = Some(at);
                self.timers.set(Timer::Merge(run), at);
            }
            return;
        }
        let step =
            self.work.run(run).and_then(|run| run.record.merge.as_ref()).map(|merge| merge.step.clone());
        match step {
            Some(MergeStep::Merge) => {
                self.next_question(run);
                self.decide_row(run, MergeOutcome::Failed, format!("it cannot be merged: {error}"));
            }
            Some(
                MergeStep::Look
                | MergeStep::Advance
                | MergeStep::Verify { .. }
                | MergeStep::Recheck(_)
                | MergeStep::Over,
            )
            | None => {
                self.next_question(run);
                let remedy = if error.hint.is_empty() { "phalanx merge --into BRANCH" } else { &error.hint };
                self.merge_refused(now, run, error.message.clone(), remedy.to_owned());
            }
        }
    }
}

fn conflict_words(files: &[ConflictFile]) -> String {
    const NAMED: usize = 3;
    let names: Vec<&str> = files.iter().take(NAMED).map(|file| file.path.as_str()).collect();
    let more = files.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("conflicts in {}{more}", names.join(", "))
}
