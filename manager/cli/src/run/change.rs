//! `retry` and `scale`, and how a change of a run is told.

use protocol::api::{Mutation, Outcome, Query, Reply};
use protocol::error::ErrorCode;
use protocol::ids::{RequestKey, TaskId};
use protocol::task::TaskState;

use super::super::args::run::{Retry, Scale};
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::list::{named_or_latest, one, whole};
use super::view::RunRow;

pub fn retry(context: &Context, args: &Retry) -> Result<u8, Failure> {
    if !args.failed && args.tasks.is_empty() && args.run.is_none() {
        return Err(Failure::usage("no task is named")
            .hint("phalanx retry TASK, phalanx retry RUN TASK…, or: phalanx retry RUN --failed"));
    }
    let key = request_key(args.key.as_deref())?;
    let mut client = context.client()?;
    let (run, tasks) = match &args.run {
        Some(word) if !args.failed && args.tasks.is_empty() => {
            let (run, task) = one_task(&mut client, word)?;
            (run, vec![task])
        }
        run => {
            let run = named_or_latest(&mut client, run.as_deref())?;
            let tasks = if args.failed { failed(&mut client, &run)? } else { args.tasks.clone() };
            (run, tasks)
        }
    };
    if tasks.is_empty() {
        say("no task of the run has failed; nothing was done");
        return Ok(exit::OK);
    }
    let request = Mutation::RetryTasks { key: key.clone(), run: run.clone(), tasks };
    let outcomes = ask(&mut client, "phalanx retry", &request, &key)?;
    finish(context, &mut client, &run, &outcomes)
}

pub fn scale(context: &Context, args: &Scale) -> Result<u8, Failure> {
    let key = request_key(args.key.as_deref())?;
    let mut client = context.client()?;
    let request = Mutation::ScaleRun {
        key: key.clone(),
        run: args.run.clone(),
        max_parallel: args.max_parallel.and_then(|most| most.0),
        keep_parallel: args.max_parallel.is_none(),
        caps: args.caps.iter().map(|(label, most)| (label.clone(), most.0)).collect(),
    };
    let outcomes = ask(&mut client, "phalanx scale", &request, &key)?;
    finish(context, &mut client, &args.run, &outcomes)
}

/// `RUN/TASK`, a task's id, or the name of a task of the latest run.
fn one_task(client: &mut Client, word: &str) -> Result<(String, String), Failure> {
    if let Some((run, task)) = word.split_once('/') {
        return Ok((run.to_owned(), task.to_owned()));
    }
    if word.parse::<TaskId>().is_ok()
        && let Reply::Task(task) = client.ask(&Query::ShowTask { task: word.to_owned() })?
    {
        return Ok((task.run.to_string(), word.to_owned()));
    }
    let run = named_or_latest(client, None)?;
    let (view, tasks) = whole(client, &run)?;
    if tasks.iter().any(|task| task.spec.name.as_str() == word) {
        return Ok((run, word.to_owned()));
    }
    let message = format!("no task {word:?} in the latest run, {}", view.spec.name);
    Err(Failure::new(ErrorCode::NotFound, message)
        .hint("phalanx retry RUN TASK…, or: phalanx retry RUN --failed"))
}

fn failed(client: &mut Client, run: &str) -> Result<Vec<String>, Failure> {
    let (_, tasks) = whole(client, run)?;
    let failed =
        tasks.into_iter().filter(|task| matches!(task.state, TaskState::Failed | TaskState::Rejected));
    Ok(failed.map(|task| task.id.to_string()).collect())
}

pub(super) fn ask(
    client: &mut Client,
    command: &str,
    request: &Mutation,
    key: &RequestKey,
) -> Result<Vec<Outcome>, Failure> {
    match client.ask(request).map_err(|failure| with_key(failure, command, key))? {
        Reply::Done => Ok(Vec::new()),
        Reply::Outcomes(outcomes) => Ok(outcomes),
        other => Err(unexpected(other)),
    }
}

/// The run as it is now; refused tasks are told and decide the exit code.
pub(super) fn finish(
    context: &Context,
    client: &mut Client,
    run: &str,
    outcomes: &[Outcome],
) -> Result<u8, Failure> {
    let now = now();
    let rows = [RunRow { view: one(client, run)?, now }];
    let mut out = Stdout::default();
    if !context.quiet {
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: "" })?;
    }
    out.done()?;
    told(outcomes)
}

/// What there is to say of each, on standard error; those that were refused decide the exit code.
pub(super) fn told(outcomes: &[Outcome]) -> Result<u8, Failure> {
    for outcome in outcomes.iter().filter(|outcome| !outcome.note.is_empty()) {
        say(&safe_line(&format!("{}: {}", outcome.target, outcome.note)));
    }
    let mut code = exit::OK;
    for (outcome, error) in
        outcomes.iter().filter_map(|outcome| outcome.error.as_ref().map(|error| (outcome, error)))
    {
        say(&safe_line(&format!("error: {}: {}", outcome.target, error.message)));
        code = if code == exit::OK { error.code.exit_code() } else { code };
    }
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}
