//! `run`: repositories resolved, prompts uploaded, the run sent, and waited for.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::api::{Action, AddTasks, Mutation, Query, Reply, SubmitRun};
use protocol::error::ErrorCode;
use protocol::ids::{Name, RequestKey, RunId};
use protocol::order::ResolvedBase;
use protocol::task::{RunSpec, RunView, SubmitTask, TaskState};

use super::super::args::run::Run;
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::progress::count;
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::plan::{self, PlannedRow};
use super::view::{RunRow, counts, exit_of};
use super::{follow, list as runs, stream};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::Plan;
use manager_plan::runfile::problem::PROBLEM_LIMIT;
use manager_plan::runfile::task::{PlannedTask, RepoRequest};

/// A blob travels in pieces of this size.
const BLOB_PIECE: usize = 512 << 10;

pub(super) type Resolved = BTreeMap<RepoRequest, ResolvedBase>;

pub fn run(context: &Context, args: &Run) -> Result<u8, Failure> {
    if args.follow {
        return stream::run(context, args);
    }
    if let Some(target) = &args.resume {
        return resume(context, args, target);
    }
    let plan = plan::read(args, &context.settings)?;
    if args.dry_run {
        return dry_run(context, args, &plan);
    }
    let key = request_key(args.key.as_deref())?;
    let mut client = context.client()?;
    plan::check_hooks(context, args, &plan)?;
    let mut resolved = Resolved::new();
    resolve(&mut client, &plan, &mut resolved)?;
    upload(&mut client, &plan)?;
    let run = submit(&mut client, plan, &resolved, &key, Ending::Closed)?;
    finish(context, args, client, run)
}

/// Adds what is given, closes the run and waits for it.
fn resume(context: &Context, args: &Run, target: &str) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let view = runs::one(&mut client, target)?;
    let run = view.id;
    if args.file.is_some() {
        let plan = plan::read(args, &context.settings)?;
        if plan.notify.iter().any(|asked| !view.spec.notify.contains(&asked.told)) {
            say("note: who is told of a run is said when it begins; `notify` of this file changes nothing");
        }
        let key = request_key(args.key.as_deref())?;
        let mut resolved = Resolved::new();
        resolve(&mut client, &plan, &mut resolved)?;
        upload(&mut client, &plan)?;
        add(&mut client, run, plan, &resolved, &key)?;
    }
    close(&mut client, run)?;
    finish(context, args, client, run)
}

/// What follows a submission: a look at it, or the wait for its end.
pub(super) fn finish(context: &Context, args: &Run, mut client: Client, run: RunId) -> Result<u8, Failure> {
    let name_hint = format!("phalanx tasks {run}; phalanx cancel {run}");
    if context.quiet {
        let mut out = Stdout::default();
        out.line(&run.to_string())?;
        out.done()?;
    }
    if args.detach {
        let view = runs::one(&mut client, &run.to_string())?;
        if !context.quiet {
            say(&safe_line(&format!("run {} goes on; look at it with: {name_hint}", view.spec.name)));
            show(context, view)?;
        }
        return Ok(exit::OK);
    }
    let view = follow::until_over(context, client, run)?;
    let code = exit_of(&view);
    if !context.quiet {
        summary(context, view)?;
    }
    Ok(code)
}

fn dry_run(context: &Context, args: &Run, plan: &Plan) -> Result<u8, Failure> {
    plan::check_hooks(context, args, plan)?;
    if plan.tasks.iter().any(|task| task.repo.is_some()) {
        match context.running() {
            Some(client) => {
                resolve(&mut client?, plan, &mut Resolved::new())?;
            }
            None => say("note: repositories were not looked at, since the manager is not running"),
        }
    }
    let rows: Vec<PlannedRow<'_>> = plan.tasks.iter().map(PlannedRow).collect();
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: None, note: None, empty: "No tasks." })?;
    out.done()?;
    say(&format!("{} tasks are right; nothing was sent (--dry-run)", rows.len()));
    Ok(exit::OK)
}

