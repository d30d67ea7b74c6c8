//! `gc`: a survey, what would go, a yes, and one outcome for each thing.

use std::collections::BTreeMap;
use std::io::BufRead;

use protocol::api::{Action, Mutation, Reply};
use protocol::error::ErrorCode;
use protocol::house::HouseItem;
use protocol::ids::HostId;
use protocol::order::Discard;
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::agent::create::quantity;
use super::super::args::house::{Gc, What};
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, can_ask, say, say_bytes};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::{age, now};
use super::plan::{Planned, Wish, plan};
use super::survey::{Looks, survey, unheard};
use manager_plan::runfile::units::{duration_ms, human_size, size_bytes};

/// Things of one request: each is waited for.
const BATCH: usize = 50;

pub fn run(context: &Context, args: &Gc) -> Result<u8, Failure> {
    let older_ms = quantity("--older", &args.older, duration_ms)?;
    let keep_size =
        args.keep_size.as_deref().map(|text| quantity("--keep-size", text, size_bytes)).transpose()?;
    let mut client = context.client()?;
    let looks = Looks { deep: true, blobs: args.what.contains(&What::Blobs) };
    let found = survey(&mut client, Vec::new(), looks)?;
    let wish = Wish { what: &args.what, older_ms, keep_size, discard: args.discard, now: now() };
    let mut rows: Vec<Row> = plan(found.holdings, &wish).into_iter().map(Row::planned).collect();
    let going = rows.iter().filter(|row| row.outcome == Outcome::Goes).count();
    if !args.dry_run && going > 0 {
        let bytes = sum(&rows, Outcome::Goes);
        confirm(args.yes, &format!("take away {going} things ({})", human_size(bytes)))?;
        carry_out(&mut client, args, older_ms, &mut rows)?;
    }
    show(context, args.dry_run, &rows)?;
    unheard(&found.unheard)?;
    Ok(exit::OK)
}

fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !can_ask() {
        return Err(
            Failure::usage(format!("to {what} needs a yes")).hint("add --yes, or look with --dry-run")
        );
    }
    say_bytes(safe_line(&format!("{what}? Type yes to go on: ")).as_bytes());
    let mut answer = String::new();
    match std::io::stdin().lock().read_line(&mut answer) {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(Failure::new(ErrorCode::Denied, "gc was not confirmed; nothing was done")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "GcOutcome")]
pub enum Outcome {
    #[serde(rename = "would-go")]
    Goes,
    Gone,
    Kept,
}

pub struct Row {
    planned: Planned,
    outcome: Outcome,
}

impl Row {
    fn planned(planned: Planned) -> Self {
        let outcome = if planned.kept.is_none() { Outcome::Goes } else { Outcome::Kept };
        Self { planned, outcome }
    }

    fn settle(&mut self, kept: Option<String>) {
        self.outcome = if kept.is_none() { Outcome::Gone } else { Outcome::Kept };
        self.planned.kept = kept;
    }
}

fn sum(rows: &[Row], outcome: Outcome) -> u64 {
    let of_it = rows.iter().filter(|row| row.outcome == outcome);
    of_it.fold(0, |sum: u64, row| sum.saturating_add(row.planned.holding.bytes))
}

fn carry_out(client: &mut Client, args: &Gc, older_ms: u64, rows: &mut [Row]) -> Result<(), Failure> {
    let (mut agents, mut runs, mut blobs): (Vec<&mut Row>, Vec<&mut Row>, Vec<&mut Row>) = Default::default();
    let mut others: BTreeMap<HostId, Vec<&mut Row>> = BTreeMap::new();
    for row in rows.iter_mut().filter(|row| row.outcome == Outcome::Goes) {
        match (&row.planned.holding.item, &row.planned.host) {
            (HouseItem::Workspace { .. }, _) => agents.push(row),
            (_, Some(host)) => others.entry(host.clone()).or_default().push(row),
            (HouseItem::Blob { .. } | HouseItem::Cut { .. }, None) => blobs.push(row),
            (_, None) => runs.push(row),
        }
    }
    for batch in agents.chunks_mut(BATCH) {
        destroy(client, batch)?;
    }
    let discard = if args.discard { Discard::Yes } else { Discard::Keep };
    for (host, mut rows) in others {
        for batch in rows.chunks_mut(BATCH) {
            free(client, &host, older_ms, discard, batch)?;
        }
    }
    for batch in runs.chunks_mut(BATCH) {
        free_runs(client, older_ms, batch)?;
    }
    for batch in blobs.chunks_mut(BATCH) {
        let items = batch.iter().map(|row| row.planned.holding.item.clone()).collect();
        let reply = client.ask(&Action::FreeBlobs { items, older_ms })?;
        settle(reply, batch)?;
    }
    Ok(())
}

/// The host decides, and never for the loss of work: `--discard` does not reach here.
fn destroy(client: &mut Client, batch: &mut [&mut Row]) -> Result<(), Failure> {
    let targets = batch.iter().filter_map(|row| match row.planned.holding.item {
        HouseItem::Workspace { agent } => Some(agent.to_string()),
        _ => None,
    });
    let request = Mutation::DestroyAgents {
        key: request_key(None)?,
        targets: targets.collect(),
        discard: Discard::Keep,
    };
    match client.ask(&request)? {
        Reply::Outcomes(outcomes) => {
            for (row, outcome) in batch.iter_mut().zip(outcomes) {
                row.settle(outcome.error.map(|error| error.message));
            }
            Ok(())
        }
        other => Err(unexpected(other)),
    }
}

