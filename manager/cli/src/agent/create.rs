//! `create`: flags → a checked request, and how the start ended.

use std::time::{Duration, Instant};

use protocol::agent::{AgentSpec, Checkout, CheckoutKind, End, Phase, ResourceLimits, StartStep};
use protocol::api::{AgentView, CreateAgent, Item, Mutation, Query, Reply, Until};
use protocol::error::ErrorCode;
use protocol::ids::{AgentId, HostId, Name, RequestKey};

use super::super::args::agent::{Create, Workspace};
use super::super::args::settings::CloneAgent;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, random_hex, request_key, unexpected, with_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say};
use super::super::output::render::{Listing, list};
use super::super::output::sanitise::safe_line;
use super::super::output::when::now;
use super::super::settings::snapshot::words_of;
use super::view::{self, AgentRow, end, long_end};
use super::wait::wait;
use super::{environment, select};
use manager_plan::config::Settings;
use manager_plan::config::format::OutputFormat;
use manager_plan::config::key::{self, Key};
use manager_plan::runfile::problem::suggestion;
use manager_plan::runfile::profile::Profile;
use manager_plan::runfile::slug::slug;
use manager_plan::runfile::task::GRACE_MS;
use manager_plan::runfile::units::{UnitError, cpu_millis, duration_ms, size_bytes};

/// A start takes this long at most before the client stops waiting; the start itself goes on.
const START_LIMIT: Duration = Duration::from_secs(300);
/// A program that has signs of readiness has so long to show one.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// A program that ends at once with an error shall not be called started: its end is waited for so long.
const SETTLE: Duration = Duration::from_millis(200);
/// Made-up names that are tried before giving up.
const NAME_TRIES: usize = 20;

pub fn run(context: &Context, args: &Create) -> Result<u8, Failure> {
    // Everything that can be wrong with the words is said before anything is started.
    let mut request = request_of(args, &context.settings)?;
    let mut client = context.client()?;
    if let Some(repo) = &args.repo {
        request.spec.checkout = Some(checkout(&mut client, args, repo, &request.spec.name)?);
    }
    drop(client);
    submit_and_show(context, args, request)
}

/// Asks for the agent and says how its start ended.
pub fn submit_and_show(context: &Context, args: &Create, mut request: CreateAgent) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let agent = submit(&mut client, args, &mut request)?;
    if args.no_wait {
        let view = select::one(&mut client, &agent.to_string())?;
        return show(context, view, exit::OK);
    }
    let view = started(context, &mut client, agent, &request)?;
    let code = outcome(&view);
    show(context, view, code)
}

fn request_of(args: &Create, settings: &Settings) -> Result<CreateAgent, Failure> {
    let (program, ready_text, signals) = match known_profile(args, settings)? {
        Some(profile) => (profile.interactive, profile.ready, profile.signals),
        None => (args.program.clone(), None, None),
    };
    if args.workspace == Workspace::None && args.repo.is_some() {
        return Err(Failure::usage("--workspace none and --repo are given; use one of them"));
    }
    if args.workspace != Workspace::None && args.workspace != Workspace::Auto && args.repo.is_none() {
        return Err(Failure::usage("--workspace says how a checkout is made, but there is no --repo"));
    }
    let name = match &args.name {
        Some(name) => name.parse::<Name>().map_err(|error| Failure::usage(error.to_string()))?,
        None => made_up_name()?,
    };
    let environment = environment::read(&args.environment, &args.env_file)?;
    let host = match &args.host {
        Some(host) => {
            Some(host.parse::<HostId>().map_err(|error| Failure::usage(format!("--host: {error}")))?)
        }
        None => None,
    };
    let grace_ms = match &args.grace {
        Some(grace) => quantity("--grace", grace, duration_ms)?,
        None => settings.duration_ms(&key::GRACE).unwrap_or(GRACE_MS),
    };
    let spec = AgentSpec {
        profile: args.profile.clone(),
        labels: args.labels.iter().cloned().collect(),
        limits: limits(args, settings)?,
        has_environment: !environment.0.is_empty(),
        ready_text,
        signals,
        user: args.user.clone(),
        ..AgentSpec::own(name, program, grace_ms)
    };
    Ok(CreateAgent { key: request_key(args.key.as_deref())?, spec, host, environment })
}

