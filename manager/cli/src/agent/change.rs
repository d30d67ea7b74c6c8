//! `stop` and `destroy`: the request, one outcome per agent, and the wait until it is so.

use std::time::{Duration, Instant};

use protocol::agent::Phase;
use protocol::api::{Mutation, Outcome, Reply, Until};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::RequestKey;
use protocol::order::Discard;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::args::agent::{Change, Destroy, Stop, Targets};
use super::super::client::Client;
use super::super::context::{Context, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::create::quantity;
use super::select::Which;
use super::wait::{is_met, wait};
use super::{select, view};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::duration_ms;

/// Beyond the grace, an end may take this long before it is reported as not reached.
const END_LIMIT: Duration = Duration::from_secs(60);

pub fn stop(context: &Context, args: &Stop) -> Result<u8, Failure> {
    let grace_ms = args.grace.as_deref().map(|text| quantity("--grace", text, duration_ms)).transpose()?;
    let limit = END_LIMIT + Duration::from_millis(grace_ms.unwrap_or(0));
    change(context, "stop", &args.agents, &args.change, Until::Ended, limit, |key, targets| {
        Mutation::StopAgents { key, targets, grace_ms }
    })
}

pub fn destroy(context: &Context, args: &Destroy) -> Result<u8, Failure> {
    let discard = if args.discard { Discard::Yes } else { Discard::Keep };
    change(context, "destroy", &args.agents, &args.change, Until::Destroyed, END_LIMIT, |key, targets| {
        Mutation::DestroyAgents { key, targets, discard }
    })
}

/// Stops every agent that is alive; how many there were.
pub fn stop_all(client: &mut Client) -> Result<usize, Failure> {
    let phases = Phase::ALL.iter().copied().filter(|phase| !phase.is_ended()).collect();
    let live = select::filtered(client, protocol::row::RowFilter { phases, ..Default::default() })?;
    let targets: Vec<String> = live.iter().map(|agent| agent.id.to_string()).collect();
    if targets.is_empty() {
        return Ok(0);
    }
    let request = Mutation::StopAgents { key: request_key(None)?, targets: targets.clone(), grace_ms: None };
    let outcomes = ask(client, "stop", &request)?;
    if let Some(error) = outcomes.into_iter().find_map(|outcome| outcome.error) {
        return Err(error.into());
    }
    let count = targets.len();
    let waited = wait(client, targets, Until::Ended, Some(Instant::now() + END_LIMIT), false)?;
    if waited.timed_out {
        return Err(Failure::new(ErrorCode::TimedOut, "not every agent has ended").hint("phalanx ls"));
    }
    Ok(count)
}

fn change(
    context: &Context,
    verb: &str,
    agents: &Targets,
    how: &Change,
    until: Until,
    limit: Duration,
    request: impl Fn(RequestKey, Vec<String>) -> Mutation,
) -> Result<u8, Failure> {
    let key = request_key(how.key.as_deref())?;
    // What has ended stays to be destroyed, attempts of tasks too.
    let which = if until == Until::Destroyed { Which::Present } else { Which::Live };
    let (mut client, targets) = select::confirmed(context, verb, agents, which, how.yes)?;
    let mut outcomes =
        if targets.is_empty() { Vec::new() } else { ask(&mut client, verb, &request(key, targets))? };
    if !how.no_wait {
        settle(&mut client, verb, until, limit, &mut outcomes)?;
    }
    show(context, verb, outcomes)
}

pub fn ask(client: &mut Client, verb: &str, request: &Mutation) -> Result<Vec<Outcome>, Failure> {
    let answer =
        client.ask(request).map_err(|failure| with_key(failure, &format!("phalanx {verb}"), request.key()));
    match answer? {
        Reply::Outcomes(outcomes) => Ok(outcomes),
        other => Err(unexpected(other)),
    }
}

/// Waits for what was accepted; what did not come true becomes the outcome's error.
fn settle(
    client: &mut Client,
    verb: &str,
    until: Until,
    limit: Duration,
    outcomes: &mut [Outcome],
) -> Result<(), Failure> {
    let accepted = outcomes.iter().filter(|outcome| outcome.error.is_none());
    let ids: Vec<String> =
        accepted.filter_map(|outcome| outcome.agent).map(|agent| agent.to_string()).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let waited = wait(client, ids, until, Some(Instant::now() + limit), false)?;
    for outcome in outcomes.iter_mut().filter(|outcome| outcome.error.is_none()) {
        let Some(id) = outcome.agent else { continue };
        let found = waited.views.iter().find(|view| view.id == id);
        let gone = found.and_then(|view| view.report.as_ref()).map(|report| report.gone.join(", "));
        if let Some(gone) = gone.filter(|gone| !gone.is_empty()) {
            let before = if outcome.note.is_empty() { String::new() } else { format!("{}; ", outcome.note) };
            outcome.note = format!("{before}ignored files that went with it: {gone}");
        }
        outcome.error = match found {
            Some(view) if is_met(view, until) => None,
            Some(found) => Some(held(verb, found)),
            None if waited.timed_out => {
                let message = format!("it was asked to {verb}, but that is not done yet");
                Some(WireError::new(ErrorCode::TimedOut, message).hint(format!("phalanx show {id}")))
            }
            // The stream ended without a word of it: it is gone.
            None => None,
        };
    }
    Ok(())
}

fn held(verb: &str, found: &protocol::api::AgentView) -> WireError {
    let holds = found.report.as_ref().map(|report| report.holds.join("; ")).unwrap_or_default();
    if !holds.is_empty() {
        let message = format!("its workspace holds the only copy of work: {holds}");
        return WireError::new(ErrorCode::Conflict, message)
            .hint(format!("keep it elsewhere, or: phalanx destroy {} --discard", found.id));
    }
    let why = view::end(found).map_or_else(|| found.reason.clone(), view::long_end);
    WireError::new(ErrorCode::Failed, format!("{verb} was refused: {why}"))
}

pub struct OutcomeRow {
    verb: String,
    outcome: Outcome,
}

/// What became of one agent.
#[derive(Serialize, JsonSchema)]
pub struct OutcomeDocument<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    done: bool,
    verb: &'a str,
}

