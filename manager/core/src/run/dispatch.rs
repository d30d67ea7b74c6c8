//! Carries the plan out: an attempt is in the task's record, its start counted, before its agent is wanted and the
//! order goes out.

use std::collections::BTreeMap;

use protocol::agent::{AgentSpec, Checkout, CheckoutKind, Role, TaskLink};
use protocol::api::Reachability;
use protocol::ids::{AgentId, HostId, Name, RunId, TaskId};
use protocol::task::{Attempt, TaskState};
use protocol::time::Timestamp;

use super::placement::{self, Depth, Plan, Room, RunLoad};
use super::retry;
use crate::Core;
use crate::config::Strategy;
use crate::names;
use crate::record::{Feedback, TaskRecord};

impl Core {
    /// Hosts that can be heard well enough to be given new work.
    pub(crate) fn rooms(&self, now: Timestamp) -> Vec<Room> {
        let heard = self
            .fleet
            .hosts()
            .filter(|(_, host)| host.reachability(now, &self.config) == Reachability::Fresh);
        heard
            .map(|(id, host)| {
                let mut live_by_run = BTreeMap::new();
                match self.config.strategy {
                    Strategy::Spread => {
                        for run in host.slots().filter_map(|slot| slot.run) {
                            *live_by_run.entry(run).or_insert(0) += 1;
                        }
                    }
                    Strategy::RoundRobin | Strategy::LeastLoaded | Strategy::BinPack => {}
                }
                Room {
                    host: id.clone(),
                    live: u32::try_from(host.live()).unwrap_or(u32::MAX),
                    cap: self.config.host_cap,
                    memory_unpromised: host.memory_unpromised(),
                    cpu_unpromised: host.cpu_unpromised(),
                    disk_is_full: host.disk_is_full(),
                    live_by_run,
                }
            })
            .collect()
    }

    pub(crate) fn plan_now(&self, now: Timestamp, depth: Depth) -> Plan {
        let loads: BTreeMap<RunId, RunLoad> = self
            .work
            .queue
            .runs()
            .into_iter()
            .filter_map(|id| {
                let run = self.work.run(id)?;
                Some((id, RunLoad { live: run.live(), cap: run.record.spec.max_parallel }))
            })
            .collect();
        let after = self.work.last_host.as_ref();
        let (queue, caps) = (&self.work.queue, &self.work.caps);
        placement::plan(self.rooms(now), queue, &loads, caps, self.config.strategy, after, depth)
    }

    pub(crate) fn dispatch(&mut self, now: Timestamp) {
        if self.work.queue.is_empty() {
            return;
        }
        for placement in self.plan_now(now, Depth::Placements).placements {
            self.start_attempt(now, placement.task, &placement.host);
            self.work.last_host = Some(placement.host);
        }
    }

    fn start_attempt(&mut self, now: Timestamp, id: TaskId, host: &HostId) {
        self.work.queue.remove(id);
        let Some(task) = self.work.task(id) else { return };
        let allowed = task.record.state == TaskState::Queued
            && retry::has_start_left(&task.record)
            && task.record.attempts.iter().all(|attempt| attempt.ended_at.is_some());
        if !allowed {
            return;
        }
        let number = u32::try_from(task.record.attempts.len()).unwrap_or(u32::MAX).saturating_add(1);
        let agent = names::task_agent(now, id, number, Role::Attempt.as_str(), 0);
        self.change_task(id, |record| {
            record.starts = record.starts.saturating_add(1);
            record.not_before = None;
            record.attempts.push(Attempt {
                number,
                agent,
                host: host.clone(),
                assigned_at: now,
                started_at: None,
                ended_at: None,
                end: None,
                collected: None,
                verification: None,
                failure: None,
            });
        });
        self.set_state(now, id, TaskState::Assigned, String::new());
        self.want_task_agent(now, id, agent);
    }

