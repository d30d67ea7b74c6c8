//! `snapshot create|ls|restore`, and `clone`: work that is in no commit, kept, put back, or given to another agent.

use protocol::agent::{Checkout, CheckoutKind};
use protocol::api::{Action, AgentView, Reply};
use protocol::error::ErrorCode;
use protocol::snapshot::{Restored, Snapshot, SnapshotCall, SnapshotWish};
use protocol::time::Timestamp;

use super::super::agent::create;
use super::super::agent::select;
use super::super::args::agent::{Create, Workspace};
use super::super::args::settings::{CloneAgent, SnapshotCommand};
use super::super::client::Client;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::{age, now};
use manager_plan::config::format::OutputFormat;

pub(super) fn snapshot(context: &Context, command: &SnapshotCommand) -> Result<u8, Failure> {
    let mut client = context.client()?;
    match command {
        SnapshotCommand::Create { agent, include_ignored } => {
            let taken = take(&mut client, agent, *include_ignored)?;
            warn(&taken);
            show(context, vec![taken])
        }
        SnapshotCommand::Ls { agent } => {
            let all = snapshots(&mut client, agent, SnapshotCall::List)?;
            show(context, all)
        }
        SnapshotCommand::Restore { agent, number } => {
            match client.ask(&ask(agent, SnapshotCall::Restore { number: *number }))? {
                Reply::Restored(restored) => show_restored(context, agent, &restored),
                other => Err(unexpected(other)),
            }
        }
    }
}

fn ask(agent: &str, call: SnapshotCall) -> Action {
    Action::Snapshot(SnapshotWish { target: agent.to_owned(), call })
}

fn snapshots(client: &mut Client, agent: &str, call: SnapshotCall) -> Result<Vec<Snapshot>, Failure> {
    match client.ask(&ask(agent, call))? {
        Reply::Snapshots(snapshots) => Ok(snapshots),
        other => Err(unexpected(other)),
    }
}

fn take(client: &mut Client, agent: &str, include_ignored: bool) -> Result<Snapshot, Failure> {
    let taken = snapshots(client, agent, SnapshotCall::Take { include_ignored })?;
    taken.into_iter().next().ok_or_else(|| Failure::new(ErrorCode::Failed, "the host took no snapshot"))
}

/// What is not in it is said at once: a restore cannot bring it back.
fn warn(taken: &Snapshot) {
    if taken.not_saved.is_empty() {
        return;
    }
    let hint = if taken.ignored { "" } else { "; ignored files are kept with --include-ignored" };
    say(&safe_line(&format!("not in the snapshot: {}{hint}", taken.not_saved.join(", "))));
}

pub struct Row {
    snapshot: Snapshot,
    now: Timestamp,
}

impl Listed for Row {
    const KIND: &'static str = "SnapshotList";
    const HEADER: &'static [&'static str] = &["SNAPSHOT", "AGE", "FILES", "IGNORED", "NOT SAVED"];
    const WIDE: &'static [&'static str] = &["COMMIT", "HEAD", "REF"];

    type Document<'a>
        = &'a Snapshot
    where
        Self: 'a;

    fn document(&self) -> &Snapshot {
        &self.snapshot
    }

    fn name(&self) -> String {
        self.snapshot.number.to_string()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let snapshot = &self.snapshot;
        let mut cells = vec![
            snapshot.number.to_string(),
            age(self.now, snapshot.at),
            snapshot.files.to_string(),
            if snapshot.ignored { "kept" } else { "left out" }.to_owned(),
            snapshot.not_saved.join(", "),
        ];
        if wide {
            cells.extend([snapshot.commit.clone(), snapshot.head.clone(), snapshot.ref_name.clone()]);
        }
        cells
    }
}

