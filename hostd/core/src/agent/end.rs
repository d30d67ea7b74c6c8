//! How an agent's end is taken: by its exit record, without one, or before anything was executed; then what it left is
//! collected. A collection that fails is tried again, within a bound: the program has done its work, and is not to do it
//! once more because a repository was away.

use protocol::agent::{End, EndCause, Role};
use protocol::order::Discard;
use protocol::report::Collected;
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::{ExitCause, ExitSeen, Obstacle, end_of};
use crate::record::Wanted;

/// Doubles from the first to the last.
const COLLECT_AGAIN_MS: u64 = 500;
const COLLECT_AGAIN_MAX_MS: u64 = 30_000;
/// Repository or disk have been away for so long: that is told as the end of it.
const AWAY_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// About two minutes.
const UNCLEAR_TRIES: u32 = 10;

/// Collections that failed, one after another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Collecting {
    tries: u32,
    since: Option<Timestamp>,
    pub(super) again_at: Option<Timestamp>,
    reason: String,
}

impl Agent {
    pub(super) fn end_by(&mut self, exit: &ExitSeen) -> Vec<Effect> {
        self.usage = exit.usage.clone();
        self.transcript_bytes = exit.transcript_bytes;
        let end = end_of(exit, self.record.stop_requested);
        if matches!(exit.cause, ExitCause::Start(_)) {
            return self.end_without_work(end);
        }
        self.record.end = Some(end);
        self.after_end()
    }

    /// An end without an exit record.
    pub(super) fn end_unless_requested(
        &mut self,
        cause: EndCause,
        detail: String,
        at: Timestamp,
    ) -> Vec<Effect> {
        let cause = if self.record.stop_requested { EndCause::Requested } else { cause };
        self.record.end = Some(End { cause, code: None, signal: None, step: None, detail, at });
        self.after_end()
    }

    /// Nothing was executed, so there is nothing to collect.
    pub(super) fn end_without_work(&mut self, end: End) -> Vec<Effect> {
        self.record.end = Some(end);
        self.record.collected = Some(Collected::default());
        self.after_end()
    }

    pub(super) fn after_end(&mut self) -> Vec<Effect> {
        self.kill_at = None;
        self.holds.clear();
        self.forget_settings();
        self.forget_signals();
        let spec = &self.record.spec;
        let nothing_asked = spec.role == Role::Verify
            || (spec.checkout.is_none() && spec.result.is_none() && spec.outputs.is_empty());
        if self.record.collected.is_none() && nothing_asked {
            self.record.collected = Some(Collected::default());
        }
        if self.record.collected.is_none() {
            self.stage = Stage::Collecting;
            return vec![Effect::Collect(self.record.agent)];
        }
        self.stage = Stage::Ended;
        self.remove_if_wanted()
    }

    pub fn collected(&mut self, collected: Collected) -> Vec<Effect> {
        match self.stage {
            Stage::Collecting => {
                if self.collecting.tries > 0 {
                    self.trouble.clear();
                }
                self.collecting = Collecting::default();
                self.degraded.remove("collect-failed");
                self.record.collected = Some(collected);
                self.after_end()
            }
            Stage::Creating
            | Stage::Running
            | Stage::Draining
            | Stage::Ended
            | Stage::Removing
            | Stage::Destroyed => Vec::new(),
        }
    }

    pub fn collect_failed(&mut self, now: Timestamp, obstacle: Obstacle, reason: String) -> Vec<Effect> {
        match self.stage {
            Stage::Collecting => {}
            Stage::Creating
            | Stage::Running
            | Stage::Draining
            | Stage::Ended
            | Stage::Removing
            | Stage::Destroyed => return Vec::new(),
        }
        let since = *self.collecting.since.get_or_insert(now);
        let tries = self.collecting.tries;
        self.collecting.tries = tries.saturating_add(1);
        self.collecting.reason.clone_from(&reason);
        let is_over = match obstacle {
            Obstacle::Outside => now.ms_since(since) >= AWAY_MAX_MS,
            Obstacle::Unclear => self.collecting.tries >= UNCLEAR_TRIES,
        };
        if is_over || self.record.wanted == (Wanted::Destroyed { discard: Discard::Yes }) {
            return self.give_up_collecting();
        }
        if self.record.wanted == (Wanted::Destroyed { discard: Discard::Keep }) {
            self.holds = vec![format!("work that could not be collected: {reason}")];
            self.record.wanted = Wanted::Stopped { grace_ms: self.record.spec.grace_ms };
        }
        let wait_ms = COLLECT_AGAIN_MS.saturating_mul(1 << tries.min(10)).min(COLLECT_AGAIN_MAX_MS);
        self.collecting.again_at = Some(now.after_ms(wait_ms));
        self.trouble = format!("its work could not be collected yet and is tried again: {reason}");
        self.degraded.insert("collect-failed");
        Vec::new()
    }

    fn give_up_collecting(&mut self) -> Vec<Effect> {
        let failed = Some(self.collecting.reason.clone());
        self.collected(Collected { failed, ..Collected::default() })
    }

    pub(super) fn collect_if_due(&mut self, now: Timestamp) -> Option<Effect> {
        self.collecting.again_at.take_if(|at| *at <= now)?;
        Some(Effect::Collect(self.record.agent))
    }

    /// A removal is wanted while the collection waits to be tried again.
    pub(super) fn collect_before_removal(&mut self, discard: Discard) -> Vec<Effect> {
        // Under way: its outcome decides.
        if self.collecting.again_at.take().is_none() {
            return Vec::new();
        }
        match discard {
            Discard::Yes => self.give_up_collecting(),
            Discard::Keep => vec![Effect::Collect(self.record.agent)],
        }
    }
}
