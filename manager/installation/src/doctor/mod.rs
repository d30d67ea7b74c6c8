//! `doctor`: what this machine has and lacks, each with the command that mends it. Every probe runs on a
//! thread of its own with a time limit; one that fails or hangs is `unknown`, never a pass. Changes nothing.

mod machine;
mod programs;

use std::sync::mpsc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::layout::Layout;
use super::losses;

const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub status: CheckStatus,
    pub found: String,
    /// What to do about it; empty when there is nothing to do.
    pub remedy: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStatus {
    Ok,
    Warn,
    Unknown,
    Fail,
}

/// What a probe says before it has a name.
pub(super) struct Finding {
    status: CheckStatus,
    found: String,
    remedy: String,
}

impl Finding {
    fn ok(found: impl Into<String>) -> Self {
        Self { status: CheckStatus::Ok, found: found.into(), remedy: String::new() }
    }

    fn warn(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Warn, found: found.into(), remedy: remedy.into() }
    }

    fn fail(found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Fail, found: found.into(), remedy: remedy.into() }
    }

    fn unknown(found: impl Into<String>) -> Self {
        Self { status: CheckStatus::Unknown, found: found.into(), remedy: String::new() }
    }
}

type Probe = fn(&Layout) -> Finding;

const PROBES: [(&str, Probe); 19] = [
    ("home", machine::home),
    ("tmux", programs::tmux),
    ("git", programs::git),
    ("nats-server", programs::nats_server),
    ("python3", programs::python),
    ("components", programs::components),
    ("cgroups", machine::cgroups),
    ("overlay", machine::overlay),
    ("disk", machine::disk),
    ("inodes", machine::inodes),
    ("locale", machine::locale),
    ("open files", machine::open_files),
    ("processes", machine::processes),
    ("terminals", machine::terminals),
    ("inotify", machine::inotify),
    ("clock", machine::clock),
    ("boot", machine::boot),
    ("notifications", machine::notifications),
    ("records", records),
];

/// Whether the bus still has what the manager stored in it.
fn records(layout: &Layout) -> Finding {
    match losses::told(layout, losses::now_ms()) {
        Ok(losses) => match (losses.iter().rfind(|loss| !loss.restored), losses.last()) {
            (Some(loss), _) => Finding::warn(
                loss.what.clone(),
                "look at `phalanx runs` and `phalanx ls`; submit again what is missing",
            ),
            (None, Some(loss)) => Finding::warn(
                loss.what.clone(),
                format!("nothing to do for the records; check the disk under {}", layout.bus().display()),
            ),
            (None, None) => Finding::ok("the bus lost none that is known"),
        },
        Err(error) => Finding::unknown(error.to_string()),
    }
}

/// Runs all probes at the same time.
pub fn check(layout: &Layout) -> Vec<Check> {
    let started: Vec<_> = PROBES.iter().map(|(name, probe)| (*name, start(layout, *probe))).collect();
    let deadline = std::time::Instant::now() + PROBE_LIMIT;
    started
        .into_iter()
        .map(|(name, receiver)| {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let finding = receiver.recv_timeout(left).unwrap_or_else(|_| {
                Finding::unknown(format!("no answer within {} s", PROBE_LIMIT.as_secs()))
            });
            Check { name, status: finding.status, found: finding.found, remedy: finding.remedy }
        })
        .collect()
}

/// A probe that hangs keeps its thread, which ends with the program.
fn start(layout: &Layout, probe: Probe) -> mpsc::Receiver<Finding> {
    let (sender, receiver) = mpsc::channel();
    let layout = layout.clone();
    let spawned = std::thread::Builder::new().name("doctor".to_owned()).spawn(move || {
        // Nobody hears a probe that took too long.
        let _ = sender.send(probe(&layout));
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "probe not started");
    }
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_answers_and_what_is_not_ok_says_what_to_do() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        let checks = check(&layout);
        assert_eq!(checks.len(), PROBES.len());
        for check in &checks {
            assert!(!check.found.is_empty(), "{check:?}");
            let silent = matches!(check.status, CheckStatus::Ok | CheckStatus::Unknown);
            assert!(silent || !check.remedy.is_empty(), "{check:?}");
        }
        assert!(!layout.home().exists(), "looking makes nothing");
    }
}
