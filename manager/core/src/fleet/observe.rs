//! Takes in what hosts say. A report is the whole truth about one agent as of its place in the host's order; an older
//! one changes nothing, and none brings back what was reported destroyed.

use std::collections::BTreeSet;

use protocol::agent::Role;
use protocol::api::Reachability;
use protocol::ids::{AgentId, HostId};
use protocol::report::{Heartbeat, Life, Report};
use protocol::time::Timestamp;

use super::agent::Standing;
use super::lead;
use crate::Core;
use crate::effect::{Effect, EnvironmentOwner, Subject};
use crate::timers::Timer;

impl Core {
    pub(crate) fn observe_report(&mut self, report: Box<Report>) {
        let id = report.agent;
        if let Some(agent) = self.fleet.agent(id) {
            let elsewhere = agent.host().is_some_and(|host| *host != report.host);
            let stale = agent.observed.as_ref().is_some_and(|held| {
                report.position() <= held.position()
                    || (held.life == Life::Destroyed && report.life != Life::Destroyed)
            });
            if elsewhere || stale {
                return;
            }
        }
        self.observe_incarnation(&report);
        if self.fleet.agent(id).is_some() {
            let mut disproved = false;
            let freed = self.fleet.update(id, |agent| {
                // It exists after all: nothing stands against a report.
                if let Some(desired) = &mut agent.desired {
                    disproved = std::mem::take(&mut desired.void);
                }
                agent.observed = Some(report);
            });
            self.touched.plan |= freed;
            if disproved {
                self.out.desired(id);
            }
        } else {
            self.fleet.insert_unowned(report);
        }
        self.out.changed(Subject::Agent(id));
        self.touch_agent(id);
        self.touch_task_of(id);
        self.settle_refusal(id);
        self.settle_limits(id);
        if self.fleet.standing(id) == Standing::Gone {
            self.gone(id);
        }
    }

    /// Someone who waits for the end of this agent hears of it; its values are forgotten.
    pub(crate) fn gone(&mut self, id: AgentId) {
        self.touch_task_of(id);
        self.decide_destroy(id, None);
        let own = self
            .fleet
            .desired(id)
            .is_some_and(|desired| desired.spec.role == Role::Own && desired.spec.has_environment);
        if own {
            self.out.act(Effect::ForgetEnvironment(EnvironmentOwner::Agent(id)));
        }
    }

    fn settle_refusal(&mut self, id: AgentId) {
        let Some(report) = self.fleet.agent(id).and_then(|agent| agent.refusal()) else { return };
        let refusal = crate::client::refused_to_destroy(Some(report));
        self.keep_after_refusal(id);
        self.decide_destroy(id, Some(&refusal));
    }

    /// Limits that a host refused are not wanted any more, or they would come into force at some later start, unasked.
    fn settle_limits(&mut self, id: AgentId) {
        let Some(agent) = self.fleet.agent(id) else { return };
        let (Some(why), Some(report)) = (agent.refused_limits(), &agent.observed) else { return };
        let (why, in_force) = (why.to_owned(), report.spec.limits);
        self.raise(id, |desired| {
            desired.spec.limits = in_force;
            desired.refused_limits = Some(why);
        });
    }

    fn observe_incarnation(&mut self, report: &Report) {
        let host = self.fleet.host_entry(&report.host, &report.region);
        if report.incarnation > host.incarnation {
            host.incarnation = report.incarnation;
            self.touch_agents_of(&report.host);
        }
    }

    pub(crate) fn observe_heartbeat(&mut self, now: Timestamp, heartbeat: &Heartbeat) {
        let config = &self.config;
        let host = self.fleet.host_entry(&heartbeat.host, &heartbeat.region);
        if heartbeat.incarnation < host.incarnation {
            return; // of a run that is over
        }
        let returned = host.reachability(now, config) == Reachability::Lost;
        let restarted = heartbeat.incarnation > host.incarnation;
        host.incarnation = heartbeat.incarnation;
        host.hear(now, heartbeat);
        if returned || restarted {
            self.touch_agents_of(&heartbeat.host);
            self.mend_torn(now);
            self.ask_merges_again();
        }
        self.out.changed(Subject::Host(heartbeat.host.clone()));
        self.touched.plan |= !self.work.queue.is_empty();
        self.watch_host(now, &heartbeat.host);
        if lead::must_rise(self.config.fencing, heartbeat.fencing) {
            self.out.act(Effect::Lead { above: heartbeat.fencing });
        }
        if let Some(rows) = &heartbeat.digest {
            let mut missing = BTreeSet::new();
            for row in rows {
                let held = self.fleet.report(row.agent).map(Report::position);
                if held.is_none_or(|held| held < (row.incarnation, row.seq)) {
                    missing.insert(row.agent);
                }
                self.fleet.update_figures(row);
            }
            if let Some(host) = self.fleet.host_mut(&heartbeat.host) {
                host.reports_missing = missing;
            }
            self.ask_reports(now, &heartbeat.host);
        }
    }

    /// A host became late or lost: nothing follows for its agents, but placement passes it over.
    pub(crate) fn host_faded(&mut self, now: Timestamp, host: &HostId) {
        self.out.changed(Subject::Host(host.clone()));
        self.touched.plan |= !self.work.queue.is_empty();
        self.watch_host(now, host);
    }

    fn watch_host(&mut self, now: Timestamp, host: &HostId) {
        if let Some(at) = self.fleet.host(host).and_then(|known| known.fades_at(now, &self.config)) {
            self.timers.set(Timer::Host(host.clone()), at);
        }
    }

    pub(crate) fn ask_reports(&mut self, now: Timestamp, id: &HostId) {
        let pace_ms = self.config.ask_reports_pace_ms;
        let Some(host) = self.fleet.host_mut(id).filter(|host| !host.reports_missing.is_empty()) else {
            return;
        };
        match host.reports_asked_at.map(|at| at.after_ms(pace_ms)) {
            Some(next) if next > now => self.timers.set(Timer::Reports(id.clone()), next),
            Some(_) | None => {
                host.reports_asked_at = Some(now);
                let agents = std::mem::take(&mut host.reports_missing).into_iter().collect();
                self.out.act(Effect::AskReports { host: id.clone(), agents });
            }
        }
    }

    fn touch_agents_of(&mut self, host: &HostId) {
        if let Some(host) = self.fleet.host(host) {
            self.touched.agents.extend(host.agents.iter().copied());
        }
    }

    pub(crate) fn touch_task_of(&mut self, agent: AgentId) {
        if let Some(task) = self.work.task_of_agent(agent) {
            self.touch_task(task);
            if let Some(run) = self.work.task(task).map(|task| task.record.run) {
                self.touch_merge(run);
            }
        }
    }
}
