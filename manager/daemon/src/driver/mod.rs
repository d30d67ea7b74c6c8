//! The one loop: something happens, the core decides, its decision is carried out.
//!
//! ```text
//! clients, reports, heartbeats, answers ──► inbox ─► core ─► writes ──► writer ──► store
//!                         queries ──► core (at once)  └─► outputs, held until the writes are durable
//! ```
//! The loop never waits for anything but its inputs: what takes time is behind a channel, and a full one is answered
//! at once ([`Outlets`] says how). What is decided is the core's; how an output travels is its receiver's.

pub mod changes;
pub mod commit;
pub mod handle;
pub mod writer;

pub use handle::{Driver, Glance, NotTaken};

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use manager_core::{AskToken, Core, Effect, Input, OrderDraft, RowLog, StoredRecord, Subject};
use protocol::agent::Environment;
use protocol::error::{ErrorCode, WireError};
use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, HostId, TaskId};
use protocol::order::Question;
use protocol::task::TaskInput;
use protocol::time::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use self::changes::Changes;
use self::commit::{Batch, Commit, SECRETS};
use self::handle::{Answered, Asked, Granted};
use crate::raised;

/// Longest sleep: a clock that was set is noticed within it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Largest value the bus takes in one message, with room for its envelope.
pub const RECORD_LIMIT: usize = 1_000_000;
/// Between two looks for waiters that are gone.
const SWEEP_EVERY_MS: u64 = 60_000;

/// What the loop takes from outside itself and the core must not: time, randomness, sealing.
pub trait Surroundings: Send + 'static {
    fn now(&self) -> Timestamp;
    /// 128 unguessable bits.
    fn seed(&self) -> u128;
    /// The values as they may be stored under `key`; `None` when they cannot be sealed.
    fn seal(&self, key: &str, environment: &Environment) -> Option<Vec<u8>>;
}

/// Where outputs go once they may leave.
#[derive(Debug)]
pub struct Outlets {
    /// Full: the order is dropped; the core sends it again until a report shows it.
    pub orders: mpsc::Sender<OrderDraft>,
    /// Full: the ask counts as not answered.
    pub asks: mpsc::Sender<HostAsk>,
    /// Full: the fact is dropped and the loss is logged; records, not facts, are what decisions stand on.
    pub facts: mpsc::Sender<DatedFact>,
}

/// A question to a host whose answer is an input.
#[derive(Debug)]
pub enum HostAsk {
    Question {
        token: AskToken,
        host: HostId,
        question: Question,
    },
    Reports {
        host: HostId,
        agents: Vec<AgentId>,
    },
    KeepLog {
        agent: AgentId,
        host: HostId,
    },
    /// Of no host, but since one knows a higher number.
    Lead {
        above: Fencing,
    },
    KeepInputs {
        task: TaskId,
        inputs: Vec<TaskInput>,
    },
}

#[derive(Debug)]
pub struct DatedFact {
    pub at: Timestamp,
    pub name: String,
    pub fact: Fact,
}

/// An output that waits for its writes.
enum Output {
    Reply { to: u64, result: Answered },
    Lease { to: u64, result: Granted },
    Order(OrderDraft),
    Ask(HostAsk),
    Fact(DatedFact),
    Changed(Subject),
    Written(oneshot::Sender<()>),
}

/// Who gets an answer. One that is gone, since its time was up, is passed over: its answer is kept under its key.
enum Waiter {
    Client(oneshot::Sender<Answered>),
    Host(oneshot::Sender<Granted>),
}

impl Waiter {
    fn refuse(self, error: WireError) {
        match self {
            Self::Client(reply) => {
                let _ = reply.send(Err(error));
            }
            Self::Host(reply) => {
                let _ = reply.send(Err(error));
            }
        }
    }
}

/// Channels between the loop and its writer.
#[derive(Debug)]
pub struct WriterEnds {
    pub batches: mpsc::Sender<Batch>,
    pub acknowledged: mpsc::Receiver<()>,
}

