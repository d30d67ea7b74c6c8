//! How an agent's end is taken: by its exit record, without one, or before anything was executed; then what it left is
//! collected.

use protocol::agent::{End, EndCause, Role};
use protocol::report::Collected;
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::{ExitCause, ExitSeen, end_of};

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
}