fn free(
    client: &mut Client,
    host: &HostId,
    older_ms: u64,
    discard: Discard,
    batch: &mut [&mut Row],
) -> Result<(), Failure> {
    let items: Vec<HouseItem> = batch.iter().map(|row| row.planned.holding.item.clone()).collect();
    let reply = client.ask(&Action::Free { host: host.clone(), items, older_ms, discard })?;
    settle(reply, batch)
}

fn free_runs(client: &mut Client, older_ms: u64, batch: &mut [&mut Row]) -> Result<(), Failure> {
    let runs = batch.iter().filter_map(|row| match row.planned.holding.item {
        HouseItem::Run { run } => Some(run),
        _ => None,
    });
    let reply =
        client.ask(&Mutation::FreeRuns { key: request_key(None)?, runs: runs.collect(), older_ms })?;
    settle(reply, batch)
}

fn settle(reply: Reply, batch: &mut [&mut Row]) -> Result<(), Failure> {
    let outcomes = match reply {
        Reply::Freed(outcomes) => outcomes,
        other => return Err(unexpected(other)),
    };
    for row in batch {
        let outcome = outcomes.iter().find(|outcome| outcome.item == row.planned.holding.item);
        row.settle(match outcome {
            Some(outcome) => outcome.kept.clone(),
            None => Some("nothing was said of it".to_owned()),
        });
    }
    Ok(())
}

fn show(context: &Context, dry_run: bool, rows: &[Row]) -> Result<(), Failure> {
    let mut out = Stdout::default();
    let empty = "There is nothing to take away.";
    list(&mut out, &context.format, &Listing { items: rows, as_of: None, note: None, empty })?;
    out.done()?;
    if context.quiet || rows.is_empty() {
        return Ok(());
    }
    let (outcome, verb) = if dry_run { (Outcome::Goes, "would go") } else { (Outcome::Gone, "went") };
    let count = rows.iter().filter(|row| row.outcome == outcome).count();
    let kept = rows.len() - count;
    say(&format!("{count} things {verb}, {}; {kept} stay", human_size(sum(rows, outcome))));
    Ok(())
}

/// What it is, in a word, and what it is called.
fn words(item: &HouseItem, label: &str) -> (&'static str, String) {
    match item {
        HouseItem::Workspace { .. } => ("agent", label.to_owned()),
        HouseItem::Transcript { .. } => ("transcript", label.to_owned()),
        HouseItem::Outputs { .. } => ("outputs", label.to_owned()),
        HouseItem::Archive { .. } => ("destroyed agent", label.to_owned()),
        HouseItem::Base { .. } => ("base", label.chars().take(12).collect()),
        HouseItem::Ref { name, .. } => ("ref", name.clone()),
        HouseItem::Group { .. } => ("cgroup", label.to_owned()),
        HouseItem::Session { .. } => ("session", label.to_owned()),
        HouseItem::Socket { path } => ("socket", path.clone()),
        HouseItem::Run { .. } => ("run", label.to_owned()),
        HouseItem::Blob { .. } => ("blob", label.chars().take(12).collect()),
        HouseItem::Cut { .. } => ("cut blob", label.chars().take(12).collect()),
    }
}

/// One thing that could go, and what became of it.
#[derive(Serialize, JsonSchema)]
pub struct ItemDocument<'a> {
    what: &'a str,
    name: String,
    item: &'a HouseItem,
    /// None of what the manager holds itself.
    host: Option<&'a HostId>,
    bytes: u64,
    /// When it was last needed.
    since: Timestamp,
    outcome: Outcome,
    /// Why it stays.
    kept: Option<&'a str>,
}

impl Listed for Row {
    const KIND: &'static str = "HouseItemList";
    const HEADER: &'static [&'static str] = &["WHAT", "NAME", "HOST", "SIZE", "AGE", "OUTCOME"];
    const WIDE: &'static [&'static str] = &["ITEM"];

    type Document<'a>
        = ItemDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> ItemDocument<'_> {
        let holding = &self.planned.holding;
        let (what, name) = words(&holding.item, &holding.label);
        ItemDocument {
            what,
            name,
            item: &holding.item,
            host: self.planned.host.as_ref(),
            bytes: holding.bytes,
            since: holding.since,
            outcome: self.outcome,
            kept: self.planned.kept.as_deref(),
        }
    }

    fn name(&self) -> String {
        let holding = &self.planned.holding;
        words(&holding.item, &holding.label).1
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let holding = &self.planned.holding;
        let (what, name) = words(&holding.item, &holding.label);
        let outcome = match (self.outcome, &self.planned.kept) {
            (Outcome::Goes, _) => "would go".to_owned(),
            (Outcome::Gone, _) => "gone".to_owned(),
            (Outcome::Kept, why) => format!("kept: {}", why.as_deref().unwrap_or_default()),
        };
        let mut cells = vec![
            what.to_owned(),
            name,
            self.planned.host.as_ref().map(ToString::to_string).unwrap_or_default(),
            if holding.bytes > 0 { human_size(holding.bytes) } else { String::new() },
            age(now(), holding.since),
            outcome,
        ];
        if wide {
            cells.push(serde_json::to_string(&holding.item).unwrap_or_default());
        }
        cells
    }
}
