//! The life of a task, decided by level: each step looks at what is so, never at what just happened, so a lost,
//! late or doubled input changes nothing.
//!
//! ```text
//!            placed            report: started       exit 0, declared files
//!  QUEUED ──────────▶ ASSIGNED ──────────▶ RUNNING ──────────────▶ VERIFYING ──▶ ACCEPTED
//!    ▲ │                 │ ended              │ failed    │ review      │ failed
//!    │ └ cancel,         ▼                    ▼           ▼             ▼
//!    │   dependency   (a start left and the class is retried?)  REVIEW  (same question)
//!    │   failed          yes: QUEUED with back-off · no: FAILED
//!    │      ▼
//!    │   CANCELLED ◀── cancel, once the agent of any state before has ended
//!    ├── retry by hand, from FAILED, CANCELLED and REJECTED, with a fresh budget
//!    └── rejected by a person, from REVIEW and ACCEPTED, with one start more (for good: REJECTED)
//! ```

use protocol::event::Fact;
use protocol::ids::{AgentId, RunId, TaskId};
use protocol::task::{Attempt, TaskState};
use protocol::time::Timestamp;

use super::queue::{Demand, Ready};
use crate::Core;
use crate::effect::{Effect, Subject};
use crate::record::{Feedback, Landing, TaskRecord};
use crate::timers::Timer;

/// Whether a step moved the task, so that the next one is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Moved,
    Rests,
}

/// Where the dependencies of a task stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dependencies {
    Accepted,
    Open(Vec<protocol::ids::Name>),
    /// This one will not be accepted by itself.
    Failed(protocol::ids::Name),
}

impl Core {
    /// Changes a task's record, which is then written.
    pub(crate) fn change_task(&mut self, id: TaskId, change: impl FnOnce(&mut TaskRecord)) {
        let Some(task) = self.work.task_mut(id) else { return };
        let was_landing = task.record.landing == Landing::Due;
        change(&mut task.record);
        let is_landing = task.record.landing == Landing::Due;
        let run = task.record.run;
        if let Some(run) = self.work.run_mut(run).filter(|_| was_landing != is_landing) {
            run.landing = if is_landing { run.landing + 1 } else { run.landing.saturating_sub(1) };
        }
        self.out.task(id);
        self.out.changed(Subject::Run(run));
        self.touch_task(id);
    }

    pub(super) fn change_attempt(&mut self, id: TaskId, change: impl FnOnce(&mut Attempt)) {
        self.change_task(id, |record| {
            if let Some(attempt) = record.attempts.last_mut() {
                change(attempt);
            }
        });
    }

    /// The only place where a task's state changes: counts, queue, dependants, the run and the event follow.
    pub(crate) fn set_state(&mut self, now: Timestamp, id: TaskId, state: TaskState, reason: String) {
        let Some(task) = self.work.task(id) else { return };
        let (run, from) = (task.record.run, task.record.state);
        let children = task.children.clone();
        let name = task.record.spec.name.to_string();
        let attempt = task.record.attempts.last().map_or(0, |attempt| attempt.number);
        self.change_task(id, |record| {
            record.state = state;
            record.reason.clone_from(&reason);
            // Its work was over when it was accepted; a merge is something that is done with it.
            if state != TaskState::Merged || record.ended_at.is_none() {
                record.ended_at = state.is_final().then_some(now);
            }
        });
        self.work.count_move(id, from, state);
        if state != TaskState::Queued {
            self.work.queue.remove(id);
        }
        self.touched.plan |= from.is_live() && !state.is_live();
        for child in children {
            self.touch_task(child);
        }
        let fact = Fact::TaskState { run, task: id, attempt, state, reason };
        self.out.act(Effect::Event { name, fact });
        self.settle_run(now, run);
    }

