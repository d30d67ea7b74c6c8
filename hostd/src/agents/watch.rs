//! Watches one agent from the moment its program runs until nothing of it is left.
//!
//! The shim's exit record is the authority. A broken connection proves nothing: the shim's process is looked at, and
//! only when it is gone without a final record are the agent's processes ended and the agent called lost.

use std::path::PathBuf;
use std::time::Duration;

use hostd_core::{AgentRecord, ExitSeen, Input};
use nix::sys::signal::Signal;
use protocol::ids::AgentId;
use protocol::shim::{Event, ExitRecord};
use tokio::time::MissedTickBehavior;

use super::exit::{Believed, begin_of_launch, believed_exit, exit_seen, read_shim, stats_of};
use super::session::keep_session;
use super::shim_link::{LinkError, ShimLink};
use crate::bus::Shipment;
use crate::machine::Handle;
use crate::screen::Watch;
use crate::sys::cgroup::AgentGroup;
use crate::sys::process::ProcessRef;

/// Between tries to reach a shim that lives and does not answer.
const AGAIN: Duration = Duration::from_millis(500);
/// Until a group reports that it is empty after its kill.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// The shim itself ends right after its last word; an end is not told later for more than this.
const GONE_LIMIT: Duration = Duration::from_millis(500);

/// How often a shim is looked at that a signal may have stopped.
pub(super) const GO_ON_EACH: Duration = Duration::from_secs(1);

/// Lets a shim go on that a signal has stopped, as its own agent may send one: while it stands still nobody enforces the
/// agent's time limit and lease, nobody takes its output, and nobody records its end.
pub(super) fn go_on(agent: AgentId, shim: ProcessRef) {
    match shim.is_stopped() {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(%agent, pid = shim.pid, "a shim was stopped by a signal; it is made to go on");
            if let Err(error) = shim.signal(Signal::SIGCONT) {
                tracing::warn!(%agent, %error, "a stopped shim could not be made to go on");
            }
        }
        Err(error) => tracing::warn!(%agent, %error, "whether a shim was stopped cannot be told"),
    }
}

/// The same process in the words of `sys`.
#[must_use]
pub(super) fn process(shim: protocol::shim::ProcessRef) -> ProcessRef {
    ProcessRef { pid: shim.pid, start_time: shim.start_time }
}

/// A running agent.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) record: AgentRecord,
    pub(super) folder: PathBuf,
    pub(super) shim: ProcessRef,
    pub(super) group: AgentGroup,
    /// The end of the program was already told of.
    pub(super) exited: bool,
}

/// Returns when the agent's end has been told.
pub(super) async fn watch(machine: &Handle, watched: Watched) {
    let agent = watched.record.agent;
    let begin =
        Shipment::Begin { agent, folder: watched.folder.clone(), epoch: watched.record.epoch.clone() };
    machine.shipper.tell(begin).await;
    look_for_signs(machine, &watched).await;
    let end = {
        let session = keep_session(machine, &watched.record);
        let end = follow(machine, &watched);
        tokio::pin!(session, end);
        let mut session_done = false;
        let mut looks = tokio::time::interval(GO_ON_EACH);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                input = &mut end => break input,
                () = &mut session, if !session_done => session_done = true,
                _ = looks.tick() => go_on(agent, watched.shim),
            }
        }
    };
    machine.signs.end(agent).await;
    machine.shipper.tell(Shipment::End { agent }).await;
    // Before the end is told: from then on the agent may be started again, in a group of the same name.
    let group = watched.group;
    let removed = tokio::task::spawn_blocking(move || group.remove(GONE_LIMIT));
    if let Ok(Err(error)) = removed.await {
        tracing::warn!(%agent, error = protocol::chain(&error), "the cgroup of an ended agent is left");
    }
    machine.tell(end).await;
}

/// Where the agent's profile says how it shows what it does.
async fn look_for_signs(machine: &Handle, watched: &Watched) {
    let spec = &watched.record.spec;
    if spec.signals.is_none() && spec.ready_text.is_none() {
        return;
    }
    // Without the shim's record the program is not told from its children: then it has unknown ones, not none.
    let program =
        read_shim(&watched.folder, watched.record.launch).ok().flatten().map_or(-1, |shim| shim.child.pid);
    let watch = Watch {
        agent: watched.record.agent,
        folder: watched.folder.clone(),
        signals: spec.signals.clone(),
        ready_text: spec.ready_text.clone(),
        shim: watched.shim,
        program,
        group: watched.group.clone(),
        begin: begin_of_launch(&watched.folder, watched.record.launch),
    };
    machine.signs.begin(watch).await;
}

