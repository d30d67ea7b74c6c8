//! `merge`: accepted work of a run into one branch. The merge is the manager's and goes on without us.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::api::{Item, MergeRun, Mutation, Query, Reply, SCHEMA_VERSION};
use protocol::error::ErrorCode;
use protocol::ids::{HostId, Name, RunId};
use protocol::merge::{MergeOutcome, MergeRow, MergeState, MergeView};
use protocol::task::{TaskState, TaskView};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::review::Merge;
use super::super::client::reader::Interrupts;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::table::some_of;
use super::super::run::list::{named_or_latest, whole};
use super::decide::person;
use manager_plan::config::format::OutputFormat;

/// A manager that was restarted answers again within this time.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(200);

pub fn run(context: &Context, args: &Merge) -> Result<u8, Failure> {
    let key = request_key(args.key.as_deref())?;
    let mut client = context.client()?;
    let run = named_or_latest(&mut client, args.run.as_deref())?;
    let request = Mutation::MergeRun(Box::new(MergeRun {
        key: key.clone(),
        run,
        into: args.into.clone(),
        tasks: args.tasks.clone(),
        dry_run: args.dry_run,
        verify: !args.no_verify,
        message: args.message.clone(),
        by: person(),
    }));
    let begun = match client.ask(&request).map_err(|failure| with_key(failure, "phalanx merge", &key))? {
        Reply::Merge(view) => *view,
        other => return Err(unexpected(other)),
    };
    let view = until_over(context, client, &begun)?;
    show(context, &view)
}

enum Followed {
    Over(Box<MergeView>),
    Interrupted(i32),
}

/// Over a restart of the manager it is followed anew.
fn until_over(context: &Context, client: Client, begun: &MergeView) -> Result<MergeView, Failure> {
    let interrupts = Interrupts::catch()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("cannot catch Ctrl-C: {error}")))?;
    let mut told = Told { quiet: context.quiet, before: BTreeMap::new(), rounds: 0, checking: None };
    let (mut client, mut away) = (Some(client), None::<Instant>);
    let end = loop {
        let connected = client.take().map_or_else(|| context.client(), Ok);
        match connected.and_then(|mut client| follow(&mut client, begun, &interrupts, &mut told)) {
            Err(failure)
                if failure.exit_code() == exit::UNAVAILABLE
                    && away.get_or_insert_with(Instant::now).elapsed() < PATIENCE =>
            {
                if let Some(signal) = interrupts.wait(CONNECT_AGAIN_AFTER) {
                    break Followed::Interrupted(signal);
                }
            }
            other => break other?,
        }
    };
    match end {
        Followed::Over(view) => Ok(*view),
        Followed::Interrupted(signal) => {
            say(&format!("the merge goes on; look again with: phalanx tasks {}", begun.run));
            let terminated = signal == Signal::SIGTERM as i32;
            Err(Failure::Told(if terminated { exit::TERMINATED } else { exit::INTERRUPTED }))
        }
    }
}

fn follow(
    client: &mut Client,
    begun: &MergeView,
    interrupts: &Interrupts,
    told: &mut Told,
) -> Result<Followed, Failure> {
    let mut last = None;
    let limits = Limits { deadline: None, interrupts: Some(interrupts) };
    let request = Query::FollowMerge { run: begun.run.to_string() };
    let end = client.stream(&request, &limits, |item| {
        let Item::Merge(view) = item else { return Ok(Flow::More) };
        // Asked again under its key, a merge may be followed by another one long since.
        let ours = view.number == begun.number;
        if ours {
            told.progress(&view);
        }
        let over = !ours || view.state != MergeState::UnderWay;
        last = Some(view).filter(|_| ours);
        Ok(if over { Flow::Enough } else { Flow::More })
    })?;
    match (end, last) {
        (StreamEnd::Interrupted(signal), _) => Ok(Followed::Interrupted(signal)),
        (_, Some(view)) if view.state != MergeState::UnderWay => Ok(Followed::Over(view)),
        (_, Some(_)) => Err(Failure::new(ErrorCode::Unavailable, "how the merge ended is not known")),
        (_, None) => Err(Failure::new(ErrorCode::Conflict, "another merge of the run came after this one")
            .hint("phalanx tasks shows what is MERGED")),
    }
}

