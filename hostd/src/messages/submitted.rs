//! Whether a program took the Enter after a paste. Some read the paste and swallow an Enter that follows soon: then
//! exactly the text stands in the input line. Only where that is seen is Enter pressed again, a few times at most, and
//! only while nothing else was typed and nothing more was printed, which the shim checks as it presses.
//!
//! Where a program shows nothing of what is typed, nothing is seen and nothing is guessed: it was typed, Enter included.

use std::path::PathBuf;
use std::time::Duration;

use hostd_core::{AgentRecord, TypedOutcome};
use protocol::ids::MessageId;
use protocol::shim::{RefusalReason, Reply, Request, Status, TypeOutcome};

use crate::agents::{LinkError, ShimLink, begin_of_launch};
use crate::machine::Handle;
use crate::screen::{Looked, Size, Standing, standing};
use crate::sys::process::Rest;

/// Modes with which a program draws a screen of its own.
const ALTERNATE: &[u16] = &[47, 1047, 1049];
/// Between two looks.
const PACE: Duration = Duration::from_millis(100);
/// Looks before each press, which come to 0.7, 1.3 and 2 s: a program that swallows an Enter after a paste does so for
/// 0.2 to 1 s.
const LOOKS: [u32; 3] = [7, 13, 20];
/// Looks after the last press, and until a program that is at work rests.
const LAST_LOOKS: u32 = 20;
/// A program that waits for keys uses less of a core than this between two looks.
const REST_TICKS: u64 = 1;

/// One program whose input line is looked at.
struct Looking<'a> {
    machine: &'a Handle,
    record: &'a AgentRecord,
    link: ShimLink,
    transcript: PathBuf,
    begin: u64,
    alternate: Option<bool>,
    text: &'a str,
}

/// What some looks found.
enum Seen {
    /// It does not stand there any more.
    Left,
    /// It stands there, the program rests, and had printed so much.
    Stands(u64),
    /// It stands there, and the program is at work, or was frozen.
    AtWork,
    /// A person has typed more before it left.
    Joined,
}

/// What became of a text whose Enter was pressed when the program had printed `entered_at`.
pub(super) async fn submitted(
    machine: &Handle,
    record: &AgentRecord,
    message: MessageId,
    text: &str,
    entered_at: u64,
) -> TypedOutcome {
    let looked = async {
        let folder = machine.folders.agent(record.agent);
        let mut link = ShimLink::open(&folder).await?;
        let alternate = match link.ask(&Request::Modes).await? {
            Reply::Modes { set } => Some(set.iter().any(|mode| ALTERNATE.contains(mode))),
            _ => None,
        };
        let transcript = machine.folders.transcript(record.agent);
        let begin = begin_of_launch(&folder, record.launch);
        Looking { machine, record, link, transcript, begin, alternate, text }
            .until_left(message, entered_at)
            .await
    };
    // Its Enter was pressed. A shim that is gone, or was asked by an older build, has told no more than that.
    looked.await.unwrap_or(TypedOutcome::Delivered)
}

fn unseen(why: &str) -> TypedOutcome {
    TypedOutcome::Unknown { reason: format!("typed, submission not seen: {why}") }
}

impl Looking<'_> {
    async fn until_left(mut self, message: MessageId, entered_at: u64) -> Result<TypedOutcome, LinkError> {
        let status = self.status().await?;
        let Some(before) = self.look(&status, entered_at).await else { return Ok(TypedOutcome::Delivered) };
        let mut presses = 0_u32;
        for looks in LOOKS {
            let out_len = match self.looks(&before, looks).await? {
                Seen::Left => return Ok(TypedOutcome::Delivered),
                Seen::Joined => return Ok(unseen("a person typed more into its input line")),
                Seen::AtWork => {
                    return Ok(unseen("the text stands in the input line of a program that is at work"));
                }
                Seen::Stands(out_len) => out_len,
            };
            let request = Request::PressAgain { id: message.to_string(), out_len };
            match self.link.ask(&request).await {
                Ok(Reply::Typed(typed)) if typed.outcome == TypeOutcome::Delivered => presses += 1,
                // Looked at again: it may have left.
                Err(LinkError::Refused(refusal)) if refusal.reason == RefusalReason::Changed => {}
                Ok(_) | Err(LinkError::Refused(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(match self.looks(&before, LAST_LOOKS).await? {
            Seen::Left => TypedOutcome::Delivered,
            Seen::Joined => unseen("a person typed more into its input line"),
            Seen::Stands(_) | Seen::AtWork => unseen(&format!(
                "the text still stands in the input line after Enter was pressed {} times",
                presses + 1
            )),
        })
    }

    /// Looks until it has left, seen twice since programs draw in steps; or so often, and then until the program rests.
    async fn looks(&mut self, before: &Standing, looks: u32) -> Result<Seen, LinkError> {
        let (mut gone, mut stood) = (0_u32, false);
        let mut last: Option<(u64, Option<Standing>)> = None;
        let mut rest = self.rest().await;
        for look in 0..looks + LAST_LOOKS {
            tokio::time::sleep(PACE).await;
            let status = self.status().await?;
            let now = match last.take() {
                Some((out_len, seen)) if out_len == status.out_len => seen,
                _ => self.look(&status, status.out_len).await,
            };
            let rest_before = std::mem::replace(&mut rest, self.rest().await);
            let stands = now.as_ref() == Some(before);
            last = Some((status.out_len, now));
            if stands {
                (gone, stood) = (0, true);
                let rests =
                    rest.zip(rest_before).is_some_and(|(now, then)| now.rests_since(then, REST_TICKS));
                if look >= looks && rests {
                    return Ok(Seen::Stands(status.out_len));
                }
                continue;
            }
            gone += 1;
            if gone >= 2 {
                return Ok(if stood && status.draft_possible > 0 { Seen::Joined } else { Seen::Left });
            }
        }
        Ok(Seen::AtWork)
    }

    async fn status(&mut self) -> Result<Status, LinkError> {
        match self.link.ask(&Request::Status).await? {
            Reply::Status(status) => Ok(*status),
            _ => Err(LinkError::Silent(0)),
        }
    }

    /// How the text stands after the first `end` bytes.
    async fn look(&self, status: &Status, end: u64) -> Option<Standing> {
        let _permit = self.machine.renders.acquire().await;
        let (path, text) = (self.transcript.clone(), self.text.to_owned());
        let size = Size::new(status.rows, status.cols);
        let looked = Looked { size, alternate: self.alternate, begin: self.begin, end };
        tokio::task::spawn_blocking(move || standing(&path, looked, &text)).await.ok()?.ok()?
    }

    /// What the agent's processes have used, if all of them wait and none is frozen.
    async fn rest(&self) -> Option<Rest> {
        let group = self.machine.cgroups.open(&self.record.agent.to_string()).ok()?;
        let looked = tokio::task::spawn_blocking(move || {
            if group.frozen().ok()? {
                return None;
            }
            Rest::of(&group.processes().ok()?).ok()?
        });
        looked.await.ok()?
    }
}
