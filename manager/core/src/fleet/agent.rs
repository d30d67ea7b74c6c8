//! One agent: what is wanted of it beside what its host last reported, and the order that follows from the two.
//!
//! ```text
//!             report                end, nothing left running          destroyed
//!  Unheard ──────────▶ Live ──────────────────────────────▶ Ended ──────────────▶ Gone
//!     └──────────────────────── no order of it was ever sent ──────────────────────▲
//! ```
//! Only a report moves it. A host that is told to stop or destroy what it never saw keeps and reports a tombstone, so
//! absence is never taken for a fact.

use protocol::agent::{AgentSpec, EndCause, Role};
use protocol::ids::{AgentId, Generation, HostId, Incarnation};
use protocol::order::Command;
use protocol::report::{DigestRow, Life, Report, Unmet};
use protocol::time::Timestamp;

use crate::record::{DesiredRecord, Wanted};

/// As hosts call them among what is not in force.
const LIMITS: &str = "limits";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing was ever reported: it may or may not exist.
    Unheard,
    Live,
    /// The program and all that it left running have ended; the workspace is there.
    Ended,
    /// Only transcript and end are left, or it never existed.
    Gone,
}

/// The order that was sent last, and when it goes out again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    pub(crate) generation: Generation,
    pub(crate) verb: &'static str,
    pub(crate) incarnation: Incarnation,
    pub(crate) wait_ms: u64,
    pub(crate) again_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Agent {
    pub(crate) desired: Option<DesiredRecord>,
    pub(crate) observed: Option<Box<Report>>,
    /// From the digest of a heartbeat: fresher than the report, but only figures.
    pub(crate) figures: Option<DigestRow>,
    pub(crate) sending: Option<Sending>,
    /// It was loaded, or an order that makes it was handed out: it may exist, whatever is reported.
    pub(crate) may_exist: bool,
}

impl Agent {
    pub(crate) fn wanted(desired: DesiredRecord, may_exist: bool) -> Self {
        Self { desired: Some(desired), observed: None, figures: None, sending: None, may_exist }
    }

    pub(crate) fn unowned(report: Box<Report>) -> Self {
        let observed = Some(report);
        Self { desired: None, observed, figures: None, sending: None, may_exist: true }
    }

    pub(crate) fn spec(&self) -> Option<&AgentSpec> {
        self.desired.as_ref().map(|d| &d.spec).or(self.observed.as_ref().map(|o| &o.spec))
    }

    pub(crate) fn host(&self) -> Option<&HostId> {
        self.desired.as_ref().map(|d| &d.host).or(self.observed.as_ref().map(|o| &o.host))
    }

    pub(crate) fn standing(&self) -> Standing {
        match &self.observed {
            Some(report) if report.life == Life::Destroyed => Standing::Gone,
            Some(report) if self.may_be_started_again(report) => Standing::Live,
            Some(report) if report.end.is_some() && !report.draining => Standing::Ended,
            Some(_) => Standing::Live,
            None if self.desired.as_ref().is_some_and(|d| d.void) => Standing::Gone,
            None => Standing::Unheard,
        }
    }

    /// A start after this end is wanted, or was and the host has not said that it never took that order.
    fn may_be_started_again(&self, report: &Report) -> bool {
        self.desired.as_ref().is_some_and(|desired| {
            desired.spec.launch > report.spec.launch
                && (desired.wanted == Wanted::Running || report.generation < desired.generation)
        })
    }

    /// Whether the host has yet to report what is wanted now.
    pub(crate) fn awaits_launch(&self) -> bool {
        self.observed.as_ref().is_some_and(|report| self.may_be_started_again(report))
    }

    /// What of the wanted spec is not in force, with the host's reason where it gave one.
    pub(crate) fn unmet(&self) -> Vec<Unmet> {
        let Some(desired) = &self.desired else { return Vec::new() };
        if desired.wanted == Wanted::Destroyed || self.standing() == Standing::Gone {
            return Vec::new();
        }
        let under_way = |what: &str| Unmet { what: what.to_owned(), why: String::new() };
        let Some(report) = &self.observed else { return vec![under_way("order")] };
        // A stop of what has ended is sent only where it says something new.
        let is_behind = report.generation < desired.generation;
        if is_behind && desired.wanted == Wanted::Running {
            return vec![under_way("order")];
        }
        let (wanted, is) = (&desired.spec, &report.spec);
        let runs_on = desired.wanted == Wanted::Running;
        let differs = [
            ("name", wanted.name != is.name),
            ("labels", wanted.labels != is.labels),
            (LIMITS, wanted.limits != is.limits),
            ("frozen", wanted.frozen != is.frozen && runs_on && report.end.is_none()),
            ("launch", wanted.launch > is.launch && runs_on),
        ];
        let why = |what: &str| report.unmet.iter().find(|unmet| unmet.what == what && !is_behind).cloned();
        let mut unmet: Vec<Unmet> = differs
            .into_iter()
            .filter(|(_, differs)| *differs)
            .map(|(what, _)| why(what).unwrap_or_else(|| under_way(what)))
            .collect();
        if let Some(why) = &desired.refused_limits {
            unmet.push(Unmet { what: LIMITS.to_owned(), why: why.clone() });
        }
        unmet
    }

