//! From stored records to a core, and back. One record that cannot be used never stops the rest: it is named, left
//! where it is, and nothing is decided about what it stood for.

use std::collections::{BTreeMap, BTreeSet};

use protocol::ids::{AgentId, RunId, TaskId};
use protocol::task::{Attempt, TaskState};
use protocol::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Core;
use crate::config::Config;
use crate::record::{
    self, DESIRED, DesiredRecord, MessageRecord, OUTBOX, Origin, Quarantined, REQUESTS, RUNS, RequestRecord,
    RequestState, RunRecord, StoredRecord, TASKS, TaskRecord,
};
use crate::timers::Timer;
use protocol::api::Reply;

impl Core {
    /// The core as the records have it. Reports of hosts come afterwards, as inputs; until then nothing is known of
    /// any agent, which holds its slot and its name.
    #[must_use]
    pub fn load(config: Config, stored: Vec<StoredRecord>, now: Timestamp) -> (Self, Vec<Quarantined>) {
        let mut core = Self::empty(config, now);
        let mut aside = Vec::new();
        let mut runs: Vec<RunRecord> = Vec::new();
        let mut tasks: BTreeMap<RunId, Vec<TaskRecord>> = BTreeMap::new();
        let mut unread: BTreeSet<String> = BTreeSet::new();
        for StoredRecord { bucket, key, value } in stored {
            let Some(value) = value else { continue };
            let taken = match bucket {
                DESIRED => core.load_desired(&key, &value).inspect_err(|_| {
                    unread.insert(key.clone());
                }),
                RUNS => {
                    read(&value, &key, |run: &RunRecord| record::run_key(run.id)).map(|run| runs.push(run))
                }
                TASKS => read(&value, &key, |task: &TaskRecord| record::task_key(task.run, task.id))
                    .map(|task| tasks.entry(task.run).or_default().push(task)),
                OUTBOX => read(&value, &key, |message: &MessageRecord| record::message_key(message.id))
                    .map(|message| core.messages.insert(message)),
                REQUESTS => read(&value, &key, |request: &RequestRecord| record::request_key(&request.key))
                    .map(|request| core.requests.insert(request, true)),
                other => Err(format!("no bucket is called {other}")),
            };
            if let Err(reason) = taken {
                aside.push(Quarantined { bucket, key, reason });
            }
        }
        for run in runs {
            let mut tasks = tasks.remove(&run.id).unwrap_or_default();
            let lost = lost_tasks(now, &run, &tasks, &aside);
            lost.iter().for_each(|task| core.out.task(task.id));
            tasks.extend(lost);
            tasks.sort_by_key(|task| task.place);
            core.restore_answer(run.origin.as_ref(), run.submitted_at, || Reply::Submitted {
                run: run.id,
                tasks: run.tasks.clone(),
            });
            let (id, ids) = (run.id, run.tasks.clone());
            core.restore_answer(run.added.as_ref(), now, || Reply::Submitted { run: id, tasks: ids });
            core.work.insert(run, tasks);
        }
        for task in tasks.into_values().flatten() {
            let reason = "its run is not there: the submission was never whole, or the run cannot be read";
            let (key, reason) = (record::task_key(task.run, task.id), reason.to_owned());
            aside.push(Quarantined { bucket: TASKS, key, reason });
        }
        core.restore(now, &unread);
        (core, aside)
    }

    fn load_desired(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        let id: AgentId = key.parse().map_err(|error| format!("its key: {error}"))?;
        let desired: DesiredRecord = record::decode(value)?;
        self.restore_answer(desired.origin.as_ref(), desired.created_at, || Reply::Accepted { agent: id });
        self.fleet.insert(id, desired, true);
        Ok(())
    }

    fn restore_answer(&mut self, origin: Option<&Origin>, at: Timestamp, reply: impl FnOnce() -> Reply) {
        let Some(Origin { key, digest }) = origin.cloned() else { return };
        let state = RequestState::Answered { reply: reply() };
        self.requests.insert(RequestRecord { v: record::RECORD_VERSION, key, digest, at, state }, false);
    }

    /// Everything is looked at once, by level.
    fn restore(&mut self, now: Timestamp, unread: &BTreeSet<String>) {
        let lacking: Vec<TaskId> = self
            .work
            .tasks()
            .filter(|task| {
                agents_in_use(&task.record).into_iter().any(|agent| {
                    self.fleet.agent(agent).is_none() && !unread.contains(&record::desired_key(agent))
                })
            })
            .map(|task| task.record.id)
            .collect();
        self.work.torn.extend(lacking);
        self.touched.tasks.extend(self.work.tasks().map(|task| task.record.id));
        let runs: Vec<RunId> = self.work.runs().map(|run| run.record.id).collect();
        runs.into_iter().for_each(|run| self.touch_merge(run));
        self.touched.agents.extend(self.fleet.agents().map(|(id, _)| id));
        self.touched.agents.extend(self.messages.agents_with_open());
        self.timers.set(Timer::Loaded, now);
        self.watch_messages();
        self.watch_requests();
    }