/// Each repository and base once, but those that are known. All that are wrong are told.
pub(super) fn resolve(client: &mut Client, plan: &Plan, resolved: &mut Resolved) -> Result<(), Failure> {
    let mut wrong: Vec<(ErrorCode, String)> = Vec::new();
    for task in &plan.tasks {
        let Some(wanted) = &task.repo else { continue };
        if resolved.contains_key(wanted) || wrong.len() >= PROBLEM_LIMIT {
            continue;
        }
        let repo = wanted.path.to_string_lossy().into_owned();
        match client.ask(&Query::ResolveRepo { repo: repo.clone(), base: wanted.base.clone() }) {
            Ok(Reply::Resolved(base)) => {
                if base.dirty {
                    say(&safe_line(&format!(
                        "warning: {} has changes that are not committed; tasks start from {} without them",
                        base.repo,
                        super::super::agent::create::short(&base.commit)
                    )));
                }
                resolved.insert(wanted.clone(), base);
            }
            Ok(other) => return Err(unexpected(other)),
            Err(Failure::Error { error, .. }) if !error.code.is_retryable() => {
                let hint =
                    if error.hint.is_empty() { String::new() } else { format!(" (try: {})", error.hint) };
                let said =
                    format!("task {:?}: repo {repo}: {}{hint}", task.spec.name.as_str(), error.message);
                if !wrong.iter().any(|(_, before)| before.ends_with(&error.message)) {
                    wrong.push((error.code, said));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    match wrong.first() {
        None => Ok(()),
        Some((code, _)) => {
            let lines: Vec<&str> = wrong.iter().map(|(_, said)| said.as_str()).collect();
            Err(Failure::new(*code, format!("nothing was sent\n{}", lines.join("\n"))))
        }
    }
}

/// Each prompt once.
pub(super) fn upload(client: &mut Client, plan: &Plan) -> Result<(), Failure> {
    let mut blobs: BTreeMap<&str, &Arc<[u8]>> = BTreeMap::new();
    for task in &plan.tasks {
        if let (Some(blob), Some(bytes)) = (&task.spec.prompt, &task.prompt) {
            blobs.insert(&blob.sha256, bytes);
        }
    }
    for (sha256, bytes) in blobs {
        upload_blob(client, sha256, bytes)?;
    }
    Ok(())
}

/// One blob, in pieces.
pub fn upload_blob(client: &mut Client, sha256: &str, bytes: &[u8]) -> Result<(), Failure> {
    let pieces = bytes.len().div_ceil(BLOB_PIECE);
    let mut offset = 0_u64;
    for (piece, number) in bytes.chunks(BLOB_PIECE).zip(1..) {
        let request = Action::PutBlob {
            sha256: sha256.to_owned(),
            offset,
            bytes: piece.to_vec(),
            last: number == pieces,
        };
        match client.ask(&request)? {
            Reply::Stored | Reply::Done => {}
            other => return Err(unexpected(other)),
        }
        offset = offset.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
    }
    Ok(())
}

/// Whether more tasks may come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Open,
    Closed,
}

fn tasks_of(tasks: Vec<PlannedTask>, resolved: &Resolved) -> Vec<SubmitTask> {
    let submitted = tasks.into_iter().map(|mut task| {
        if let Some(base) = task.repo.as_ref().and_then(|repo| resolved.get(repo)) {
            task.spec.repo = Some(base.repo.clone());
            task.spec.base_commit = Some(base.commit.clone());
        }
        SubmitTask { spec: task.spec, environment: task.environment }
    });
    submitted.collect()
}

pub(super) fn submit(
    client: &mut Client,
    plan: Plan,
    resolved: &Resolved,
    key: &RequestKey,
    ending: Ending,
) -> Result<RunId, Failure> {
    let name = match plan.name {
        Some(name) => name,
        None => "run".parse::<Name>().map_err(|error| Failure::usage(error.to_string()))?,
    };
    let open = ending == Ending::Open;
    let (max_parallel, labels, caps) = (plan.max_parallel, plan.labels, plan.caps);
    let notify = plan.notify.into_iter().map(|asked| asked.told).collect();
    let submit = SubmitRun {
        key: key.clone(),
        run: RunSpec { name, max_parallel, labels, caps, notify, open },
        tasks: tasks_of(plan.tasks, resolved),
    };
    submitted(client, &Mutation::SubmitRun(Box::new(submit)), key)
}

pub(super) fn add(
    client: &mut Client,
    run: RunId,
    plan: Plan,
    resolved: &Resolved,
    key: &RequestKey,
) -> Result<RunId, Failure> {
    let (run, tasks) = (run.to_string(), tasks_of(plan.tasks, resolved));
    submitted(client, &Mutation::AddTasks(Box::new(AddTasks { key: key.clone(), run, tasks })), key)
}

fn submitted(client: &mut Client, request: &Mutation, key: &RequestKey) -> Result<RunId, Failure> {
    match client.ask(request) {
        Ok(Reply::Submitted { run, .. }) => Ok(run),
        Ok(other) => Err(unexpected(other)),
        Err(failure) => Err(with_key(failure, "phalanx run", key)),
    }
}

pub(super) fn close(client: &mut Client, run: RunId) -> Result<(), Failure> {
    let key = request_key(None)?;
    match client.ask(&Mutation::CloseRun { key, run: run.to_string() })? {
        Reply::Done => Ok(()),
        other => Err(unexpected(other)),
    }
}

fn show(context: &Context, view: RunView) -> Result<(), Failure> {
    let now = now();
    let rows = [RunRow { view, now }];
    let mut out = Stdout::default();
    list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: "" })?;
    out.done()
}

/// The end of a run, in a sentence or as JSON.
fn summary(context: &Context, view: RunView) -> Result<(), Failure> {
    if !matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        return show(context, view);
    }
    let took = manager_plan::runfile::units::human_duration(
        view.ended_at.unwrap_or_else(now).ms_since(view.submitted_at),
    );
    let mut out = Stdout::default();
    out.line(&safe_line(&format!(
        "run {} ({}): {} of {} tasks, in {took}",
        view.spec.name,
        view.id,
        counts(&view),
        view.total
    )))?;
    out.done()?;
    if count(&view, &[TaskState::Review]) > 0 {
        say(&format!(
            "  decide: phalanx diff {0}/TASK; phalanx accept {0}/TASK; phalanx reject {0}/TASK --comment TEXT",
            view.id
        ));
    }
    if exit_of(&view) != exit::OK {
        say(&format!("  look: phalanx tasks {0}; phalanx why {0}; phalanx report {0}", view.id));
    }
    Ok(())
}
