//! `messages`: what became of texts that were sent, and taking them back.

use std::time::{Duration, Instant};

use protocol::api::{MessageUntil, Mutation, Outcome, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::MessageId;
use protocol::message::MessageState;

use super::super::args::message::Messages;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::view::MessageRow;
use super::wait;

/// The host says within this whether it had typed it.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

pub fn run(context: &Context, args: &Messages) -> Result<u8, Failure> {
    if !args.cancel.is_empty() {
        return cancel(context, args);
    }
    let mut views = wait::look(&mut context.client()?, args.targets.clone(), Vec::new())?;
    if args.queued {
        views.retain(|view| !view.state.is_final());
    }
    let now = now();
    let rows: Vec<MessageRow> = views.into_iter().map(|view| MessageRow::of(view, now)).collect();
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter()
            .filter_map(|row| row.message.as_ref().ok())
            .try_for_each(|v| out.line(&v.message.to_string()))?;
    } else {
        let empty = "No messages. Send one: phalanx send AGENT TEXT";
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty })?;
    }
    out.done()?;
    Ok(exit::OK)
}

fn cancel(context: &Context, args: &Messages) -> Result<u8, Failure> {
    let key = request_key(args.key.as_deref())?;
    let mut client = context.client()?;
    let request = Mutation::CancelMessages { key: key.clone(), messages: args.cancel.clone() };
    let asked = client.ask(&request).map_err(|failure| with_key(failure, "phalanx messages --cancel", &key));
    let outcomes = match asked? {
        Reply::Outcomes(outcomes) => outcomes,
        other => return Err(unexpected(other)),
    };
    let id_of = |outcome: &Outcome| outcome.target.parse::<MessageId>().ok();
    let asked: Vec<MessageId> = outcomes.iter().filter(|o| o.error.is_none()).filter_map(id_of).collect();
    let deadline = Instant::now().checked_add(CANCEL_LIMIT);
    let known = wait::wait(context, client, &asked, MessageUntil::Decided, deadline)?;
    let now = now();
    let rows: Vec<MessageRow> = outcomes
        .into_iter()
        .map(|outcome| {
            let view = id_of(&outcome).and_then(|id| known.get(&id));
            let message = match (outcome.error, view) {
                (Some(error), _) => Err(error),
                (None, Some(view)) if view.state == MessageState::Cancelled => Ok(view.clone()),
                (None, Some(view)) if view.state.is_final() => {
                    let message = format!("it could not be taken back: it is {}", view.state);
                    Err(WireError::new(ErrorCode::Conflict, message))
                }
                (None, _) => {
                    let message = "its host has not said yet whether it was typed";
                    Err(WireError::new(ErrorCode::TimedOut, message).hint("phalanx messages"))
                }
            };
            MessageRow { target: outcome.target, message, now }
        })
        .collect();
    show(context, &rows)
}

fn show(context: &Context, rows: &[MessageRow]) -> Result<u8, Failure> {
    let failed = rows.iter().filter_map(|row| row.message.as_ref().err().map(|error| (row, error)));
    let code = failed.clone().next().map_or(exit::OK, |(_, error)| error.code.exit_code());
    let mut out = Stdout::default();
    let done = rows.iter().filter_map(|row| row.message.as_ref().ok());
    if context.quiet {
        done.map(|view| view.message.to_string()).try_for_each(|id| out.line(&id))?;
    } else if context.format == manager_plan::config::format::OutputFormat::Table {
        done.map(|view| format!("{} cancelled", view.message)).try_for_each(|line| out.line(&line))?;
    } else {
        list(&mut out, &context.format, &Listing { items: rows, as_of: None, note: None, empty: "" })?;
    }
    out.done()?;
    if !context.format.is_json() {
        for (row, error) in failed {
            say(&safe_line(&format!("error: {}: {}", row.target, error.message)));
            if !error.hint.is_empty() {
                say(&safe_line(&format!("  try: {}", error.hint)));
            }
        }
    }
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}
