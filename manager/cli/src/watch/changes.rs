//! `ls --watch`: the list, then what changes of it, until interrupted. On a terminal the table is drawn again in place;
//! elsewhere each change is a line. Over restarts of the manager it goes on by itself.

use std::collections::BTreeMap;

use nix::libc::{SIGCONT, SIGWINCH};
use protocol::api::{Item, Query, SCHEMA_VERSION};
use protocol::error::ErrorCode;
use protocol::ids::AgentId;
use protocol::row::{AgentRow, RowChange, RowItem, WatchRows};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::args::watch::Ls;
use super::super::client::follow::{Came, Followed};
use super::super::client::reader::Interrupts;
use super::super::context::{Context, unexpected};
use super::super::error::Failure;
use super::super::output::pipe::{Stdout, say, stdout_is_terminal};
use super::super::output::redraw::Redraw;
use super::super::output::render::{Listed, template_of, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::table::Table;
use super::super::output::when::now;
use super::columns::{COLUMNS, Column, WIDE, sort};
use super::list::{EMPTY, filter, rows, table};
use super::row::{AgentDocument, Row, staleness};
use manager_plan::config::format::OutputFormat;

/// Of a line of changes without JSON: wide enough for each of its words.
const CHANGE_WIDTH: usize = 7;

pub fn run(context: &Context, args: &Ls) -> Result<u8, Failure> {
    let is_table = matches!(context.format, OutputFormat::Table | OutputFormat::Wide) && !context.quiet;
    if args.cursor.is_some() && is_table {
        return Err(Failure::usage("--cursor goes on with changes, and a table needs all rows")
            .hint("phalanx ls --watch -o jsonl --cursor …"));
    }
    let columns = match (&*args.columns, &context.format) {
        ([], OutputFormat::Wide) => COLUMNS.iter().chain(WIDE).copied().collect(),
        ([], _) => COLUMNS.to_vec(),
        (columns, _) => columns.to_vec(),
    };
    let interrupts = Interrupts::catch_with_redraws()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("signals cannot be caught: {error}")))?;
    let mut shown = if is_table && stdout_is_terminal() {
        Shown::Screen(Screen { rows: BTreeMap::new(), columns, away: false, redraw: Redraw::default() })
    } else {
        Shown::Lines(Lines { context, columns })
    };
    let mut out = Stdout::default();
    let mut cursor = args.cursor.clone();
    let mut followed = Followed::new(context, &interrupts);
    loop {
        let (figures, deadline) = match &shown {
            Shown::Screen(screen) => (true, screen.redraw.deadline()),
            Shown::Lines(_) => (false, None),
        };
        let request =
            || Query::WatchRows(WatchRows { filter: filter(&args.filter), cursor: cursor.clone(), figures });
        match followed.next(request, deadline)? {
            Came::Item(item) => {
                let Item::Rows(item) = *item else { continue };
                if let RowItem::All { cursor: new, .. } | RowItem::One { cursor: new, .. } = &item {
                    cursor = Some(new.clone());
                }
                match &mut shown {
                    Shown::Screen(screen) => screen.take(item),
                    Shown::Lines(lines) => lines.take(&mut out, item, args)?,
                }
            }
            Came::End(reply) => return Err(unexpected(*reply)),
            Came::TimedOut => {}
            Came::Away => match &mut shown {
                Shown::Screen(screen) => screen.set_away(),
                Shown::Lines(_) => say("the manager went away; it is waited for"),
            },
            Came::Interrupted(SIGWINCH | SIGCONT) => {
                if let Shown::Screen(screen) = &mut shown {
                    screen.redraw.anew(&mut out)?;
                    screen.draw(&mut out, args)?;
                }
            }
            Came::Interrupted(signal) => {
                if let Shown::Screen(screen) = shown {
                    screen.redraw.end(&mut out)?;
                }
                out.done()?;
                return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
            }
        }
        if let Shown::Screen(screen) = &mut shown
            && screen.redraw.is_due()
        {
            screen.draw(&mut out, args)?;
        }
    }
}

enum Shown<'a> {
    Screen(Screen),
    Lines(Lines<'a>),
}

/// A table that is drawn again in place.
struct Screen {
    rows: BTreeMap<AgentId, AgentRow>,
    columns: Vec<Column>,
    away: bool,
    redraw: Redraw,
}

impl Screen {
    fn take(&mut self, item: RowItem) {
        self.away = false;
        self.redraw.changed();
        match item {
            RowItem::All { rows, .. } => {
                self.rows = rows.into_iter().map(|row| (row.id, row)).collect();
            }
            RowItem::One { change: RowChange::Gone, row, .. } => {
                self.rows.remove(&row.id);
            }
            RowItem::One { row, .. } => {
                self.rows.insert(row.id, *row);
            }
            RowItem::Figures(rows) => self.rows.extend(rows.into_iter().map(|row| (row.id, row))),
        }
    }

    fn set_away(&mut self) {
        self.away = true;
        self.redraw.changed();
    }