/// The loop and all it owns.
pub struct Loop<S> {
    core: Core,
    surroundings: S,
    asked: mpsc::Receiver<Asked>,
    facts: mpsc::Receiver<Input>,
    /// For outputs that fail at once: their outcome is an input like any other.
    own: VecDeque<Input>,
    writer: WriterEnds,
    outlets: Outlets,
    commit: Commit<Output>,
    changes: Changes,
    rows: RowLog,
    swept_at: Timestamp,
    waiting: HashMap<u64, Waiter>,
    next_waiter: u64,
    lost_facts: u64,
}

/// The loop and the way in. `early` is what happened before anything else may be asked.
#[must_use]
pub fn new<S: Surroundings>(
    core: Core,
    surroundings: S,
    writer: WriterEnds,
    outlets: Outlets,
    early: VecDeque<Input>,
) -> (Driver, Loop<S>) {
    let (asked, asked_in) = mpsc::channel(4_096);
    let (facts, facts_in) = mpsc::channel(1_024);
    let swept_at = surroundings.now();
    let epoch = u64::try_from(surroundings.seed() >> 64).unwrap_or_default();
    let turning = Loop {
        rows: RowLog::new(epoch, &core, swept_at),
        core,
        surroundings,
        asked: asked_in,
        facts: facts_in,
        own: early,
        writer,
        outlets,
        commit: Commit::default(),
        changes: Changes::default(),
        swept_at,
        waiting: HashMap::new(),
        next_waiter: 0,
        lost_facts: 0,
    };
    (Driver { asked, facts }, turning)
}