    /// Wants the agent that a task's record names. The record is enough to make it, also after a crash between the
    /// two writes.
    pub(crate) fn want_task_agent(&mut self, now: Timestamp, id: TaskId, agent: AgentId) {
        let Some(task) = self.work.task(id) else { return };
        let Some(attempt) = task.record.attempts.iter().rev().find(|attempt| {
            attempt.agent == agent
                || attempt
                    .verification
                    .as_ref()
                    .is_some_and(|check| check.agent == agent || check.base_agent == Some(agent))
        }) else {
            return;
        };
        let spec = if attempt.agent == agent {
            self.attempt_spec(&task.record, attempt)
        } else {
            self.verify_spec(&task.record, attempt, agent)
        };
        let host = attempt.host.clone();
        let Some(region) = self.fleet.host(&host).map(|known| known.region.clone()) else { return };
        if let Some(spec) = spec {
            self.work.link(agent, id);
            self.want_running(now, agent, (host, region), spec, None);
        }
    }

    pub(super) fn link_of(&self, record: &TaskRecord, attempt: u32) -> Option<TaskLink> {
        let run = self.work.run(record.run)?;
        Some(TaskLink {
            run: record.run,
            task: record.id,
            attempt,
            run_name: run.record.spec.name.to_string(),
            task_name: record.spec.name.to_string(),
        })
    }

    /// A run's labels are those of all its agents, but where a task says otherwise.
    pub(super) fn labels_of(&self, record: &TaskRecord) -> BTreeMap<String, String> {
        let mut labels =
            self.work.run(record.run).map(|run| run.record.spec.labels.clone()).unwrap_or_default();
        labels.extend(record.spec.labels.clone());
        labels
    }

    /// Branch of a task, whoever asks first.
    pub(super) fn branch_of(&self, record: &TaskRecord) -> Option<String> {
        let run = self.work.run(record.run)?;
        Some(names::branch(record.run, &run.record.spec.name, record.id, &record.spec.name))
    }

    /// `<prefix><task>#<n>`, cut to what a name may be, and unique among agents that are there.
    pub(super) fn attempt_name(&self, prefix: &str, task: &Name, number: u32, id: AgentId) -> Option<Name> {
        let task: String = task.as_str().chars().take(170).collect();
        names::unique_name(&format!("{prefix}{task}#{number}"), id, |name| self.fleet.is_taken(name))
    }

    fn attempt_spec(&self, record: &TaskRecord, attempt: &Attempt) -> Option<AgentSpec> {
        let task = &record.spec;
        let name = self.attempt_name("", &task.name, attempt.number, attempt.agent)?;
        let checkout = match (&task.repo, self.base_of(record)) {
            (Some(repo), Some(commit)) => Some(Checkout {
                repo: repo.clone(),
                commit,
                branch: self.branch_of(record),
                kind: CheckoutKind::Auto,
                result_ref: Some(names::result_ref(record.run, record.id, attempt.number)),
                near: None,
                snapshot: None,
                prepare: task.prepare.clone(),
                copy: task.copy.clone(),
            }),
            (Some(_) | None, Some(_) | None) => None,
        };
        let feedback = match &record.feedback {
            Feedback::Kept { blob } => Some(blob.clone()),
            Feedback::None | Feedback::Wanted { .. } => None,
        };
        Some(AgentSpec {
            name,
            role: Role::Attempt,
            task: self.link_of(record, attempt.number),
            program: names::with_setup(&task.setup, &task.program),
            profile: task.profile.clone(),
            labels: self.labels_of(record),
            limits: task.limits,
            grace_ms: task.grace_ms,
            checkout,
            commit: task.commit,
            has_environment: task.has_environment,
            prompt: task.prompt.clone(),
            feedback,
            inputs: record.inputs.clone(),
            result: task.result.clone(),
            outputs: task.outputs.clone(),
            ready_text: task.ready_text.clone(),
            signals: task.signals.clone(),
            user: task.user.clone(),
            lease_ms: task.move_after_ms,
            frozen: false,
            launch: 1,
        })
    }
}
