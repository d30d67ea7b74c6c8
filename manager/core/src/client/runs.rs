//! Submitting runs, adding to them, and cancelling, retrying and scaling what was submitted.

use std::collections::{BTreeMap, BTreeSet};

use protocol::agent::{Environment, ResourceLimits};
use protocol::api::{AddTasks, Outcome, Reachability, Reply, SubmitRun, Target};
use protocol::error::{ErrorCode, WireError};
use protocol::event::Fact;
use protocol::ids::{HostId, Name, RunId, TaskId};
use protocol::report::HostFacts;
use protocol::task::{SubmitTask, TaskState};
use protocol::time::Timestamp;

use super::check::GRACE_MS_MAX;
use super::{Caller, check, invalid};
use crate::Core;
use crate::effect::{Effect, EnvironmentOwner, Subject};
use crate::names::Ids;
use crate::record::{RECORD_VERSION, RequestState, RunRecord, TaskRecord};
use crate::run::caps::check as check_cap;
use crate::timers::Timer;
/// How much of something a host has.
type Capacity = fn(&HostFacts) -> u64;
/// A limit of a task that a host must be large enough for.
type Size = fn(&ResourceLimits) -> Option<u64>;

/// What `scale` changes of a run.
pub(super) struct Scale {
    pub(super) max_parallel: Option<u32>,
    pub(super) keep_parallel: bool,
    /// `None`: this label has no cap any more.
    pub(super) caps: BTreeMap<String, Option<u32>>,
}

/// Tasks that go with a cancelled one and are told by name.
const NAMED_MOST: usize = 10;

