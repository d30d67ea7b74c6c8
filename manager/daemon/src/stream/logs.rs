//! `logs`: the bytes of one transcript in order, each once; with `follow` until nothing can be added.
//!
//! Followed, the place in the transcript is the only state: a shipped chunk that continues it is shown at once, and
//! anything else (a hole, an outage, a renewal) makes the next bytes be read by offset. So no order of messages can
//! lose or double a byte. A client that reads slowly holds up its own reads only: while it does, nothing is listened to,
//! so that nothing piles up for it.

use std::time::Duration;

use manager_core::EnvironmentOwner;
use protocol::agent::Environment;
use protocol::api::{Item, LogStart, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::Question;
use protocol::transcript::Chunk;
use tokio::sync::watch;
use tokio::time::Instant;

use super::kept::end_of;
use super::redact::Redactor;
use super::transcript::{PIECE, Piece, Place, Transcript};
use crate::bus::Incoming;
use crate::driver::changes::Interest;
use crate::hosts::Hosts;
use crate::queries::{self, Found};
use crate::secrets::Secrets;
use crate::server::session::Items;

/// How long a host ships at once after it was asked to.
const FOLLOWED_FOR_MS: u64 = 30_000;
/// How often it is asked again; also how long a lost chunk stays unnoticed.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How often a host is asked again for what is known to be there and was not had, with the pause below between.
const REST_TRIES: u32 = 5;
/// While neither host nor bus can be asked.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// Shows a transcript.
///
/// # Errors
/// When it cannot be read, or its reader is gone.
pub async fn logs(
    hosts: Hosts,
    target: String,
    (from, follow): (LogStart, bool),
    redact: Option<Secrets>,
    items: Items,
) -> Result<Reply, WireError> {
    let view = hosts.driver.glance(move |glance| queries::find(glance, &target)).await??.view;
    let redactor = match redact {
        Some(secrets) => Some(Redactor::new(values(&hosts, &secrets, view.id).await?)),
        None => None,
    };
    let place = Place { region: view.region, host: view.host, agent: view.id };
    let mut transcript = Transcript::new(hosts.clone(), place.clone());
    let position = match from {
        LogStart::Offset(offset) => offset,
        LogStart::Tail(lines) => transcript.start_of_tail(lines).await?,
        LogStart::Since(at) => transcript.start_since(at).await?,
    };
    // What is shown may begin within a value: then that is read from its beginning.
    let before = redactor.as_ref().map_or(0, Redactor::reach);
    let mut shown = Shown { items, from: position, position: position.saturating_sub(before), redactor };
    if follow {
        follow_on(&hosts, &place, &mut transcript, &mut shown).await?;
    } else {
        show_known(&hosts, &place, &mut transcript, &mut shown).await?;
    }
    shown.finish().await?;
    Ok(Reply::Done)
}

/// The sealed values that an agent may print: its own, or those of its task.
async fn values(hosts: &Hosts, secrets: &Secrets, agent: AgentId) -> Result<Environment, WireError> {
    let owner = hosts.driver.glance(move |glance| {
        let task = glance.core.agent_view(glance.now, agent).and_then(|view| view.spec.task);
        let of_task = task.and_then(|link| glance.core.task_view(glance.now, link.task));
        of_task.map_or_else(
            || glance.core.environment_owner(agent),
            |view| view.spec.has_environment.then_some(EnvironmentOwner::Task(view.id)),
        )
    });
    match owner.await? {
        Some(owner) => secrets.open(&owner.to_string()).await,
        None => Ok(Environment::default()),
    }
}

/// What the client has.
struct Shown {
    items: Items,
    /// Bytes before are read to know what follows them, and not shown.
    from: u64,
    position: u64,
    redactor: Option<Redactor>,
}

impl Shown {
    /// Shows what of `bytes` is new; a later `offset` is a gap that the transcript no longer has.
    async fn add(&mut self, offset: u64, mut bytes: Vec<u8>) -> Result<(), WireError> {
        let known = usize::try_from(self.position.saturating_sub(offset)).unwrap_or(usize::MAX);
        if known >= bytes.len() {
            return Ok(());
        }
        bytes.drain(..known);
        let offset = offset.max(self.position);
        self.position = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let Some(redactor) = &mut self.redactor else {
            return Ok(self.items.send(&Item::Log { offset, bytes }).await?);
        };
        for (offset, bytes) in redactor.push(offset, &bytes) {
            self.show(offset, bytes).await?;
        }
        Ok(())
    }

    async fn show(&self, offset: u64, mut bytes: Vec<u8>) -> Result<(), WireError> {
        let before = usize::try_from(self.from.saturating_sub(offset)).unwrap_or(usize::MAX);
        if before > 0 && before >= bytes.len() {
            return Ok(());
        }
        bytes.drain(..before);
        Ok(self.items.send(&Item::Log { offset: offset.max(self.from), bytes }).await?)
    }

    async fn finish(&mut self) -> Result<(), WireError> {
        if let Some((offset, bytes)) = self.redactor.as_mut().and_then(Redactor::finish) {
            self.show(offset, bytes).await?;
        }
        Ok(())
    }
}

/// Shows all that can be read now; returns the last, empty piece. Stops listening to `live` when the client is slow.
async fn show_all(
    transcript: &mut Transcript,
    shown: &mut Shown,
    live: &mut Option<Incoming<Chunk>>,
) -> Result<Piece, WireError> {
    loop {
        let before = shown.position;
        let piece = transcript.read(before, PIECE).await?;
        if piece.bytes.is_empty() {
            return Ok(piece);
        }
        if !shown.items.have_room() {
            *live = None;
        }
        let (length, ended) = (piece.length, piece.ended);
        shown.add(piece.offset, piece.bytes).await?;
        if shown.position == before {
            let message = format!("the host gave other bytes than those from {before} on");
            return Err(WireError::new(ErrorCode::Failed, message));
        }
        // Saves the question whether there is more, where the answer is known.
        if ended && shown.position >= length {
            return Ok(Piece { offset: length, bytes: Vec::new(), length, ended });
        }
    }
}

/// Shows all that is known to be there. The bus may have less of it than its host printed: then the host is asked again,
/// and an end before the known one is no end.
async fn show_known(
    hosts: &Hosts,
    place: &Place,
    transcript: &mut Transcript,
    shown: &mut Shown,
) -> Result<(), WireError> {
    let mut tries = 0;
    loop {
        let read = show_all(transcript, shown, &mut None).await;
        let agent = place.agent;
        let found = hosts.driver.glance(move |glance| queries::agent(glance, agent)).await?;
        let ended = found.and_then(|found| found.view.report).filter(|report| report.end.is_some());
        let told = ended.and_then(|report| report.transcript).map_or(0, |facts| facts.bytes);
        let known = told.max(transcript.known_length());
        match read {
            Ok(_) if shown.position >= known => return Ok(()),
            Err(error) if error.code != ErrorCode::Unavailable || shown.position == 0 => return Err(error),
            Ok(_) | Err(_) => {}
        }
        if tries == REST_TRIES {
            let position = shown.position;
            let message = format!("the transcript ends early: {position} of {known} bytes could be read");
            return Err(
                WireError::new(ErrorCode::Unavailable, message).hint("phalanx hosts, then the same again")
            );
        }
        tries += 1;
        tokio::time::sleep(AWAY_PAUSE).await;
    }
}

async fn follow_on(
    hosts: &Hosts,
    place: &Place,
    transcript: &mut Transcript,
    shown: &mut Shown,
) -> Result<(), WireError> {
    let subject = manager_core::Subject::Agent(place.agent);
    let mut changes = hosts.driver.watch(Interest::Subjects([subject].into())).await?;
    let mut live = None;
    let mut renewed: Option<Instant> = None;
    loop {
        // Before the read, so that nothing falls between the two.
        if live.is_none() {
            live = Some(listen(hosts, place).await?);
        }
        if renewed.is_none_or(|at| at.elapsed() >= RENEW_EVERY) {
            renewed = Some(Instant::now());
            ask_to_ship(hosts, place).await;
        }
        // Before the read: an end that comes after it must be seen as a change.
        changes.mark_unchanged();
        match show_all(transcript, shown, &mut live).await {
            Ok(end) if is_complete(hosts, place, &end, shown.position).await? => return Ok(()),
            Ok(_) => {}
            Err(error) if error.code == ErrorCode::Unavailable => {
                if changes.has_changed().is_err() {
                    return Err(error); // the manager is stopping
                }
                tokio::time::sleep(AWAY_PAUSE).await;
                continue;
            }
            Err(error) => return Err(error),
        }
        let until = renewed.map_or_else(Instant::now, |at| at + RENEW_EVERY);
        if let Some(chunks) = &mut live
            && show_live(chunks, &mut changes, until, shown).await? == Listening::NoMore
        {
            live = None;
        }
    }
}

async fn listen(hosts: &Hosts, place: &Place) -> Result<Incoming<Chunk>, WireError> {
    let chunks = hosts.bus.transcript(&place.region, &place.host, &place.agent).await;
    chunks.map_err(|error| crate::unavailable(protocol::chain(&error)))
}

/// That it does not answer is no fault: what it ships in its own time comes too.
async fn ask_to_ship(hosts: &Hosts, place: &Place) {
    let until = hosts.clock.now().after_ms(FOLLOWED_FOR_MS);
    let host = place.host.clone();
    let offset = hosts.driver.glance(move |glance| queries::address(glance, &host)).await;
    let offset_ms = offset.ok().flatten().map_or(0, |address| address.clock_offset_ms);
    let until = protocol::time::Timestamp(until.0.saturating_add_signed(offset_ms));
    let question = Question::Follow { agent: place.agent, until };
    if let Err(error) = hosts.ask_once(&place.host, question, AWAY_PAUSE).await {
        tracing::debug!(%error, agent = %place.agent, "the host was not asked to ship at once");
    }
}

/// Whether a subscription is still wanted.
#[derive(PartialEq, Eq)]
enum Listening {
    Goes,
    /// The client is slower than what comes.
    NoMore,
}

/// Shows chunks that continue what is shown, until one does not, something about the agent changes, or it is time to
/// renew.
async fn show_live(
    chunks: &mut Incoming<Chunk>,
    changes: &mut watch::Receiver<u64>,
    until: Instant,
    shown: &mut Shown,
) -> Result<Listening, WireError> {
    loop {
        let chunk = tokio::select! {
            received = chunks.next() => match received {
                Some(received) => received.body,
                None => return Err(crate::unavailable("the bus is away".to_owned())),
            },
            _ = changes.changed() => return Ok(Listening::Goes),
            () = tokio::time::sleep_until(until) => return Ok(Listening::Goes),
        };
        if chunk.offset > shown.position {
            return Ok(Listening::Goes); // a hole: read it
        }
        if !shown.items.have_room() {
            return Ok(Listening::NoMore); // it is read again, as fast as the client takes it
        }
        let last = chunk.last && end_of(&chunk) >= shown.position;
        shown.add(chunk.offset, chunk.bytes).await?;
        if last {
            return Ok(Listening::Goes);
        }
    }
}

/// Whether all that there will ever be is shown.
async fn is_complete(hosts: &Hosts, place: &Place, end: &Piece, position: u64) -> Result<bool, WireError> {
    if end.ended && position < end.length {
        return Ok(false);
    }
    let agent = place.agent;
    let Some(Found { view, gone }) = hosts.driver.glance(move |glance| queries::agent(glance, agent)).await?
    else {
        return Ok(true);
    };
    Ok(match view.report {
        Some(report) => {
            let over = gone || (report.end.is_some() && !report.draining);
            // The replica's last piece may be that of an earlier start.
            let over = over || (end.ended && report.spec.launch == 1);
            over && report.transcript.is_none_or(|facts| position >= facts.bytes)
        }
        None => gone,
    })
}