    /// Why the host refuses the limits that are wanted now, if it does.
    pub(crate) fn refused_limits(&self) -> Option<&str> {
        let (desired, report) = (self.desired.as_ref()?, self.observed.as_ref()?);
        let is_open = desired.wanted != Wanted::Destroyed
            && report.generation >= desired.generation
            && report.spec.limits != desired.spec.limits;
        let unmet = report.unmet.iter().find(|unmet| unmet.what == LIMITS && !unmet.why.is_empty());
        unmet.filter(|_| is_open).map(|unmet| unmet.why.as_str())
    }

    /// Nothing of it exists, and nothing is wanted of it: only its record answers who asks again.
    pub(crate) fn is_void(&self) -> bool {
        let void = |desired: &DesiredRecord| desired.void && desired.wanted == Wanted::Destroyed;
        self.observed.is_none() && self.desired.as_ref().is_some_and(void)
    }

    /// It was, and nothing is kept of it any more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_void() && self.may_exist
    }

    /// Ended, and what it left was brought in or cannot be: nothing more is to be expected of it. What never ran
    /// leaves nothing, and only attempts of tasks leave what somebody waits for.
    pub(crate) fn is_settled(&self) -> bool {
        match self.standing() {
            Standing::Unheard | Standing::Live => false,
            Standing::Gone => true,
            Standing::Ended => self.observed.as_ref().is_some_and(|report| {
                report.spec.role != Role::Attempt
                    || report.collected.is_some()
                    || report.end.as_ref().is_some_and(|end| end.cause == EndCause::StartFailed)
            }),
        }
    }

    /// Whether it counts against caps and promises. What is not known to be over counts.
    pub(crate) fn holds_slot(&self) -> bool {
        !self.is_settled()
    }

    /// The order that is due, if any.
    pub(crate) fn due(&self, id: AgentId) -> Option<Command> {
        let desired = self.desired.as_ref()?;
        let generation = desired.generation;
        let standing = self.standing();
        match (desired.wanted, standing) {
            (Wanted::Running, Standing::Unheard) => Some(ensure(id, desired)),
            (Wanted::Running, Standing::Live | Standing::Ended) if self.is_behind(generation) => {
                Some(ensure(id, desired))
            }
            (Wanted::Stopped, Standing::Unheard) => Some(self.stop(id, desired)),
            (Wanted::Stopped, Standing::Live) if !self.is_stopping(generation) => {
                Some(self.stop(id, desired))
            }
            // What it refused to destroy: a late duplicate of that order shall find a newer generation. What was
            // changed of it since goes with the same order.
            (Wanted::Stopped, Standing::Ended)
                if self.is_behind(generation) && (desired.kept || self.is_changed()) =>
            {
                Some(self.stop(id, desired))
            }
            (Wanted::Destroyed, Standing::Unheard | Standing::Live | Standing::Ended) => {
                let spec = Box::new(desired.spec.clone());
                Some(Command::Destroy { agent: id, generation, discard: desired.discard, spec })
            }
            (Wanted::Running, Standing::Live | Standing::Ended | Standing::Gone)
            | (Wanted::Stopped, Standing::Live | Standing::Ended | Standing::Gone)
            | (Wanted::Destroyed, Standing::Gone) => None,
        }
    }

    fn stop(&self, agent: AgentId, desired: &DesiredRecord) -> Command {
        let grace_ms = desired.grace_ms.unwrap_or(desired.spec.grace_ms);
        let spec = Box::new(desired.spec.clone());
        Command::Stop { agent, generation: desired.generation, grace_ms, spec }
    }

    /// Something that a host takes from a newer order differs.
    fn is_changed(&self) -> bool {
        let (Some(desired), Some(report)) = (&self.desired, &self.observed) else { return false };
        let (wanted, is) = (&desired.spec, &report.spec);
        (&wanted.name, &wanted.labels, &wanted.limits) != (&is.name, &is.labels, &is.limits)
    }

    fn is_behind(&self, generation: Generation) -> bool {
        self.observed.as_ref().is_some_and(|report| report.generation < generation)
    }

    /// The host has taken the stop: it keeps it over its own restarts. `end` without emptiness is the same.
    fn is_stopping(&self, generation: Generation) -> bool {
        self.observed.as_ref().is_some_and(|report| {
            report.generation >= generation && (report.stopping || report.end.is_some())
        })
    }

    /// The report that refuses a `destroy`: it says what would have been lost.
    pub(crate) fn refusal(&self) -> Option<&Report> {
        let desired = self.desired.as_ref()?;
        let report = self.observed.as_ref()?;
        let refused = desired.wanted == Wanted::Destroyed
            && report.life != Life::Destroyed
            && report.generation >= desired.generation
            && !report.holds.is_empty();
        refused.then_some(report.as_ref())
    }
}

fn ensure(agent: AgentId, desired: &DesiredRecord) -> Command {
    Command::Ensure { agent, generation: desired.generation, spec: Box::new(desired.spec.clone()) }
}
