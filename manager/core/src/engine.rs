//! The core itself: takes an input, lets everything it touched settle, and hands out the effects in their order.

use std::collections::BTreeSet;

use protocol::ids::{AgentId, RunId, TaskId};
use protocol::time::Timestamp;
use serde::Serialize;

use crate::client::requests::Requests;
use crate::config::Config;
use crate::effect::Effect;
use crate::fleet::Fleet;
use crate::input::Input;
use crate::message::Messages;
use crate::outbox::Outbox;
use crate::record::{self, StoredRecord};
use crate::run::Work;
use crate::run::caps::Caps;
use crate::timers::{Timer, Timers};

/// What an input touched and has not been looked at yet. Empty between calls, but for what was just loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Touched {
    pub(crate) agents: BTreeSet<AgentId>,
    pub(crate) tasks: BTreeSet<TaskId>,
    pub(crate) merges: BTreeSet<RunId>,
    pub(crate) plan: bool,
}

/// Desired and observed state of the fleet, and the rules that move it. See the crate's page.
#[derive(Clone, Debug, PartialEq)]
pub struct Core {
    pub(crate) config: Config,
    pub(crate) fleet: Fleet,
    pub(crate) work: Work,
    pub(crate) messages: Messages,
    pub(crate) requests: Requests,
    pub(crate) timers: Timers,
    pub(crate) touched: Touched,
    pub(crate) out: Outbox,
    /// A host that was not heard since then may have been away, or only this manager.
    pub(crate) loaded_at: Timestamp,
}

impl Core {
    pub(crate) fn empty(config: Config, loaded_at: Timestamp) -> Self {
        let caps = Caps::new(config.label_caps.clone());
        Self {
            config,
            fleet: Fleet::default(),
            work: Work::within(caps),
            messages: Messages::default(),
            requests: Requests::default(),
            timers: Timers::default(),
            touched: Touched::default(),
            out: Outbox::default(),
            loaded_at,
        }
    }

    /// Decides. Total: late, repeated and unexpected inputs yield nothing.
    pub fn handle(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        match input {
            Input::Client { reply_to, request, seed } => self.client(now, reply_to, *request, seed),
            Input::Report(report) => self.observe_report(report),
            Input::Forgotten(agent) => self.forgotten(now, agent),
            Input::Heartbeat(heartbeat) => self.observe_heartbeat(now, &heartbeat),
            Input::Leads(fencing) => self.leads(now, fencing),
            Input::Answered { token, answer } => self.answered(now, token, answer),
            Input::LogKept { agent, blob } => self.log_kept(agent, blob),
            Input::InputsKept { task, blob } => self.inputs_kept(now, task, blob),
            Input::LeaseAsked { reply_to, host, agent, generation } => {
                self.lease_asked(now, reply_to, &host, agent, generation);
            }
            Input::Tick => {}
        }
        while let Some(timer) = self.timers.take_due(now) {
            self.wake(now, timer);
        }
        self.settle(now);
        self.take_effects()
    }

    /// When the next [`Input::Tick`] is due; any input serves as one.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.timers.next()
    }

    fn wake(&mut self, now: Timestamp, timer: Timer) {
        match timer {
            Timer::Loaded => {}
            Timer::Host(host) => self.host_faded(now, &host),
            Timer::Reports(host) => self.ask_reports(now, &host),
            Timer::Resend(agent) => self.touch_agent(agent),
            Timer::Message(agent) => self.touch_agent(agent),
            Timer::Messages => self.forget_old_messages(now),
            Timer::Destroy(key) => self.destroy_took_too_long(&key),
            Timer::Task(task) => self.touch_task(task),
            Timer::Merge(run) => self.touch_merge(run),
            Timer::Requests => self.forget_old_requests(now),
        }
    }

    pub(crate) fn touch_agent(&mut self, id: AgentId) {
        self.touched.agents.insert(id);
    }

    pub(crate) fn touch_task(&mut self, id: TaskId) {
        self.touched.tasks.insert(id);
    }

    /// Each step may touch more; it ends since tasks only move forward and orders go out at a pace.
    fn settle(&mut self, now: Timestamp) {
        loop {
            if let Some(task) = self.touched.tasks.pop_first() {
                self.advance(now, task);
            } else if let Some(run) = self.touched.merges.pop_first() {
                self.advance_merge(now, run);
            } else if std::mem::take(&mut self.touched.plan) {
                self.dispatch(now);
            } else if let Some(agent) = self.touched.agents.pop_first() {
                self.reconcile(now, agent);
                self.deliver(now, agent);
            } else {
                return;
            }
        }
    }

    /// Tasks come before their run, which makes a submission whole, and before their agents, which a task's record
    /// is enough to make again; answers come last, so that none is kept for what is not there.
    fn take_effects(&mut self) -> Vec<Effect> {
        let out = std::mem::take(&mut self.out);
        let mut effects = out.seals;
        for id in out.tasks {
            let task = self.work.task(id).map(|task| &task.record);
            if let Some(task) = task {
                effects.push(write(record::TASKS, record::task_key(task.run, id), Some(task)));
            }
        }
        for id in out.runs {
            let run = self.work.run(id).map(|run| &run.record);
            effects.push(write(record::RUNS, record::run_key(id), run));
        }
        for id in out.desired {
            effects.push(write(record::DESIRED, record::desired_key(id), self.fleet.desired(id)));
        }
        for id in out.messages {
            effects.push(write(record::OUTBOX, record::message_key(id), self.messages.get(id)));
        }
        for key in out.requests {
            effects.push(write(record::REQUESTS, record::request_key(&key), self.requests.stored(&key)));
        }
        // Once the answers that they gave have records of their own; a run without its tasks goes the next time, tasks
        // without a run would be set aside.
        for (run, tasks) in out.gone_runs {
            let key = |task| (record::TASKS, record::task_key(run, task));
            let keys = tasks.into_iter().map(key).chain([(record::RUNS, record::run_key(run))]);
            effects.extend(keys.map(|(bucket, key)| write::<()>(bucket, key, None)));
        }
        effects.extend(out.acts);
        effects.extend(out.changed.into_iter().map(Effect::Changed));
        effects
    }
}

fn write<T: Serialize>(bucket: &'static str, key: String, value: Option<&T>) -> Effect {
    match value.map(record::encode).transpose() {
        Ok(value) => Effect::Write(StoredRecord { bucket, key, value }),
        Err(reason) => Effect::Unwritable { bucket, key, reason },
    }
}