impl Core {
    /// All of it or nothing: the run's own record is written last and makes it whole.
    pub(super) fn submit_run(
        &mut self,
        now: Timestamp,
        caller: Caller,
        submit: SubmitRun,
        environments: Vec<Environment>,
    ) {
        let fits = check::run(&submit.run, &submit.tasks, self.config.tasks_max)
            .and_then(|()| check::environments(&submit.tasks, &environments))
            .and_then(|()| self.check_sizes(now, &submit.tasks));
        if let Err(error) = fits {
            return self.out.reply(caller.reply_to, Err(error));
        }
        let mut ids = Ids::new(now, caller.seed);
        let run = ids.run();
        let records = self.new_tasks(now, &mut ids, run, submit.tasks, environments);
        let tasks: Vec<TaskId> = records.iter().map(|task| task.id).collect();
        let name = submit.run.name.to_string();
        let record = RunRecord {
            v: RECORD_VERSION,
            id: run,
            spec: submit.run,
            submitted_at: now,
            tasks: tasks.clone(),
            ended_at: None,
            origin: Some(caller.origin()),
            added: None,
            merge: None,
        };
        self.work.insert(record, records);
        for task in &tasks {
            self.out.task(*task);
            self.touch_task(*task);
        }
        self.out.run(run);
        self.out.changed(Subject::Run(run));
        let count = u64::try_from(tasks.len()).unwrap_or(u64::MAX);
        let reply = Reply::Submitted { run, tasks };
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, false);
        self.out.reply(caller.reply_to, Ok(reply));
        self.out.act(Effect::Event { name, fact: Fact::RunSubmitted { run, tasks: count } });
    }

    /// As a submission: all or nothing, once per key.
    pub(super) fn add_tasks(
        &mut self,
        now: Timestamp,
        caller: Caller,
        add: AddTasks,
        environments: Vec<Environment>,
    ) {
        let checked = self.find_run(&add.run).and_then(|id| {
            let run = self.work.run(id).filter(|run| run.record.spec.open);
            let run = run.ok_or_else(|| {
                WireError::new(ErrorCode::Conflict, "the run is closed: no more tasks can be added")
                    .hint("phalanx run FILE begins another one")
            })?;
            check::more(run, &add.tasks, self.config.tasks_max)?;
            check::environments(&add.tasks, &environments)?;
            self.check_sizes(now, &add.tasks)?;
            Ok(id)
        });
        let run = match checked {
            Ok(run) => run,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        let mut ids = Ids::new(now, caller.seed);
        let records = self.new_tasks(now, &mut ids, run, add.tasks, environments);
        let tasks: Vec<TaskId> = records.iter().map(|task| task.id).collect();
        self.work.add(run, records, caller.origin());
        for task in &tasks {
            self.out.task(*task);
            self.touch_task(*task);
        }
        self.out.run(run);
        self.out.changed(Subject::Run(run));
        let reply = Reply::Submitted { run, tasks };
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, false);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    /// What no host of the fleet has would wait for ever. Only where hosts are heard: who is away may be larger.
    fn check_sizes(&self, now: Timestamp, tasks: &[SubmitTask]) -> Result<(), WireError> {
        let hosts = self.hosts(now);
        if hosts.is_empty() || hosts.iter().any(|host| host.reachability == Reachability::Lost) {
            return Ok(());
        }
        let largest = |size: Capacity| hosts.iter().max_by_key(|host| size(&host.facts));
        let sizes: [(&str, Size, Capacity, &str); 2] = [
            ("memory", |limits| limits.memory_bytes, |facts| facts.memory_total_bytes, "bytes"),
            (
                "cpu",
                |limits| limits.cpu_millis,
                |facts| u64::from(facts.cpus) * 1_000,
                "thousandths of a core",
            ),
        ];
        for (field, wanted, has, unit) in sizes {
            let Some(host) = largest(has) else { continue };
            let most = has(&host.facts);
            let too_large =
                tasks.iter().find(|task| wanted(&task.spec.limits).is_some_and(|size| size > most));
            if let Some(task) = too_large.filter(|_| most > 0) {
                let size = wanted(&task.spec.limits).unwrap_or(0);
                return Err(invalid(format!(
                    "task {:?}: {field}: it asks for {size} {unit}, and the largest host, {}, has {most}",
                    task.spec.name, host.host
                ))
                .hint("ask for less, or add a larger host"));
            }
        }
        Ok(())
    }

    pub(super) fn close_run(&mut self, now: Timestamp, caller: Caller, run: &str) {
        let id = match self.find_run(run) {
            Ok(id) => id,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        self.close(now, id);
        let state = RequestState::Answered { reply: Reply::Done };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(Reply::Done));
    }

    fn close(&mut self, now: Timestamp, id: RunId) {
        let Some(run) = self.work.run_mut(id).filter(|run| run.record.spec.open) else { return };
        run.record.spec.open = false;
        self.out.run(id);
        self.out.changed(Subject::Run(id));
        self.settle_run(now, id);
    }

    /// Their records, after those that the run has; values of their environments are sealed first.
    fn new_tasks(
        &mut self,
        now: Timestamp,
        ids: &mut Ids,
        run: RunId,
        tasks: Vec<SubmitTask>,
        environments: Vec<Environment>,
    ) -> Vec<TaskRecord> {
        let known = self.work.run(run).map(|run| run.record.tasks.clone()).unwrap_or_default();
        let mut tails: BTreeSet<String> = known.iter().map(|id| id.tail()).collect();
        let mut environments = environments.into_iter();
        let mut records = Vec::with_capacity(tasks.len());
        for submitted in tasks {
            let mut id = ids.task();
            // Branch names end in the tail: tasks of one run never share one.
            while !tails.insert(id.tail()) {
                id = ids.task();
            }
            let mut spec = submitted.spec;
            let environment = environments.next().unwrap_or_default();
            spec.has_environment = !environment.0.is_empty();
            if spec.has_environment {
                self.out.seal(Effect::Seal { owner: EnvironmentOwner::Task(id), environment });
            }
            let place = u32::try_from(known.len().saturating_add(records.len())).unwrap_or(u32::MAX);
            records.push(TaskRecord::queued(now, id, run, place, spec));
        }
        records
    }

    /// Queued ones are cancelled at once, live ones when their agent has ended, final ones stay as they are. With a task
    /// goes at once what depends on it: nothing of it has begun.
    pub(super) fn cancel_tasks(
        &mut self,
        now: Timestamp,
        caller: Caller,
        run: &str,
        tasks: Vec<Target>,
        grace_ms: Option<u64>,
    ) {
        if grace_ms.is_some_and(|grace_ms| grace_ms > GRACE_MS_MAX) {
            let error =
                invalid(format!("a grace of more than {} s holds everything up", GRACE_MS_MAX / 1_000));
            return self.out.reply(caller.reply_to, Err(error));
        }
        if tasks.is_empty()
            && let Ok(id) = self.find_run(run)
        {
            self.close(now, id);
        }
        self.for_tasks(now, caller, run, tasks, |core, id, named| {
            let Some(task) = core.work.task(id) else { return Ok(String::new()) };
            if task.record.state.is_final() {
                return Ok(format!("it was over already: {}", task.record.state));
            }
            let away = core.host_of_work(now, id);
            core.change_task(id, |record| {
                record.cancel = true;
                record.cancel_grace_ms = grace_ms;
                if record.state.is_live() {
                    record.reason = "cancel requested; waiting for its agent to end".to_owned();
                }
            });
            if let Some(host) = away {
                return Ok(format!(
                    "not cancelled yet: host {host} does not answer; its agent is stopped when the host is back"
                ));
            }
            let with_it = if named { core.cancel_dependants(now, id) } else { Vec::new() };
            Ok(match with_it.len() {
                0 => String::new(),
                count => {
                    let shown: Vec<&str> = with_it.iter().take(NAMED_MOST).map(Name::as_str).collect();
                    let more = if count > shown.len() { ", …" } else { "" };
                    format!("and {count} that depend on it: {}{more}", shown.join(", "))
                }
            })
        });
    }

    /// The host of a live task, where that was not heard lately: nobody there ends its agent now.
    fn host_of_work(&self, now: Timestamp, id: TaskId) -> Option<HostId> {
        let record = &self.work.task(id)?.record;
        let attempt = record.attempts.last().filter(|_| record.state.is_live())?;
        let is_away = self.reachability(now, &attempt.host) != Reachability::Fresh;
        is_away.then(|| attempt.host.clone())
    }

    /// Names of all that wait for the task to be accepted, which it will not be.
    fn cancel_dependants(&mut self, now: Timestamp, root: TaskId) -> Vec<Name> {
        let (mut cancelled, mut open) = (Vec::new(), vec![root]);
        while let Some(id) = open.pop() {
            let Some(task) = self.work.task(id) else { continue };
            let (name, children) = (task.record.spec.name.clone(), task.children.clone());
            for child in children {
                let Some(waiting) = self.work.task(child).map(|child| &child.record) else { continue };
                // Those that come `after` it only wait for its end.
                if waiting.state != TaskState::Queued || !waiting.spec.depends_on.contains(&name) {
                    continue;
                }
                cancelled.push(waiting.spec.name.clone());
                self.change_task(child, |record| record.blocked_by = Some(name.clone()));
                self.timers.cancel(&Timer::Task(child));
                let reason = format!("dependency {name} was cancelled");
                self.set_state(now, child, TaskState::Cancelled, reason);
                open.push(child);
            }
        }
        cancelled
    }

    /// More are started at once; live ones over a smaller bound go on, and nothing follows them until it holds.
    pub(super) fn scale_run(&mut self, now: Timestamp, caller: Caller, run: &str, scale: Scale) {
        let Scale { max_parallel, keep_parallel, caps } = scale;
        let scaled = self.find_run(run).and_then(|id| {
            if max_parallel == Some(0) {
                return Err(invalid("with 0 nothing would ever start").hint("phalanx cancel RUN ends a run"));
            }
            for (label, most) in &caps {
                check_cap(label, most.unwrap_or(1)).map_err(invalid)?;
            }
            Ok(id)
        });
        let id = match scaled {
            Ok(id) => id,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        let mut of_run = BTreeMap::new();
        let mut tasks = Vec::new();
        if let Some(run) = self.work.run_mut(id) {
            if !keep_parallel {
                run.record.spec.max_parallel = max_parallel;
            }
            of_run.clone_from(&run.record.spec.caps);
            tasks.clone_from(&run.record.tasks);
        }
        if !caps.is_empty() {
            for (label, most) in caps {
                match most {
                    Some(most) => of_run.insert(label, most),
                    None => of_run.remove(&label),
                };
            }
            self.work.recap(id, of_run);
            tasks.into_iter().for_each(|task| self.touch_task(task));
        }
        self.out.run(id);
        self.out.changed(Subject::Run(id));
        self.touched.plan = true;
        let state = RequestState::Answered { reply: Reply::Done };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(Reply::Done));
    }

    /// Failed, cancelled and rejected ones are queued again with a fresh budget, and with them those that were
    /// cancelled since they depend on one of them.
    pub(super) fn retry_tasks(&mut self, now: Timestamp, caller: Caller, run: &str, tasks: Vec<Target>) {
        self.for_tasks(now, caller, run, tasks, move |core, id, named| {
            let Some(task) = core.work.task(id) else { return Ok(String::new()) };
            if task.record.lost {
                let lost = || WireError::new(ErrorCode::Conflict, task.record.reason.clone());
                return if named { Err(lost().hint("submit it again")) } else { Ok(String::new()) };
            }
            match task.record.state {
                TaskState::Failed | TaskState::Cancelled | TaskState::Rejected => {
                    core.queue_again(now, id);
                    Ok(String::new())
                }
                TaskState::Queued | TaskState::Assigned | TaskState::Running | TaskState::Verifying => {
                    Ok(String::new())
                }
                state
                @ (TaskState::Review | TaskState::Accepted | TaskState::Merged | TaskState::Unknown) => {
                    if named {
                        Err(refused_as(state))
                    } else {
                        Ok(String::new())
                    }
                }
            }
        });
    }

    fn queue_again(&mut self, now: Timestamp, id: TaskId) {
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            self.change_task(id, |record| {
                record.starts = 0;
                record.uncharged = 0;
                record.granted = 0;
                record.not_before = None;
                record.cancel = false;
                record.cancel_grace_ms = None;
                record.blocked_by = None;
                // Those before it may have been tried again.
                record.inputs = None;
            });
            self.set_state(now, id, TaskState::Queued, String::from("tried again on request"));
            let Some(task) = self.work.task(id) else { continue };
            let blocked = task.children.iter().filter(|child| {
                self.work.task(**child).is_some_and(|child| {
                    child.record.state == TaskState::Cancelled && child.record.blocked_by.is_some()
                })
            });
            next.extend(blocked.copied());
        }
    }

    /// Applies `act` to the named tasks, or to all; answers with an outcome per name.
    fn for_tasks(
        &mut self,
        now: Timestamp,
        caller: Caller,
        run: &str,
        tasks: Vec<Target>,
        mut act: impl FnMut(&mut Self, TaskId, bool) -> Result<String, WireError>,
    ) {
        let run = match self.find_run(run) {
            Ok(run) => run,
            Err(error) => return self.out.reply(caller.reply_to, Err(error)),
        };
        let reply = if tasks.is_empty() {
            let all = self.work.run(run).map(|run| run.record.tasks.clone()).unwrap_or_default();
            for id in all {
                // Only a task that was named can be refused.
                let _none: Result<String, WireError> = act(self, id, false);
            }
            Reply::Done
        } else {
            let outcomes = tasks.into_iter().map(|target| {
                let outcome = self.find_task_in(run, &target).and_then(|id| act(self, id, true));
                let (note, error) = match outcome {
                    Ok(note) => (note, None),
                    Err(error) => (String::new(), Some(error)),
                };
                Outcome { target, agent: None, error, note }
            });
            Reply::Outcomes(outcomes.collect())
        };
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    pub(crate) fn find_task_in(&self, run: RunId, target: &str) -> Result<TaskId, WireError> {
        let found = self.work.run(run).and_then(|run| {
            let here = |id: &TaskId| self.work.task(*id).is_some_and(|task| task.record.run == run.record.id);
            let by_id = target.parse::<TaskId>().ok().filter(here);
            by_id.or_else(|| run.names.get(&target.parse::<Name>().ok()?).copied())
        });
        found.ok_or_else(|| {
            WireError::new(ErrorCode::NotFound, format!("no task {target:?} in this run"))
                .hint("phalanx tasks")
        })
    }
}

fn refused_as(state: TaskState) -> WireError {
    WireError::new(ErrorCode::Conflict, format!("the task is {state}"))
}
