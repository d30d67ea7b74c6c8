//! What a merge does next, by level.

use protocol::agent::AgentSpec;
use protocol::ids::{AgentId, RunId, TaskId};
use protocol::merge::{MergeOutcome, MergeRow, MergeState, MergeWish, MovedBranch, RecordedBranch};
use protocol::order::Question;
use protocol::task::{FailureClass, TaskState};
use protocol::time::Timestamp;

use super::{MergeRecord, MergeStep};
use crate::Core;
use crate::effect::{AskToken, Effect, Subject};
use crate::names;
use crate::run::attempt::{Verdict, judge_end};
use crate::timers::Timer;

/// A merge of a large repository takes its time; the shell gives up before.
const LOST_MS: u64 = 330_000;

fn recorded_branch(row: &MergeRow) -> Option<RecordedBranch> {
    Some(RecordedBranch { branch: row.branch.clone()?, commit: row.commit.clone() })
}

fn moved_words(moved: &MovedBranch) -> String {
    let more = moved.commits.saturating_sub(u64::try_from(moved.shown.len()).unwrap_or(u64::MAX));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "its branch {} moved after acceptance; not merged: {}{more}",
        moved.branch,
        moved.shown.join(", ")
    )
}

impl Core {
    pub(crate) fn touch_merge(&mut self, run: RunId) {
        let open = self.work.run(run).and_then(|run| run.record.merge.as_ref());
        if open.is_some_and(|merge| !merge.is_over()) {
            self.touched.merges.insert(run);
        }
    }

    /// The host may have forgotten what it was asked.
    pub(crate) fn ask_merges_again(&mut self) {
        let open: Vec<RunId> = self.work.runs().map(|run| run.record.id).collect();
        for run in open {
            if let Some(run) = self.work.run_mut(run) {
                run.asking.until = None;
            }
            self.touch_merge(run);
        }
    }

    pub(super) fn merge(&self, run: RunId) -> Option<&MergeRecord> {
        self.work.run(run)?.record.merge.as_ref().filter(|merge| !merge.is_over())
    }

    /// Changes the record of a merge, which is then written.
    pub(super) fn change_merge(&mut self, run: RunId, change: impl FnOnce(&mut MergeRecord)) {
        if let Some(merge) = self.work.run_mut(run).and_then(|run| run.record.merge.as_mut()) {
            change(merge);
            self.out.run(run);
            self.out.changed(Subject::Run(run));
            self.touch_merge(run);
        }
    }

    pub(super) fn change_row(&mut self, run: RunId, change: impl FnOnce(&mut MergeRow)) {
        self.change_merge(run, |merge| {
            let current = merge.current();
            if let Some(row) = current.and_then(|place| merge.view.rows.get_mut(place)) {
                change(row);
            }
        });
    }

    /// The current row is decided; the next one is tried.
    pub(super) fn decide_row(&mut self, run: RunId, outcome: MergeOutcome, reason: String) {
        self.change_row(run, |row| {
            row.outcome = outcome;
            row.reason = match &row.moved {
                Some(moved) if reason.is_empty() => moved_words(moved),
                Some(moved) => format!("{reason}; {}", moved_words(moved)),
                None => reason,
            };
        });
        self.change_merge(run, |merge| merge.step = MergeStep::Merge);
        self.asked_nothing(run);
    }

    pub(super) fn asked_nothing(&mut self, run: RunId) {
        self.timers.cancel(&Timer::Merge(run));
        if let Some(run) = self.work.run_mut(run) {
            run.asking = super::Asking::default();
        }
    }

    pub(crate) fn advance_merge(&mut self, now: Timestamp, run: RunId) {
        let Some(merge) = self.merge(run) else { return };
        match merge.step.clone() {
            MergeStep::Look => {
                let (repo, into) = (merge.view.repo.clone(), merge.wished_into.clone());
                let recorded = merge.view.rows.iter().filter_map(recorded_branch).collect();
                self.ask_of_merge(now, run, Question::MergeLook { repo, into, recorded });
            }
            MergeStep::Merge => self.merge_next(now, run),
            MergeStep::Verify { candidate, agent, restarts } => {
                let Some((_, task)) = merge.verifies() else { return };
                if let Some(verdict) = self.verification(now, run, task, &candidate, agent) {
                    self.look_at_verification(now, run, candidate, restarts, verdict);
                }
            }
            MergeStep::Recheck(recheck) => {
                let Some(commit) = self.recheck_commit(run, &recheck) else { return };
                if let Some(verdict) = self.verification(now, run, recheck.of, &commit, recheck.agent) {
                    self.look_at_recheck(now, run, recheck, verdict);
                }
            }
            MergeStep::Advance => {
                let question = Question::Advance {
                    repo: merge.view.repo.clone(),
                    branch: merge.view.into.clone(),
                    commit: merge.merged.clone(),
                    from: merge.tip.clone(),
                };
                self.ask_of_merge(now, run, question);
            }
            MergeStep::Over => {}
        }
    }