/// The profile that was asked for; `None`: there is a program.
fn known_profile(args: &Create, settings: &Settings) -> Result<Option<Profile>, Failure> {
    match (&args.profile, args.program.is_empty()) {
        (None, false) => match args.program.first().map(String::as_str) {
            Some("") => Err(Failure::usage("the PROGRAM is an empty word")),
            _ => Ok(None),
        },
        (Some(_), false) => Err(Failure::usage("a PROFILE and a PROGRAM are given; use one of them")),
        (None, true) => Err(Failure::usage("neither a PROFILE nor a PROGRAM is given")
            .hint("phalanx create NAME -- PROGRAM ARGS, or: phalanx create NAME claude")),
        (Some(name), true) => {
            let profiles = settings.profiles();
            let known = profiles.get(name).ok_or_else(|| {
                let hint = suggestion(name, profiles.keys().map(String::as_str));
                Failure::new(ErrorCode::NotFound, format!("there is no profile {name:?}{hint}"))
                    .hint("a program of your own goes behind --")
            })?;
            Ok(Some(known.clone()))
        }
    }
}

/// Limits of options, else of settings.
fn limits(args: &Create, settings: &Settings) -> Result<ResourceLimits, Failure> {
    let optional =
        |field: &str, text: &Option<String>, key: &Key, read: fn(&str) -> Result<u64, UnitError>| {
            let (field, text) = match text {
                Some(text) => (field, Some(text.as_str())),
                None => (key.name, settings.text(key)),
            };
            text.map(|text| quantity(field, text, read)).transpose()
        };
    let limits = ResourceLimits {
        memory_bytes: optional("--memory", &args.memory, &key::MEMORY, size_bytes)?,
        cpu_millis: optional("--cpu", &args.cpu, &key::CPU, cpu_millis)?,
        pids: args.pids.or_else(|| settings.whole(&key::PIDS)),
        time_ms: optional("--timeout", &args.timeout, &key::TIMEOUT, duration_ms)?,
    };
    if limits.memory_bytes.is_some_and(|bytes| bytes < 1 << 20) {
        return Err(Failure::usage("--memory must be at least 1M"));
    }
    if limits.time_ms == Some(0) {
        return Err(Failure::usage("--timeout must be longer than 0"));
    }
    Ok(limits)
}

/// A quantity of an option; the error names the option.
pub fn quantity(field: &str, text: &str, read: fn(&str) -> Result<u64, UnitError>) -> Result<u64, Failure> {
    read(text).map_err(|error| Failure::usage(format!("{field}: {error}")))
}

fn checkout(
    client: &mut Client,
    args: &Create,
    repo: &std::path::Path,
    name: &Name,
) -> Result<Checkout, Failure> {
    let path = std::path::absolute(repo).unwrap_or_else(|_| repo.to_path_buf());
    let request = Query::ResolveRepo { repo: path.to_string_lossy().into_owned(), base: args.base.clone() };
    let resolved = match client.ask(&request)? {
        Reply::Resolved(resolved) => resolved,
        other => return Err(unexpected(other)),
    };
    if resolved.dirty {
        say(&safe_line(&format!(
            "warning: {} has changes that are not committed; the agent starts from {} without them",
            resolved.repo,
            short(&resolved.commit)
        )));
    }
    if matches!(args.workspace, Workspace::Worktree) {
        say(
            "warning: a linked worktree shares the stash and the branches of its repository with you and with every other \
             worktree: what one of them stashes, another can pop",
        );
    }
    let leaf = leaf(name)?;
    Ok(Checkout {
        repo: resolved.repo,
        commit: resolved.commit,
        branch: Some(format!("phalanx/adhoc/{leaf}")),
        kind: match args.workspace {
            Workspace::Auto | Workspace::None => CheckoutKind::Auto,
            Workspace::Overlay => CheckoutKind::Overlay,
            Workspace::Clone => CheckoutKind::Clone,
            Workspace::Worktree => CheckoutKind::Worktree,
        },
        result_ref: Some(format!("refs/phalanx/adhoc/{leaf}")),
        near: None,
        snapshot: None,
        copy: Vec::new(),
        prepare: None,
    })
}

/// Last part of the refs of an agent that a person makes.
pub fn leaf(name: &Name) -> Result<String, Failure> {
    let tail: String = random_hex()?.chars().take(6).collect();
    let slug = slug(name.as_str(), 40);
    Ok(if slug.is_empty() { format!("agent-{tail}") } else { format!("{slug}-{tail}") })
}

