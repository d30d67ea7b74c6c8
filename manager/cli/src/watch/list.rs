//! `ls`: agents as rows of a table, as JSON, or as names.

use protocol::api::{Query, Reply};
use protocol::error::ErrorCode;
use protocol::row::{AgentRow, RowFilter};
use protocol::time::Timestamp;

use super::super::args::watch::{Filter, Ls};
use super::super::client::Client;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::table::Table;
use super::super::output::when::now;
use super::columns::{Column, sort};
use super::row::{Row, staleness};
use manager_plan::config::format::OutputFormat;

pub const EMPTY: &str = "No agents. Make one: phalanx create demo -- sh -c 'echo hello; sleep 60'";

pub fn run(context: &Context, args: &Ls) -> Result<u8, Failure> {
    if !args.columns.is_empty() && context.format != OutputFormat::Table {
        return Err(Failure::usage("--columns is for tables").hint("leave -o away"));
    }
    if args.watch {
        return super::changes::run(context, args);
    }
    let mut client = context.client()?;
    let (agents, as_of) = match client.ask(&Query::ListRows(filter(&args.filter)))? {
        Reply::Rows { rows, as_of } => (rows, as_of),
        other => return Err(unexpected(other)),
    };
    known(&mut client, &args.filter, &agents)?;
    let mut rows = rows(agents, now());
    if let Some(by) = args.sort {
        sort(&mut rows, by);
    }
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.agent.id.to_string()))?;
    } else {
        show(&mut out, context, &args.columns, &rows, as_of)?;
    }
    out.done()?;
    Ok(exit::OK)
}

/// A name without `*` and `?` is one that the caller believes in: that there is no such agent is said, and not an empty list.
fn known(client: &mut Client, words: &Filter, listed: &[AgentRow]) -> Result<(), Failure> {
    for name in words.names.iter().filter(|name| !name.contains(['*', '?'])) {
        if listed.iter().any(|agent| is_called(agent, name)) {
            continue;
        }
        // It may be there, and be left out by the rest of what was asked for.
        let one = RowFilter { all: true, names: vec![name.clone()], ..RowFilter::default() };
        let found = match client.ask(&Query::ListRows(one))? {
            Reply::Rows { rows, .. } => rows,
            other => return Err(unexpected(other)),
        };
        if found.is_empty() {
            let failure = Failure::new(ErrorCode::NotFound, format!("there is no agent {name:?}"));
            return Err(failure.hint("phalanx ls"));
        }
    }
    Ok(())
}

fn is_called(agent: &AgentRow, name: &str) -> bool {
    agent.name == name || agent.id.to_string() == name
}

pub fn filter(words: &Filter) -> RowFilter {
    RowFilter {
        all: words.all,
        labels: words.labels.iter().cloned().collect(),
        phases: words.phases.clone(),
        run: words.run.clone(),
        hosts: words.hosts.clone(),
        names: words.names.clone(),
    }
}

pub fn rows(agents: Vec<AgentRow>, now: Timestamp) -> Vec<Row> {
    agents.into_iter().map(|agent| Row { agent, now }).collect()
}

fn show(
    out: &mut Stdout,
    context: &Context,
    columns: &[Column],
    rows: &[Row],
    as_of: Timestamp,
) -> Result<(), Failure> {
    let note = staleness(rows);
    if columns.is_empty() {
        return list(out, &context.format, &Listing { items: rows, as_of: Some(as_of), note, empty: EMPTY });
    }
    if let Some(note) = note {
        out.line(&safe_line(&note))?;
    }
    if rows.is_empty() {
        say(EMPTY);
        return Ok(());
    }
    out.text(&table(columns, rows))
}

pub fn table(columns: &[Column], rows: &[Row]) -> String {
    let headings: Vec<String> = columns.iter().map(|column| column.heading()).collect();
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        table.row(columns.iter().map(|column| row.cell(*column)).collect());
    }
    table.render()
}
