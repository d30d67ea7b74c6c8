//! Asks an agent to end, and makes it.

use std::path::Path;
use std::time::Duration;

use hostd_core::AgentRecord;
use nix::sys::signal::Signal;
use protocol::ids::AgentId;
use protocol::shim::Request;

use super::shim_link::ShimLink;
use crate::machine::Handle;
use crate::sys::cgroup::AgentGroup;
use crate::sys::process::{ProcessRef, kill_below};

/// Until the kernel says that nothing is left; the core asks again later.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// A shim records the end of a killed program at once.
const SHIM_LIMIT: Duration = Duration::from_secs(2);
/// Between two tries to end what a start left.
const AGAIN: Duration = Duration::from_secs(1);

/// SIGTERM to the program's process group; to every process where the shim cannot be reached.
pub async fn terminate(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let folder = machine.folders.agent(agent);
    let asked = async {
        ShimLink::open(&folder).await?.ask(&Request::Signal { signo: Signal::SIGTERM as i32 }).await
    };
    let Err(error) = asked.await else { return };
    tracing::warn!(%agent, error = protocol::chain(&error), "the shim did not pass the signal on: sent to each process");
    blocking(machine, &record, |group| group.signal_all(Signal::SIGTERM).map(|_| ())).await;
}

/// Ends every process of the agent, frozen ones too: its group's, and those below its shim that went to another group,
/// as root may. Then its shim, if that does not end by itself.
pub async fn kill(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let folder = machine.folders.agent(agent);
    let shim = super::exit::read_shim(&folder, record.launch).ok().flatten();
    blocking(machine, &record, |group| group.kill(KILL_LIMIT)).await;
    let Some(shim) = shim.map(|record| super::watch::process(record.shim)) else { return };
    match tokio::task::spawn_blocking(move || kill_below(shim, KILL_LIMIT)).await {
        Ok(Ok(true)) => end_shim(agent, &folder, shim).await,
        Ok(Ok(false)) => tracing::warn!(%agent, "processes of an agent outlive their kill; tried again soon"),
        Ok(Err(error)) => {
            tracing::warn!(%agent, %error, "what is below a shim could not be ended; tried again soon");
        }
        Err(error) => tracing::error!(%agent, %error, "ending an agent broke off"),
    }
}

/// A shim ends once it has recorded the end of its program. One that was stopped goes on first, so that the end is known
/// exactly; one that neither ends nor answers is killed, or its agent would never be seen to end. One that answers is at
/// work: its disk may be full, and what it holds of the output is nowhere else.
async fn end_shim(agent: AgentId, folder: &Path, shim: ProcessRef) {
    let ended = |limit| tokio::task::spawn_blocking(move || shim.wait_ended(limit));
    if let Err(error) = shim.signal(Signal::SIGCONT) {
        tracing::warn!(%agent, %error, "a shim could not be made to go on");
    }
    if matches!(ended(SHIM_LIMIT).await, Ok(Ok(true))) || ShimLink::open(folder).await.is_ok() {
        return;
    }
    tracing::warn!(%agent, pid = shim.pid, "a shim neither ends nor answers: it is killed");
    if let Err(error) = shim.signal(Signal::SIGKILL) {
        tracing::warn!(%agent, %error, "a shim could not be killed; tried again soon");
    }
}

/// Ends what a start that came to nothing may have left: the agent's processes and the shim itself, whether or not it
/// goes on by itself. Returns once all of them are seen to be gone: until then the start has not failed, it is unknown.
pub(super) async fn end_start(agent: AgentId, group: &AgentGroup, shim: ProcessRef) {
    loop {
        let group = group.clone();
        let ended = tokio::task::spawn_blocking(move || {
            // The shim first: it is the one that might still start the program.
            shim.signal(Signal::SIGSTOP).map_err(|error| error.to_string())?;
            let below = kill_below(shim, KILL_LIMIT).map_err(|error| error.to_string())?;
            shim.signal(Signal::SIGKILL).map_err(|error| error.to_string())?;
            let shim = shim.wait_ended(KILL_LIMIT).map_err(|error| error.to_string())?;
            group.kill(KILL_LIMIT).map_err(|error| protocol::chain(&error))?;
            if below && shim {
                // Nobody watches it to its end, so nobody else takes its group away. One that is left is told by `gc`.
                let _ = group.remove(KILL_LIMIT);
            }
            Ok(below && shim)
        });
        let why = match ended.await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => "a process outlives its kill".to_owned(),
            Ok(Err(error)) => error,
            Err(error) => error.to_string(),
        };
        tracing::warn!(%agent, why, "what a failed start left could not be ended: unknown; tried again soon");
        tokio::time::sleep(AGAIN).await;
    }
}

async fn blocking(
    machine: Handle,
    record: &AgentRecord,
    act: impl FnOnce(&AgentGroup) -> Result<(), crate::sys::cgroup::CgroupError> + Send + 'static,
) {
    let (agent, launch) = (record.agent, record.launch);
    let acted = tokio::task::spawn_blocking(move || {
        let mut group = machine.cgroups.open(&agent.to_string())?;
        if let Ok(Some(record)) = super::exit::read_shim(&machine.folders.agent(agent), launch) {
            group.set_shim(super::watch::process(record.shim));
        }
        act(&group)
    });
    match acted.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.is_absent() => {}
        Ok(Err(error)) => {
            let error = protocol::chain(&error);
            tracing::warn!(%agent, error, "an agent could not be ended; tried again soon");
        }
        Err(error) => tracing::error!(%agent, %error, "ending an agent broke off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::cgroup::Cgroups;

    /// The start of an agent that stopped its shim: neither goes on, and neither is left.
    #[tokio::test]
    async fn what_a_start_left_is_gone_before_the_start_has_failed() {
        let groups = Cgroups::without("a test");
        let agent: AgentId = "01k8nr3fd3fiap44re4gd6p2f7".parse().unwrap();
        let script = "sleep 600 & echo $!; kill -STOP $$; wait";
        let mut shim = std::process::Command::new("sh")
            .args(["-c", script])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = |pid: i32| ProcessRef::of(pid).unwrap().unwrap();
        let mut line = String::new();
        let mut said = std::io::BufReader::new(shim.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let (shim_process, program) =
            (process(i32::try_from(shim.id()).unwrap()), process(line.trim().parse().unwrap()));
        let mut group = groups.find(&agent.to_string()).unwrap();
        group.set_shim(shim_process);
        end_start(agent, &group, shim_process).await;
        assert!(!shim_process.is_alive().unwrap());
        assert!(!program.is_alive().unwrap());
        shim.wait().unwrap();
    }
}
