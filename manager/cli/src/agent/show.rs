//! `show`: everything that is known of some agents, or of a run.

use protocol::api::{AgentView, Query, Reply};
use protocol::report::{Collected, Life};

use super::super::args::agent::Show;
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use super::super::output::render::{Listing, list};
use super::super::output::table::details;
use super::super::output::when::{age, date, now};
use super::super::run;
use super::view::{AgentRow, has_wanted_limits, long_end};
use manager_plan::config::format::OutputFormat;
use manager_plan::runfile::units::{human_duration, human_size};

fn rows(agents: Vec<AgentView>) -> Vec<AgentRow> {
    let now = now();
    agents.into_iter().map(|view| AgentRow { view, now }).collect()
}

pub fn run(context: &Context, args: &Show) -> Result<u8, Failure> {
    let mut client = context.client()?;
    let (agents, as_of) = match client.ask(&Query::ShowAgents { targets: args.targets.clone() }) {
        Ok(Reply::Agents { agents, as_of }) => (agents, as_of),
        Ok(other) => return Err(unexpected(other)),
        Err(failure) => {
            let target = args.targets.first().filter(|_| args.targets.len() == 1);
            // No agent is called so; the words about it are right where no run is either.
            let run = target.filter(|_| failure.exit_code() == exit::MISSING);
            return match run.and_then(|run| run::list::one(&mut client, run).ok()) {
                Some(view) => run::show::show(context, view),
                None => Err(failure),
            };
        }
    };
    let rows = rows(agents);
    let mut out = Stdout::default();
    if context.quiet {
        rows.iter().try_for_each(|row| out.line(&row.view.id.to_string()))?;
    } else if matches!(context.format, OutputFormat::Table | OutputFormat::Wide) {
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                out.line("")?;
            }
            out.text(&describe(row))?;
        }
    } else {
        list(
            &mut out,
            &context.format,
            &Listing { items: &rows, as_of: Some(as_of), note: None, empty: "" },
        )?;
    }
    out.done()?;
    Ok(exit::OK)
}

/// What is wanted and not so, with the host's reason where it gave one; limits that were refused are not wanted any more.
fn unmet(view: &AgentView, refused: bool) -> String {
    let is_refused = |what: &str| what == "limits" && has_wanted_limits(view);
    let said = view.unmet.iter().filter(|unmet| is_refused(&unmet.what) == refused);
    let said = said.map(|unmet| match unmet.why.as_str() {
        "" => format!("{} (under way)", unmet.what),
        why => format!("{} ({why})", unmet.what),
    });
    said.collect::<Vec<_>>().join(", ")
}

