//! `cancel`: a run, or tasks with what depends on them. What is over already is no error. With `--wait` until all of it is.

use std::time::{Duration, Instant};

use protocol::api::Mutation;
use protocol::error::ErrorCode;
use protocol::ids::TaskId;

use super::super::args::run::Cancel;
use super::super::client::Client;
use super::super::context::{Context, request_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::say;
use super::super::output::sanitise::safe_line;
use super::change::{ask, finish, told};
use super::list::{named_or_latest, one, whole};
use super::wait::follow;
use manager_plan::runfile::units::duration_ms;

pub fn cancel(context: &Context, args: &Cancel) -> Result<u8, Failure> {
    let key = request_key(args.key.as_deref())?;
    let ms = |text: &str, option: &str| {
        duration_ms(text).map_err(|error| Failure::usage(format!("{option}: {error}; nothing was done")))
    };
    let grace_ms = args.grace.as_deref().map(|text| ms(text, "--grace")).transpose()?;
    let timeout = Duration::from_millis(ms(&args.timeout, "--timeout")?);
    let mut client = context.client()?;
    let (run, tasks) = meant(&mut client, args)?;
    let before = one(&mut client, &run)?;
    let run = before.id.to_string();
    if tasks.is_empty() && before.ended_at.is_some() {
        say(&safe_line(&format!("run {} was over already; nothing was done", before.spec.name)));
    }
    let request = Mutation::CancelRun { key: key.clone(), run: run.clone(), tasks: tasks.clone(), grace_ms };
    let outcomes = ask(&mut client, "phalanx cancel", &request, &key)?;
    if !args.wait {
        return finish(context, &mut client, &run, &outcomes);
    }
    drop(client);
    let deadline = Instant::now().checked_add(timeout);
    let over = context.over_restarts(deadline, |client| {
        if still_open(client, &run, &tasks)?.is_empty() {
            return Ok(Some(()));
        }
        follow(context, &run, deadline)?;
        Ok(None)
    })?;
    let mut client = context.client()?;
    if over.is_none() {
        let open = still_open(&mut client, &run, &tasks)?;
        let _ = told(&outcomes);
        let message = format!("after {} not over: {}", args.timeout, open.join(", "));
        return Err(Failure::new(ErrorCode::TimedOut, message).hint(format!("phalanx why {run}")));
    }
    finish(context, &mut client, &run, &outcomes)
}

/// `RUN`, `RUN/TASK`, or a task of the latest run.
fn meant(client: &mut Client, args: &Cancel) -> Result<(String, Vec<String>), Failure> {
    if let Some((run, task)) = args.run.split_once('/') {
        let tasks = std::iter::once(task.to_owned()).chain(args.tasks.iter().cloned());
        return Ok((run.to_owned(), tasks.collect()));
    }
    if !args.tasks.is_empty() {
        return Ok((args.run.clone(), args.tasks.clone()));
    }
    match one(client, &args.run) {
        Ok(_) => Ok((args.run.clone(), Vec::new())),
        Err(failure) if failure.exit_code() == exit::MISSING => {
            let unknown = || {
                let message = format!("no run, and no task of the latest run, {:?}", args.run);
                Failure::new(ErrorCode::NotFound, message).hint("phalanx runs; phalanx tasks")
            };
            let latest = named_or_latest(client, None).map_err(|_| unknown())?;
            let (_, tasks) = whole(client, &latest)?;
            let id = args.run.parse::<TaskId>().ok();
            let found = tasks.iter().any(|task| task.spec.name.as_str() == args.run || Some(task.id) == id);
            if found { Ok((latest, vec![args.run.clone()])) } else { Err(unknown()) }
        }
        Err(failure) => Err(failure),
    }
}

/// Names of those that were cancelled and have not ended.
fn still_open(client: &mut Client, run: &str, tasks: &[String]) -> Result<Vec<String>, Failure> {
    let (_, all) = whole(client, run)?;
    let open = all.into_iter().filter(|task| {
        let named = |name: &String| task.spec.name.as_str() == name || task.id.to_string() == *name;
        (tasks.is_empty() || tasks.iter().any(named)) && !task.state.is_final()
    });
    Ok(open.map(|task| task.spec.name.to_string()).collect())
}
