//! `wait` for a run, or for one task of it: until it is where one wants it, can no longer get there, or the time is
//! over. Looks at the level, and again after each change; a manager that is away for a while is waited for.

use std::time::{Duration, Instant};

use protocol::api::{Item, Query};
use protocol::error::ErrorCode;
use protocol::task::{Landing, RunView, TaskState, TaskView};

use super::super::client::{Client, Flow, Limits};
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::progress::count;
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::list::whole;
use super::view::{RunRow, TAKEN, TaskRow, is_over};

/// A task may change while the counts of its run stay the same.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Nothing more happens without a person.
    Ended,
    /// Its work was taken; of a run: that of all its tasks.
    Accepted,
    /// A task, or some task of the run, is in this state.
    State(TaskState),
}

impl Until {
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text.to_ascii_lowercase().as_str() {
            "ended" => return Ok(Self::Ended),
            "accepted" => return Ok(Self::Accepted),
            _ => {}
        }
        TaskState::from_word(&text.to_uppercase()).map(Self::State).ok_or_else(|| {
            let states = TaskState::ALL.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
            Failure::usage(format!(
                "--for {text:?} is not known for a run; it is ended, accepted, or one of {states}"
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Open,
    /// It will not come about any more.
    OutOfReach,
}

fn of_run(run: &RunView, until: Until) -> Verdict {
    let (met, over) = match until {
        Until::Ended => (is_over(run), false),
        Until::Accepted => (count(run, TAKEN) == run.total, is_over(run)),
        Until::State(state) => (count(run, &[state]) > 0, run.ended_at.is_some()),
    };
    verdict(met, over)
}

fn of_task(task: &TaskView, until: Until) -> Verdict {
    let (met, over) = match until {
        Until::Ended => (task.state.is_final() || task.state == TaskState::Review, false),
        // Accepted work is there for whoever waits once its branch is.
        Until::Accepted | Until::State(TaskState::Accepted) if task.landing == Some(Landing::Due) => {
            (false, false)
        }
        Until::Accepted => (TAKEN.contains(&task.state), task.state.is_final()),
        Until::State(state) => (task.state == state, task.state.is_final()),
    };
    verdict(met, over)
}

fn verdict(met: bool, over: bool) -> Verdict {
    match (met, over) {
        (true, _) => Verdict::Met,
        (false, true) => Verdict::OutOfReach,
        (false, false) => Verdict::Open,
    }
}

/// `RUN` or `RUN/TASK`, waited for until `deadline`; the exit code.
pub fn wait(
    context: &Context,
    target: &str,
    until: Until,
    (timeout, deadline): (&str, Option<Instant>),
) -> Result<u8, Failure> {
    let (run, task) = target.split_once('/').map_or((target, None), |(run, task)| (run, Some(task)));
    // Once: by the time of a later look the name may be another run's.
    let mut run = run.to_owned();
    let verdict = context.over_restarts(deadline, |client| {
        let (view, tasks) = whole(client, &run)?;
        run = view.id.to_string();
        let verdict = match task {
            None => of_run(&view, until),
            Some(name) => of_task(named(&tasks, name, &run)?, until),
        };
        if verdict == Verdict::Open {
            follow(context, &run, deadline)?;
        }
        Ok(if verdict == Verdict::Open { None } else { Some(verdict) })
    })?;
    let mut client = context.client()?;
    let (view, tasks) = whole(&mut client, &run)?;
    let shown = task.map(|name| named(&tasks, name, &run)).transpose()?;
    let state =
        shown.map_or_else(|| super::view::counts(&view), |task| task.state.to_string().to_lowercase());
    show(context, &view, shown)?;
    match verdict {
        Some(Verdict::Met) => Ok(exit::OK),
        Some(Verdict::OutOfReach | Verdict::Open) => {
            say(&safe_line(&format!("{target} cannot become {until:?} any more: {state}")));
            Err(Failure::Told(exit::FAILED))
        }
        None => {
            let message = format!("after {timeout} {target} is not there: {state}");
            Err(Failure::new(ErrorCode::TimedOut, message).hint(format!("phalanx why {target}")))
        }
    }
}

fn named<'a>(tasks: &'a [TaskView], name: &str, run: &str) -> Result<&'a TaskView, Failure> {
    tasks.iter().find(|task| task.spec.name.as_str() == name || task.id.to_string() == name).ok_or_else(
        || {
            Failure::new(ErrorCode::NotFound, format!("run {run} has no task {name:?}"))
                .hint(format!("phalanx tasks {run}"))
        },
    )
}

/// Until the run has changed, or it is time to look again.
pub fn follow(context: &Context, run: &str, deadline: Option<Instant>) -> Result<(), Failure> {
    let again = Instant::now() + LOOK_AGAIN;
    let until = deadline.map_or(again, |deadline| deadline.min(again));
    let mut changes = 0;
    let mut client: Client = context.client()?;
    let limits = Limits { deadline: Some(until), interrupts: None };
    client.stream(&Query::FollowRun { run: run.to_owned() }, &limits, |item| {
        // The first one is what was there.
        changes += u32::from(matches!(item, Item::Run(_)));
        Ok(if changes > 1 { Flow::Enough } else { Flow::More })
    })?;
    Ok(())
}

fn show(context: &Context, run: &RunView, task: Option<&TaskView>) -> Result<(), Failure> {
    let now = now();
    let mut out = Stdout::default();
    if context.quiet {
        out.line(&task.map_or_else(|| run.id.to_string(), |task| task.id.to_string()))?;
        return out.done();
    }
    match task {
        None => {
            let rows = [RunRow { view: run.clone(), now }];
            list(
                &mut out,
                &context.format,
                &Listing { items: &rows, as_of: Some(now), note: None, empty: "" },
            )?;
        }
        Some(task) => {
            let rows = [TaskRow { view: task.clone(), now }];
            list(
                &mut out,
                &context.format,
                &Listing { items: &rows, as_of: Some(now), note: None, empty: "" },
            )?;
        }
    }
    out.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_run_are_read_in_any_case_and_others_refused() {
        assert_eq!(Until::parse("Ended").unwrap(), Until::Ended);
        assert_eq!(Until::parse("accepted").unwrap(), Until::Accepted);
        assert_eq!(Until::parse("review").unwrap(), Until::State(TaskState::Review));
        assert_eq!(Until::parse("PAUSED").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn what_is_over_elsewhere_is_out_of_reach_and_what_goes_on_is_open() {
        assert_eq!(verdict(true, true), Verdict::Met);
        assert_eq!(verdict(false, true), Verdict::OutOfReach);
        assert_eq!(verdict(false, false), Verdict::Open);
    }
}
