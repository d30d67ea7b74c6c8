//! `top`: what agents take of their hosts, drawn again in place on a terminal, else as a table, JSON or lines.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use nix::libc::{SIGCONT, SIGWINCH};
use protocol::agent::{Phase, TaskLink};
use protocol::api::{Item, Query, Reachability, SCHEMA_VERSION};
use protocol::error::ErrorCode;
use protocol::house::Unheard;
use protocol::ids::{AgentId, HostId, Region};
use protocol::row::Figures;
use protocol::time::Timestamp;
use protocol::top::{TopView, TopWish};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::agent::create::quantity;
use super::super::args::watch::{Top, TopSort};
use super::super::client::follow::{Came, Followed};
use super::super::client::reader::Interrupts;
use super::super::client::{Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::house::survey::unheard;
use super::super::output::pipe::{Stdout, say, stdout_is_terminal};
use super::super::output::redraw::Redraw;
use super::super::output::render::{Listed, Listing, list, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::table::Table;
use super::list::{EMPTY, filter};
use super::row::Row;
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::{duration_ms, human_size};

const INTERVAL_MS: u64 = 2_000;
const LEAST_INTERVAL_MS: u64 = 200;
const UNKNOWN: &str = "?";

pub fn run(context: &Context, args: &Top) -> Result<u8, Failure> {
    let is_table = matches!(context.format, OutputFormat::Table | OutputFormat::Wide) && !context.quiet;
    let on_screen = is_table && stdout_is_terminal() && !args.once;
    let interval_ms = match &args.interval {
        Some(text) => Some(quantity("--interval", text, duration_ms)?),
        None => on_screen.then_some(INTERVAL_MS),
    };
    if interval_ms.is_some_and(|ms| ms < LEAST_INTERVAL_MS) {
        return Err(Failure::usage(format!("--interval is at least {LEAST_INTERVAL_MS}ms")));
    }
    let wish = TopWish { filter: filter(&args.filter), interval_ms };
    if interval_ms.is_some() { go_on(context, args, &wish, on_screen) } else { once(context, args, wish) }
}

fn once(context: &Context, args: &Top, wish: TopWish) -> Result<u8, Failure> {
    let mut found = None;
    let end = context.client()?.stream(&Query::Top(wish), &Limits::default(), |item| {
        if let Item::Top(view) = item {
            found = Some(*view);
        }
        Ok(Flow::More)
    })?;
    let Some(view) = found else {
        return Err(match end {
            StreamEnd::Reply(reply) => unexpected(reply),
            _ => Failure::new(ErrorCode::Unavailable, "the manager gave no figures"),
        });
    };
    let mut out = Stdout::default();
    print(&mut out, context, args, &view)?;
    out.done()?;
    unheard(&view.unheard)?;
    Ok(exit::OK)
}

/// Until interrupted, over restarts of the manager too.
fn go_on(context: &Context, args: &Top, wish: &TopWish, on_screen: bool) -> Result<u8, Failure> {
    let interrupts = Interrupts::catch_with_redraws()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("signals cannot be caught: {error}")))?;
    let mut followed = Followed::new(context, &interrupts);
    let mut out = Stdout::default();
    let mut redraw = Redraw::default();
    let mut lines: Vec<String> = Vec::new();
    loop {
        match followed.next(|| Query::Top(wish.clone()), None)? {
            Came::Item(item) => {
                let Item::Top(view) = *item else { continue };
                if on_screen {
                    lines = screen(context, args, &view);
                    redraw.draw(&mut out, &lines)?;
                } else {
                    print(&mut out, context, args, &view)?;
                    told(&view);
                    out.flush()?;
                }
            }
            Came::End(reply) => return Err(unexpected(*reply)),
            Came::TimedOut => {}
            Came::Away if on_screen => {
                let note = "The manager is away and is waited for; this is what was measured last.";
                let noted: Vec<String> = [note.to_owned()].into_iter().chain(lines.iter().cloned()).collect();
                redraw.draw(&mut out, &noted)?;
            }
            Came::Away => say("the manager went away; it is waited for"),
            Came::Interrupted(SIGWINCH | SIGCONT) => {
                if on_screen {
                    redraw.anew(&mut out)?;
                    redraw.draw(&mut out, &lines)?;
                }
            }
            Came::Interrupted(signal) => {
                if on_screen {
                    redraw.end(&mut out)?;
                }
                out.done()?;
                return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX));
            }
        }
    }
}

