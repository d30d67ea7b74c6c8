//! What the manager says to hosts: orders, which may be lost, and asks, whose answers come or whose failure is
//! *unknown*, never success and never "there is nothing".

pub mod inbound;
mod inputs;
pub mod log_tail;
pub mod rpc;
pub mod snapshot;

use std::time::Duration;

use manager_core::{Input, OrderDraft, Subject};
use protocol::api::Reachability;
use protocol::error::WireError;
use protocol::ids::{HostId, OrderId, Region};
use protocol::order::{Answer, Ask, Order, Question};
use protocol::time::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bus::{Answers, Bus, BusError};
use crate::clock::Clock;
use crate::driver::changes::Interest;
use crate::driver::{Driver, HostAsk};
use crate::lead::Lead;
use crate::{queries, unavailable};
use log_tail::LogTails;

/// A question that a host answers from what it has at hand.
pub const QUICK: Duration = Duration::from_secs(5);
/// One for which it runs git.
pub const GIT: Duration = Duration::from_secs(20);
/// One for which it checks a whole repository out.
const MERGE: Duration = Duration::from_secs(300);
/// How long an ask that has no limit of its own may be taken up.
const TAKEN_UP_WITHIN_MS: u64 = 30_000;
/// Asks of the core that are under way at once; more wait in their channel.
const ASKS: usize = 64;

/// Where a host is and how its clock differs from ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub region: Region,
    pub host: HostId,
    /// Host's clock − ours.
    pub clock_offset_ms: i64,
}

/// The way to all hosts; cheap to clone.
#[derive(Clone)]
pub struct Hosts {
    pub bus: Bus,
    pub driver: Driver,
    pub clock: Clock,
    pub lead: Lead,
    /// The manager's own.
    pub region: Region,
}

/// The answers to one ask, to their end.
pub struct Conversation {
    host: HostId,
    id: OrderId,
    answers: Answers,
    until: Option<Instant>,
    ended: bool,
}

impl Hosts {
    /// Puts a question to a host. `limit` is for the whole conversation; `None` where it may last.
    ///
    /// # Errors
    /// `Unavailable` when the host is not known or the bus is away.
    pub async fn ask(
        &self,
        host: &HostId,
        question: Question,
        limit: Option<Duration>,
    ) -> Result<Conversation, WireError> {
        let wanted = host.clone();
        let address = self.driver.glance(move |glance| queries::address(glance, &wanted)).await?;
        let Some(address) = address else {
            return Err(unavailable(format!("host {host} was not heard since the manager started")));
        };
        let limit_ms = limit.map_or(TAKEN_UP_WITHIN_MS, |limit| {
            u64::try_from(limit.as_millis()).unwrap_or(TAKEN_UP_WITHIN_MS)
        });
        let id = self.new_id();
        let ask = Ask {
            id,
            region: address.region.clone(),
            host: address.host.clone(),
            fencing: self.lead.number(),
            expires: in_host_time(self.clock.now().after_ms(limit_ms), &address),
            question,
        };
        let answers = self.bus.ask(&ask).await.map_err(|error| said_no(host, &error))?;
        let until = limit.map(|limit| Instant::now() + limit);
        Ok(Conversation { host: address.host, id, answers, until, ended: false })
    }

    /// Puts a question that one frame answers. A hostd that ends before it has answered never will: that is known as
    /// soon as its next life is heard, or the host is lost.
    ///
    /// # Errors
    /// The host's refusal, or `Unavailable` when there was no answer.
    pub async fn ask_once(
        &self,
        host: &HostId,
        question: Question,
        limit: Duration,
    ) -> Result<Answer, WireError> {
        let life = |host: HostId| {
            self.driver.glance(move |glance| {
                let lost = queries::reachability(glance, &host) == Reachability::Lost;
                (glance.core.incarnation(&host), lost)
            })
        };
        let subjects = [Subject::Host(host.clone())].into();
        let mut changes = self.driver.watch(Interest::Subjects(subjects)).await?;
        let asked = life(host.clone()).await?;
        let mut conversation = self.ask(host, question, Some(limit)).await?;
        loop {
            tokio::select! {
                biased;
                answer = conversation.next() => return Ok(answer?.unwrap_or(Answer::Done)),
                changed = changes.changed() => {
                    changed.map_err(|_| super::stopping())?;
                    let now = life(host.clone()).await?;
                    if now.0 != asked.0 || (now.1 && !asked.1) {
                        let what = if now.1 { "is lost" } else { "has a hostd that was restarted" };
                        return Err(unavailable(format!(
                            "host {host} {what} before it answered; whether it acted on it is unknown"
                        ))
                        .hint("look, then the same command again"));
                    }
                }
            }
        }
    }

    fn new_id(&self) -> OrderId {
        OrderId::from_parts(self.clock.now().0, self.clock.random())
    }
}

