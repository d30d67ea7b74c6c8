//! What a live program's signals make of its phase: at work, waiting for a person, or at its prompt.
//!
//! Only what was seen counts. A screen that shows no sign leaves the agent RUNNING; what was seen of a program is
//! forgotten with it, and after a restart of hostd it is looked for anew.

use protocol::agent::Phase;
use protocol::signals::{Dialog, PhaseReason, Signals};
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::{Activity, Evidence};

/// The last that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    activity: Activity,
    evidence: Evidence,
}

impl Agent {
    pub fn signalled(&mut self, now: Timestamp, activity: Activity, evidence: Evidence) -> Vec<Effect> {
        match self.stage {
            Stage::Running if self.record.spec.signals.is_some() => {
                if activity == Activity::Idle {
                    self.turn_is_done(now);
                }
                self.seen = Seen { activity, evidence };
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
        match self.seen.activity {
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
        match self.seen.activity {
            Activity::Asking(_) => Some(PhaseReason::Question),
            Activity::Idle => Some(PhaseReason::TurnDone),
            Activity::Unknown | Activity::Busy => None,
        }
    }

    /// What it asks a person.
    #[must_use]
    pub fn dialog(&self) -> Option<&Dialog> {
        match &self.seen.activity {
            Activity::Asking(dialog) if self.stage == Stage::Running && !self.is_frozen() => Some(dialog),
            Activity::Asking(_) | Activity::Idle | Activity::Unknown | Activity::Busy => None,
        }
    }

    /// The same in words, for people.
    pub(crate) fn phase_words(&self) -> String {
        match (self.phase_reason(), self.dialog()) {
            (Some(PhaseReason::Question), Some(dialog)) => format!("it asks: {}", dialog.text),
            (Some(PhaseReason::TurnDone), _) => "it is at its prompt".to_owned(),
            (Some(PhaseReason::Frozen), _) => "frozen".to_owned(),
            (Some(PhaseReason::Question | PhaseReason::Unknown) | None, _) => String::new(),
        }
    }

    /// What proves that a running program is in its phase.
    pub(crate) fn running_source(&self) -> &'static str {
        match (&self.seen.activity, self.seen.evidence) {
            _ if self.is_frozen() => "cgroup",
            (Activity::Unknown, _) | (_, Evidence::Process) => "process",
            (Activity::Asking(_) | Activity::Idle | Activity::Busy, Evidence::Screen) => "screen",
        }
    }
}