/// Hosts that did not answer, without ending for it.
fn told(view: &TopView) {
    for unheard in &view.unheard {
        say(&safe_line(&unheard_words(unheard)));
    }
}

fn unheard_words(unheard: &protocol::house::Unheard) -> String {
    format!("host {} did not answer: {}", unheard.host, unheard.error.message)
}

fn screen(context: &Context, args: &Top, view: &TopView) -> Vec<String> {
    let rows = rows(args, view);
    let mut lines: Vec<String> =
        view.unheard.iter().map(|unheard| safe_line(&unheard_words(unheard))).collect();
    if rows.is_empty() {
        lines.push("No agents that fit.".to_owned());
        return lines;
    }
    lines.extend(table(&rows, context.format == OutputFormat::Wide).lines().map(str::to_owned));
    lines
}

fn print(out: &mut Stdout, context: &Context, args: &Top, view: &TopView) -> Result<(), Failure> {
    let rows = rows(args, view);
    if context.quiet {
        return rows.iter().try_for_each(|row| out.line(&row.0.agent.id.to_string()));
    }
    match &context.format {
        OutputFormat::Table | OutputFormat::Wide if rows.is_empty() => {
            say(EMPTY);
            Ok(())
        }
        OutputFormat::Table | OutputFormat::Wide => {
            out.text(&table(&rows, context.format == OutputFormat::Wide))
        }
        OutputFormat::Json => {
            let document = TopDocument {
                schema_version: SCHEMA_VERSION,
                kind: TopRow::KIND.into(),
                as_of: view.as_of,
                items: rows.iter().map(Listed::document).collect(),
                totals: Totals::of(&rows),
                unheard: &view.unheard,
            };
            out.line(&safe_json(&serde_json::to_string_pretty(&value(&document)).unwrap_or_default()))
        }
        OutputFormat::JsonLines | OutputFormat::Name | OutputFormat::Template(_) => {
            let listing = Listing { items: &rows, as_of: Some(view.as_of), note: None, empty: EMPTY };
            list(out, &context.format, &listing)
        }
    }
}

pub struct TopRow(Row);

/// What agents take of their hosts. A figure that is not known is `null`, never 0.
#[derive(Serialize, JsonSchema)]
pub struct TopDocument<'a> {
    schema_version: u32,
    kind: Cow<'static, str>,
    as_of: Timestamp,
    items: Vec<TopRowDocument>,
    totals: Totals,
    /// Hosts that did not answer.
    unheard: &'a [Unheard],
}

#[derive(Serialize, JsonSchema)]
pub struct TopRowDocument {
    id: AgentId,
    name: String,
    phase: Phase,
    host: HostId,
    region: Region,
    reachability: Reachability,
    labels: BTreeMap<String, String>,
    task: Option<TaskLink>,
    /// Since its start.
    cpu_ms: Option<u64>,
    /// Between two looks at its host; 1000 is one core.
    cpu_millis: Option<u64>,
    memory_bytes: Option<u64>,
    /// Processes and threads.
    pids: Option<u64>,
    /// What the workspace takes on the disk beyond what it shares with others.
    disk_bytes: Option<u64>,
    disk_as_of: Option<Timestamp>,
}

fn rows(args: &Top, view: &TopView) -> Vec<TopRow> {
    let agents = view.rows.iter().cloned();
    let mut rows: Vec<TopRow> = agents.map(|agent| TopRow(Row { agent, now: view.as_of })).collect();
    let figure = |row: &TopRow| {
        let figures = &row.0.agent.figures;
        match args.sort {
            TopSort::Cpu => figures.cpu_millis,
            TopSort::Memory => figures.memory_bytes,
            TopSort::Disk => figures.disk_bytes,
            TopSort::Pids => figures.pids,
            TopSort::Name => None,
        }
    };
    // What is not known comes last.
    rows.sort_by(|one, other| {
        let by_name = || one.0.agent.name.cmp(&other.0.agent.name);
        Reverse(figure(one)).cmp(&Reverse(figure(other))).then_with(by_name)
    });
    rows
}