/// Everything that is known, empty lines left out.
fn describe(row: &AgentRow) -> String {
    let (view, now) = (&row.view, row.now);
    let spec = &view.spec;
    let report = view.report.as_ref();
    let workspace = report.and_then(|report| report.workspace.as_ref());
    let collected = report.and_then(|report| report.collected.as_ref());
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let joined = |words: Option<&Vec<String>>| words.map(|words| words.join(", ")).unwrap_or_default();
    let limit = |value: Option<u64>, show: fn(u64) -> String| value.map(show).unwrap_or_default();
    let is_destroyed = report.is_some_and(|report| report.life == Life::Destroyed);
    let isolation = report.and_then(|report| report.isolation);
    // What is in force; a wish that is not is among those not in force.
    let limits = report.map_or(&spec.limits, |report| &report.spec.limits);
    let phase = match report.and_then(|report| report.phase_reason) {
        Some(reason) => format!("{} ({reason})", view.phase),
        None => view.phase.to_string(),
    };
    details(&[
        ("name", view.name.clone()),
        ("id", view.id.to_string()),
        ("phase", phase),
        ("known by", report.map(|report| report.source.clone()).unwrap_or_default()),
        ("reason", view.reason.clone()),
        ("choices", joined(report.and_then(|report| report.dialog.as_ref()).map(|dialog| &dialog.choices))),
        (
            "ended",
            row.end().map(|end| format!("{}, {} ago", long_end(end), age(now, end.at))).unwrap_or_default(),
        ),
        (
            "ended before",
            report
                .map(|report| report.earlier.iter().map(long_end).collect::<Vec<_>>().join("; "))
                .unwrap_or_default(),
        ),
        ("wanted", view.wanted.clone()),
        ("not in force", unmet(view, false)),
        ("refused", unmet(view, true)),
        ("host", format!("{} in {} ({})", view.host, view.region, view.reachability)),
        ("known as of", format!("{} ({} ago)", date(view.as_of), age(now, view.as_of))),
        ("created", format!("{} ({} ago)", date(view.created_at), age(now, view.created_at))),
        ("started", report.and_then(|report| report.started_at).map(date).unwrap_or_default()),
        ("last output", view.last_output.map(|at| format!("{} ago", age(now, at))).unwrap_or_default()),
        ("program", format!("{:?}", spec.program)),
        ("profile", text(spec.profile.as_ref())),
        (
            "task",
            spec.task
                .as_ref()
                .map(|t| format!("{} of run {}, attempt {}", t.task_name, t.run_name, t.attempt))
                .unwrap_or_default(),
        ),
        ("labels", spec.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(", ")),
        ("user", report.map(|report| report.user.clone()).unwrap_or_default()),
        ("isolation", isolation.map(|isolation| isolation.to_string()).unwrap_or_default()),
        ("memory limit", limit(limits.memory_bytes, human_size)),
        (
            "cpu limit",
            limit(limits.cpu_millis, |millis| format!("{}.{:03} cores", millis / 1000, millis % 1000)),
        ),
        ("pids limit", limit(limits.pids, |pids| pids.to_string())),
        ("time limit", limit(limits.time_ms, human_duration)),
        ("enforced", joined(report.map(|report| &report.enforced))),
        ("degraded", joined(report.map(|report| &report.degraded))),
        ("memory", if row.end().is_some() { String::new() } else { human_size(view.memory_bytes) }),
        ("cpu time", human_duration(view.cpu_ms)),
        (
            "workspace",
            workspace
                .filter(|_| !is_destroyed)
                .map(|w| format!("{} ({})", w.path, w.kind))
                .unwrap_or_default(),
        ),
        ("repository", text(workspace.and_then(|w| w.repo.as_ref()))),
        ("base", text(workspace.and_then(|w| w.base_commit.as_ref()))),
        ("branch", text(workspace.and_then(|w| w.branch.as_ref()))),
        ("warnings", joined(workspace.map(|w| &w.warnings))),
        ("commit", text(collected.and_then(|c| c.commit.as_ref()))),
        ("kept as", text(collected.and_then(|c| c.result_ref.as_ref()))),
        ("uncommitted", aside(collected)),
        ("left out", collected.map(|c| c.left_out.join(", ")).unwrap_or_default()),
        ("nowhere else", collected.map(|c| c.unknown_submodules.join(", ")).unwrap_or_default()),
        ("moved in repo", collected.map(|c| c.source_moved.join(", ")).unwrap_or_default()),
        ("holds", joined(report.map(|report| &report.holds))),
        (
            "transcript",
            // Of a live one the report does not count along.
            report
                .filter(|_| row.end().is_some())
                .and_then(|report| report.transcript.as_ref())
                .map(|transcript| human_size(transcript.bytes))
                .unwrap_or_default(),
        ),
        ("messages", waiting(view)),
        (
            "session",
            report
                .filter(|_| !is_destroyed)
                .and_then(|report| report.session.as_ref())
                .map(|_| format!("phalanx attach {}", view.name))
                .unwrap_or_default(),
        ),
    ])
}

/// Where that is which it did not commit.
fn aside(collected: Option<&Collected>) -> String {
    let place = collected.and_then(|c| c.uncommitted.as_ref().zip(c.uncommitted_ref.as_ref()));
    place.map(|(commit, name)| format!("{commit}, kept as {name}")).unwrap_or_default()
}

/// Texts that wait to be typed, and why the first one does.
fn waiting(view: &AgentView) -> String {
    let Some(first) = view.messages.first() else { return String::new() };
    format!("{} queued, waits: {} (phalanx messages {})", view.messages.len(), first.reason, view.name)
}