impl Listed for OutcomeRow {
    const KIND: &'static str = "OutcomeList";
    const HEADER: &'static [&'static str] = &["AGENT", "OUTCOME"];
    const WIDE: &'static [&'static str] = &["ID"];

    type Document<'a>
        = OutcomeDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> OutcomeDocument<'_> {
        OutcomeDocument { outcome: &self.outcome, done: self.outcome.error.is_none(), verb: &self.verb }
    }

    fn name(&self) -> String {
        self.outcome.target.clone()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let said = match &self.outcome.error {
            None if self.outcome.note.is_empty() => done(&self.verb),
            None => format!("{} ({})", done(&self.verb), self.outcome.note),
            Some(error) => error.message.clone(),
        };
        let mut cells = vec![self.outcome.target.clone(), said];
        if wide {
            cells.push(self.outcome.agent.map(|agent| agent.to_string()).unwrap_or_default());
        }
        cells
    }
}

/// What is said of an agent once it is so.
fn done(verb: &str) -> String {
    match verb {
        "stop" => "stopped".to_owned(),
        "label" => "labelled".to_owned(),
        verb if verb.ends_with('e') => format!("{verb}d"),
        verb => format!("{verb}ed"),
    }
}

/// One outcome each; the exit code is that of the first that failed.
pub fn show(context: &Context, verb: &str, outcomes: Vec<Outcome>) -> Result<u8, Failure> {
    let code =
        outcomes.iter().find_map(|outcome| outcome.error.as_ref()).map_or(exit::OK, |e| e.code.exit_code());
    let rows: Vec<OutcomeRow> =
        outcomes.into_iter().map(|outcome| OutcomeRow { verb: verb.to_owned(), outcome }).collect();
    let mut out = Stdout::default();
    if context.quiet {
        let done = rows.iter().filter(|row| row.outcome.error.is_none());
        done.filter_map(|row| row.outcome.agent).try_for_each(|agent| out.line(&agent.to_string()))?;
    } else if matches!(context.format, OutputFormat::Table) {
        for row in rows.iter().filter(|row| row.outcome.error.is_none()) {
            out.line(&safe_line(&row.cells(false).join(" ")))?;
        }
    } else {
        list(
            &mut out,
            &context.format,
            &Listing { items: &rows, as_of: None, note: None, empty: "No agents." },
        )?;
    }
    out.done()?;
    if !context.format.is_json() {
        for (row, error) in rows.iter().filter_map(|row| row.outcome.error.as_ref().map(|error| (row, error)))
        {
            say(&safe_line(&format!("error: {}: {}", row.outcome.target, error.message)));
            if !error.hint.is_empty() {
                say(&safe_line(&format!("  try: {}", error.hint)));
            }
        }
    }
    if code == exit::OK { Ok(code) } else { Err(Failure::Told(code)) }
}