fn table(rows: &[TopRow], wide: bool) -> String {
    let more = if wide { TopRow::WIDE } else { &[] };
    let mut table = Table::new(&TopRow::HEADER.iter().chain(more).copied().collect::<Vec<_>>());
    for row in rows {
        table.row(row.cells(wide));
    }
    let totals = Totals::of(rows);
    let cells = [
        vec!["TOTAL".to_owned(), String::new(), String::new()],
        vec![percent(totals.cpu_millis), human_size(totals.memory_bytes)],
        vec![totals.pids.to_string(), human_size(totals.disk_bytes)],
        more.iter().map(|_| String::new()).collect(),
    ];
    table.row(cells.concat());
    let mut text = table.render();
    if totals.unknown > 0 {
        text.push_str(&format!("{} of {} agents are not in these sums: ?\n", totals.unknown, rows.len()));
    }
    text
}

fn percent(millis: u64) -> String {
    format!("{}.{}%", millis / 10, millis % 10)
}

/// Sums of what is known.
#[derive(Default, Serialize, JsonSchema)]
pub struct Totals {
    agents: u64,
    /// Of how many a figure is not known.
    unknown: u64,
    cpu_millis: u64,
    memory_bytes: u64,
    pids: u64,
    disk_bytes: u64,
}

impl Totals {
    fn of(rows: &[TopRow]) -> Self {
        let mut totals = Self::default();
        for row in rows {
            let figures = &row.0.agent.figures;
            let add = |sum: &mut u64, figure: Option<u64>| *sum = sum.saturating_add(figure.unwrap_or(0));
            totals.agents += 1;
            totals.unknown += u64::from(row.lacks_some());
            add(&mut totals.cpu_millis, figures.cpu_millis);
            add(&mut totals.memory_bytes, figures.memory_bytes);
            add(&mut totals.pids, figures.pids);
            add(&mut totals.disk_bytes, figures.disk_bytes);
        }
        totals
    }
}

impl TopRow {
    fn lacks_some(&self) -> bool {
        let Figures { cpu_millis, memory_bytes, pids, disk_bytes, .. } = self.0.agent.figures;
        let of_program = [cpu_millis, memory_bytes, pids].iter().any(Option::is_none);
        disk_bytes.is_none() || (of_program && !self.0.agent.is_ended())
    }

    /// Of the program: one that has ended takes nothing.
    fn of_program(&self, figure: Option<u64>, words: impl Fn(u64) -> String) -> String {
        match figure {
            Some(value) => words(value),
            None if self.0.agent.is_ended() => String::new(),
            None => UNKNOWN.to_owned(),
        }
    }
}

impl Listed for TopRow {
    const KIND: &'static str = "TopList";
    const HEADER: &'static [&'static str] = &["NAME", "PHASE", "HOST", "CPU%", "MEM", "PIDS", "DISK"];
    const WIDE: &'static [&'static str] = &["ID", "TASK", "LABELS"];

    type Document<'a>
        = TopRowDocument
    where
        Self: 'a;

    fn document(&self) -> TopRowDocument {
        let agent = self.0.agent.clone();
        let figures = agent.figures;
        TopRowDocument {
            id: agent.id,
            name: agent.name,
            phase: agent.phase,
            host: agent.host,
            region: agent.region,
            reachability: agent.reachability,
            labels: agent.labels,
            task: agent.task,
            cpu_ms: figures.cpu_ms,
            cpu_millis: figures.cpu_millis,
            memory_bytes: figures.memory_bytes,
            pids: figures.pids,
            disk_bytes: figures.disk_bytes,
            disk_as_of: figures.disk_as_of,
        }
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        use super::columns::Column;
        let figures = &self.0.agent.figures;
        let mut cells: Vec<String> =
            [Column::Name, Column::Phase, Column::Host].map(|column| self.0.cell(column)).into();
        cells.push(self.of_program(figures.cpu_millis, percent));
        cells.push(self.of_program(figures.memory_bytes, human_size));
        cells.push(self.of_program(figures.pids, |pids| pids.to_string()));
        cells.push(figures.disk_bytes.map_or_else(|| UNKNOWN.to_owned(), human_size));
        if wide {
            cells.extend([Column::Id, Column::Task, Column::Labels].map(|column| self.0.cell(column)));
        }
        cells
    }
}
