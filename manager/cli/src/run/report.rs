//! `report`: fetches a run and its transcripts, and has the report written.

use protocol::api::{Item, LogStart, Query};
use protocol::error::ErrorCode;
use protocol::ids::AgentId;

use super::super::agent::logs::Transcript;
use super::super::args::run::Report;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::when::now;
use super::list::{named_or_latest, whole};
use crate::report::{Fetched, Writer};
use manager_plan::config::format::OutputFormat;
use protocol::chain;

pub fn run(context: &Context, args: &Report) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let name = named_or_latest(&mut client, args.run.as_deref())?;
    let (run, tasks) = whole(&mut client, &name)?;
    let folder = match &args.out {
        Some(folder) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        None => context.reports().join(run.id.to_string()),
    };
    let failed = |error: crate::report::ReportError| {
        Failure::new(ErrorCode::Failed, chain(&error)).hint("choose another folder with --out DIR")
    };
    let writer = Writer::open(&folder).map_err(failed)?;
    let written =
        writer.write(&run, &tasks, now(), &mut |agent| transcript(&mut client, agent)).map_err(failed)?;
    for why in &written.missing {
        say(&safe_line(&format!("warning: {why}")));
    }
    let mut out = Stdout::default();
    if matches!(context.format, OutputFormat::Json | OutputFormat::JsonLines) {
        let json = std::fs::read_to_string(&written.json).map_err(|error| {
            Failure::new(ErrorCode::Failed, format!("cannot read {}: {error}", written.json.display()))
        })?;
        out.text(&safe_json(&json))?;
    } else {
        out.line(&safe_line(&written.html.display().to_string()))?;
    }
    out.done()?;
    Ok(exit::OK)
}

/// All that an agent printed without sealed values, or why it cannot be had.
fn transcript(client: &mut Client, agent: AgentId) -> Fetched {
    match fetch(client, agent, true) {
        // Its values are not kept any more, so they cannot be looked for.
        Fetched::Missing(why) => match fetch(client, agent, false) {
            Fetched::Bytes { bytes, missing, .. } => Fetched::Bytes { bytes, missing, unredacted: Some(why) },
            missing @ Fetched::Missing(_) => missing,
        },
        fetched @ Fetched::Bytes { .. } => fetched,
    }
}

fn fetch(client: &mut Client, agent: AgentId, redact: bool) -> Fetched {
    let mut place = Transcript::starting_at(Some(0));
    let mut bytes = Vec::new();
    let mut missing = 0_u64;
    let request = Query::Logs { target: agent.to_string(), from: LogStart::Offset(0), follow: false, redact };
    let end = client.stream(&request, &Limits::default(), |item| {
        if let Item::Log { offset, bytes: came } = item {
            let piece = place.take(offset, &came);
            missing = missing.saturating_add(piece.missing);
            bytes.extend_from_slice(piece.bytes);
        }
        Ok(Flow::More)
    });
    match end {
        Ok(StreamEnd::Reply(_)) => Fetched::Bytes { bytes, missing, unredacted: None },
        Ok(_) => Fetched::Missing("its transcript ended early".to_owned()),
        Err(failure) => {
            let why = failure.rendered(false).unwrap_or_default();
            Fetched::Missing(why.trim_start_matches("error: ").lines().next().unwrap_or_default().to_owned())
        }
    }
}