    /// Makes the agents that a task's record names and no record wants, as soon as their host is known.
    pub(crate) fn mend_torn(&mut self, now: Timestamp) {
        for id in std::mem::take(&mut self.work.torn) {
            let Some(task) = self.work.task(id) else { continue };
            let mut whole = true;
            for agent in agents_in_use(&task.record) {
                if self.fleet.desired(agent).is_none() {
                    self.want_task_agent(now, id, agent);
                    whole &= self.fleet.desired(agent).is_some();
                }
            }
            if !whole {
                self.work.torn.insert(id);
            }
            self.touch_task(id);
        }
    }

    /// How many records of each bucket are to be in the store now.
    #[must_use]
    pub fn record_counts(&self) -> [(&'static str, usize); 5] {
        [
            (TASKS, self.work.tasks().count()),
            (RUNS, self.work.runs().count()),
            (DESIRED, self.fleet.agents().filter(|(_, agent)| agent.desired.is_some()).count()),
            (OUTBOX, self.messages.all().count()),
            (REQUESTS, self.requests.all_stored().count()),
        ]
    }

    /// Every record that is to be in the store now.
    #[must_use]
    pub fn records(&self) -> Vec<StoredRecord> {
        let tasks = self.work.tasks().map(|task| {
            let task = &task.record;
            (TASKS, record::task_key(task.run, task.id), record::encode(task))
        });
        let runs =
            self.work.runs().map(|run| (RUNS, record::run_key(run.record.id), record::encode(&run.record)));
        let desired = self.fleet.agents().filter_map(|(id, agent)| {
            let desired = agent.desired.as_ref()?;
            Some((DESIRED, record::desired_key(id), record::encode(desired)))
        });
        let messages = self
            .messages
            .all()
            .map(|message| (OUTBOX, record::message_key(message.id), record::encode(message)));
        let requests = self
            .requests
            .all_stored()
            .map(|request| (REQUESTS, record::request_key(&request.key), record::encode(request)));
        tasks
            .chain(runs)
            .chain(desired)
            .chain(messages)
            .chain(requests)
            .map(|(bucket, key, value)| StoredRecord { bucket, key, value: value.ok() })
            .collect()
    }
}

/// What stands for those tasks of a run that have no record any more: over, so that the run ends, what depends on them
/// is told, and whoever waits hears. One whose record is there and cannot be read is not lost.
fn lost_tasks(
    now: Timestamp,
    run: &RunRecord,
    there: &[TaskRecord],
    aside: &[Quarantined],
) -> Vec<TaskRecord> {
    let there: BTreeSet<TaskId> = there.iter().map(|task| task.id).collect();
    let is_unread = |key: &String| aside.iter().any(|bad| bad.bucket == TASKS && bad.key == *key);
    let lost = run
        .tasks
        .iter()
        .enumerate()
        .filter(|(_, id)| !there.contains(id) && !is_unread(&record::task_key(run.id, **id)));
    lost.filter_map(|(place, id)| {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        TaskRecord::lost(now, *id, run.id, place)
    })
    .collect()
}

/// A stored record as this build writes it: one of another build may have other bytes and say the same.
#[must_use]
pub fn rewritten(bucket: &str, value: &[u8]) -> Option<Vec<u8>> {
    fn again<T: DeserializeOwned + Serialize>(value: &[u8]) -> Option<Vec<u8>> {
        record::encode(&record::decode::<T>(value).ok()?).ok()
    }
    match bucket {
        DESIRED => again::<DesiredRecord>(value),
        RUNS => again::<RunRecord>(value),
        TASKS => again::<TaskRecord>(value),
        OUTBOX => again::<MessageRecord>(value),
        REQUESTS => again::<RequestRecord>(value),
        _ => None,
    }
}

fn read<T: DeserializeOwned>(value: &[u8], key: &str, key_of: impl Fn(&T) -> String) -> Result<T, String> {
    let record: T = record::decode(value)?;
    let own = key_of(&record);
    if own == key { Ok(record) } else { Err(format!("it belongs under the key {own}")) }
}

/// The agent that a task waits for now.
pub(crate) fn agents_in_use(task: &TaskRecord) -> Vec<AgentId> {
    let Some(attempt) = task.attempts.last() else { return Vec::new() };
    match task.state {
        TaskState::Assigned | TaskState::Running => vec![attempt.agent],
        TaskState::Verifying => verifying(attempt),
        TaskState::Queued
        | TaskState::Review
        | TaskState::Accepted
        | TaskState::Merged
        | TaskState::Rejected
        | TaskState::Failed
        | TaskState::Cancelled
        | TaskState::Unknown => Vec::new(),
    }
}

fn verifying(attempt: &Attempt) -> Vec<AgentId> {
    let Some(check) = &attempt.verification else { return Vec::new() };
    match (check.passed, check.base_agent) {
        (Some(false), Some(base)) => vec![base],
        (None | Some(_), Some(_) | None) => vec![check.agent],
    }
}
