//! `send`: a text for one agent or for all that a selector finds, and what became of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use protocol::api::{MessageUntil, Mutation, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::MessageId;
use protocol::message::{MessageState, MessageText, MessageView, Sent, Typing};

use super::super::agent::create::quantity;
use super::super::agent::select::{self, Which};
use super::super::args::agent::Targets;
use super::super::args::message::Send;
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::view::MessageRow;
use super::{text, wait};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::duration_ms;

pub fn run(context: &Context, args: &Send) -> Result<u8, Failure> {
    let (agent, text) = text::read(args)?;
    let limit = quantity("--timeout", &args.timeout, duration_ms)?;
    let deadline = Instant::now().checked_add(Duration::from_millis(limit));
    let key = request_key(args.key.as_deref())?;
    let wanted = Targets { targets: agent.into_iter().collect(), labels: args.labels.clone() };
    let (mut client, targets) = select::confirmed(context, "send", &wanted, Which::Live, args.yes)?;
    if targets.is_empty() {
        return show(context, &[], exit::OK);
    }
    let turn = args.wait.as_deref().map(|text| quantity("--wait", text, duration_ms)).transpose()?;
    if turn.is_some() {
        refuse_without_signals(&mut client, &targets)?;
    }
    let typing = Typing {
        text: MessageText(text),
        press_enter: !args.no_enter,
        at_once: args.now,
        each_line: args.lines,
    };
    let request = Mutation::SendMessage { key: key.clone(), targets, typing };
    let sent = match client.ask(&request).map_err(|failure| with_key(failure, "phalanx send", &key))? {
        Reply::Sent(sent) => sent,
        other => return Err(unexpected(other)),
    };
    let ids: Vec<MessageId> = sent.iter().filter_map(|sent| sent.message).collect();
    let delivered = if args.no_wait || ids.is_empty() {
        let views = if ids.is_empty() { Vec::new() } else { wait::look(&mut client, Vec::new(), ids)? };
        views.into_iter().map(|view| (view.message, view)).collect()
    } else {
        wait::wait(context, client, &ids, MessageUntil::Decided, deadline)?
    };
    let queued = if args.no_wait { exit::OK } else { exit::TIMED_OUT };
    let (known, turns) = match turn {
        Some(limit) => after_their_turns(context, delivered, limit)?,
        None => (delivered, exit::OK),
    };
    let code = show(context, &rows(sent, &known), queued)?;
    if code == exit::OK && turns != exit::OK {
        say("It was delivered; its program has not come back to its prompt in time. See: phalanx capture");
        return Err(Failure::Told(turns));
    }
    Ok(code)
}

/// Nothing would ever say that the turn is over.
fn refuse_without_signals(client: &mut Client, targets: &[String]) -> Result<(), Failure> {
    for target in targets {
        let view = select::one(client, target)?;
        if view.spec.signals.is_none() {
            return Err(Failure::usage(format!(
                "--wait: {} has a profile without signals: nothing says when it is at its prompt",
                view.name
            ))
            .hint("give its profile signals (phalanx profile show shell), or send without --wait"));
        }
    }
    Ok(())
}

/// Those that were delivered, when their programs are at their prompts again; exit 124 where one is not in time.
fn after_their_turns(
    context: &Context,
    mut known: BTreeMap<MessageId, MessageView>,
    limit_ms: u64,
) -> Result<(BTreeMap<MessageId, MessageView>, u8), Failure> {
    let delivered = known.values().filter(|view| view.state == MessageState::Delivered);
    let ids: Vec<MessageId> = delivered.map(|view| view.message).collect();
    if ids.is_empty() {
        return Ok((known, exit::OK));
    }
    let deadline = Instant::now().checked_add(Duration::from_millis(limit_ms));
    let turned = wait::wait(context, context.client()?, &ids, MessageUntil::TurnDone, deadline)?;
    let over = |id: &MessageId| turned.get(id).is_some_and(|view| view.turn_done_at.is_some());
    let code = if ids.iter().all(over) { exit::OK } else { exit::TIMED_OUT };
    known.extend(turned);
    Ok((known, code))
}

fn rows(sent: Vec<Sent>, known: &BTreeMap<MessageId, MessageView>) -> Vec<MessageRow> {
    let now = now();
    let row = |sent: Sent| {
        let view = sent.message.and_then(|id| known.get(&id)).cloned();
        let message = match (view, sent.error) {
            (Some(view), _) => Ok(view),
            (None, Some(error)) => Err(error),
            (None, None) => Err(WireError::new(ErrorCode::Unavailable, "what became of it is not known")
                .hint("phalanx messages")),
        };
        // Of a selector the targets are ids; people know the names.
        let target = message.as_ref().map_or(sent.target, |view| view.name.clone());
        MessageRow { target, message, now }
    };
    sent.into_iter().map(row).collect()
}

/// One outcome each; the exit code is that of the first that was not delivered. `queued` is the one of those that are
/// still to come.
fn show(context: &Context, rows: &[MessageRow], queued: u8) -> Result<u8, Failure> {
    let code =
        rows.iter().map(|row| row.exit_code(queued)).find(|code| *code != exit::OK).unwrap_or(exit::OK);
    let is_good = |row: &&MessageRow| row.exit_code(exit::OK) == exit::OK;
    let mut out = Stdout::default();
    if context.quiet {
        let ids = rows.iter().filter_map(|row| row.message.as_ref().ok());
        ids.map(|view| view.message.to_string()).try_for_each(|id| out.line(&id))?;
    } else if matches!(context.format, OutputFormat::Table) {
        rows.iter().filter(is_good).try_for_each(|row| out.line(&safe_line(&row.sentence())))?;
        if rows.is_empty() {
            say("No agents.");
        }
    } else {
        list(
            &mut out,
            &context.format,
            &Listing { items: rows, as_of: None, note: None, empty: "No agents." },
        )?;
    }
    out.done()?;
    if !context.format.is_json() {
        rows.iter().filter(|row| !is_good(row)).for_each(complain);
        if code == exit::TIMED_OUT {
            say("It stays queued and is delivered when it can be. See: phalanx messages");
        }
    }
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}

fn complain(row: &MessageRow) {
    say(&safe_line(&format!("error: {}", row.sentence())));
    let hint = match &row.message {
        Err(error) => error.hint.clone(),
        Ok(view) if view.state == MessageState::Unknown => {
            format!("look whether it arrived (phalanx logs {}), then send it again or not", row.target)
        }
        Ok(_) => String::new(),
    };
    if !hint.is_empty() {
        say(&safe_line(&format!("  try: {hint}")));
    }
}
