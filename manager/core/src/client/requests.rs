//! Answers by request key: the same key gives the first answer again, for a day. Answers that a thing's own record
//! can give (`create`, `run`) are not stored a second time.

use std::collections::{BTreeMap, BTreeSet};

use protocol::api::{Outcome, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, RequestKey};
use protocol::report::Report;
use protocol::time::Timestamp;

use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{OpenTarget, RECORD_VERSION, RequestRecord, RequestState};
use crate::timers::Timer;

/// A kept request, and whether a record of its own holds it.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    record: RequestRecord,
    stored: bool,
}

/// What is to be said of one that is gone, or why it is not.
type Decided = Result<String, WireError>;

/// A `destroy` that clients wait for.
#[derive(Clone, Debug, PartialEq)]
struct Pending {
    reply_to: Vec<u64>,
    targets: Vec<(OpenTarget, Option<Decided>)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Requests {
    kept: BTreeMap<RequestKey, Kept>,
    by_age: BTreeSet<(Timestamp, RequestKey)>,
    pending: BTreeMap<RequestKey, Pending>,
    waiting: BTreeMap<AgentId, BTreeSet<RequestKey>>,
}

impl Requests {
    pub(crate) fn find(&self, key: &RequestKey) -> Option<&RequestRecord> {
        self.kept.get(key).map(|kept| &kept.record)
    }

    /// What the bucket shall hold under the key.
    pub(crate) fn stored(&self, key: &RequestKey) -> Option<&RequestRecord> {
        self.kept.get(key).filter(|kept| kept.stored).map(|kept| &kept.record)
    }

    pub(crate) fn all_stored(&self) -> impl Iterator<Item = &RequestRecord> {
        self.kept.values().filter(|kept| kept.stored).map(|kept| &kept.record)
    }

    pub(crate) fn insert(&mut self, record: RequestRecord, stored: bool) {
        let (at, key) = (record.at, record.key.clone());
        if let Some(old) = self.kept.insert(key.clone(), Kept { record, stored }) {
            self.by_age.remove(&(old.record.at, key.clone()));
        }
        self.by_age.insert((at, key));
    }

    /// From now on the bucket holds it; whether it did not before.
    pub(crate) fn store(&mut self, key: &RequestKey) -> bool {
        self.kept.get_mut(key).is_some_and(|kept| !std::mem::replace(&mut kept.stored, true))
    }

    fn oldest(&self) -> Option<&(Timestamp, RequestKey)> {
        self.by_age.first()
    }

    fn remove(&mut self, at: Timestamp, key: &RequestKey) {
        self.kept.remove(key);
        self.by_age.remove(&(at, key.clone()));
    }
}

impl Core {
    /// Keeps the answer to a request; `stored` when it needs a record of its own.
    pub(crate) fn keep_request(
        &mut self,
        now: Timestamp,
        (key, digest): (RequestKey, String),
        state: RequestState,
        stored: bool,
    ) {
        if stored {
            self.out.request(key.clone());
        }
        let record = RequestRecord { v: RECORD_VERSION, key, digest, at: now, state };
        self.requests.insert(record, stored);
        self.watch_requests();
    }

    pub(crate) fn watch_requests(&mut self) {
        if let Some((at, _)) = self.requests.oldest() {
            self.timers.set(Timer::Requests, at.after_ms(self.config.request_kept_ms));
        }
    }

    pub(crate) fn forget_old_requests(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.requests.oldest().cloned() {
            if at.after_ms(self.config.request_kept_ms) > now {
                break;
            }
            let made = self.requests.find(&key).and_then(|record| match &record.state {
                RequestState::Answered { reply: Reply::Accepted { agent } } => Some(*agent),
                RequestState::Answered { .. } | RequestState::Open { .. } => None,
            });
            self.requests.remove(at, &key);
            if let Some(agent) = made {
                self.forget_void(agent);
            }
            self.out.request(key);
        }
        self.watch_requests();
    }

