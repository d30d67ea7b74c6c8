//! Mutations of clients: checked in `check`, carried out on agents and runs, answered once per request and the same
//! way per key. Queries are answered from the views and never come here.

mod agents;
mod check;
pub(crate) mod requests;
mod review;
mod runs;
mod settings;

use protocol::agent::Environment;
use protocol::api::Mutation;
use protocol::codec;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::RequestKey;
use protocol::time::Timestamp;

pub(crate) use agents::refused_to_destroy;

use runs::Scale;

use crate::Core;
use crate::names;
use crate::record::{Origin, RequestState};

const KEY_BYTES_MAX: usize = 200;

/// Who asked, and what makes the answer repeatable.
pub(crate) struct Caller {
    pub(crate) reply_to: u64,
    pub(crate) key: RequestKey,
    pub(crate) digest: String,
    pub(crate) seed: u128,
}

impl Caller {
    /// For the record of what the request makes.
    fn origin(&self) -> Origin {
        Origin { key: self.key.clone(), digest: self.digest.clone() }
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> WireError {
    WireError::new(ErrorCode::Invalid, message)
}

impl Core {
    pub(crate) fn client(&mut self, now: Timestamp, reply_to: u64, mut request: Mutation, seed: u128) {
        let key = request.key().clone();
        if key.0.is_empty() || key.0.len() > KEY_BYTES_MAX {
            let error = invalid(format!("a request key has 1 to {KEY_BYTES_MAX} bytes, not {}", key.0.len()));
            return self.out.reply(reply_to, Err(error));
        }
        let environments = take_values(&mut request);
        let digest = match digest_of(&request) {
            Ok(digest) => digest,
            Err(error) => return self.out.reply(reply_to, Err(invalid(error.to_string()))),
        };
        if let Some(known) = self.requests.find(&key) {
            if known.digest != digest {
                let error =
                    WireError::new(ErrorCode::Conflict, "this request key was used for another request")
                        .hint("use a new key");
                return self.out.reply(reply_to, Err(error));
            }
            match known.state.clone() {
                RequestState::Answered { reply } => self.out.reply(reply_to, Ok(reply)),
                RequestState::Open { targets } => self.await_destroy(now, key, reply_to, targets, &[]),
            }
            return;
        }
        let caller = Caller { reply_to, key, digest, seed };
        match request {
            Mutation::CreateAgent(create) => self.create_agent(now, caller, *create, environments),
            Mutation::StopAgents { targets, grace_ms, .. } => {
                self.stop_agents(now, caller, targets, grace_ms)
            }
            Mutation::DestroyAgents { targets, discard, .. } => {
                self.destroy_agents(now, caller, targets, discard);
            }
            Mutation::SubmitRun(submit) => self.submit_run(now, caller, *submit, environments),
            Mutation::AddTasks(add) => self.add_tasks(now, caller, *add, environments),
            Mutation::CloseRun { run, .. } => self.close_run(now, caller, &run),
            Mutation::CancelRun { run, tasks, grace_ms, .. } => {
                self.cancel_tasks(now, caller, &run, tasks, grace_ms);
            }
            Mutation::RetryTasks { run, tasks, .. } => self.retry_tasks(now, caller, &run, tasks),
            Mutation::ScaleRun { run, max_parallel, keep_parallel, caps, .. } => {
                self.scale_run(now, caller, &run, Scale { max_parallel, keep_parallel, caps });
            }
            Mutation::ChangeAgents { targets, change, .. } => {
                self.change_agents(now, caller, targets, &change);
            }
            Mutation::DecideTasks(decide) => self.decide_tasks(now, caller, *decide),
            Mutation::MergeRun(merge) => self.merge_run(now, caller, *merge),
            Mutation::SendMessage { targets, typing, .. } => {
                self.send_message(now, caller, targets, &typing);
            }
            Mutation::CancelMessages { messages, .. } => self.cancel_messages(now, caller, messages),
            Mutation::FreeRuns { runs, older_ms, .. } => self.free_runs(now, caller, runs, older_ms),
        }
    }
}

/// What makes two requests of one key the same request. A client makes up the refs of an agent's results anew each
/// time: they are no part of what was asked for, and those of the first request are the agent's.
fn digest_of(request: &Mutation) -> Result<String, codec::CodecError> {
    if let Mutation::CreateAgent(create) = request
        && create.spec.checkout.is_some()
    {
        let mut create = create.clone();
        if let Some(checkout) = &mut create.spec.checkout {
            (checkout.branch, checkout.result_ref, checkout.snapshot) = (None, None, None);
        }
        return codec::to_bytes(&Mutation::CreateAgent(create)).map(|bytes| names::digest(&bytes));
    }
    codec::to_bytes(request).map(|bytes| names::digest(&bytes))
}

/// Takes the values out of the request and leaves the names of the variables: a digest of a value that can be guessed
/// would give it away. A second request that differs in values only counts as the first.
fn take_values(request: &mut Mutation) -> Vec<Environment> {
    let take = |environment: &mut Environment| {
        let names = environment.0.keys().map(|name| (name.clone(), String::new())).collect();
        std::mem::replace(environment, Environment(names))
    };
    match request {
        Mutation::CreateAgent(create) => vec![take(&mut create.environment)],
        Mutation::AddTasks(add) => add.tasks.iter_mut().map(|task| take(&mut task.environment)).collect(),
        Mutation::SubmitRun(submit) => {
            submit.tasks.iter_mut().map(|task| take(&mut task.environment)).collect()
        }
        Mutation::StopAgents { .. }
        | Mutation::DestroyAgents { .. }
        | Mutation::CancelRun { .. }
        | Mutation::RetryTasks { .. }
        | Mutation::ScaleRun { .. }
        | Mutation::CloseRun { .. }
        | Mutation::ChangeAgents { .. }
        | Mutation::DecideTasks(_)
        | Mutation::MergeRun(_)
        | Mutation::SendMessage { .. }
        | Mutation::CancelMessages { .. }
        | Mutation::FreeRuns { .. } => Vec::new(),
    }
}
