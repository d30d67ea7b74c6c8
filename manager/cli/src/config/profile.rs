//! `profile ls`, `show` and `test`.

use std::time::{Duration, Instant};

use protocol::agent::{AgentSpec, Environment};
use protocol::api::{AgentView, CreateAgent, Mutation, Reply, Until};
use protocol::error::ErrorCode;
use protocol::ids::{AgentId, Name};
use protocol::order::Discard;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::agent::create::quantity;
use super::super::agent::select;
use super::super::agent::view::{end, long_end};
use super::super::agent::wait::wait;
use super::super::args::config::ProfileCommand;
use super::super::client::Client;
use super::super::context::{Context, random_hex, request_key, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listed, Listing, list};
use super::super::output::sanitise::safe_line;
use super::view::ProfileRow;
use manager_plan::config::NamedProfile;
use manager_plan::runfile::problem::suggestion;
use manager_plan::runfile::task::GRACE_MS;
use manager_plan::runfile::units::{duration_ms, human_duration};

/// A program that ends so soon after its start was not ready for anything.
const SETTLE: Duration = Duration::from_millis(500);
/// Until the host has taken the tried agent away.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

pub fn run(context: &Context, command: &ProfileCommand) -> Result<u8, Failure> {
    match command {
        ProfileCommand::Ls => {
            let rows = context.settings.named_profiles().iter();
            show(context, &rows.map(|(name, named)| ProfileRow { name, named }).collect::<Vec<_>>())
        }
        ProfileCommand::Show { names } => {
            let rows: Result<Vec<ProfileRow<'_>>, Failure> =
                names.iter().map(|name| Ok(ProfileRow { name, named: find(context, name)? })).collect();
            show(context, &rows?)
        }
        ProfileCommand::Test { name, timeout, keep } => test(context, name, timeout, *keep),
    }
}

fn show(context: &Context, rows: &[ProfileRow<'_>]) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    list(
        &mut out,
        &context.format,
        &Listing { items: rows, as_of: None, note: None, empty: "No profiles." },
    )?;
    out.done()?;
    Ok(exit::OK)
}

fn find<'a>(context: &'a Context, name: &str) -> Result<&'a NamedProfile, Failure> {
    let known = context.settings.named_profiles();
    known.get(name).ok_or_else(|| {
        let hint = suggestion(name, known.keys().map(String::as_str));
        Failure::new(ErrorCode::NotFound, format!("there is no profile {name:?}{hint}"))
            .hint("phalanx profile ls")
    })
}

/// What a try showed.
pub struct Tried<'a> {
    profile: &'a str,
    agent: AgentId,
    outcome: Outcome,
    took_ms: u64,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "ProfileOutcome")]
pub enum Outcome {
    /// Its sign of readiness was seen.
    Ready,
    /// It runs; the profile names no sign.
    Started,
    Ended,
    TimedOut,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::TimedOut => "timed-out",
        }
    }
}

/// How the test of a profile went.
#[derive(Serialize, JsonSchema)]
pub struct TriedDocument<'a> {
    profile: &'a str,
    agent: AgentId,
    outcome: Outcome,
    took_ms: u64,
    /// What it printed last, or why it ended.
    detail: &'a str,
}

impl Listed for Tried<'_> {
    const KIND: &'static str = "ProfileTestList";
    const HEADER: &'static [&'static str] = &["PROFILE", "OUTCOME", "TOOK", "DETAIL"];
    const WIDE: &'static [&'static str] = &["AGENT"];

    type Document<'a>
        = TriedDocument<'a>
    where
        Self: 'a;

    fn document(&self) -> TriedDocument<'_> {
        TriedDocument {
            profile: self.profile,
            agent: self.agent,
            outcome: self.outcome,
            took_ms: self.took_ms,
            detail: &self.detail,
        }
    }

    fn name(&self) -> String {
        self.profile.to_owned()
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let mut cells = vec![
            self.profile.to_owned(),
            self.outcome.as_str().to_owned(),
            human_duration(self.took_ms),
            self.detail.clone(),
        ];
        if wide {
            cells.push(self.agent.to_string());
        }
        cells
    }
}

