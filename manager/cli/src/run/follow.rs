//! Waits for a run: progress on stderr, and Ctrl-C leaves the run alone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::api::{Item, Query};
use protocol::error::ErrorCode;
use protocol::ids::RunId;
use protocol::task::RunView;

use super::super::client::reader::Interrupts;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::say;
use super::super::output::progress::Progress;
use super::list::one;
use super::view::is_over;

/// Asking for all tasks may use up to one part in so many of the time, however many tasks there are.
const ASK_SHARE: u32 = 10;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A manager that was restarted answers again within this time; a run is not given up for less.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The run when nothing more happens without a person. Over a restart of the manager it is followed anew.
pub fn until_over(context: &Context, client: Client, run: RunId) -> Result<RunView, Failure> {
    let interrupts = Interrupts::catch().map_err(|error| {
        Failure::new(ErrorCode::Failed, format!("cannot catch Ctrl-C: {error}"))
            .hint(format!("phalanx tasks {run}"))
    })?;
    let mut progress = Progress::new(context.quiet);
    let (mut client, mut away) = (Some(client), None::<Instant>);
    let end = loop {
        let connected = client.take().map_or_else(|| context.client(), Ok);
        let followed = connected
            .and_then(|mut client| follow(context, &mut client, run, &interrupts, &mut progress, &mut away));
        match followed {
            Err(failure)
                if failure.exit_code() == exit::UNAVAILABLE
                    && away.get_or_insert_with(Instant::now).elapsed() < PATIENCE =>
            {
                if let Some(signal) = interrupts.wait(CONNECT_AGAIN_AFTER) {
                    break Ok(Followed::Interrupted(signal));
                }
            }
            other => break other,
        }
    };
    progress.end();
    match end? {
        Followed::Over(view) => Ok(view),
        Followed::Interrupted(signal) => {
            say(&format!(
                "run {run} goes on; look again with: phalanx tasks {run}; end it with: phalanx cancel {run}"
            ));
            let terminated = signal == Signal::SIGTERM as i32;
            Err(Failure::Told(if terminated { exit::TERMINATED } else { exit::INTERRUPTED }))
        }
    }
}

enum Followed {
    Over(RunView),
    Interrupted(i32),
}

/// Follows over one connection; whenever the manager says something, it is not away.
fn follow(
    context: &Context,
    client: &mut Client,
    run: RunId,
    interrupts: &Interrupts,
    progress: &mut Progress,
    away: &mut Option<Instant>,
) -> Result<Followed, Failure> {
    let mut asking = client_for_tasks(context, progress)?;
    let mut next_ask = Instant::now();
    let mut last: Option<RunView> = None;
    let limits = Limits { deadline: None, interrupts: Some(interrupts) };
    let end = client.stream(&Query::FollowRun { run: run.to_string() }, &limits, |item| {
        *away = None;
        let Item::Run(view) = item else { return Ok(Flow::More) };
        progress.run(&view);
        let over = is_over(&view);
        if let (Some(client), Some(question)) = (&mut asking, progress.question(&view)) {
            let begun = Instant::now();
            if over || begun >= next_ask {
                progress.tasks(&client.ask(&question)?);
                next_ask = Instant::now() + ASK_AGAIN_AFTER.max(begun.elapsed() * ASK_SHARE);
            }
        }
        last = Some(*view);
        Ok(if over { Flow::Enough } else { Flow::More })
    });
    match end? {
        StreamEnd::Interrupted(signal) => Ok(Followed::Interrupted(signal)),
        StreamEnd::Reply(_) | StreamEnd::Enough | StreamEnd::TimedOut => match last {
            Some(view) if is_over(&view) => Ok(Followed::Over(view)),
            _ => one(&mut context.client()?, &run.to_string()).map(Followed::Over),
        },
    }
}

/// A second connection, where progress needs to know of each task.
fn client_for_tasks(context: &Context, progress: &Progress) -> Result<Option<Client>, Failure> {
    match progress {
        Progress::Lines { .. } => context.client().map(Some),
        Progress::Silent | Progress::Bar => Ok(None),
    }
}