fn show(context: &Context, snapshots: Vec<Snapshot>) -> Result<u8, Failure> {
    let now = now();
    let rows: Vec<Row> = snapshots.into_iter().map(|snapshot| Row { snapshot, now }).collect();
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.name()))?;
    } else {
        let empty = "No snapshots. Take one: phalanx snapshot create AGENT";
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty })?;
    }
    out.done()?;
    Ok(exit::OK)
}

pub struct RestoredRow(Restored);

impl Listed for RestoredRow {
    const KIND: &'static str = "RestoreList";
    const HEADER: &'static [&'static str] = &["RESTORED", "BEFORE", "WRITTEN", "DELETED", "LEFT"];
    const WIDE: &'static [&'static str] = &[];

    type Document<'a>
        = &'a Restored
    where
        Self: 'a;

    fn document(&self) -> &Restored {
        &self.0
    }

    fn name(&self) -> String {
        self.0.from.number.to_string()
    }

    fn cells(&self, _wide: bool) -> Vec<String> {
        let Restored { from, before, written, deleted, left } = &self.0;
        vec![
            from.number.to_string(),
            before.number.to_string(),
            written.to_string(),
            deleted.to_string(),
            left.join(", "),
        ]
    }
}

fn show_restored(context: &Context, agent: &str, restored: &Restored) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    if context.quiet {
        out.line(&restored.before.number.to_string())?;
    } else if matches!(context.format, OutputFormat::Table) {
        let Restored { from, before, written, deleted, left } = restored;
        out.line(&safe_line(&format!(
            "{agent} is as in snapshot {} ({written} written, {deleted} deleted); what was there is snapshot {}",
            from.number, before.number
        )))?;
        if !left.is_empty() {
            say(&safe_line(&format!("left as they are, newer than the snapshot: {}", left.join(", "))));
        }
    } else {
        let rows = [RestoredRow(restored.clone())];
        list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: "" })?;
    }
    out.done()?;
    Ok(exit::OK)
}

/// A new agent that begins with what the other one has now.
pub(super) fn clone(context: &Context, args: &CloneAgent) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let source = select::one(&mut client, &args.source)?;
    if source.spec.checkout.is_none() {
        return Err(Failure::new(ErrorCode::Conflict, "its workspace is no checkout of a repository")
            .hint("phalanx create makes a new agent; its files can be copied by hand"));
    }
    if source.spec.has_environment {
        say("the values of its environment are not copied: give them again with --env");
    }
    // The words are checked before anything is taken.
    let (create, mut request) = create::request_like(context, args, &source)?;
    let taken = take(&mut client, &source.id.to_string(), args.include_ignored)?;
    warn(&taken);
    request.spec.checkout = Some(checkout(&source, &request.spec.name, taken)?);
    drop(client);
    create::submit_and_show(context, &create, request)
}

fn checkout(source: &AgentView, name: &protocol::ids::Name, taken: Snapshot) -> Result<Checkout, Failure> {
    let leaf = create::leaf(name)?;
    let kind = source.spec.checkout.as_ref().map_or(CheckoutKind::Auto, |checkout| checkout.kind);
    Ok(Checkout {
        repo: taken.repo,
        commit: taken.head,
        branch: Some(format!("phalanx/adhoc/{leaf}")),
        kind,
        result_ref: Some(format!("refs/phalanx/adhoc/{leaf}")),
        near: None,
        snapshot: Some(taken.commit),
        prepare: None,
        copy: Vec::new(),
    })
}

/// The words of a `create` that says what a `clone` says.
pub(in super::super) fn words_of(args: &CloneAgent) -> Create {
    Create {
        name: args.name.clone(),
        profile: None,
        program: args.program.clone(),
        repo: None,
        base: None,
        workspace: Workspace::Auto,
        labels: args.labels.clone(),
        environment: args.environment.clone(),
        env_file: Vec::new(),
        cpu: args.cpu.clone(),
        memory: args.memory.clone(),
        pids: args.pids,
        timeout: args.timeout.clone(),
        grace: None,
        host: None,
        user: None,
        key: args.key.clone(),
        no_wait: args.no_wait,
    }
}