/// The end, as an input.
async fn follow(machine: &Handle, watched: &Watched) -> Input {
    let agent = watched.record.agent;
    let mut exited = watched.exited;
    loop {
        match listen(machine, watched, &mut exited).await {
            Ok(()) | Err(LinkError::Connect(_)) => {}
            Err(error) => {
                tracing::warn!(%agent, error = protocol::chain(&error), "the talk with a shim broke off");
            }
        }
        match proven_end(machine, watched).await {
            Some(input) => return input,
            None => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Until the shim closes the connection.
async fn listen(machine: &Handle, watched: &Watched, exited: &mut bool) -> Result<(), LinkError> {
    let agent = watched.record.agent;
    let mut link = ShimLink::open(&watched.folder).await?;
    link.watch().await?;
    while let Some(event) = link.event().await? {
        match event {
            // Told only when something is left; else the end follows at once and says the same.
            Event::Exited(record) if record.descendants_left && !*exited => {
                *exited = true;
                let exit = seen(&record, &watched.group);
                machine.tell(Input::Exited { agent, exit }).await;
            }
            Event::Exited(_) => {}
            Event::Drained(_) => return Ok(()),
            Event::Degraded { what } => {
                // As the shim says it: what it cannot write, and what someone did to the file.
                let is_damage = |line: &String| line.contains("by someone");
                let (damaged, stalled) = (what.iter().any(is_damage), !what.iter().all(is_damage));
                machine.tell(Input::Degraded { agent, what: "transcript-stalled", degraded: stalled }).await;
                machine.tell(Input::Degraded { agent, what: "transcript-damaged", degraded: damaged }).await;
            }
        }
    }
    Ok(())
}

/// What is proven once the shim is silent: an end, or nothing yet.
async fn proven_end(machine: &Handle, watched: &Watched) -> Option<Input> {
    let Watched { record, folder, shim, group, .. } = watched;
    let (agent, shim) = (record.agent, *shim);
    let launch = record.launch;
    let believed = || believed_exit(folder, record, read_shim(folder, launch)?.as_ref());
    let exit = match believed() {
        Ok(Believed { record, refused }) => {
            if let Some(why) = refused {
                tracing::warn!(%agent, why, "an exit record is not believed");
                machine.tell(Input::Degraded { agent, what: "exit-record-refused", degraded: true }).await;
            }
            record
        }
        Err(error) => {
            tracing::warn!(%agent, error, "an exit record cannot be told: unknown");
            return None;
        }
    };
    if let Some(exit) = exit.as_ref().filter(|exit| exit.drained) {
        return empty(group, agent).await.then(|| Input::Ended { agent, exit: seen(exit, group) });
    }
    match shim.is_alive() {
        Ok(true) => None,
        Err(error) => {
            tracing::warn!(%agent, %error, "whether a shim lives cannot be told: unknown");
            None
        }
        Ok(false) => {
            // The shim may have written its last word between the read and its end.
            let Believed { record, refused } = believed().unwrap_or_default();
            if !empty(group, agent).await {
                machine.tell(Input::Degraded { agent, what: "survivors", degraded: true }).await;
                return None;
            }
            Some(match record {
                Some(record) => Input::Ended { agent, exit: seen(&record, group) },
                None => Input::SupervisorLost { agent, launch, detail: lost(shim, refused) },
            })
        }
    }
}

fn seen(record: &ExitRecord, group: &AgentGroup) -> ExitSeen {
    exit_seen(record, stats_of(group).as_ref())
}

/// How a lost supervisor is told of.
#[must_use]
pub(super) fn lost(shim: ProcessRef, refused: Option<String>) -> String {
    let pid = shim.pid;
    match refused {
        None => format!("its supervisor (pid {pid}) ended without an exit record; its processes were ended"),
        Some(why) => format!(
            "its supervisor (pid {pid}) ended, and an exit record that it did not write was refused: {why}; its \
             processes were ended"
        ),
    }
}

/// Whether nothing of the agent lives; what a gone supervisor left is ended first.
pub(super) async fn empty(group: &AgentGroup, agent: AgentId) -> bool {
    let group = group.clone();
    let looked = tokio::task::spawn_blocking(move || {
        if group.populated()? {
            group.kill(KILL_LIMIT)?;
        }
        group.populated()
    });
    match looked.await {
        Ok(Ok(populated)) => !populated,
        Ok(Err(error)) if error.is_absent() => true,
        Ok(Err(error)) => {
            let error = protocol::chain(&error);
            tracing::warn!(%agent, error, "whether an agent's processes are gone cannot be told: unknown");
            false
        }
        Err(_) => false,
    }
}
