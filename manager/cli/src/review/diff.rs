//! `diff`: what a task or agent changed. In a pipe the bytes are git's, on a terminal they are made safe.

use protocol::api::{Item, Query, Reply};
use protocol::compare::{CompareForm, Comparison};
use protocol::error::ErrorCode;

use super::super::args::review::Diff;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say, stdout_is_terminal};
use super::super::output::render::{Listing, list, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::files::{FileRow, document, statistic};
use super::paint::{self, Painter};
use manager_plan::config::format::OutputFormat;

pub fn run(context: &Context, args: &Diff) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let request = |form| Query::Compare { target: args.target.clone(), attempt: args.attempt, form };
    let plain = matches!(context.format, OutputFormat::Table | OutputFormat::Wide);
    if plain && !args.stat && !args.name_only {
        patch(context, &mut client, &request(CompareForm::Patch))?;
    } else {
        files(context, &mut client, &request(CompareForm::Files), args)?;
    }
    Ok(exit::OK)
}

/// Asks, and hands each item on; the head is what was compared.
pub fn ask(
    client: &mut Client,
    request: &Query,
    mut take: impl FnMut(Item) -> Result<(), Failure>,
) -> Result<Comparison, Failure> {
    let mut about = None;
    let end = client.stream(request, &Limits::default(), |item| {
        match item {
            Item::Compared(comparison) => about = Some(*comparison),
            item => take(item)?,
        }
        Ok(Flow::More)
    })?;
    match (end, about) {
        (StreamEnd::Reply(Reply::Done), Some(about)) => Ok(about),
        (StreamEnd::Reply(other), _) => Err(unexpected(other)),
        (StreamEnd::Enough | StreamEnd::TimedOut | StreamEnd::Interrupted(_), _) => {
            Err(Failure::new(ErrorCode::Unavailable, "the difference ended early"))
        }
    }
}

fn patch(context: &Context, client: &mut Client, request: &Query) -> Result<(), Failure> {
    let terminal = stdout_is_terminal();
    let mut out = Stdout::default();
    let mut painter = Painter::new(terminal && paint::is_wanted());
    let mut bytes_told = 0_usize;
    let about = ask(client, request, |item| {
        let Item::Output { bytes, .. } = item else { return Ok(()) };
        bytes_told = bytes_told.saturating_add(bytes.len());
        if terminal { out.text(&painter.push(&bytes)) } else { out.bytes(&bytes) }
    })?;
    if terminal {
        out.text(&painter.finish())?;
    }
    out.done()?;
    tell(context, &about, bytes_told == 0);
    Ok(())
}

fn files(context: &Context, client: &mut Client, request: &Query, args: &Diff) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let about = ask(client, request, |item| {
        if let Item::Changed(changes) = item {
            rows.extend(changes.into_iter().map(FileRow));
        }
        Ok(())
    })?;
    let mut out = Stdout::default();
    match &context.format {
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&value(&document(&about, &rows))).unwrap_or_default();
            out.line(&safe_json(&text))?;
        }
        OutputFormat::Table | OutputFormat::Wide if args.stat => {
            for line in statistic(&rows).iter().filter(|_| !rows.is_empty()) {
                out.line(&safe_line(line))?;
            }
        }
        OutputFormat::Table | OutputFormat::Wide => {
            for row in &rows {
                if stdout_is_terminal() {
                    out.line(&safe_line(&row.path()))?;
                } else {
                    out.bytes(&row.0.path)?;
                    out.text("\n")?;
                }
            }
        }
        format => list(&mut out, format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?,
    }
    out.done()?;
    tell(context, &about, rows.is_empty());
    Ok(())
}

/// What a person should know beside the difference.
fn tell(context: &Context, about: &Comparison, empty: bool) {
    if context.quiet || context.format.is_json() {
        return;
    }
    let whose = match about.attempt {
        Some(attempt) => format!("{}, attempt {attempt}", about.name),
        None => about.name.clone(),
    };
    if empty {
        say(&safe_line(&format!("{whose}: nothing was changed")));
    } else if about.sides.to.is_none() {
        say(&safe_line(&format!(
            "note: {whose}: the files of its workspace as they are now, uncommitted ones too"
        )));
    }
    for note in &about.sides.notes {
        say(&safe_line(&format!("note: {whose}: {note}")));
    }
}