impl<S: Surroundings> Loop<S> {
    /// Turns until `stop` turns true; then takes nothing new and ends when all writes are durable or `flush_limit`
    /// has passed. Returns the number of writes that were given up.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>, flush_limit: Duration) -> u64 {
        loop {
            while let Some(input) = self.own.pop_front() {
                self.decide(input);
            }
            self.hand_over();
            let sleep = self.sleep_length();
            tokio::select! {
                () = raised(&mut stop) => break,
                Some(()) = self.writer.acknowledged.recv() => self.acknowledged(),
                Some(asked) = self.asked.recv() => self.take(asked),
                Some(input) = self.facts.recv() => self.decide(input),
                () = tokio::time::sleep(sleep) => {}
            }
            self.tick();
            self.hand_over();
        }
        self.flush(flush_limit).await
    }

    /// New requests are refused from here on (their channel closes with the loop); those taken are answered when
    /// their writes are durable.
    async fn flush(mut self, limit: Duration) -> u64 {
        self.asked.close();
        while let Ok(asked) = self.asked.try_recv() {
            match asked {
                Asked::Change { reply, .. } => Waiter::Client(reply).refuse(NotTaken::Stopping.into()),
                Asked::Lease { reply, .. } => Waiter::Host(reply).refuse(NotTaken::Stopping.into()),
                // Who asked sees its channel closed.
                Asked::Query(_) | Asked::Watch { .. } | Asked::Held { .. } | Asked::WriteBack { .. } => {}
            }
        }
        let flushed = async {
            while self.commit.unwritten() > 0 {
                self.hand_over();
                if self.writer.acknowledged.recv().await.is_none() {
                    return;
                }
                self.acknowledged();
            }
        };
        let _ = tokio::time::timeout(limit, flushed).await;
        for (_, waiter) in self.waiting.drain() {
            waiter.refuse(NotTaken::Stopping.into());
        }
        self.commit.unwritten()
    }

    fn sleep_length(&self) -> Duration {
        let now = self.surroundings.now();
        self.core.deadline().map_or(LONGEST_SLEEP, |deadline| {
            Duration::from_millis(deadline.ms_since(now)).min(LONGEST_SLEEP)
        })
    }

    fn tick(&mut self) {
        let now = self.surroundings.now();
        if self.core.deadline().is_some_and(|deadline| deadline <= now) {
            self.decide(Input::Tick);
        }
        if now.ms_since(self.swept_at) > SWEEP_EVERY_MS {
            self.swept_at = now;
            self.changes.sweep();
        }
    }

    fn take(&mut self, asked: Asked) {
        match asked {
            Asked::Query(look) => look(&Glance {
                core: &self.core,
                rows: &self.rows,
                now: self.surroundings.now(),
                unwritten: self.commit.unwritten(),
            }),
            Asked::Watch { interest, reply } => {
                let _ = reply.send(self.changes.subscribe(interest));
            }
            Asked::Change { request, reply } => {
                let seed = self.surroundings.seed();
                self.wish(Waiter::Client(reply), |reply_to| Input::Client { reply_to, request, seed });
            }
            Asked::Held { reply } => {
                let open = self.commit.open_keys();
                let mut records = self.core.records();
                records.retain(|record| !open.contains(&(record.bucket, record.key.clone())));
                let _ = reply.send((records, open));
            }
            Asked::WriteBack { keys, reply } => {
                let mut values: HashMap<_, _> = self
                    .core
                    .records()
                    .into_iter()
                    .map(|record| ((record.bucket, record.key), record.value))
                    .collect();
                let writes = keys.into_iter().map(|(bucket, key)| {
                    let value = values.remove(&(bucket, key.clone())).flatten();
                    StoredRecord { bucket, key, value }
                });
                for output in self.commit.push(writes.collect(), vec![Output::Written(reply)]) {
                    self.release(output);
                }
            }
            Asked::Lease { host, agent, generation, reply } => {
                self.wish(Waiter::Host(reply), |reply_to| Input::LeaseAsked {
                    reply_to,
                    host,
                    agent,
                    generation,
                });
            }
        }
    }

    /// Decides about something that is answered, unless too much waits to be written already.
    fn wish(&mut self, waiter: Waiter, input: impl FnOnce(u64) -> Input) {
        if self.commit.is_full() {
            let away = WireError::new(
                ErrorCode::Unavailable,
                "the bus does not take what the manager writes, and enough waits already",
            );
            let hint = "see `phalanx status`; ask again with the same --key once the bus is back";
            return waiter.refuse(away.hint(hint));
        }
        let reply_to = self.next_waiter;
        self.next_waiter += 1;
        self.waiting.insert(reply_to, waiter);
        self.decide(input(reply_to));
    }

    fn decide(&mut self, input: Input) {
        let now = self.surroundings.now();
        let effects = self.core.handle(now, input);
        let (writes, outputs) = self.sort(now, effects);
        for output in self.commit.push(writes, outputs) {
            self.release(output);
        }
    }

    /// Writes and outputs of one decision. Where one of its records cannot be stored, nothing of it is let out and
    /// whoever asked is told.
    fn sort(&self, now: Timestamp, effects: Vec<Effect>) -> (Vec<StoredRecord>, Vec<Output>) {
        let (mut writes, mut outputs, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
        let mut unwritable: Option<String> = None;
        for effect in effects {
            match effect {
                Effect::Seal { owner, environment } => {
                    let key = owner.to_string();
                    match self.surroundings.seal(&key, &environment) {
                        Some(sealed) => {
                            writes.push(StoredRecord { bucket: SECRETS, key, value: Some(sealed) });
                        }
                        None => unwritable = Some(format!("the environment of {key} cannot be sealed")),
                    }
                }
                Effect::Write(record) => writes.push(record),
                Effect::Unwritable { bucket, key, reason } => {
                    unwritable = Some(format!("{bucket}.{key} cannot be encoded: {reason}"));
                }
                Effect::ForgetEnvironment(owner) => {
                    forgotten.push(StoredRecord { bucket: SECRETS, key: owner.to_string(), value: None });
                }
                Effect::Reply { to, result } => outputs.push(Output::Reply { to, result }),
                Effect::Lease { to, result } => outputs.push(Output::Lease { to, result }),
                Effect::Order(draft) => outputs.push(Output::Order(draft)),
                Effect::Ask { token, host, question } => {
                    outputs.push(Output::Ask(HostAsk::Question { token, host, question }));
                }
                Effect::AskReports { host, agents } => {
                    outputs.push(Output::Ask(HostAsk::Reports { host, agents }));
                }
                Effect::KeepLog { agent, host } => {
                    outputs.push(Output::Ask(HostAsk::KeepLog { agent, host }))
                }
                Effect::Lead { above } => outputs.push(Output::Ask(HostAsk::Lead { above })),
                Effect::KeepInputs { task, inputs } => {
                    outputs.push(Output::Ask(HostAsk::KeepInputs { task, inputs }));
                }
                Effect::Event { name, fact } => outputs.push(Output::Fact(DatedFact { at: now, name, fact })),
                Effect::Changed(subject) => outputs.push(Output::Changed(subject)),
            }
        }
        writes.append(&mut forgotten);
        let too_large = writes.iter().find(|write| write.value.as_ref().map_or(0, Vec::len) > RECORD_LIMIT);
        if let Some(write) = too_large {
            unwritable = Some(format!("{}.{} is larger than {RECORD_LIMIT} bytes", write.bucket, write.key));
        }
        let Some(reason) = unwritable else { return (writes, outputs) };
        tracing::error!(reason, "a decision could not be stored and was not carried out");
        let refused = outputs
            .into_iter()
            .filter_map(|output| {
                let failed = WireError::new(ErrorCode::Failed, format!("it cannot be stored: {reason}"));
                match output {
                    Output::Reply { to, .. } => Some(Output::Reply { to, result: Err(failed) }),
                    Output::Lease { to, .. } => Some(Output::Lease { to, result: Err(failed) }),
                    Output::Order(_)
                    | Output::Ask(_)
                    | Output::Fact(_)
                    | Output::Changed(_)
                    | Output::Written(_) => None,
                }
            })
            .collect();
        (Vec::new(), refused)
    }

    fn acknowledged(&mut self) {
        for output in self.commit.acknowledged() {
            self.release(output);
        }
    }

    /// The writer takes one batch at a time, so its channel has room whenever none is under way.
    fn hand_over(&mut self) {
        if let Some(batch) = self.commit.next_batch()
            && self.writer.batches.try_send(batch).is_err()
        {
            tracing::error!("the writer is gone; nothing more is stored");
        }
    }

    fn release(&mut self, output: Output) {
        match output {
            Output::Reply { to, result } => {
                if let Some(Waiter::Client(reply)) = self.waiting.remove(&to) {
                    let _ = reply.send(result);
                }
            }
            Output::Lease { to, result } => {
                if let Some(Waiter::Host(reply)) = self.waiting.remove(&to) {
                    let _ = reply.send(result);
                }
            }
            Output::Order(draft) => {
                if self.outlets.orders.try_send(draft).is_err() {
                    tracing::debug!("an order found no room and waits to be sent again");
                }
            }
            Output::Ask(ask) => {
                if let Err(error) = self.outlets.asks.try_send(ask) {
                    self.own.extend(unanswered(error.into_inner()));
                }
            }
            Output::Fact(fact) => {
                if self.outlets.facts.try_send(fact).is_err() {
                    self.lost_facts += 1;
                    if self.lost_facts.is_power_of_two() {
                        tracing::error!(lost = self.lost_facts, "events are lost: the bus takes none");
                    }
                }
            }
            Output::Written(reply) => {
                let _ = reply.send(());
            }
            Output::Changed(subject) => {
                self.rows.note(&self.core, self.surroundings.now(), &subject);
                self.changes.notify(&subject);
            }
        }
    }
}

/// What the core is told of an ask that could not be made. A report that did not come is asked for again anyway,
/// and the next heartbeat asks for the lead again.
fn unanswered(ask: HostAsk) -> Option<Input> {
    match ask {
        HostAsk::Question { token, .. } => Some(Input::Answered {
            token,
            answer: Err(WireError::new(ErrorCode::Unavailable, "too many questions wait for hosts")),
        }),
        HostAsk::Reports { .. } | HostAsk::Lead { .. } => None,
        HostAsk::KeepLog { agent, .. } => Some(Input::LogKept { agent, blob: None }),
        HostAsk::KeepInputs { task, .. } => Some(Input::InputsKept { task, blob: None }),
    }
}
