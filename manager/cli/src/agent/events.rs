//! `events`: dated facts, as they were and as they come.

use protocol::api::{Item, Query, Reply};
use protocol::error::ErrorCode;
use protocol::event::{Event, Fact};
use protocol::time::Timestamp;

use super::super::args::agent::Events;
use super::super::client::follow::{Came, Followed};
use super::super::client::reader::Interrupts;
use super::super::client::{Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listed, Listing, list, one};
use super::super::output::when::{date, now, since};

pub struct EventRow(Event);

impl Listed for EventRow {
    const KIND: &'static str = "EventList";
    const HEADER: &'static [&'static str] = &["TIME", "HOST", "NAME", "FACT"];
    const WIDE: &'static [&'static str] = &["ID"];

    type Document<'a>
        = &'a Event
    where
        Self: 'a;

    fn document(&self) -> &Event {
        &self.0
    }

    fn name(&self) -> String {
        format!("{}:{}", self.0.epoch, self.0.seq)
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let host = self.0.host.as_ref().map_or_else(|| "manager".to_owned(), ToString::to_string);
        let mut cells = vec![date(self.0.at), host, self.0.name.clone(), fact(&self.0.fact)];
        if wide {
            cells.push(self.name());
        }
        cells
    }
}

fn fact(fact: &Fact) -> String {
    match fact {
        Fact::AgentPhase { phase, end: Some(end), .. } => format!("{phase}: {end}"),
        Fact::AgentPhase { phase, end: None, reason: Some(reason), .. } => format!("{phase}: {reason}"),
        Fact::AgentPhase { phase, end: None, reason: None, .. } => phase.to_string(),
        Fact::AgentDestroyed { discarded: true, .. } => "destroyed, its work discarded".to_owned(),
        Fact::AgentDestroyed { discarded: false, .. } => "destroyed".to_owned(),
        Fact::TaskState { state, attempt, reason, .. } => {
            let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
            format!("task {state}, attempt {attempt}{reason}")
        }
        Fact::RunSubmitted { tasks, .. } => format!("run submitted with {tasks} tasks"),
        Fact::RunEnded { accepted, failed, cancelled, .. } => {
            format!("run ended: {accepted} accepted, {failed} failed, {cancelled} cancelled")
        }
        Fact::RecordsLost { what, .. } => format!("RECORDS LOST: {what}"),
        Fact::HostStarted { incarnation } => format!("host started, incarnation {incarnation}"),
        Fact::BaseReplaced { repo, commit, changed } => {
            let commit = commit.get(..12).unwrap_or(commit);
            let changed =
                if changed.is_empty() { String::new() } else { format!(": {}", changed.join(", ")) };
            format!("the base of {commit} of {repo} was changed from outside and is made anew{changed}")
        }
        Fact::Gap { missing: Some(missing) } => format!("GAP: {missing} events are no longer kept"),
        Fact::Gap { missing: None } => "GAP: the events after the cursor are no longer kept".to_owned(),
        Fact::Unknown => "a fact that a newer phalanx knows".to_owned(),
    }
}

pub fn run(context: &Context, args: &Events) -> Result<u8, Failure> {
    let from = args.since.as_deref().map(|text| since(text, now())).transpose().map_err(Failure::usage)?;
    if args.follow { follow(context, args, from) } else { show(context, args, from) }
}

fn request(args: &Events, since: Option<Timestamp>, after: Option<String>) -> Query {
    Query::Events { since, follow: args.follow, targets: args.targets.clone(), after }
}

fn show(context: &Context, args: &Events, from: Option<Timestamp>) -> Result<u8, Failure> {
    let mut rows = Vec::new();
    let request = request(args, from, args.cursor.clone());
    let end = context.client()?.stream(&request, &Limits::default(), |item| {
        if let Item::Event(event) = item {
            rows.push(EventRow(*event));
        }
        Ok(Flow::More)
    })?;
    let mut out = Stdout::default();
    list(
        &mut out,
        &context.format,
        &Listing { items: &rows, as_of: Some(now()), note: None, empty: "No events." },
    )?;
    out.done()?;
    match end {
        StreamEnd::Reply(Reply::Done) => Ok(exit::OK),
        StreamEnd::Reply(other) => Err(unexpected(other)),
        StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_) => Ok(exit::OK),
    }
}

/// Each as it comes; over a restart of the manager or the bus it goes on after the last one that was shown.
fn follow(context: &Context, args: &Events, from: Option<Timestamp>) -> Result<u8, Failure> {
    let interrupts = Interrupts::catch()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("signals cannot be caught: {error}")))?;
    // Without a date or a cursor, only what is new is told.
    let from = if args.cursor.is_some() { None } else { from.or_else(|| Some(now())) };
    let mut cursor = args.cursor.clone();
    let mut out = Stdout::default();
    let mut followed = Followed::new(context, &interrupts);
    loop {
        match followed.next(|| request(args, from.filter(|_| cursor.is_none()), cursor.clone()), None)? {
            Came::Item(item) => {
                let Item::Event(event) = *item else { continue };
                cursor = event.cursor.clone().or(cursor);
                one(&mut out, &context.format, &EventRow(*event))?;
                out.flush()?;
            }
            Came::End(reply) => return Err(unexpected(*reply)),
            Came::TimedOut | Came::Away => {}
            Came::Interrupted(signal) => {
                out.done()?;
                return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
            }
        }
    }
}