/// A line for each thing that is decided.
struct Told {
    quiet: bool,
    before: BTreeMap<String, MergeOutcome>,
    rounds: u32,
    checking: Option<String>,
}

impl Told {
    fn progress(&mut self, view: &MergeView) {
        if self.quiet {
            return;
        }
        if view.rounds > self.rounds {
            self.rounds = view.rounds;
            self.before.clear();
            say(&safe_line(&format!("{} has moved; begun anew from where it is", view.into)));
        }
        for row in &view.rows {
            let name = row.name.to_string();
            let before = self.before.insert(name.clone(), row.outcome).unwrap_or(MergeOutcome::Waiting);
            if before != row.outcome {
                let reason = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
                say(&safe_line(&format!("{name} {}{reason}", outcome(row.outcome, view.dry_run))));
            }
        }
        if self.checking != view.checking {
            self.checking.clone_from(&view.checking);
            if let Some(checking) = &view.checking {
                say(&safe_line(&format!("verifying the whole: {checking}")));
            }
        }
    }
}

/// One task's work, and whether this was only looked at.
pub struct Row<'a> {
    of: &'a MergeRow,
    dry_run: bool,
}

/// A merge, and what became of each task's work.
#[derive(Serialize, JsonSchema)]
pub struct MergeDocument<'a> {
    schema_version: u32,
    kind: Cow<'static, str>,
    run: RunId,
    run_name: &'a Name,
    /// Counts the merges of a run.
    number: u32,
    by: &'a str,
    host: &'a HostId,
    /// Path of the repository on its host.
    repo: &'a str,
    /// The branch.
    into: &'a str,
    dry_run: bool,
    verify: bool,
    state: MergeState,
    reason: &'a str,
    remedy: &'a str,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// The branch before and after.
    from: Option<&'a str>,
    to: Option<&'a str>,
    /// Times that the branch moved meanwhile, so that it was begun anew.
    rounds: u32,
    /// Which verification of all that was merged is under way, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    checking: Option<&'a str>,
    /// In the order in which they are merged.
    items: &'a [MergeRow],
}

fn document(view: &MergeView) -> MergeDocument<'_> {
    let MergeView {
        run,
        run_name,
        number,
        by,
        host,
        repo,
        into,
        dry_run,
        verify,
        state,
        reason,
        remedy,
        started_at,
        ended_at,
        from,
        to,
        rounds,
        rows,
        checking,
    } = view;
    MergeDocument {
        schema_version: SCHEMA_VERSION,
        kind: Row::KIND.into(),
        run: *run,
        run_name,
        number: *number,
        by,
        host,
        repo,
        into,
        dry_run: *dry_run,
        verify: *verify,
        state: *state,
        reason,
        remedy,
        started_at: *started_at,
        ended_at: *ended_at,
        from: from.as_deref(),
        to: to.as_deref(),
        rounds: *rounds,
        checking: checking.as_deref(),
        items: rows,
    }
}

impl Listed for Row<'_> {
    const KIND: &'static str = "Merge";
    const HEADER: &'static [&'static str] = &["TASK", "OUTCOME", "MERGED", "REASON"];
    const WIDE: &'static [&'static str] = &["COMMIT", "BRANCH", "AGENT"];

    type Document<'a>
        = &'a MergeRow
    where
        Self: 'a;

    fn document(&self) -> &MergeRow {
        self.of
    }

    fn name(&self) -> String {
        self.of.name.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let row = self.of;
        let short = |id: &str| id.chars().take(12).collect::<String>();
        let mut cells = vec![
            row.name.to_string(),
            outcome(row.outcome, self.dry_run),
            row.merged.as_deref().map(short).unwrap_or_default(),
            row.reason.clone(),
        ];
        if wide {
            cells.extend([
                row.commit.clone(),
                row.branch.clone().unwrap_or_default(),
                row.agent.map(|agent| agent.to_string()).unwrap_or_default(),
            ]);
        }
        cells
    }
}