    fn ask_of_merge(&mut self, now: Timestamp, run: RunId, question: Question) {
        let Some(held) = self.work.run_mut(run) else { return };
        if held.asking.until.is_some_and(|until| until > now) {
            return;
        }
        let Some(merge) = &held.record.merge else { return };
        let until = now.after_ms(LOST_MS);
        held.asking.until = Some(until);
        let token = AskToken::Merge { run, number: merge.view.number, asked: merge.asked };
        let host = merge.view.host.clone();
        self.timers.set(Timer::Merge(run), until);
        self.out.act(Effect::Ask { token, host, question });
    }

    fn merge_next(&mut self, now: Timestamp, run: RunId) {
        let Some(merge) = self.merge(run) else { return };
        let Some(row) = merge.current().and_then(|place| merge.view.rows.get(place)) else {
            return self.all_tried(now, run);
        };
        let out = |parent: &TaskId| {
            merge.view.rows.iter().find(|row| row.task == *parent).filter(|row| row.outcome.is_out())
        };
        if let Some(parent) = self.parents(row.task).iter().find_map(out) {
            let reason = format!("{} was left out, on which it depends", parent.name);
            return self.decide_row(run, MergeOutcome::LeftOut, reason);
        }
        let subject = merge.message.clone().unwrap_or_else(|| format!("Merge task {}", row.name));
        let message =
            format!("{subject}\n\nRun: {} ({run})\nTask: {} ({})\n", merge.view.run_name, row.name, row.task);
        let wish = MergeWish {
            repo: merge.view.repo.clone(),
            onto: merge.merged.clone(),
            work: row.commit.clone(),
            message,
            at: merge.view.started_at,
            keep: format!("refs/phalanx/{run}/merge/{}", merge.view.number),
            dry_run: merge.view.dry_run,
        };
        self.ask_of_merge(now, run, Question::Merge(Box::new(wish)));
    }

    fn all_tried(&mut self, now: Timestamp, run: RunId) {
        let Some(merge) = self.merge(run) else { return };
        if merge.view.dry_run || merge.merged == merge.start && merge.tip.is_some() {
            return self.merge_done(now, run);
        }
        if !merge.view.rows.iter().any(|row| row.outcome.is_in()) {
            return self.merge_done(now, run);
        }
        if !self.is_whole(now, run) {
            return;
        }
        self.asked_nothing(run);
        self.change_merge(run, |merge| {
            merge.asked = merge.asked.saturating_add(1);
            merge.step = MergeStep::Advance;
        });
    }

    /// The branch has what could be merged: tasks first, so that a crash between the records is mended by asking again.
    pub(super) fn merge_done(&mut self, now: Timestamp, run: RunId) {
        let Some(merge) = self.merge(run) else { return };
        let (into, dry_run) = (merge.view.into.clone(), merge.view.dry_run);
        let merged = merge.merged.clone();
        let rows: Vec<(TaskId, Option<String>)> = merge
            .view
            .rows
            .iter()
            .filter(|row| row.outcome.is_in())
            .map(|row| (row.task, row.merged.clone()))
            .collect();
        let moved = !rows.is_empty() && !dry_run;
        for (id, commit) in rows.into_iter().filter(|_| !dry_run) {
            if self.work.task(id).is_none_or(|task| task.record.state != TaskState::Accepted) {
                continue;
            }
            let short: String = commit.as_deref().unwrap_or_default().chars().take(12).collect();
            self.stop_landing(id);
            self.change_task(id, |record| {
                record.landing = crate::record::Landing::None;
                record.merged = commit;
            });
            self.forget_values(id);
            self.set_state(now, id, TaskState::Merged, format!("merged into {into} by {short}"));
        }
        self.asked_nothing(run);
        self.change_merge(run, |merge| {
            merge.step = MergeStep::Over;
            merge.view.state = MergeState::Done;
            merge.view.ended_at = Some(now);
            merge.view.to = (moved || dry_run).then_some(merged);
        });
    }