    pub(crate) fn settle_run(&mut self, now: Timestamp, id: RunId) {
        let Some(run) = self.work.run_mut(id) else { return };
        match (run.is_over(), run.record.ended_at) {
            (true, None) => {
                run.record.ended_at = Some(now);
                let fact = Fact::RunEnded {
                    run: id,
                    accepted: run.count(&[TaskState::Accepted, TaskState::Merged]),
                    failed: run.count(&[TaskState::Failed, TaskState::Rejected]),
                    cancelled: run.count(&[TaskState::Cancelled]),
                };
                let name = run.record.spec.name.to_string();
                self.out.act(Effect::Event { name, fact });
                self.out.run(id);
            }
            (false, Some(_)) => {
                run.record.ended_at = None;
                self.out.run(id);
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Moves the task as far as what is known allows.
    pub(crate) fn advance(&mut self, now: Timestamp, id: TaskId) {
        loop {
            let Some(task) = self.work.task(id) else { return };
            let step = match task.record.state {
                TaskState::Queued => self.step_queued(now, id),
                TaskState::Assigned | TaskState::Running => self.step_attempt(now, id),
                TaskState::Verifying => self.step_verification(now, id),
                TaskState::Review if task.record.cancel => self.cancelled(now, id),
                TaskState::Accepted => self.step_landing(now, id),
                TaskState::Review
                | TaskState::Merged
                | TaskState::Rejected
                | TaskState::Failed
                | TaskState::Cancelled
                | TaskState::Unknown => Step::Rests,
            };
            match step {
                Step::Moved => {}
                Step::Rests => break,
            }
        }
        self.tidy(id);
        // By level: also when a crash fell between a task's record and its run's, or when the last branch is there.
        if let Some(run) = self.work.task(id).map(|task| task.record.run) {
            self.settle_run(now, run);
        }
    }

    pub(super) fn cancelled(&mut self, now: Timestamp, id: TaskId) -> Step {
        self.change_task(id, |record| {
            record.not_before = None;
            record.feedback = Feedback::None;
        });
        self.timers.cancel(&Timer::Task(id));
        self.set_state(now, id, TaskState::Cancelled, String::from("cancelled on request"));
        Step::Moved
    }

    /// A task that waits: into the queue as soon as nothing of its own is in the way.
    fn step_queued(&mut self, now: Timestamp, id: TaskId) -> Step {
        let Some(task) = self.work.task(id) else { return Step::Rests };
        let record = &task.record;
        if record.cancel {
            return self.cancelled(now, id);
        }
        match self.dependencies(record) {
            Dependencies::Accepted => {}
            Dependencies::Open(_) => {
                self.work.queue.remove(id);
                return Step::Rests;
            }
            Dependencies::Failed(name) => {
                let reason = self.blocked_words(record.run, &name);
                self.change_task(id, |record| record.blocked_by = Some(name));
                self.timers.cancel(&Timer::Task(id));
                self.set_state(now, id, TaskState::Cancelled, reason);
                return Step::Moved;
            }
        }
        if record.attempts.iter().any(|attempt| attempt.ended_at.is_none()) {
            return Step::Rests;
        }
        if let Some(until) = record.not_before.filter(|until| *until > now) {
            self.timers.set(Timer::Task(id), until);
            // The log is fetched meanwhile.
            self.ask_log(now, id);
            return Step::Rests;
        }
        if let Some(until) = self.ask_log(now, id) {
            self.timers.set(Timer::Task(id), until);
            return Step::Rests;
        }
        if let Some(until) = self.ask_inputs(now, id) {
            self.timers.set(Timer::Task(id), until);
            return Step::Rests;
        }
        let Some(task) = self.work.task(id) else { return Step::Rests };
        let record = &task.record;
        let ready = Ready {
            priority: std::cmp::Reverse(record.spec.priority),
            run: record.run,
            demand: Demand::of(&record.spec.limits),
            caps: task.caps,
            place: record.place,
            task: id,
        };
        let is_new = self.work.queue.insert(ready);
        self.touched.plan |= is_new;
        Step::Rests
    }

    /// Asks for the failing log; the time until which the next attempt waits for it, if it does.
    fn ask_log(&mut self, now: Timestamp, id: TaskId) -> Option<Timestamp> {
        let wait_ms = self.config.feedback_wait_ms;
        let task = self.work.task_mut(id)?;
        let Feedback::Wanted { agent, host } = task.record.feedback.clone() else { return None };
        match task.log_until {
            Some(until) if until > now => Some(until),
            Some(_) => {
                task.log_until = None;
                self.change_task(id, |record| record.feedback = Feedback::None);
                None
            }
            None => {
                task.log_until = Some(now.after_ms(wait_ms));
                self.out.act(Effect::KeepLog { agent, host });
                task.log_until
            }
        }
    }

    pub(crate) fn log_kept(&mut self, from: AgentId, blob: Option<protocol::agent::Blob>) {
        let Some(id) = self.work.task_of_agent(from) else { return };
        let Some(task) = self.work.task_mut(id) else { return };
        match &task.record.feedback {
            Feedback::Wanted { agent, .. } if *agent == from => {
                task.log_until = None;
                let feedback = blob.map_or(Feedback::None, |blob| Feedback::Kept { blob });
                self.change_task(id, |record| record.feedback = feedback);
            }
            Feedback::Wanted { .. } | Feedback::None | Feedback::Kept { .. } => {}
        }
    }

    /// What became of the task that this one waited for.
    fn blocked_words(&self, run: RunId, name: &protocol::ids::Name) -> String {
        let parent =
            self.work.run(run).and_then(|run| run.names.get(name)).and_then(|id| self.work.task(*id));
        match parent.map(|parent| parent.record.state) {
            Some(TaskState::Cancelled) => format!("dependency {name} was cancelled"),
            Some(TaskState::Rejected) => format!("dependency {name} was rejected"),
            None => format!("dependency {name} is not known any more: the bus lost its record"),
            Some(_) => format!("dependency {name} failed"),
        }
    }

    pub(crate) fn dependencies(&self, record: &TaskRecord) -> Dependencies {
        let mut open = Vec::new();
        for name in &record.spec.depends_on {
            let run = self.work.run(record.run);
            let parent = run.and_then(|run| run.names.get(name)).and_then(|id| self.work.task(*id));
            match parent.map(|parent| parent.record.state) {
                Some(TaskState::Accepted | TaskState::Merged) => {}
                // Every task of the run is there, and this one is none of them: its record was lost.
                None if run.is_some_and(|run| run.is_whole) => return Dependencies::Failed(name.clone()),
                Some(TaskState::Rejected | TaskState::Failed | TaskState::Cancelled) => {
                    return Dependencies::Failed(name.clone());
                }
                // A parent whose record cannot be read is unknown: neither a reason to start nor to give up.
                Some(
                    TaskState::Queued
                    | TaskState::Assigned
                    | TaskState::Running
                    | TaskState::Verifying
                    | TaskState::Review
                    | TaskState::Unknown,
                )
                | None => open.push(name.clone()),
            }
        }
        for name in &record.spec.after {
            let run = self.work.run(record.run);
            let parent = run.and_then(|run| run.names.get(name)).and_then(|id| self.work.task(*id));
            let is_over = match parent.map(|parent| parent.record.state) {
                Some(state) => state.is_final() && state != TaskState::Unknown,
                None => run.is_some_and(|run| run.is_whole),
            };
            if !is_over {
                open.push(name.clone());
            }
        }
        if open.is_empty() { Dependencies::Accepted } else { Dependencies::Open(open) }
    }
}
