//! Starts after the first: an ended agent runs once more when an order of a higher generation says so, and never by
//! itself.
//!
//! The number of the start is in the record, in the shim's launch and in all that the shim writes, so that what an
//! earlier start left is never taken for this one, whatever a crash interrupted.

use protocol::agent::StartStep;
use protocol::time::Timestamp;

use super::settings::LAUNCH;
use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::StartFacts;
use crate::record::Wanted;

/// Ends of earlier starts that are kept, the last ones.
const EARLIER_MAX: usize = 100;

impl Agent {
    /// Only what has ended can be started again.
    pub(super) fn take_launch(&mut self, launch: u32) {
        if launch <= self.record.launch {
            return;
        }
        match self.stage {
            Stage::Collecting | Stage::Ended => {
                self.record.spec.launch = launch;
                self.record.wanted = Wanted::Running;
            }
            Stage::Creating | Stage::Running | Stage::Draining => {
                self.unmet.insert(LAUNCH, "it is alive".to_owned());
            }
            Stage::Removing | Stage::Destroyed => {
                self.unmet.insert(LAUNCH, "it is being destroyed".to_owned());
            }
        }
    }

    pub(super) fn launch_if_wanted(&mut self, now: Timestamp, disk_is_full: Option<&str>) -> Vec<Effect> {
        let record = &mut self.record;
        if record.wanted != Wanted::Running || record.spec.launch <= record.launch {
            return Vec::new();
        }
        record.earlier.extend(record.end.take());
        let surplus = record.earlier.len().saturating_sub(EARLIER_MAX);
        record.earlier.drain(..surplus);
        record.launch = record.spec.launch;
        record.launched_at = Some(now);
        record.stop_requested = false;
        record.collected = None;
        let (agent, launch) = (record.agent, record.launch);
        self.stage = Stage::Creating;
        (self.started, self.is_preparing, self.ready) = (false, false, false);
        self.facts = StartFacts { workspace: self.facts.workspace.take(), ..StartFacts::default() };
        self.session = None;
        self.usage = Default::default();
        self.holds.clear();
        self.trouble.clear();
        self.degraded.clear();
        (self.kill_at, self.lease) = (None, None);
        match disk_is_full {
            Some(detail) => self.start_failed(now, StartStep::Host, detail.to_owned()),
            None => vec![Effect::Create { agent, launch }],
        }
    }
}