    pub(super) fn merge_refused(&mut self, now: Timestamp, run: RunId, reason: String, remedy: String) {
        self.asked_nothing(run);
        self.change_merge(run, |merge| {
            merge.step = MergeStep::Over;
            merge.view.state = MergeState::Refused;
            merge.view.ended_at = Some(now);
            merge.view.reason = reason;
            merge.view.remedy = remedy;
        });
    }

    pub(super) fn verify_merged(&mut self, now: Timestamp, run: RunId, candidate: String, restarts: u32) {
        let Some(merge) = self.merge(run) else { return };
        let Some(row) = merge.current().and_then(|place| merge.view.rows.get(place)) else { return };
        let (task, turn) = (row.task, merge.asked.saturating_mul(100).saturating_add(restarts));
        let agent = names::task_agent(now, task, merge.view.number, "merge", turn);
        self.asked_nothing(run);
        self.change_row(run, |row| {
            row.outcome = MergeOutcome::Verifying;
            row.agent = Some(agent);
        });
        self.change_merge(run, |merge| merge.step = MergeStep::Verify { candidate, agent, restarts });
    }

    /// What became of it; it is begun where it was not, also after a crash between the two writes. `None`: it goes on.
    fn verification(
        &mut self,
        now: Timestamp,
        run: RunId,
        task: TaskId,
        commit: &str,
        agent: AgentId,
    ) -> Option<Verdict> {
        let Some(known) = self.fleet.agent(agent) else {
            self.want_verification(now, run, task, commit, agent);
            return None;
        };
        if !known.is_settled() {
            return None;
        }
        let end = self.fleet.report(agent).and_then(|report| report.end.clone());
        Some(end.as_ref().map_or_else(
            || Verdict::Bad {
                class: FailureClass::Infrastructure,
                reason: String::from("it never reached its host"),
            },
            judge_end,
        ))
    }

    fn look_at_verification(
        &mut self,
        now: Timestamp,
        run: RunId,
        candidate: String,
        restarts: u32,
        verdict: Verdict,
    ) {
        match verdict {
            Verdict::Good => self.row_merged(run, candidate),
            Verdict::ByHand => {
                self.decide_row(run, MergeOutcome::Red, String::from("its verification was stopped by hand"));
            }
            Verdict::Bad { class, reason } if class.is_infrastructure() => {
                if restarts < self.config.verification_restarts_max {
                    self.verify_merged(now, run, candidate, restarts.saturating_add(1));
                } else {
                    let reason = format!("it could not be verified: {reason}");
                    self.decide_row(run, MergeOutcome::Failed, reason);
                }
            }
            Verdict::Bad { reason, .. } => {
                let reason = format!("verification failed on top of what was merged before: {reason}");
                self.decide_row(run, MergeOutcome::Red, reason);
            }
        }
    }

    pub(super) fn row_merged(&mut self, run: RunId, commit: String) {
        self.change_row(run, |row| row.merged = Some(commit.clone()));
        self.decide_row(run, MergeOutcome::Merged, String::new());
        self.change_merge(run, |merge| merge.merged = commit);
    }

    fn want_verification(
        &mut self,
        now: Timestamp,
        run: RunId,
        task: TaskId,
        candidate: &str,
        agent: AgentId,
    ) {
        let Some(merge) = self.merge(run) else { return };
        let host = merge.view.host.clone();
        let Some(region) = self.fleet.host(&host).map(|known| known.region.clone()) else { return };
        if let Some(spec) = self.merge_spec(task, candidate, agent) {
            self.work.link(agent, task);
            self.want_running(now, agent, (host, region), spec, None);
        }
    }

    fn merge_spec(&self, task: TaskId, candidate: &str, agent: AgentId) -> Option<AgentSpec> {
        let record = &self.work.task(task)?.record;
        let attempt = record.attempts.last()?;
        let mut spec = self.check_spec(record, attempt.number, ("merge:", candidate), agent)?;
        // The host that has the repository is the only one that could verify it.
        spec.lease_ms = None;
        Some(spec)
    }
}
