//! `wait`: until agents are where one wants them, can no longer get there, or the time is over.

use std::time::{Duration, Instant};

use protocol::agent::Phase;
use protocol::api::{AgentView, Item, Query, Until};
use protocol::error::ErrorCode;
use protocol::report::Life;
use protocol::signals::PhaseReason;

use super::super::args::agent::Wait;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::super::run;
use super::create::quantity;
use super::select;
use super::view::{AgentRow, end, long_end};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::duration_ms;

pub fn run(context: &Context, args: &Wait) -> Result<u8, Failure> {
    // What is wrong with the words is said before anything is started.
    let limit = quantity("--timeout", &args.timeout, duration_ms)?;
    let deadline = Instant::now().checked_add(Duration::from_millis(limit));
    let until = parse_until(&args.until);
    let of_run = run::wait::Until::parse(&args.until);
    let run = |target: &str, until| run::wait::wait(context, target, until, (&args.timeout, deadline));
    let one = match args.agents.targets.as_slice() {
        [target] if args.agents.labels.is_empty() => Some(target.as_str()),
        _ => None,
    };
    let is_task = |target: &&String| target.contains('/') && !is_attempt(target);
    if let Some(task) = args.agents.targets.iter().find(is_task) {
        return match one {
            Some(target) => run(target, of_run?),
            None => Err(Failure::usage(format!("{task} is a task; wait for it alone"))),
        };
    }
    let until = match (until, one, &of_run) {
        (Ok(until), ..) => until,
        // A word that only runs know.
        (Err(_), Some(target), Ok(until)) => return run(target, *until),
        (Err(failure), ..) => return Err(failure),
    };
    let targets = select::targets(&mut context.client()?, &args.agents, select::Which::Current)?;
    let wanted = targets.len();
    let waited = match (wait_on(context, targets, until, deadline, args.any), one, of_run) {
        (Err(failure), Some(target), of_run) if failure.exit_code() == exit::MISSING => {
            // No agent is called so; the words about it are right where no run is either.
            let is_run = run::list::one(&mut context.client()?, target).is_ok();
            return if is_run { run(target, of_run?) } else { Err(failure) };
        }
        (waited, ..) => waited?,
    };
    let met = waited.views.iter().filter(|view| is_met(view, until)).count();
    show(context, &waited.views)?;
    if met == wanted || (args.any && met > 0) {
        return Ok(exit::OK);
    }
    if waited.timed_out {
        let message = format!("after {} {met} of {wanted} are {}", args.timeout, args.until);
        return Err(Failure::new(ErrorCode::TimedOut, message));
    }
    for view in waited.views.iter().filter(|view| !is_met(view, until)) {
        let why = end(view).map_or_else(|| view.phase.to_string(), long_end);
        say(&safe_line(&format!("{} cannot become {}: {why}", view.name, args.until)));
    }
    Err(Failure::Told(exit::FAILED))
}

/// As [`wait`], over restarts of the manager: what was there before one stays so.
fn wait_on(
    context: &Context,
    targets: Vec<String>,
    until: Until,
    deadline: Option<Instant>,
    any: bool,
) -> Result<Waited, Failure> {
    let mut views: Vec<AgentView> = Vec::new();
    let done = context.over_restarts(deadline, |client| {
        let open = targets.iter().filter(|target| !views.iter().any(|view| is_called(view, target)));
        let open: Vec<String> = open.cloned().collect();
        let waited = wait_for(client, open, until, deadline, any, &mut views)?;
        Ok((waited == Ended::Told).then_some(()))
    })?;
    Ok(Waited { views, timed_out: done.is_none() })
}

