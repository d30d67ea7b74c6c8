//! What a live program's signals make of its phase: at work, waiting for a person, or at its prompt.
//!
//! Only what was seen counts. A screen that shows no sign leaves the agent RUNNING; what was seen of a program is
//! forgotten with it, and after a restart of hostd it is looked for anew.

use protocol::agent::Phase;
use protocol::signals::{Dialog, PhaseReason, Signals};
use protocol::time::Timestamp;

use super::messages::NOTICE_MS;
use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::{Activity, Evidence};

/// A prompt that was seen before a text was typed counts again when nothing else was seen for so long: the program has
/// drawn nothing.
const DOUBTED_MS: u64 = 3_000;

/// The last that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    activity: Activity,
    evidence: Evidence,
    /// A text was typed since: until then, or until something is seen, it is not known what the program does.
    doubted_until: Option<Timestamp>,
}

impl Seen {
    fn activity(&self) -> &Activity {
        if self.doubted_until.is_some() { &Activity::Unknown } else { &self.activity }
    }
}

impl Agent {
    pub fn signalled(&mut self, now: Timestamp, activity: Activity, evidence: Evidence) -> Vec<Effect> {
        match self.stage {
            Stage::Running if self.record.spec.signals.is_some() => {
                if activity == Activity::Idle {
                    self.turn_is_done(now);
                }
                // Seen before the program could take notice of a text, a prompt is as doubtful as the one before it.
                let doubted_until = self.seen.doubted_until.filter(|until| {
                    activity == Activity::Idle && now.after_ms(DOUBTED_MS) < until.after_ms(NOTICE_MS)
                });
                self.seen = Seen { activity, evidence, doubted_until };
                Vec::new()
            }
            // Late, or of a program that has none.
            Stage::Creating
            | Stage::Running
            | Stage::Draining
            | Stage::Collecting
            | Stage::Ended
            | Stage::Removing
            | Stage::Destroyed => Vec::new(),
        }
    }

    fn is_frozen(&self) -> bool {
        self.record.end.is_none()
            && matches!(self.stage, Stage::Running | Stage::Draining)
            && self.facts.frozen
    }

    /// A text was typed: the prompt that was seen before it is no prompt that waits for the next one.
    pub(super) fn doubt_the_prompt(&mut self, now: Timestamp) {
        if self.seen.activity == Activity::Idle {
            self.seen.doubted_until = Some(now.after_ms(DOUBTED_MS));
        }
    }

    /// When a prompt that nothing spoke against counts again.
    pub(super) fn doubted_until(&self) -> Option<Timestamp> {
        self.seen.doubted_until.filter(|_| self.stage == Stage::Running)
    }

    pub(super) fn trust_the_prompt(&mut self, now: Timestamp) {
        if self.seen.doubted_until.is_some_and(|until| until <= now) {
            self.seen.doubted_until = None;
        }
    }

    pub(super) fn forget_signals(&mut self) {
        self.seen = Seen::default();
    }

    /// Whether the program, once executed, has a sign of readiness yet to show.
    pub(super) fn waits_for_ready(&self) -> bool {
        let spec = &self.record.spec;
        spec.ready_text.is_some() || spec.signals.as_deref().is_some_and(Signals::tell_ready)
    }

    /// The phase of a program that runs, by what was seen of it.
    pub(super) fn running_phase(&self) -> Phase {
        match self.seen.activity() {
            Activity::Asking(_) => Phase::Blocked,
            Activity::Idle => Phase::Paused,
            Activity::Unknown | Activity::Busy => Phase::Running,
        }
    }

    /// What the phase is due to, where that is more than the phase. One that stands still does nothing else.
    #[must_use]
    pub fn phase_reason(&self) -> Option<PhaseReason> {
        if self.is_frozen() {
            return Some(PhaseReason::Frozen);
        }
        if self.record.end.is_some() || self.stage != Stage::Running {
            return None;
        }
        match self.seen.activity() {
            Activity::Asking(_) => Some(PhaseReason::Question),
            Activity::Idle => Some(PhaseReason::TurnDone),
            Activity::Unknown | Activity::Busy => None,
        }
    }

    /// What it asks a person.
    #[must_use]
    pub fn dialog(&self) -> Option<&Dialog> {
        match self.seen.activity() {
            Activity::Asking(dialog) if self.stage == Stage::Running && !self.is_frozen() => Some(dialog),
            Activity::Asking(_) | Activity::Idle | Activity::Unknown | Activity::Busy => None,
        }
    }

    /// The same in words, for people.
    pub(crate) fn phase_words(&self) -> String {
        if self.is_preparing && self.stage == Stage::Creating {
            return "preparing its base".to_owned();
        }
        match (self.phase_reason(), self.dialog()) {
            (Some(PhaseReason::Question), Some(dialog)) => format!("it asks: {}", dialog.text),
            (Some(PhaseReason::TurnDone), _) => "it is at its prompt".to_owned(),
            (Some(PhaseReason::Frozen), _) => "frozen".to_owned(),
            (Some(PhaseReason::Question | PhaseReason::Unknown) | None, _) => String::new(),
        }
    }

    /// What proves that a running program is in its phase.
    pub(crate) fn running_source(&self) -> &'static str {
        match (self.seen.activity(), self.seen.evidence) {
            _ if self.is_frozen() => "cgroup",
            (Activity::Unknown, _) | (_, Evidence::Process) => "process",
            (Activity::Asking(_) | Activity::Idle | Activity::Busy, Evidence::Screen) => "screen",
        }
    }
}
