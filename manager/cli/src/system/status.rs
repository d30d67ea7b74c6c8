//! `status`: the parts of this machine, and the fleet as the manager sees it. Starts nothing.

use protocol::api::{Query, Reply, SCHEMA_VERSION, StatusView};
use protocol::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::client::BUILD;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{List, value};
use super::super::output::sanitise::{safe_json, safe_line};
use super::super::output::table::details;
use super::super::output::when::{age, now};
use super::boot;
use manager_installation::ledger;
use manager_installation::status::{Facts, PartState, facts};
use manager_plan::config::Settings;
use manager_plan::config::format::OutputFormat;

pub const KIND: &str = "StatusList";

#[derive(Serialize, JsonSchema)]
pub struct StatusDocument<'a> {
    /// The parts of this machine.
    local: &'a Facts,
    /// As the manager sees it; `null` when it does not run.
    fleet: Option<&'a StatusView>,
    /// Of the `phalanx` that was called.
    client_build: &'a str,
}

pub fn run(context: &Context) -> Result<u8, Failure> {
    let facts = facts(&context.layout);
    let fleet = match context.running() {
        None => None,
        Some(client) => match client?.ask(&Query::Status)? {
            Reply::Status(status) => Some(*status),
            other => return Err(unexpected(other)),
        },
    };
    let mut out = Stdout::default();
    if matches!(context.format, OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name) {
        out.text(&local(&facts, &ledger::folder(&context.layout)))?;
        if let Some(fleet) = &fleet {
            out.text(&describe(fleet))?;
        }
    } else {
        let item = StatusDocument { local: &facts, fleet: fleet.as_ref(), client_build: BUILD };
        let kind = KIND.into();
        let document = List { schema_version: SCHEMA_VERSION, kind, as_of: Some(now()), items: vec![item] };
        out.line(&safe_json(&value(&document).to_string()))?;
    }
    out.done()?;
    Ok(if fleet.is_some() { exit::OK } else { exit::UNAVAILABLE })
}

fn local(facts: &Facts, folder: &std::path::Path) -> String {
    let mut text = format!("home: {}\n", safe_line(&facts.home.display().to_string()));
    for part in &facts.parts {
        let state = match &part.state {
            PartState::Running { pid } => format!("running, process {pid}"),
            PartState::NotRunning => "not running".to_owned(),
            PartState::Unknown { why } => format!("unknown: {why}"),
        };
        text.push_str(&format!("{}: {}\n", part.name, safe_line(&state)));
    }
    text.push_str(&boot::describe(&facts.at_boot));
    if let Some(failure) = facts.supervisor_says.as_ref().and_then(|status| status.failure.as_ref()) {
        text.push_str(&format!("last failure: {}: {}\n", failure.component, safe_line(&failure.cause)));
    }
    for loss in &facts.losses {
        let when = age(now(), Timestamp(loss.at_ms));
        text.push_str(&format!("records lost {when} ago: {}\n", safe_line(&loss.what)));
    }
    // Settings that are wrong are doctor's to tell.
    for hook in Settings::of_daemons().unwrap_or_default().hooks() {
        let ledger = ledger::read(folder, &hook.id()).ok().flatten();
        if let Some(failure) = ledger.and_then(|ledger| ledger.failure) {
            let why = format!("{hook}: {}", failure.why);
            text.push_str(&format!("notifications fail: {}\n", safe_line(&why)));
        }
    }
    if !facts.answering {
        let why = if facts.stopped_on_purpose { "stopped with: phalanx down" } else { "not running" };
        text.push_str(&format!("{why}; start it with: phalanx up\n"));
    }
    text
}

fn describe(fleet: &StatusView) -> String {
    let agents: Vec<String> = fleet.agents.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let hosts: Vec<String> =
        fleet.hosts.iter().map(|host| format!("{} ({})", host.host, host.reachability)).collect();
    let bus = if fleet.bus_connected { "connected".to_owned() } else { "away".to_owned() };
    let unwritten = if fleet.unwritten > 0 {
        format!(", {} records wait for it", fleet.unwritten)
    } else {
        String::new()
    };
    let builds = if fleet.build == BUILD {
        fleet.build.clone()
    } else {
        format!("{} (this phalanx: {BUILD})", fleet.build)
    };
    details(&[
        ("build", builds),
        ("up for", age(fleet.now, fleet.started_at)),
        ("bus", format!("{bus}{unwritten}")),
        ("hosts", hosts.join(", ")),
        ("agents", if agents.is_empty() { "none".to_owned() } else { agents.join(", ") }),
        ("runs", fleet.runs.to_string()),
        ("queued tasks", fleet.queued_tasks.to_string()),
    ])
}