/// `RUN/TASK#ATTEMPT` is an agent.
fn is_attempt(target: &str) -> bool {
    target.rsplit_once('#').is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

fn is_called(view: &AgentView, target: &str) -> bool {
    let attempt = target.split_once('/').filter(|_| is_attempt(target)).map(|(_, attempt)| attempt);
    view.id.to_string() == target
        || attempt == Some(view.name.as_str())
        || view.name == target
        || target.split_once('@') == Some((view.name.as_str(), view.host.as_str()))
}

/// What a wait found.
pub struct Waited {
    pub views: Vec<AgentView>,
    pub timed_out: bool,
}

/// Waits for all of `targets`, or for the first one that is there.
pub fn wait(
    client: &mut Client,
    targets: Vec<String>,
    until: Until,
    deadline: Option<Instant>,
    any: bool,
) -> Result<Waited, Failure> {
    let mut views = Vec::new();
    let ended = wait_for(client, targets, until, deadline, any, &mut views)?;
    Ok(Waited { views, timed_out: ended == Ended::TimedOut })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Told,
    TimedOut,
}

/// Adds to `views` as it hears of them, so that nothing is lost with the connection.
fn wait_for(
    client: &mut Client,
    targets: Vec<String>,
    until: Until,
    deadline: Option<Instant>,
    any: bool,
    views: &mut Vec<AgentView>,
) -> Result<Ended, Failure> {
    if targets.is_empty() {
        return Ok(Ended::Told);
    }
    let request = Query::WaitAgents { targets, until };
    let end = client.stream(&request, &Limits { deadline, interrupts: None }, |item| {
        let Item::Agent(view) = item else { return Ok(Flow::More) };
        let enough = any && is_met(&view, until);
        views.push(*view);
        Ok(if enough { Flow::Enough } else { Flow::More })
    })?;
    Ok(if matches!(end, StreamEnd::TimedOut) { Ended::TimedOut } else { Ended::Told })
}

pub fn is_met(view: &AgentView, until: Until) -> bool {
    match until {
        Until::Started => view
            .report
            .as_ref()
            .is_some_and(|report| report.started_at.is_some() && report.spec.launch >= view.spec.launch),
        Until::Applied => view.unmet.is_empty(),
        Until::Phase(phase) => view.phase == phase,
        Until::PhaseFor(phase, reason) => {
            let known = view.report.as_ref().and_then(|report| report.phase_reason);
            (view.phase, known) == (phase, Some(reason))
        }
        Until::Ended => view.phase.is_ended(),
        Until::Destroyed => view.report.as_ref().is_none_or(|report| report.life == Life::Destroyed),
    }
}

fn parse_until(text: &str) -> Result<Until, Failure> {
    match text.to_ascii_lowercase().as_str() {
        "started" => return Ok(Until::Started),
        "ended" => return Ok(Until::Ended),
        "destroyed" => return Ok(Until::Destroyed),
        "applied" => return Ok(Until::Applied),
        _ => {}
    }
    let (phase, reason) = match text.split_once(':') {
        Some((phase, reason)) => (phase, Some(reason)),
        None => (text, None),
    };
    let reason = match reason.map(|word| (word, PhaseReason::from_word(&word.to_ascii_lowercase()))) {
        Some((word, None)) => {
            let known = PhaseReason::ALL.iter().map(|reason| reason.as_str()).collect::<Vec<_>>().join(", ");
            let message = format!("--for {text:?}: {word:?} is no reason of a phase; it is one of {known}");
            return Err(Failure::usage(message));
        }
        Some((_, reason)) => reason,
        None => None,
    };
    let until = |phase| reason.map_or(Until::Phase(phase), |reason| Until::PhaseFor(phase, reason));
    Phase::from_word(&phase.to_uppercase()).map(until).ok_or_else(|| {
        let phases = Phase::ALL.iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(", ");
        Failure::usage(format!(
            "--for {text:?} is not known; it is started, ended, destroyed, applied, or one of {phases}"
        ))
    })
}

fn show(context: &Context, views: &[AgentView]) -> Result<(), Failure> {
    let now = now();
    let rows: Vec<AgentRow> = views.iter().map(|view| AgentRow { view: view.clone(), now }).collect();
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.view.id.to_string()))?;
    } else if !rows.is_empty() || matches!(context.format, OutputFormat::Json) {
        list(&mut out, &context.format, &Listing { items: &rows, as_of: Some(now), note: None, empty: "" })?;
    }
    out.done()
}