    /// A client waits for hosts to decide about these targets; those that are decided already count at once.
    pub(crate) fn await_destroy(
        &mut self,
        now: Timestamp,
        key: RequestKey,
        reply_to: u64,
        targets: Vec<OpenTarget>,
        before: &[AgentId],
    ) {
        if let Some(pending) = self.requests.pending.get_mut(&key) {
            pending.reply_to.push(reply_to);
            return;
        }
        let mut decided = Vec::with_capacity(targets.len());
        for target in targets {
            let outcome = match &target.found {
                Err(error) => Some(Err(error.clone())),
                Ok(agent) if self.fleet.standing(*agent) == Standing::Gone => {
                    let kept = self.fleet.report(*agent).map(left_behind).unwrap_or_default();
                    Some(Ok(if before.contains(agent) { said_before(kept) } else { kept }))
                }
                // Refused while nobody waited, maybe under the manager before this one.
                Ok(agent) if self.fleet.desired(*agent).is_some_and(|desired| desired.kept) => {
                    Some(Err(super::refused_to_destroy(self.fleet.report(*agent))))
                }
                Ok(agent) => {
                    self.requests.waiting.entry(*agent).or_default().insert(key.clone());
                    None
                }
            };
            decided.push((target, outcome));
        }
        let pending = Pending { reply_to: vec![reply_to], targets: decided };
        self.requests.pending.insert(key.clone(), pending);
        self.timers.set(Timer::Destroy(key.clone()), now.after_ms(self.config.destroy_answer_ms));
        self.answer_destroy(&key);
    }

    /// The host's report has decided about this agent.
    pub(crate) fn decide_destroy(&mut self, agent: AgentId, refusal: Option<&WireError>) {
        let outcome = match refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(self.fleet.report(agent).map(left_behind).unwrap_or_default()),
        };
        for key in self.requests.waiting.remove(&agent).unwrap_or_default() {
            if let Some(pending) = self.requests.pending.get_mut(&key) {
                for (target, decided) in &mut pending.targets {
                    if target.found == Ok(agent) && decided.is_none() {
                        *decided = Some(outcome.clone());
                    }
                }
            }
            self.answer_destroy(&key);
        }
    }

    pub(crate) fn destroy_took_too_long(&mut self, key: &RequestKey) {
        let late = WireError::new(ErrorCode::Unavailable, "the host has not said that it is destroyed")
            .hint("it stays wanted destroyed; ask again, or see phalanx why");
        let Some(pending) = self.requests.pending.get_mut(key) else { return };
        for (target, decided) in &mut pending.targets {
            if decided.is_none() {
                *decided = Some(Err(late.clone()));
                if let Ok(agent) = &target.found
                    && let Some(keys) = self.requests.waiting.get_mut(agent)
                {
                    keys.remove(key);
                }
            }
        }
        self.requests.waiting.retain(|_, keys| !keys.is_empty());
        self.answer_destroy(key);
    }

    fn answer_destroy(&mut self, key: &RequestKey) {
        let whole = self
            .requests
            .pending
            .get(key)
            .is_some_and(|pending| pending.targets.iter().all(|(_, decided)| decided.is_some()));
        if !whole {
            return;
        }
        let Some(pending) = self.requests.pending.remove(key) else { return };
        self.timers.cancel(&Timer::Destroy(key.clone()));
        let outcomes: Vec<Outcome> = pending
            .targets
            .into_iter()
            .map(|(target, decided)| Outcome {
                target: target.target,
                agent: target.found.ok(),
                note: decided.as_ref().and_then(|decided| decided.as_ref().ok()).cloned().unwrap_or_default(),
                error: decided.and_then(Result::err),
            })
            .collect();
        // What is only not known yet is looked at again when the key comes back.
        let known = outcomes
            .iter()
            .all(|outcome| outcome.error.as_ref().is_none_or(|error| error.code != ErrorCode::Unavailable));
        let reply = Reply::Outcomes(outcomes);
        if known && let Some(kept) = self.requests.kept.get_mut(key) {
            kept.record.state = RequestState::Answered { reply: reply.clone() };
            self.out.request(key.clone());
        }
        for to in pending.reply_to {
            self.out.reply(to, Ok(reply.clone()));
        }
    }
}

/// Where the work of a destroyed agent is.
fn left_behind(report: &Report) -> String {
    let Some(left) = &report.collected else { return String::new() };
    let commits = left.result_ref.as_ref().filter(|_| left.commit != left.base_commit);
    match (commits, &left.uncommitted_ref) {
        (Some(commits), Some(rest)) => {
            format!("its commits are kept as {commits}, what it did not commit as {rest}")
        }
        (Some(commits), None) => format!("its commits are kept as {commits}"),
        (None, Some(rest)) => format!("what it did not commit is kept as {rest}"),
        (None, None) => String::new(),
    }
}

fn said_before(kept: String) -> String {
    if kept.is_empty() { "before this".to_owned() } else { format!("before this; {kept}") }
}