fn show(context: &Context, view: &MergeView) -> Result<u8, Failure> {
    let rows: Vec<Row<'_>> = view.rows.iter().map(|of| Row { of, dry_run: view.dry_run }).collect();
    let mut out = Stdout::default();
    match &context.format {
        OutputFormat::Json => {
            let text = serde_json::to_string_pretty(&value(&document(view))).unwrap_or_default();
            out.line(&safe_json(&text))?;
        }
        _ if context.quiet => {}
        format => list(&mut out, format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?,
    }
    out.done()?;
    let code = code_of(view);
    if view.state == MergeState::Refused {
        let failure = Failure::new(ErrorCode::Conflict, format!("{}; nothing was merged", view.reason));
        return Err(if view.remedy.is_empty() { failure } else { failure.hint(view.remedy.clone()) });
    }
    if !context.quiet && !context.format.is_json() {
        // Of no weight: without it the merge is told all the same.
        let others = context.client().and_then(|mut client| whole(&mut client, &view.run.to_string()));
        tell(view, &others.map(|(_, tasks)| tasks).unwrap_or_default());
    }
    Ok(code)
}

fn outcome(outcome: MergeOutcome, dry_run: bool) -> String {
    match outcome {
        MergeOutcome::Merged if dry_run => "would-merge".to_owned(),
        other => other.to_string(),
    }
}

/// What was done, and what of the run had no part in it.
fn tell(view: &MergeView, others: &[TaskView]) {
    for row in view.rows.iter().filter(|row| row.outcome == MergeOutcome::Conflict) {
        let side = row.branch.as_deref().unwrap_or(&row.commit);
        for file in &row.files {
            say(&safe_line(&format!("  {}: {} against {side}", file.path, view.into)));
        }
    }
    let count = |is: fn(MergeOutcome) -> bool| view.rows.iter().filter(|row| is(row.outcome)).count();
    let (taken, total) = (count(MergeOutcome::is_in), view.rows.len());
    let already = count(|outcome| outcome == MergeOutcome::Already);
    let would = if view.dry_run { "would be " } else { "" };
    let at = view.to.as_deref().map(|id| id.chars().take(12).collect::<String>()).unwrap_or_default();
    let at = if taken == 0 || at.is_empty() { String::new() } else { format!(", at {at}") };
    let already = match already {
        0 => String::new(),
        all if all == total => " (all were there already)".to_owned(),
        some => format!(" ({some} of them were there already)"),
    };
    say(&safe_line(&format!("{taken} of {total} tasks {would}merged into {}{at}{already}", view.into)));
    for state in
        [TaskState::Review, TaskState::Verifying, TaskState::Running, TaskState::Assigned, TaskState::Queued]
    {
        let of_state = others.iter().filter(|task| task.state == state);
        let names = some_of(of_state.map(|task| task.spec.name.as_str()));
        if !names.is_empty() {
            say(&safe_line(&format!("  not accepted yet: {names} ({state})")));
        }
    }
}

/// 0 all merged, 7 some, 8 none, 5 refused.
fn code_of(view: &MergeView) -> u8 {
    let taken = view.rows.iter().filter(|row| row.outcome.is_in()).count();
    match view.state {
        MergeState::Refused => exit::CONFLICT,
        MergeState::Done | MergeState::UnderWay | MergeState::Unknown => match taken {
            taken if taken == view.rows.len() => exit::OK,
            0 => exit::NONE_ACCEPTED,
            _ => exit::SOME_ACCEPTED,
        },
    }
}
