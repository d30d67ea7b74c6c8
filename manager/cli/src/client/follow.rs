//! A stream that has no end, followed over restarts of the manager: connected anew by itself, and asked for again from
//! where it was.

use std::time::{Duration, Instant};

use protocol::api::{AnyRequest, Item, Reply};
use protocol::error::ErrorCode;

use super::super::context::{Context, PATIENCE};
use super::super::error::{Failure, exit};
use super::reader::Interrupts;
use super::{Asked, Client, Limits, Streamed};

const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What comes of a followed stream.
pub enum Came {
    Item(Box<Item>),
    End(Box<Reply>),
    /// The deadline of this look is over.
    TimedOut,
    Interrupted(i32),
    /// The manager went away; it is waited for.
    Away,
}

pub struct Followed<'a> {
    context: &'a Context,
    interrupts: &'a Interrupts,
    open: Option<(Client, Asked)>,
    /// Since when nothing was heard; `None` while something is.
    away: Option<Instant>,
    begun: bool,
}

impl<'a> Followed<'a> {
    pub fn new(context: &'a Context, interrupts: &'a Interrupts) -> Self {
        Self { context, interrupts, open: None, away: None, begun: false }
    }

    /// The next that comes, of `request` as it is now where it has to be asked again.
    ///
    /// # Errors
    /// What the manager refuses; that it does not come back.
    pub fn next<R: AnyRequest>(
        &mut self,
        request: impl Fn() -> R,
        deadline: Option<Instant>,
    ) -> Result<Came, Failure> {
        loop {
            let stepped = match &mut self.open {
                Some((client, asked)) => {
                    client.next(asked, &Limits { deadline, interrupts: Some(self.interrupts) })
                }
                None => match self.connect(&request) {
                    Ok(open) => {
                        self.open = Some(open);
                        continue;
                    }
                    Err(failure) => Err(failure),
                },
            };
            match stepped {
                Ok(Streamed::Item(item)) => {
                    (self.away, self.begun) = (None, true);
                    return Ok(Came::Item(item));
                }
                Ok(Streamed::Reply(reply)) => return Ok(Came::End(reply)),
                Ok(Streamed::TimedOut) => return Ok(Came::TimedOut),
                Ok(Streamed::Interrupted(signal)) => return Ok(Came::Interrupted(signal)),
                Err(failure) => {
                    self.open = None;
                    if !self.begun || failure.exit_code() != exit::UNAVAILABLE {
                        return Err(failure);
                    }
                    let first = self.away.is_none();
                    if self.away.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(failure);
                    }
                    if first {
                        return Ok(Came::Away);
                    }
                    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                    let pause = left.unwrap_or(CONNECT_AGAIN_AFTER).min(CONNECT_AGAIN_AFTER);
                    if let Some(signal) = self.interrupts.wait(pause) {
                        return Ok(Came::Interrupted(signal));
                    }
                    if left.is_some_and(|left| left.is_zero()) {
                        return Ok(Came::TimedOut);
                    }
                }
            }
        }
    }

    /// The first connection starts what is not there, no later one does: what the operator stopped meanwhile stays so.
    fn connect<R: AnyRequest>(&self, request: &impl Fn() -> R) -> Result<(Client, Asked), Failure> {
        let mut client = if self.begun {
            self.context.running().unwrap_or_else(|| {
                Err(Failure::new(ErrorCode::Unavailable, "the manager went away").hint("phalanx up"))
            })?
        } else {
            self.context.client()?
        };
        let asked = client.begin(&request())?;
        Ok((client, asked))
    }
}