/// The words of a `create`, and its request, for an agent that is as another one but where the words say otherwise.
pub fn request_like(
    context: &Context,
    args: &CloneAgent,
    source: &AgentView,
) -> Result<(Create, CreateAgent), Failure> {
    let mut create = words_of(args);
    let own_program = !create.program.is_empty();
    if !own_program {
        create.program.clone_from(&source.spec.program);
    }
    let mut request = request_of(&create, &context.settings)?;
    let (spec, other) = (&mut request.spec, &source.spec);
    if !own_program {
        spec.profile.clone_from(&other.profile);
        spec.ready_text.clone_from(&other.ready_text);
    }
    let mut labels = other.labels.clone();
    labels.append(&mut spec.labels);
    spec.labels = labels;
    let given = spec.limits;
    spec.limits = ResourceLimits {
        memory_bytes: if args.memory.is_some() { given.memory_bytes } else { other.limits.memory_bytes },
        cpu_millis: if args.cpu.is_some() { given.cpu_millis } else { other.limits.cpu_millis },
        pids: if args.pids.is_some() { given.pids } else { other.limits.pids },
        time_ms: if args.timeout.is_some() { given.time_ms } else { other.limits.time_ms },
    };
    spec.grace_ms = other.grace_ms;
    spec.user.clone_from(&other.user);
    // The snapshot is in a repository of that host.
    request.host = Some(source.host.clone());
    Ok((create, request))
}

/// The first digits of a commit.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

fn submit(client: &mut Client, args: &Create, request: &mut CreateAgent) -> Result<AgentId, Failure> {
    for _ in 0..NAME_TRIES {
        let answer = client.ask(&Mutation::CreateAgent(Box::new(request.clone())));
        match answer {
            Ok(Reply::Accepted { agent }) => return Ok(agent),
            Ok(other) => return Err(unexpected(other)),
            // A made-up name was taken: the key belongs to that answer, so another name is another request.
            Err(Failure::Error { error, .. })
                if error.code == ErrorCode::Conflict && args.name.is_none() && args.key.is_none() =>
            {
                request.spec.name = made_up_name()?;
                request.key = request_key(None)?;
            }
            Err(failure) => return Err(with_key(failure, "phalanx create", &request.key)),
        }
    }
    Err(Failure::new(ErrorCode::Conflict, "every name that was made up is taken").hint("give a NAME"))
}

/// The agent once it was started or has ended.
fn started(
    context: &Context,
    client: &mut Client,
    agent: AgentId,
    request: &CreateAgent,
) -> Result<AgentView, Failure> {
    let (name, key): (&Name, &RequestKey) = (&request.spec.name, &request.key);
    let begun = Instant::now();
    let until_started = Query::WaitAgents { targets: vec![agent.to_string()], until: Until::Started };
    let mut view = None;
    let mut wait_until = |client: &mut Client, deadline| {
        let limits = Limits { deadline: Some(deadline), interrupts: None };
        let waited = client.stream(&until_started, &limits, |item| {
            if let Item::Agent(agent) = item {
                view = Some(*agent);
            }
            Ok(Flow::More)
        });
        waited.map_err(|failure| with_key(failure, "phalanx create", key))
    };
    let mut end = wait_until(client, begun + READY_LIMIT)?;
    if matches!(end, StreamEnd::TimedOut) {
        *client = context.client()?;
        let known = select::one(client, &agent.to_string())?;
        if known.report.as_ref().is_some_and(|report| report.started_at.is_some()) {
            let limit = READY_LIMIT.as_secs();
            let message =
                format!("{name} ({agent}) runs, but has not shown within {limit} s that it is ready");
            return Err(Failure::new(ErrorCode::TimedOut, message).hint(format!("phalanx capture {agent}")));
        }
        end = wait_until(client, begun + START_LIMIT)?;
    }
    match (end, view) {
        (StreamEnd::Reply(_), Some(view)) if view::end(&view).is_some() => Ok(view),
        (StreamEnd::Reply(_), Some(view)) => {
            let settled =
                wait(client, vec![agent.to_string()], Until::Ended, Some(Instant::now() + SETTLE), false)?;
            Ok(settled.views.into_iter().next().unwrap_or(view))
        }
        (StreamEnd::Reply(_), None) => select::one(client, &agent.to_string()),
        _ => {
            let message = format!(
                "{name} ({agent}) is accepted, but was not started within {} s",
                START_LIMIT.as_secs()
            );
            Err(Failure::new(ErrorCode::TimedOut, message).hint(format!("phalanx why {agent}")))
        }
    }
}

