//! Reads what an agent's folder proves of its end, and translates the shim's words into the core's.

use std::path::Path;

use hostd_core::{ExitCause, ExitSeen};
use protocol::agent::StartStep;
use protocol::report::Usage;
use protocol::shim::{self, EndCause, ExitRecord, Limit, ShimRecord, StartFailure};
use protocol::time::Timestamp;

use crate::sys::cgroup::{AgentGroup, Stats};

/// The shim's record of this start, or that there is none, or that it cannot be told.
///
/// # Errors
/// A file that is there and cannot be read or decoded: unknown, never "none".
pub(super) fn read_exit(folder: &Path, launch: u32) -> Result<Option<ExitRecord>, String> {
    let found: Option<ExitRecord> = read(&folder.join(shim::file::EXIT))?;
    Ok(found.filter(|record| record.launch == launch))
}

/// # Errors
/// As [`read_exit`].
pub(super) fn read_shim(folder: &Path, launch: u32) -> Result<Option<ShimRecord>, String> {
    let found: Option<ShimRecord> = read(&folder.join(shim::file::SHIM))?;
    Ok(found.filter(|record| record.launch == launch))
}

/// Puts aside what earlier starts left, since a shim begins only where none has been. Repeatable.
///
/// # Errors
/// A record that cannot be told, which may be of this start, or cannot be moved.
pub(super) fn set_aside(folder: &Path, launch: u32) -> Result<(), String> {
    let (exit_path, shim_path) = (folder.join(shim::file::EXIT), folder.join(shim::file::SHIM));
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let exit: Option<ExitRecord> = read(&exit_path)?;
    if let Some(exit) = exit.filter(|exit| exit.launch < launch) {
        let kept = folder.join(format!("exit.{}.json", exit.launch));
        std::fs::rename(&exit_path, kept).map_err(|error| failed(&exit_path, error))?;
    }
    let shim: Option<ShimRecord> = read(&shim_path)?;
    if shim.is_some_and(|shim| shim.launch < launch) {
        std::fs::remove_file(&shim_path).map_err(|error| failed(&shim_path, error))?;
    }
    Ok(())
}

/// Where in the transcript the output of a start begins: where that of the last one before ended, as far as is known.
#[must_use]
pub fn begin_of_launch(folder: &Path, launch: u32) -> u64 {
    let ended = |earlier| read::<ExitRecord>(&folder.join(format!("exit.{earlier}.json"))).ok().flatten();
    (1..launch).rev().find_map(ended).map_or(0, |exit| exit.out_len)
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| format!("{} cannot be decoded: {error}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

/// What the record says, with what the kernel counted.
#[must_use]
pub(super) fn exit_seen(record: &ExitRecord, stats: Option<&Stats>) -> ExitSeen {
    let (cause, mut detail) = match &record.cause {
        EndCause::WallTime => (ExitCause::TimeLimit, "its time limit was reached".to_owned()),
        EndCause::Lease => (ExitCause::Lease, "its lease was not renewed".to_owned()),
        EndCause::StartFailed(failure) => (ExitCause::Start(start_step(failure)), failure.message.clone()),
        EndCause::ShimTerminated => (
            ExitCause::Supervisor,
            "its supervisor was asked to end, as by a machine that goes down".to_owned(),
        ),
        EndCause::Exited | EndCause::Signalled | EndCause::Unknown => (ExitCause::Program, String::new()),
    };
    if let (true, Some(limit)) = (detail.is_empty(), record.descendants_ended_by) {
        let limit = match limit {
            Limit::WallTime => "the time limit",
            Limit::Lease => "the end of the lease",
            Limit::ShimTerminated | Limit::Unknown => "its supervisor",
        };
        detail = format!("processes that it left were ended by {limit}");
    }
    let shim_cpu_ms = record.usage.user_ms.saturating_add(record.usage.system_ms);
    ExitSeen {
        launch: record.launch,
        cause,
        code: record.code,
        signal: record.signal,
        out_of_memory: stats.and_then(|stats| stats.oom_kills).is_some_and(|kills| kills > 0),
        at: Timestamp(record.exited_at_ms),
        transcript_bytes: record.out_len,
        usage: Usage {
            cpu_ms: stats.and_then(|stats| stats.cpu_usec).map_or(shim_cpu_ms, |usec| usec / 1000),
            memory_peak_bytes: stats
                .and_then(|stats| stats.memory_peak_bytes)
                .unwrap_or(record.usage.max_rss_kb.saturating_mul(1024)),
        },
        detail,
    }
}

/// Counters of a group that may be gone by now.
#[must_use]
pub(super) fn stats_of(group: &AgentGroup) -> Option<Stats> {
    group.stats().ok()
}

/// What a start that failed in the shim is in the words of a report.
#[must_use]
pub(super) fn start_step(failure: &StartFailure) -> StartStep {
    match failure.step {
        shim::StartStep::Exec if failure.errno == libc::ENOENT => StartStep::ProgramMissing,
        shim::StartStep::Exec if failure.errno == libc::EACCES => StartStep::ProgramDenied,
        shim::StartStep::Exec | shim::StartStep::Interpreter => StartStep::Exec,
        shim::StartStep::Cwd => StartStep::Workspace,
        shim::StartStep::User => StartStep::User,
        shim::StartStep::Environment => StartStep::Environment,
        shim::StartStep::Cgroup => StartStep::Limits,
        shim::StartStep::Launch | shim::StartStep::Supervise | shim::StartStep::Unknown => {
            StartStep::Supervisor
        }
    }
}
