//! `events`: dated facts, as they were and as they come.

use protocol::api::{Item, Reply, Request};
use protocol::event::{Event, Fact};
use serde_json::Value;

use super::super::args::agent::Events;
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

    fn json(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
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
        Fact::HostStarted { incarnation } => format!("host started, incarnation {incarnation}"),
        Fact::Unknown => "a fact that a newer phalanx knows".to_owned(),
    }
}

pub fn run(context: &Context, args: &Events) -> Result<u8, Failure> {
    let from = args.since.as_deref().map(|text| since(text, now())).transpose().map_err(Failure::usage)?;
    let mut client = context.client()?;
    // Followed without a date, only what is new is told.
    let from = if args.follow { from.or_else(|| Some(now())) } else { from };
    let request = Request::Events { since: from, follow: args.follow, targets: args.targets.clone() };
    let mut out = Stdout::default();
    let mut rows = Vec::new();
    let end = client.stream(&request, &Limits::default(), |item| {
        let Item::Event(event) = item else { return Ok(Flow::More) };
        let row = EventRow(*event);
        if args.follow {
            one(&mut out, &context.format, &row)?;
            out.flush()?;
        } else {
            rows.push(row);
        }
        Ok(Flow::More)
    })?;
    if !args.follow {
        let listing = Listing { items: &rows, as_of: Some(now()), note: None, empty: "No events." };
        list(&mut out, &context.format, &listing)?;
    }
    out.done()?;
    match end {
        StreamEnd::Reply(Reply::Done) => Ok(exit::OK),
        StreamEnd::Reply(other) => Err(unexpected(other)),
        StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_) => Ok(exit::OK),
    }
}