/// The exit code that the start earns.
fn outcome(view: &AgentView) -> u8 {
    match end(view) {
        None => exit::OK,
        Some(end) if end.is_success() => exit::OK,
        Some(End { step: Some(StartStep::ProgramMissing), .. }) => exit::MISSING,
        Some(End { step: Some(StartStep::ProgramDenied | StartStep::User), .. }) => exit::DENIED,
        Some(End { step: Some(StartStep::Host), .. }) => exit::EXHAUSTED,
        Some(_) => exit::FAILED,
    }
}

fn show(context: &Context, view: AgentView, code: u8) -> Result<u8, Failure> {
    let mut out = Stdout::default();
    if context.quiet {
        out.line(&view.id.to_string())?;
    } else if matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        let (name, host) = (safe_line(&view.name), &view.host);
        match end(&view) {
            None if view.report.as_ref().is_some_and(|report| report.started_at.is_some()) => {
                out.line(&format!("{name} was started on {host} ({})", view.id))?;
                if view.phase == Phase::Blocked {
                    say(&safe_line(&format!(
                        "note: {}; answer with: phalanx attach {}",
                        view.reason, view.id
                    )));
                }
            }
            None => out.line(&format!("{name} is accepted on {host} ({})", view.id))?,
            Some(end) => out.line(&format!(
                "{name} was created on {host} ({}); {}",
                view.id,
                safe_line(&long_end(end))
            ))?,
        }
    } else {
        let rows = [AgentRow { view: view.clone(), now: now() }];
        list(
            &mut out,
            &context.format,
            &Listing { items: &rows, as_of: Some(view.as_of), note: None, empty: "" },
        )?;
    }
    out.done()?;
    if code != exit::OK {
        let program = view.spec.program.first().cloned().unwrap_or_default();
        let why = end(&view).map(long_end).unwrap_or_default();
        let message = match end(&view).and_then(|end| end.step) {
            Some(StartStep::ProgramMissing | StartStep::ProgramDenied) => format!("{program:?}: {why}"),
            _ => format!("{}: {why}", view.name),
        };
        let error = Failure::new(ErrorCode::Failed, message).exit(code);
        return Err(error.hint(format!("phalanx logs {}; phalanx destroy {}", view.id, view.id)));
    }
    Ok(code)
}

const ADJECTIVES: &[&str] = &[
    "amber", "bold", "brisk", "calm", "clear", "clever", "crisp", "deft", "eager", "early", "exact", "fair",
    "fast", "firm", "fresh", "gentle", "glad", "grand", "keen", "kind", "light", "lively", "lucid", "merry",
    "mild", "neat", "noble", "patient", "plain", "proud", "quick", "quiet", "ready", "sharp", "silver",
    "sober", "steady", "still", "stout", "sunny", "swift", "tidy", "true", "vivid", "warm", "wise", "witty",
    "young",
];
const NOUNS: &[&str] = &[
    "acorn", "anchor", "badger", "beacon", "birch", "bison", "brook", "cedar", "comet", "coral", "crane",
    "delta", "ember", "falcon", "fern", "finch", "fjord", "forge", "garnet", "grove", "harbor", "hazel",
    "heron", "island", "jasper", "juniper", "lantern", "larch", "linden", "lynx", "maple", "marten",
    "meadow", "orchid", "osprey", "otter", "pebble", "pine", "plover", "quartz", "raven", "reef", "river",
    "robin", "sparrow", "summit", "thicket", "willow",
];

fn made_up_name() -> Result<Name, Failure> {
    let random = random_hex()?;
    let number = |from: usize| random.get(from..from + 8).and_then(|hex| usize::from_str_radix(hex, 16).ok());
    let pick = |words: &'static [&'static str], from| {
        words.iter().cycle().nth(number(from).unwrap_or(0) % words.len())
    };
    let word = |found: Option<&&'static str>| found.copied().unwrap_or("agent");
    let name = format!("{}-{}", word(pick(ADJECTIVES, 0)), word(pick(NOUNS, 8)));
    name.parse().map_err(|error: protocol::ids::IdError| Failure::new(ErrorCode::Failed, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_names_are_names() {
        for _ in 0..200 {
            assert!(made_up_name().unwrap().as_str().contains('-'));
        }
    }
}
