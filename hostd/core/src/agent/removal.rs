//! The removal of an ended agent: asked of the shell, refused where it would lose work, tried again where it failed.

use protocol::agent::Role;
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
        let was_running = self.record.wanted == Wanted::Running;
        self.record.wanted = Wanted::Destroyed { discard };
        match self.stage {
            Stage::Creating | Stage::Running | Stage::Draining => {
                if was_running || self.kill_at.is_none() {
                    self.stop_if_wanted(now)
                } else {
                    Vec::new()
                }
            }
            Stage::Ended => self.remove_if_wanted(),
            Stage::Collecting | Stage::Removing | Stage::Destroyed => Vec::new(),
        }
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
            Removal::Done { collected } => {
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