fn in_host_time(at: Timestamp, address: &Address) -> Timestamp {
    Timestamp(at.0.saturating_add_signed(address.clock_offset_ms))
}

fn said_no(host: &HostId, error: &BusError) -> WireError {
    match error {
        BusError::NobodyListens(_) => unavailable(format!("hostd on {host} does not answer"))
            .hint("see `phalanx status`; its agents go on meanwhile"),
        other => unavailable(format!("host {host} cannot be asked: {}", protocol::chain(other))),
    }
}

impl Conversation {
    /// Id of the ask.
    pub fn id(&self) -> OrderId {
        self.id
    }

    /// The next answer; `None` after the last. May be dropped half-way without loss.
    ///
    /// # Errors
    /// The host's refusal, or `Unavailable` when it fell silent.
    pub async fn next(&mut self) -> Result<Option<Answer>, WireError> {
        if self.ended {
            return Ok(None);
        }
        let next = self.answers.next();
        let answer = match self.until {
            Some(until) => tokio::time::timeout_at(until, next).await.map_err(|_| {
                unavailable(format!(
                    "host {} did not answer in time; whether it acts on it is unknown",
                    self.host
                ))
            })?,
            None => next.await,
        };
        match answer.map_err(|error| said_no(&self.host, &error))? {
            Some(Answer::Done) => {
                self.ended = true;
                Ok(None)
            }
            Some(Answer::Refused(refusal)) => {
                self.ended = true;
                Err(refusal)
            }
            Some(
                last @ (Answer::Resolved(_)
                | Answer::Exited { .. }
                | Answer::Landed { .. }
                | Answer::MergeTarget(_)
                | Answer::MergeResult(_)
                | Answer::Diff { .. }
                | Answer::Freed(_)
                | Answer::Screen(_)
                | Answer::Files(_)
                | Answer::Snapshots(_)
                | Answer::Restored(_)
                | Answer::Taken(_)
                | Answer::FilePart(_)),
            ) => {
                self.ended = true;
                Ok(Some(last))
            }
            Some(
                part @ (Answer::Bytes { .. }
                | Answer::Output { .. }
                | Answer::Holdings(_)
                | Answer::Figures(_)
                | Answer::Compared(_)
                | Answer::Changed(_)
                | Answer::File { .. }),
            ) => Ok(Some(part)),
            None => Err(unavailable(format!("the connection to host {} ended", self.host))),
        }
    }
}

/// Signs and sends orders until their sender is gone. One that does not leave is lost: the core sends it again.
pub async fn send_orders(hosts: Hosts, mut drafts: mpsc::Receiver<OrderDraft>) {
    while let Some(draft) = drafts.recv().await {
        let order = Order {
            id: hosts.new_id(),
            region: draft.region,
            host: draft.host,
            incarnation: draft.incarnation,
            fencing: draft.fencing,
            expires: draft.expires,
            command: draft.command,
        };
        let verb = order.command.verb();
        match hosts.bus.order(&order).await {
            Ok(()) => {
                tracing::debug!(agent = %order.command.agent(), host = %order.host, verb, "order sent");
            }
            Err(error) => {
                tracing::debug!(error = %protocol::chain(&error), verb, "an order did not leave");
            }
        }
    }
}

/// Carries out what the core asks of hosts, some at once, until the sender is gone.
pub async fn carry_out_asks(hosts: Hosts, logs: LogTails, mut asks: mpsc::Receiver<HostAsk>) {
    let mut jobs: JoinSet<()> = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = jobs.join_next() => {}
            ask = asks.recv(), if jobs.len() < ASKS => match ask {
                Some(ask) => {
                    jobs.spawn(carry_out(hosts.clone(), logs.clone(), ask));
                }
                None => break,
            },
        }
    }
    jobs.shutdown().await;
}

async fn carry_out(hosts: Hosts, logs: LogTails, ask: HostAsk) {
    let outcome = match ask {
        HostAsk::Question { token, host, question } => {
            let limit = match &question {
                Question::Merge(_) => MERGE,
                _ => GIT,
            };
            let answer = hosts.ask_once(&host, question, limit).await;
            Some(Input::Answered { token, answer })
        }
        // The reports come as reports; those that do not are missed again at the next digest.
        HostAsk::Reports { host, agents } => {
            let _ = hosts.ask_once(&host, Question::Report { agents }, QUICK).await;
            None
        }
        HostAsk::Lead { above } => Some(Input::Leads(hosts.lead.rise_above(above).await)),
        HostAsk::KeepLog { agent, host } => {
            let blob = logs.keep(agent, host).await;
            Some(Input::LogKept { agent, blob })
        }
        HostAsk::KeepInputs { task, inputs } => {
            let blob = inputs::keep(&logs.blobs, task, &inputs).await;
            Some(Input::InputsKept { task, blob })
        }
    };
    if let Some(input) = outcome {
        // When the loop has ended nobody needs it: the next one asks again.
        let _ = hosts.driver.happened(input).await;
    }
}