    fn draw(&mut self, out: &mut Stdout, args: &Ls) -> Result<(), Failure> {
        let mut rows = rows(self.rows.values().cloned().collect(), now());
        if let Some(by) = args.sort {
            sort(&mut rows, by);
        }
        let mut lines = Vec::new();
        if self.away {
            lines.push("The manager is away and is waited for; this is what was known.".to_owned());
        }
        lines.extend(staleness(&rows).map(|note| safe_line(&note)));
        if rows.is_empty() {
            lines.push("No agents that fit.".to_owned());
        } else {
            lines.extend(table(&self.columns, &rows).lines().map(str::to_owned));
        }
        self.redraw.draw(out, &lines)
    }
}

/// A line for each row and each change.
struct Lines<'a> {
    context: &'a Context,
    columns: Vec<Column>,
}

impl Lines<'_> {
    fn take(&self, out: &mut Stdout, item: RowItem, args: &Ls) -> Result<(), Failure> {
        match item {
            RowItem::All { rows: agents, cursor, reset } => {
                let mut rows = rows(agents, now());
                if let Some(by) = args.sort {
                    sort(&mut rows, by);
                }
                self.all(out, &rows, &cursor, reset.as_deref())?;
            }
            RowItem::One { change, row, cursor } => {
                let row = Row { agent: *row, now: now() };
                self.one(out, change.as_str(), &row, Some(&cursor))?;
            }
            RowItem::Figures(_) => {}
        }
        out.flush()
    }

    fn all(&self, out: &mut Stdout, rows: &[Row], cursor: &str, reset: Option<&str>) -> Result<(), Failure> {
        if self.context.format.is_json() && !self.context.quiet {
            if let Some(reason) = reset {
                json_line(out, &ChangeDocument { reason: Some(reason), ..ChangeDocument::of("reset") })?;
            }
            rows.iter().try_for_each(|row| self.one(out, "listed", row, None))?;
            return json_line(out, &ChangeDocument { cursor: Some(cursor), ..ChangeDocument::of("synced") });
        }
        if let Some(reason) = reset {
            say(&format!("{reason}: all rows follow anew"));
        }
        if self.is_table() {
            if let Some(note) = staleness(rows) {
                say(&safe_line(&note));
            }
            if rows.is_empty() {
                say(EMPTY);
                return Ok(());
            }
            let mut listed = Table::new(
                &["CHANGE".to_owned()]
                    .into_iter()
                    .chain(self.columns.iter().map(|column| column.heading()))
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>(),
            );
            for row in rows {
                let cells = self.columns.iter().map(|column| row.cell(*column));
                listed.row(["listed".to_owned()].into_iter().chain(cells).collect());
            }
            return out.text(&listed.render());
        }
        rows.iter().try_for_each(|row| self.one(out, "listed", row, None))
    }

    fn one(&self, out: &mut Stdout, change: &str, row: &Row, cursor: Option<&str>) -> Result<(), Failure> {
        let is_gone = change == RowChange::Gone.as_str();
        match &self.context.format {
            // Names and ids are those of agents that came or changed: a line cannot say that it is gone.
            _ if self.context.quiet && is_gone => Ok(()),
            _ if self.context.quiet => out.line(&row.agent.id.to_string()),
            OutputFormat::Name if is_gone => Ok(()),
            OutputFormat::Name => out.line(&safe_line(&row.name())),
            OutputFormat::Json | OutputFormat::JsonLines => {
                let agent = Some(row.document());
                json_line(out, &ChangeDocument { agent, cursor, ..ChangeDocument::of(change) })
            }
            OutputFormat::Template(template) => {
                let mut json = value(&row.document());
                if let Value::Object(fields) = &mut json {
                    fields.insert("change".into(), json!(change));
                }
                out.line(&template_of(template, &json)?)
            }
            OutputFormat::Table | OutputFormat::Wide => {
                let cells = self.columns.iter().map(|column| row.cell(*column));
                let cells = cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { safe_line(&cell) });
                let cells = cells.collect::<Vec<_>>().join("  ");
                out.line(&format!("{change:<CHANGE_WIDTH$}  {cells}"))
            }
        }
    }

    fn is_table(&self) -> bool {
        matches!(self.context.format, OutputFormat::Table | OutputFormat::Wide) && !self.context.quiet
    }
}

/// One line of `ls --watch`.
#[derive(Serialize, JsonSchema)]
pub struct ChangeDocument<'a> {
    schema_version: u32,
    /// `listed` for rows that are there, then `synced`; after that what became of one; `reset` before all are listed anew.
    change: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentDocument>,
    /// What `--cursor` goes on after.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
    /// Why all are listed anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> ChangeDocument<'a> {
    const fn of(change: &'a str) -> Self {
        Self { schema_version: SCHEMA_VERSION, change, agent: None, cursor: None, reason: None }
    }
}

fn json_line(out: &mut Stdout, line: &ChangeDocument<'_>) -> Result<(), Failure> {
    out.line(&safe_json(&value(line).to_string()))
}
