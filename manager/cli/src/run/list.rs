//! `runs` and `tasks`, and the run that is meant when none is named.

use protocol::api::{Query, Reply};
use protocol::error::ErrorCode;
use protocol::task::{RunView, TaskView};

use super::super::args::run::Tasks;
use super::super::client::Client;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listing, list};
use super::super::output::when::now;
use super::view::{RunRow, TaskRow};

fn all(client: &mut Client) -> Result<Vec<RunView>, Failure> {
    match client.ask(&Query::ListRuns)? {
        Reply::Runs(runs) => Ok(runs),
        other => Err(unexpected(other)),
    }
}

/// The run that was named, else the latest.
pub fn named_or_latest(client: &mut Client, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let latest = all(client)?.into_iter().max_by_key(|run| (run.submitted_at, run.id));
    latest
        .map(|run| run.id.to_string())
        .ok_or_else(|| Failure::new(ErrorCode::NotFound, "there is no run yet").hint("phalanx run FILE"))
}

pub fn whole(client: &mut Client, run: &str) -> Result<(RunView, Vec<TaskView>), Failure> {
    match client.ask(&Query::ShowRun { run: run.to_owned() })? {
        Reply::Run { run, tasks } => Ok((*run, tasks)),
        other => Err(unexpected(other)),
    }
}

pub fn one(client: &mut Client, run: &str) -> Result<RunView, Failure> {
    whole(client, run).map(|(run, _)| run)
}

fn one_task(client: &mut Client, task: &str) -> Result<TaskView, Failure> {
    match client.ask(&Query::ShowTask { task: task.to_owned() })? {
        Reply::Task(task) => Ok(*task),
        other => Err(unexpected(other)),
    }
}

pub fn runs(context: &Context) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let mut runs = all(&mut client)?;
    runs.sort_by_key(|run| (std::cmp::Reverse(run.submitted_at), run.id));
    let now = now();
    let rows: Vec<RunRow> = runs.into_iter().map(|view| RunRow { view, now }).collect();
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.view.id.to_string()))?;
    } else {
        let empty = "No runs. Make one: phalanx run FILE";
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty })?;
    }
    out.done()?;
    Ok(exit::OK)
}

pub fn tasks(context: &Context, args: &Tasks) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let tasks = match args.run.as_deref() {
        Some(task) if task.contains('/') => vec![one_task(&mut client, task)?],
        named => {
            let run = named_or_latest(&mut client, named)?;
            whole(&mut client, &run)?.1
        }
    };
    let now = now();
    let wanted = |task: &TaskView| args.states.is_empty() || args.states.contains(&task.state);
    let rows: Vec<TaskRow> = tasks.into_iter().filter(wanted).map(|view| TaskRow { view, now }).collect();
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.view.id.to_string()))?;
    } else {
        let empty = "No such tasks.";
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty })?;
    }
    out.done()?;
    Ok(exit::OK)
}
