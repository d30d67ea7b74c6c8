//! The removal of an agent: refused where it would lose work, tried again where it failed.
//!
//! One that is alive is looked at before it is stopped, so that a refusal finds it as it was. That look is not the last
//! word: what it does until its end is looked at again by the removal itself.

use protocol::agent::{Role, first_launch};
use protocol::ids::Generation;
use protocol::order::Discard;
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::Removal;
use crate::record::Wanted;

/// A removal that left something is tried again after this.
const REMOVE_AGAIN_MS: u64 = 10_000;

impl Agent {
    pub fn destroy(&mut self, now: Timestamp, generation: Generation, discard: Discard) -> Vec<Effect> {
        self.record.generation = generation;
        self.record.wanted = Wanted::Destroyed { discard };
        // Of an earlier refusal: this one is decided anew.
        self.holds.clear();
        match self.stage {
            Stage::Creating | Stage::Running | Stage::Draining => {
                if self.kill_at.is_none() {
                    self.stop_if_wanted(now)
                } else {
                    Vec::new()
                }
            }
            Stage::Ended => self.remove_if_wanted(),
            Stage::Collecting => self.collect_before_removal(discard),
            Stage::Removing | Stage::Destroyed => Vec::new(),
        }
    }

    /// It is alive, nothing has asked it to end, and a destroy that would lose work shall leave it so. What never ran
    /// has no work, and that of a verification is never the only copy.
    pub(super) fn is_weighed_first(&self) -> bool {
        let may_have_work = self.stage != Stage::Creating || self.record.launch > first_launch();
        self.record.wanted == Wanted::Destroyed { discard: Discard::Keep }
            && self.stage.is_live()
            && may_have_work
            && self.record.spec.role != Role::Verify
            && !self.record.stop_requested
    }

    pub(super) fn weigh(&mut self) -> Vec<Effect> {
        // The outcome of a start comes first.
        if self.is_weighing || self.stage == Stage::Creating {
            return Vec::new();
        }
        self.is_weighing = true;
        vec![Effect::Weigh(self.record.agent)]
    }

    /// What its removal would lose, if it ended now.
    pub fn weighed(&mut self, now: Timestamp, holds: Vec<String>) -> Vec<Effect> {
        self.is_weighing = false;
        if !self.is_weighed_first() {
            return Vec::new();
        }
        if holds.is_empty() {
            return self.terminate(now, self.record.spec.grace_ms);
        }
        self.holds = holds;
        self.record.wanted = Wanted::Running;
        Vec::new()
    }

    pub(super) fn remove_if_wanted(&mut self) -> Vec<Effect> {
        let Wanted::Destroyed { discard } = self.record.wanted else { return Vec::new() };
        self.stage = Stage::Removing;
        self.holds.clear();
        self.remove_at = None;
        vec![Effect::Remove { agent: self.record.agent, discard }]
    }

    pub fn removed(&mut self, now: Timestamp, outcome: Removal) -> Vec<Effect> {
        match self.stage {
            Stage::Removing => {}
            Stage::Creating
            | Stage::Running
            | Stage::Draining
            | Stage::Collecting
            | Stage::Ended
            | Stage::Destroyed => return Vec::new(),
        }
        self.remove_at = None;
        match outcome {
            Removal::Done { collected, gone } => {
                self.gone = gone;
                // What became of a task's attempt was decided by what was recorded at its end.
                if let Some(collected) = collected
                    && self.record.spec.role == Role::Own
                {
                    self.record.collected = Some(*collected);
                }
                self.stage = Stage::Destroyed;
                self.record.removed = true;
                self.trouble.clear();
                self.degraded.remove("remove-failed");
                Vec::new()
            }
            Removal::Refused { .. } if self.record.wanted == Wanted::Destroyed { discard: Discard::Yes } => {
                // The operator's word came while the removal without it was under way.
                self.remove_if_wanted()
            }
            Removal::Refused { holds } => {
                self.stage = Stage::Ended;
                self.holds = holds;
                self.record.wanted = Wanted::Stopped { grace_ms: self.record.spec.grace_ms };
                Vec::new()
            }
            Removal::Failed { reason } => {
                self.trouble = reason;
                self.degraded.insert("remove-failed");
                self.remove_at = Some(now.after_ms(REMOVE_AGAIN_MS));
                Vec::new()
            }
        }
    }
}
