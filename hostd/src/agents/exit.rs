//! Reads what an agent's folder proves of its end, and translates the shim's words into the core's.

use std::path::Path;

use hostd_core::{AgentRecord, ExitCause, ExitSeen};
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

/// An exit record as far as it can be believed.
#[derive(Debug, Default)]
pub(super) struct Believed {
    pub(super) record: Option<ExitRecord>,
    /// Why the one that is there is not believed: something else than its shim has written it.
    pub(super) refused: Option<String>,
}

/// The record of this start, unless it contradicts what else is known of the start.
///
/// # Errors
/// As [`read_exit`].
pub(super) fn believed_exit(
    folder: &Path,
    agent: &AgentRecord,
    shim: Option<&ShimRecord>,
) -> Result<Believed, String> {
    let path = folder.join(shim::file::EXIT);
    let found: Option<ExitRecord> = match read(&path) {
        // A shim replaces it whole: what cannot be decoded is nothing that it has written.
        Err(why) if path.is_file() && std::fs::read(&path).is_ok() => {
            return Ok(Believed { record: None, refused: Some(why) });
        }
        found => found?,
    };
    let Some(exit) = found.filter(|exit| exit.launch >= agent.launch) else { return Ok(Believed::default()) };
    let id = agent.agent.to_string();
    let start = Start { agent: &id, epoch: &agent.epoch, launch: agent.launch };
    Ok(match contradiction(&exit, &start, shim) {
        None => Believed { record: Some(exit), refused: None },
        Some(why) => Believed { record: None, refused: Some(why) },
    })
}

/// What hostd itself knows of a start.
struct Start<'a> {
    agent: &'a str,
    epoch: &'a str,
    launch: u32,
}

/// What in the record cannot be true of this start.
fn contradiction(exit: &ExitRecord, start: &Start<'_>, shim: Option<&ShimRecord>) -> Option<String> {
    // A shim that could not read what it should start knows no name.
    let unstarted = matches!(exit.cause, EndCause::StartFailed(_));
    if exit.launch != start.launch {
        return Some(format!("it is of start {}, and this is start {}", exit.launch, start.launch));
    }
    if exit.agent != start.agent && !(unstarted && exit.agent.is_empty()) {
        return Some(format!("it is of agent {}", exit.agent));
    }
    if exit.epoch.as_ref().is_some_and(|epoch| epoch != start.epoch) {
        return Some("it has another epoch than the agent".to_owned());
    }
    let shim = shim?;
    if let Some(writer) = exit.shim.filter(|writer| *writer != shim.shim) {
        return Some(format!("process {} wrote it, and its supervisor is {}", writer.pid, shim.shim.pid));
    }
    if exit.boot_id != shim.boot_id {
        return Some("it is of another boot of the machine".to_owned());
    }
    if !unstarted && exit.started_at_ms != shim.started_at_ms {
        return Some("it tells of another begin than its supervisor's record".to_owned());
    }
    if exit.exited_boottime_ms < shim.started_boottime_ms {
        return Some("it tells of an end before the begin".to_owned());
    }
    None
}

/// # Errors
/// As [`read_exit`].
pub(super) fn read_shim(folder: &Path, launch: u32) -> Result<Option<ShimRecord>, String> {
    let found: Option<ShimRecord> = read(&folder.join(shim::file::SHIM))?;
    Ok(found.filter(|record| record.launch == launch))
}

/// The shim of this start, as far as its record tells.
#[must_use]
pub fn shim_of(folder: &Path, launch: u32) -> Option<shim::ProcessRef> {
    read_shim(folder, launch).ok().flatten().map(|record| record.shim)
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

#[cfg(test)]
mod tests {
    use protocol::ids::AgentId;
    use protocol::shim::ProcessRef;
    use serde_json::json;

    use super::*;

    const EPOCH: &str = "00112233445566778899aabbccddeeff";

    fn agent() -> AgentId {
        AgentId::from_parts(7, 1)
    }

    fn exit() -> ExitRecord {
        serde_json::from_value(json!({
            "version": 1, "agent": agent().to_string(), "build": "1", "boot_id": "b", "cause": {"kind": "exited"},
            "code": 0, "started_at_ms": 500, "exited_at_ms": 900, "exited_boottime_ms": 90, "out_len": 0,
            "drained": true, "shim": {"pid": 100, "start_time": 5}, "epoch": EPOCH,
        }))
        .unwrap()
    }

    fn shim_record() -> ShimRecord {
        serde_json::from_value(json!({
            "version": 1, "agent": agent().to_string(), "shim": {"pid": 100, "start_time": 5},
            "child": {"pid": 101, "start_time": 6}, "boot_id": "b", "started_at_ms": 500,
            "started_boottime_ms": 50, "build": "1", "socket_version": 1,
        }))
        .unwrap()
    }

    fn told(exit: &ExitRecord) -> Option<String> {
        let id = agent().to_string();
        contradiction(exit, &Start { agent: &id, epoch: EPOCH, launch: 1 }, Some(&shim_record()))
    }

    #[test]
    fn an_end_that_contradicts_its_start_is_refused() {
        assert_eq!(told(&exit()), None);
        let older = ExitRecord { shim: None, epoch: None, ..exit() };
        assert_eq!(told(&older), None, "an older shim says less");
        for (forged, why) in [
            (ExitRecord { agent: AgentId::from_parts(7, 2).to_string(), ..exit() }, "of agent"),
            (ExitRecord { epoch: Some("x".to_owned()), ..exit() }, "epoch"),
            (ExitRecord { shim: Some(ProcessRef { pid: 7, start_time: 5 }), ..exit() }, "process 7"),
            (ExitRecord { boot_id: "a".to_owned(), ..exit() }, "boot"),
            (ExitRecord { started_at_ms: 501, ..exit() }, "another begin"),
            (ExitRecord { exited_boottime_ms: 49, ..exit() }, "before the begin"),
            (ExitRecord { launch: 2, ..exit() }, "start 2"),
        ] {
            let told = told(&forged).unwrap();
            assert!(told.contains(why), "{told}");
        }
    }
}
