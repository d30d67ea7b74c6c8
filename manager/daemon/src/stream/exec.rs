//! `exec`: a program beside an agent; its output as items, its end as the reply, its input by requests of their own.
//! A client that goes away ends the program; should this manager go away, its host does so after a while.

use std::convert::Infallible;
use std::time::Duration;

use protocol::agent::Environment;
use protocol::api::{Item, Reachability, Reply};
use protocol::compare::WINDOW;
use protocol::error::{ErrorCode, WireError};
use protocol::exec::{ExecInput, ExecOpen, ExecTalk};
use protocol::ids::{HostId, OrderId};
use protocol::order::{Answer, Question};
use tokio::sync::mpsc;

use crate::driver::changes::Interest;
use crate::hosts::{Conversation, Hosts, QUICK};
use crate::queries;
use crate::server::session::Items;

/// More pieces are granted when so many were taken: a program that prints never stands still for it.
const TAKEN: u32 = WINDOW / 2;
/// Between two signs that somebody still waits; the host ends the program when three of them are missing.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// Programs to be ended whose hosts are still to be told; one more is left to its host, which misses the signs of life.
const ENDS_WAITING: usize = 1_024;

/// Where programs whose clients are gone are named.
pub type Ends = mpsc::Sender<(HostId, OrderId)>;

#[must_use]
pub fn ends() -> (Ends, mpsc::Receiver<(HostId, OrderId)>) {
    mpsc::channel(ENDS_WAITING)
}

/// Ends programs until nobody can name any more.
pub async fn end_all(hosts: Hosts, mut ends: mpsc::Receiver<(HostId, OrderId)>) {
    while let Some((host, talk)) = ends.recv().await {
        // Unheard, the host ends it by itself.
        if let Err(error) = hosts.ask(&host, Question::ExecEnd { talk }, Some(QUICK)).await {
            tracing::debug!(%error, %host, "a program could not be ended at once");
        }
    }
}

/// Names the program when its client's task is dropped before it has ended.
struct Watched {
    ends: Ends,
    program: Option<(HostId, OrderId)>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            let _ = self.ends.try_send(program);
        }
    }
}

/// Runs it, with input by [`input`]. Has no limit of its own, but ends, as unknown, when the host is lost.
///
/// # Errors
/// The host's refusal; `Unavailable` when its end is not known.
pub async fn open(hosts: Hosts, ends: Ends, open: ExecOpen, items: Items) -> Result<Reply, WireError> {
    let ExecOpen { target, program, environment, input } = open;
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let question = Question::ExecOpen { agent: view.id, program, environment, input };
    let mut answers = hosts.ask(&view.host, question, None).await?;
    let talk = ExecTalk { agent: view.id, host: view.host.clone(), talk: answers.id() };
    let mut watched = Watched { ends, program: Some((view.host.clone(), answers.id())) };
    let signs = signs_of_life(&hosts, view.host.clone(), answers.id());
    let ended = tokio::select! {
        ended = relay(&hosts, &view.host, &mut answers, &items, Some(talk)) => ended,
        never = signs => match never {},
    };
    if ended.is_ok() {
        watched.program = None;
    }
    ended
}

/// # Errors
/// When the host does not answer, or the program is no more.
pub async fn input(hosts: &Hosts, to: ExecTalk, input: ExecInput) -> Result<Reply, WireError> {
    match hosts.ask_once(&to.host, Question::ExecInput { talk: to.talk, input }, QUICK * 2).await? {
        Answer::Taken(taken) => Ok(Reply::Taken(taken)),
        _ => Err(WireError::new(ErrorCode::Failed, "the host gave another answer than what it took")),
    }
}

/// Also while the client takes nothing: it is there, and slow.
async fn signs_of_life(hosts: &Hosts, host: HostId, talk: OrderId) -> Infallible {
    loop {
        tokio::time::sleep(SIGN_OF_LIFE).await;
        let sign = Question::More { talk, pieces: 0 };
        if let Err(error) = hosts.ask_once(&host, sign, QUICK).await {
            tracing::debug!(%error, %host, "a sign of life was not answered");
        }
    }
}

/// Runs it and hands on what comes. Has no limit of its own, but ends, as unknown, when the host is lost.
///
/// # Errors
/// The host's refusal; `Unavailable` when its end is not known.
pub async fn exec(
    hosts: Hosts,
    target: String,
    program: Vec<String>,
    environment: Environment,
    stdin: Vec<u8>,
    items: Items,
) -> Result<Reply, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let question = Question::Exec { agent: view.id, program, environment, stdin };
    let mut answers = hosts.ask(&view.host, question, None).await?;
    relay(&hosts, &view.host, &mut answers, &items, None).await
}

/// Hands on what comes, until its end. `talk`: it may be spoken with from its first sign on, which is told, and the host
/// sends no more than is granted.
async fn relay(
    hosts: &Hosts,
    host: &HostId,
    answers: &mut Conversation,
    items: &Items,
    mut talk: Option<ExecTalk>,
) -> Result<Reply, WireError> {
    let subject = manager_core::Subject::Host(host.clone());
    let mut changes = hosts.driver.watch(Interest::Subjects([subject].into())).await?;
    let life = |host: HostId| hosts.driver.glance(move |glance| glance.core.incarnation(&host));
    let begun = life(host.clone()).await?;
    let unknown = |why: &str| {
        WireError::new(ErrorCode::Unavailable, format!("{why}; whether the program goes on is unknown"))
    };
    let is_granted = talk.is_some();
    let mut pieces = 0;
    loop {
        tokio::select! {
            biased;
            answer = answers.next() => match answer? {
                // A host says by it that the program goes on, and at first that it has begun.
                Some(Answer::Output { bytes, .. }) if bytes.is_empty() => {
                    if let Some(talk) = talk.take() {
                        items.send(&Item::Talk(talk)).await?;
                    }
                }
                Some(Answer::Output { stream, bytes }) => {
                    items.send(&Item::Output { stream, bytes }).await?;
                    pieces += 1;
                    if is_granted && pieces >= TAKEN {
                        pieces = 0;
                        let more = Question::More { talk: answers.id(), pieces: TAKEN };
                        hosts.ask_once(host, more, QUICK).await?;
                    }
                }
                Some(Answer::Exited { code, signal }) => return Ok(Reply::Exited { code, signal }),
                Some(_) => {}
                None => return Err(unknown("the host ended its answer without an exit code")),
            },
            changed = changes.changed() => {
                let wanted = host.clone();
                let known = hosts.driver.glance(move |glance| queries::reachability(glance, &wanted)).await?;
                if changed.is_err() || known == Reachability::Lost {
                    return Err(unknown("the host is lost"));
                }
                if life(host.clone()).await? != begun {
                    return Err(unknown("hostd was restarted"));
                }
            }
        }
    }
}