fn test(context: &Context, name: &str, timeout: &str, keep: bool) -> Result<u8, Failure> {
    let limit = Duration::from_millis(quantity("--timeout", timeout, duration_ms)?);
    let named = find(context, name)?;
    let mut client = context.client()?;
    let begun = Instant::now();
    let agent = start(&mut client, name, named)?;
    let tried = watch(&mut client, name, named, agent, begun, limit);
    let removed = if keep { Ok(()) } else { remove(&mut client, agent) };
    let tried = tried?;
    let mut out = Stdout::default();
    list(
        &mut out,
        &context.format,
        &Listing { items: std::slice::from_ref(&tried), as_of: None, note: None, empty: "" },
    )?;
    out.done()?;
    if keep {
        say(&safe_line(&format!("it is left: phalanx attach {agent}; phalanx destroy {agent} --discard")));
    }
    removed?;
    Ok(match tried.outcome {
        Outcome::Ready | Outcome::Started => exit::OK,
        Outcome::Ended => exit::FAILED,
        Outcome::TimedOut => exit::TIMED_OUT,
    })
}

fn start(client: &mut Client, profile: &str, named: &NamedProfile) -> Result<AgentId, Failure> {
    let tail: String = random_hex()?.chars().take(8).collect();
    let name = format!("profile-test-{tail}").parse::<Name>();
    let name = name.map_err(|error| Failure::new(ErrorCode::Failed, error.to_string()))?;
    let spec = AgentSpec {
        profile: Some(profile.to_owned()),
        labels: std::iter::once(("phalanx".to_owned(), "profile-test".to_owned())).collect(),
        ready_text: named.profile.ready.clone(),
        signals: named.profile.signals.clone(),
        ..AgentSpec::own(name, named.profile.interactive.clone(), GRACE_MS)
    };
    let create =
        CreateAgent { key: request_key(None)?, spec, host: None, environment: Environment::default() };
    match client.ask(&Mutation::CreateAgent(Box::new(create)))? {
        Reply::Accepted { agent } => Ok(agent),
        other => Err(unexpected(other)),
    }
}

fn watch<'a>(
    client: &mut Client,
    profile: &'a str,
    named: &NamedProfile,
    agent: AgentId,
    begun: Instant,
    limit: Duration,
) -> Result<Tried<'a>, Failure> {
    let target = || vec![agent.to_string()];
    let started = wait(client, target(), Until::Started, begun.checked_add(limit), false)?;
    let mut view = match started.views.into_iter().next() {
        Some(view) => view,
        None => select::one(client, &agent.to_string())?,
    };
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if end(&view).is_none() && !started.timed_out {
        // A program that ends at once was not ready, whatever it printed.
        let settled = wait(client, target(), Until::Ended, Some(Instant::now() + SETTLE), false)?;
        if let Some(ended) = settled.views.into_iter().next() {
            view = ended;
        }
    }
    let (outcome, detail) = judge(&view, named);
    Ok(Tried { profile, agent, outcome, took_ms, detail })
}

fn judge(view: &AgentView, named: &NamedProfile) -> (Outcome, String) {
    let report = view.report.as_ref();
    let started = report.is_some_and(|report| report.started_at.is_some());
    match (end(view), &named.profile.ready) {
        (Some(end), _) => (Outcome::Ended, format!("{}; see: phalanx logs {}", long_end(end), view.id)),
        (None, Some(sign)) if report.is_some_and(|report| report.ready) => {
            (Outcome::Ready, format!("it printed {sign:?}"))
        }
        (None, Some(sign)) if started => {
            (Outcome::TimedOut, format!("it runs, but has not printed {sign:?}"))
        }
        (None, None) if started => (Outcome::Started, "the profile names no sign of readiness".to_owned()),
        (None, _) => (Outcome::TimedOut, "it was not started".to_owned()),
    }
}

/// It was made to be tried: nothing in its folder is anybody's work.
fn remove(client: &mut Client, agent: AgentId) -> Result<(), Failure> {
    let targets = vec![agent.to_string()];
    let request =
        Mutation::DestroyAgents { key: request_key(None)?, targets: targets.clone(), discard: Discard::Yes };
    match client.ask(&request)? {
        Reply::Outcomes(outcomes) => {
            if let Some(error) = outcomes.into_iter().find_map(|outcome| outcome.error) {
                return Err(error.into());
            }
        }
        other => return Err(unexpected(other)),
    }
    wait(client, targets, Until::Destroyed, Some(Instant::now() + REMOVAL_LIMIT), false)?;
    Ok(())
}
