//! Progress of a run on stderr: one line that is redrawn on a terminal, a line for each change elsewhere.

use std::collections::BTreeMap;

use protocol::api::{Query, Reply};
use protocol::ids::TaskId;
use protocol::task::{RunView, TaskState, TaskView};

use super::pipe::{say, say_bytes, stderr_can_redraw};
use super::sanitise::safe_line;

const BAR_WIDTH: u64 = 24;

/// Shows what changed.
pub enum Progress {
    Silent,
    Bar,
    Lines { known: BTreeMap<TaskId, (TaskState, usize)> },
}

impl Progress {
    pub fn new(quiet: bool) -> Self {
        if quiet {
            Self::Silent
        } else if stderr_can_redraw() {
            Self::Bar
        } else {
            Self::Lines { known: BTreeMap::new() }
        }
    }

    /// The question to ask after a change, when the counts do not say enough.
    pub fn question(&self, run: &RunView) -> Option<Query> {
        matches!(self, Self::Lines { .. }).then(|| Query::ShowRun { run: run.id.to_string() })
    }

    pub fn run(&self, run: &RunView) {
        if matches!(self, Self::Bar) {
            say_bytes(format!("\r\x1b[K{}", bar(run)).as_bytes());
        }
    }

    pub fn tasks(&mut self, reply: &Reply) {
        let (Self::Lines { known }, Reply::Run { tasks, .. }) = (self, reply) else { return };
        for task in tasks {
            let state = (task.state, task.attempts.len());
            let before = known.insert(task.id, state);
            // A task that waits from the beginning is no news.
            if before == Some(state) || (before.is_none() && task.state == TaskState::Queued) {
                continue;
            }
            say(&line(task));
        }
    }

    pub fn end(&self) {
        if matches!(self, Self::Bar) {
            say_bytes(b"\r\x1b[K");
        }
    }
}

/// How many tasks are in one of `states`.
pub fn count(run: &RunView, states: &[TaskState]) -> u64 {
    states.iter().filter_map(|state| run.counts.get(state.as_str())).sum()
}

fn bar(run: &RunView) -> String {
    let accepted = count(run, &[TaskState::Accepted, TaskState::Merged]);
    let lost = count(run, &[TaskState::Failed, TaskState::Rejected, TaskState::Cancelled]);
    let review = count(run, &[TaskState::Review]);
    let live = count(run, &[TaskState::Assigned, TaskState::Running, TaskState::Verifying]);
    let done = accepted + lost + review;
    let filled = (done * BAR_WIDTH).checked_div(run.total).unwrap_or(BAR_WIDTH).min(BAR_WIDTH);
    let drawn: String = (0..BAR_WIDTH).map(|place| if place < filled { '#' } else { '.' }).collect();
    let mut text = format!("[{drawn}] {done}/{} done, {accepted} accepted", run.total);
    for (count, word) in [(lost, "failed"), (review, "in review"), (live, "running")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text
}

fn line(task: &TaskView) -> String {
    let mut text = format!("{} {}", task.spec.name, task.state);
    if task.attempts.len() > 1 {
        text.push_str(&format!(" (attempt {})", task.attempts.len()));
    }
    if !task.reason.is_empty() {
        text.push_str(&format!(": {}", task.reason));
    }
    safe_line(&text)
}
