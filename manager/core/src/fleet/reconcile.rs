//! The one step that turns a difference between wanted and observed into an order. Creation, lost messages, restarts
//! of either side and returning hosts all come through here; nothing else sends an order.

use protocol::agent::AgentSpec;
use protocol::api::Reachability;
use protocol::ids::{AgentId, Generation, HostId, Region};
use protocol::order::{Command, Discard};
use protocol::time::Timestamp;

use super::agent::{Sending, Standing};
use crate::Core;
use crate::effect::{Effect, OrderDraft, Subject};
use crate::record::{DesiredRecord, Origin, RECORD_VERSION, Wanted};
use crate::run::lease;
use crate::timers::Timer;

impl Core {
    /// A new agent, wanted running. The order follows from [`Core::reconcile`].
    pub(crate) fn want_running(
        &mut self,
        now: Timestamp,
        id: AgentId,
        (host, region): (HostId, Region),
        spec: AgentSpec,
        origin: Option<Origin>,
    ) {
        let lease_until = spec.lease_ms.map(|length_ms| lease::over_at(now, length_ms));
        let desired = DesiredRecord {
            v: RECORD_VERSION,
            region,
            host,
            generation: Generation(1),
            wanted: Wanted::Running,
            discard: Discard::Keep,
            spec,
            created_at: now,
            grace_ms: None,
            void: false,
            kept: false,
            stops_anyway: false,
            refused_limits: None,
            origin,
            lease_until,
        };
        self.fleet.insert(id, desired, false);
        self.desired_changed(id);
    }

    /// The program shall end. Nothing to do for one that is wanted stopped or less already.
    pub(crate) fn want_stopped(&mut self, id: AgentId, grace_ms: Option<u64>) {
        self.adopt(id);
        let Some(desired) = self.fleet.desired(id) else { return };
        match desired.wanted {
            Wanted::Running => self.raise(id, |desired| {
                desired.wanted = Wanted::Stopped;
                desired.grace_ms = grace_ms;
            }),
            // Its host may refuse; until then there is nothing else to tell it.
            Wanted::Destroyed if !desired.stops_anyway => {
                self.fleet.update(id, |agent| {
                    if let Some(desired) = &mut agent.desired {
                        (desired.stops_anyway, desired.grace_ms) = (true, grace_ms);
                    }
                });
                self.desired_changed(id);
            }
            Wanted::Stopped | Wanted::Destroyed => {}
        }
    }

    /// Nothing of it shall stay. Asking again changes nothing, unless more may be thrown away now.
    pub(crate) fn want_destroyed(&mut self, id: AgentId, discard: Discard) {
        self.adopt(id);
        let Some(desired) = self.fleet.desired(id) else { return };
        let enough = desired.wanted == Wanted::Destroyed
            && (desired.discard == Discard::Yes || discard == Discard::Keep);
        if !enough {
            self.raise(id, |desired| {
                desired.stops_anyway |= desired.wanted == Wanted::Stopped;
                desired.wanted = Wanted::Destroyed;
                desired.discard = discard;
                desired.kept = false;
            });
        }
    }

    /// The host refused: the agent stays as it is, alive or ended, and is not asked for again by itself.
    pub(crate) fn keep_after_refusal(&mut self, id: AgentId) {
        let goes_on = self.fleet.report(id).is_some_and(|report| report.end.is_none() && !report.stopping);
        self.raise(id, |desired| {
            let stops_anyway = std::mem::take(&mut desired.stops_anyway);
            desired.wanted = if goes_on && !stops_anyway { Wanted::Running } else { Wanted::Stopped };
            desired.kept = true;
        });
    }

    /// An operator acts on an agent that has no record: it gets one that says what is reported.
    pub(crate) fn adopt(&mut self, id: AgentId) {
        let Some(agent) = self.fleet.agent(id).filter(|agent| agent.desired.is_none()) else { return };
        let Some(report) = agent.observed.as_deref() else { return };
        let desired = DesiredRecord {
            v: RECORD_VERSION,
            region: report.region.clone(),
            host: report.host.clone(),
            generation: report.generation,
            wanted: Wanted::Running,
            discard: Discard::Keep,
            spec: report.spec.clone(),
            created_at: report.created_at,
            grace_ms: None,
            void: false,
            kept: false,
            stops_anyway: false,
            refused_limits: None,
            origin: None,
            lease_until: None,
        };
        self.fleet.insert(id, desired, true);
    }

    pub(crate) fn raise(&mut self, id: AgentId, change: impl FnOnce(&mut DesiredRecord)) {
        let freed = self.fleet.update(id, |agent| {
            if let Some(desired) = &mut agent.desired {
                desired.generation = desired.generation.next();
                change(desired);
                // An order of this agent that was never sent cannot make it exist.
                desired.void |= agent.observed.is_none() && !agent.may_exist;
            }
        });
        self.touched.plan |= freed;
        self.desired_changed(id);
    }

    pub(crate) fn desired_changed(&mut self, id: AgentId) {
        self.out.desired(id);
        self.out.changed(Subject::Agent(id));
        self.touch_agent(id);
        if self.fleet.standing(id) == Standing::Gone {
            self.gone(id);
        }
    }

    /// Sends the order that is due, unless it went out a moment ago.
    pub(crate) fn reconcile(&mut self, now: Timestamp, id: AgentId) {
        let Some(agent) = self.fleet.agent(id) else { return };
        let (Some(command), Some(desired)) = (agent.due(id), agent.desired.as_ref()) else {
            if agent.sending.is_some() {
                self.fleet.update(id, |agent| agent.sending = None);
                self.timers.cancel(&Timer::Resend(id));
            }
            return;
        };
        let Some(host) = self.fleet.host(&desired.host) else { return };
        if host.reachability(now, &self.config) == Reachability::Lost {
            return; // looked at again when the host is heard
        }
        let before = agent.sending.as_ref().filter(|sent| {
            sent.generation == command.generation()
                && sent.verb == command.verb()
                && sent.incarnation == host.incarnation
        });
        let wait_ms = match before {
            Some(sent) if sent.again_at > now => return,
            Some(sent) => sent.wait_ms.saturating_mul(2).min(self.config.resend_max_ms),
            None => self.config.resend_first_ms,
        };
        let again_at = now.after_ms(wait_ms);
        let sending = Sending {
            generation: command.generation(),
            verb: command.verb(),
            incarnation: host.incarnation,
            wait_ms,
            again_at,
        };
        let expires = host.in_its_time(now.after_ms(self.config.order_expires_ms));
        let draft = OrderDraft {
            region: desired.region.clone(),
            host: desired.host.clone(),
            incarnation: host.incarnation,
            fencing: self.config.fencing,
            expires,
            command,
        };
        let ensures = matches!(draft.command, Command::Ensure { .. });
        self.fleet.update(id, |agent| {
            agent.sending = Some(sending);
            agent.may_exist |= ensures;
        });
        if ensures {
            // The first lease counts from when the host takes the order, at its expiry at the latest.
            self.raise_lease(id, now.after_ms(self.config.order_expires_ms));
        }
        self.timers.set(Timer::Resend(id), again_at);
        self.out.act(Effect::Order(draft));
    }
}
