//! What is known of work that goes on, in words: what it does or waits for, how that is known and since when, and which
//! limit is near.

use protocol::agent::{Phase, ResourceLimits};
use protocol::api::AgentView;
use protocol::report::Report;
use protocol::task::{TaskState, TaskView};
use protocol::time::Timestamp;

/// A limit is near from so many hundredths of it on.
const NEAR_PERCENT: u64 = 80;
/// Less is no silence.
const QUIET_MS: u64 = 2_000;

/// What a live agent does, how that is known, and what a person can do about it.
pub(super) fn live_words(now: Timestamp, view: &AgentView) -> (String, &'static str) {
    let Some(report) = view.report.as_ref().filter(|report| report.end.is_none()) else {
        return (view.reason.clone(), "");
    };
    let (does, remedy) = does(view, report);
    let mut words = vec![does];
    words.push(format!("known {} ago", spoken(now.ms_since(report.as_of))));
    if report.phase == Phase::Running {
        words.push(output(now, view));
    }
    words.extend(near_limits(now, view, report));
    words.retain(|word| !word.is_empty());
    (words.join("; "), remedy)
}

fn does(view: &AgentView, report: &Report) -> (String, &'static str) {
    let known = match report.source.as_str() {
        "screen" => "its screen shows it",
        "process" => "its processes show it",
        _ => "its host says so",
    };
    match report.phase {
        Phase::Blocked => {
            let choices = report.dialog.as_ref().map(|dialog| dialog.choices.join(" | ")).unwrap_or_default();
            let choices = if choices.is_empty() { choices } else { format!(" [{choices}]") };
            (format!("{}{choices}; {known}", report.reason), "phalanx attach")
        }
        Phase::Paused => (format!("{}; {known}", report.reason), ""),
        Phase::Running if report.reason.is_empty() && view.spec.signals.is_some() => {
            match report.source.as_str() {
                "screen" => (format!("it is at work; {known}"), ""),
                _ if !report.ready => (
                    String::from("it was started, and shows no sign that its profile knows"),
                    "phalanx capture",
                ),
                _ => (
                    String::from("it shows none of the signs that its profile knows: it counts as at work"),
                    "phalanx capture",
                ),
            }
        }
        Phase::Running if view.reason.is_empty() => {
            (format!("its program lives, which counts as at work where it shows no signs; {known}"), "")
        }
        Phase::Creating if view.reason.is_empty() => {
            (String::from("its workspace, limits and session are being made"), "")
        }
        Phase::Running
        | Phase::Creating
        | Phase::Stopped
        | Phase::Crashed
        | Phase::Failed
        | Phase::Unknown => (view.reason.clone(), ""),
    }
}

/// Of its output what the last digest of its host said.
fn output(now: Timestamp, view: &AgentView) -> String {
    match view.last_output.map(|at| now.ms_since(at)) {
        Some(quiet_ms) if quiet_ms >= QUIET_MS => format!("it has printed nothing for {}", spoken(quiet_ms)),
        Some(_) => String::from("it prints"),
        None => String::from("whether it has printed anything is not known yet"),
    }
}

fn near_limits(now: Timestamp, view: &AgentView, report: &Report) -> Vec<String> {
    let ResourceLimits { memory_bytes, time_ms, .. } = report.spec.limits;
    let mut near = Vec::new();
    let percent = |part: u64, whole: u64| part.saturating_mul(100).checked_div(whole);
    if let Some(used) = memory_bytes.and_then(|limit| percent(view.memory_bytes, limit))
        && used >= NEAR_PERCENT
    {
        near.push(format!("it holds {used}% of its memory limit"));
    }
    if let (Some(limit_ms), Some(started_at)) = (time_ms, report.started_at) {
        let lived_ms = now.ms_since(started_at);
        if percent(lived_ms, limit_ms).is_some_and(|used| used >= NEAR_PERCENT) {
            near.push(format!("its time limit ends it in {}", spoken(limit_ms.saturating_sub(lived_ms))));
        }
    }
    near
}

/// What is done for a task that has nothing else to be said of it.
pub(super) fn work_words(now: Timestamp, view: &TaskView) -> String {
    let attempt = view.attempts.last();
    let number = attempt.map_or(0, |attempt| attempt.number);
    let since = attempt.and_then(|attempt| attempt.started_at);
    let since = since.map(|at| format!(", begun {} ago", spoken(now.ms_since(at)))).unwrap_or_default();
    match view.state {
        TaskState::Assigned => format!("attempt {number} is being started{since}"),
        TaskState::Running => format!("attempt {number} is at work{since}"),
        TaskState::Verifying => format!("the work of attempt {number} is being verified"),
        TaskState::Queued
        | TaskState::Review
        | TaskState::Accepted
        | TaskState::Merged
        | TaskState::Rejected
        | TaskState::Failed
        | TaskState::Cancelled
        | TaskState::Unknown => String::new(),
    }
}

/// A duration in the largest unit that it has two of, so that it says enough and no more.
fn spoken(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let unit = UNITS.iter().find(|(length, _)| ms / length >= 2);
    unit.map_or_else(|| format!("{ms} ms"), |(length, word)| format!("{} {word}", ms / length))
}
