//! `Compare`: what a task or agent changed, handed on from its host as fast as the client takes it.

use std::time::Duration;

use protocol::api::{Item, Reply};
use protocol::compare::{CompareForm, WINDOW};
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, Question};

use crate::hosts::{Conversation, Hosts, QUICK};
use crate::server::session::Items;
use crate::unavailable;
use protocol::ids::HostId;

/// Between two pieces a host may need so long: it looks at all files of a workspace before the first.
const SILENCE: Duration = Duration::from_secs(150);
/// More pieces are asked for when so many were taken: a host that sends never runs dry meanwhile.
const TAKEN: u32 = WINDOW / 2;

/// Tells what differs.
///
/// # Errors
/// Nothing to compare; the host's refusal; `Unavailable` when the host fell silent half-way.
pub async fn compare(
    hosts: Hosts,
    target: String,
    attempt: Option<u32>,
    form: CompareForm,
    items: Items,
) -> Result<Reply, WireError> {
    let wanted = hosts.driver.glance(move |glance| glance.core.to_compare(&target, attempt)).await??;
    let mut about = wanted.about;
    let question = Question::Compare { what: wanted.what, form };
    let mut answers = hosts.ask(&wanted.host, question, None).await?;
    let mut taken = 0;
    while let Some(answer) = next(&mut answers, &wanted.host).await? {
        let item = match answer {
            Answer::Compared(sides) => {
                about.sides = sides;
                Item::Compared(Box::new(about.clone()))
            }
            Answer::Changed(changes) => Item::Changed(changes),
            Answer::File { name, bytes } => Item::File { name, bytes },
            Answer::Output { stream, bytes } => Item::Output { stream, bytes },
            _ => {
                return Err(WireError::new(ErrorCode::Failed, "the host answered something else"));
            }
        };
        items.send(&item).await?;
        taken += 1;
        if taken == TAKEN {
            taken = 0;
            let more = Question::More { talk: answers.id(), pieces: TAKEN };
            hosts.ask_once(&wanted.host, more, QUICK).await?;
        }
    }
    Ok(Reply::Done)
}

async fn next(answers: &mut Conversation, host: &HostId) -> Result<Option<Answer>, WireError> {
    let silent = |_| unavailable(format!("host {host} fell silent; the difference is not whole"));
    tokio::time::timeout(SILENCE, answers.next()).await.map_err(silent)?
}
