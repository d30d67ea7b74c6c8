//! Has the base of an agent prepared: runs the task's programs once in it, in a group of their own, as the agent's user,
//! with the values of its environment. Whoever waits can be called off; the work is broken off with the last of them.
//! Leaves to others: what becomes of what the programs made.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use hostd_core::{AgentRecord, Input};
use protocol::agent::{Checkout, Environment, Prepare, ResourceLimits, StartStep};
use protocol::ids::AgentId;
use protocol::shim::{LaunchUser, file};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use super::create::{StartError, workspace_error};
use super::settings::limits_of;
use super::user::AgentUser;
use crate::bus::Shipment;
use crate::containment::Entrance;
use crate::machine::{Handle, Machine};
use crate::state::replace;
use crate::sys::cgroup::{AGENT_VARIABLE, AgentGroup, Cgroups};
use crate::workspace::{
    self, Bench, Preparation, PreparedBase, Repository, Resolved, RunError, WorkspaceError,
};

/// Of what the programs print the last part is kept.
const LOG_KEPT: usize = 256 << 10;
/// Of that, so many lines and bytes go into a reason.
const TOLD_LINES: usize = 12;
const TOLD_BYTES: usize = 2_000;
/// What a program left running is killed; its last output is waited for.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// Agents that wait for their base.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<HashMap<AgentId, Arc<Notify>>>);

impl Waiters {
    fn enter(&self, agent: AgentId) -> Waits<'_> {
        let call_off = Arc::new(Notify::new());
        if let Ok(mut waiters) = self.0.lock() {
            waiters.insert(agent, Arc::clone(&call_off));
        }
        Waits { waiters: self, agent, call_off }
    }

    /// Nothing happens when it does not wait, or not any more.
    pub fn call_off(&self, agent: AgentId) {
        if let Some(waiter) = self.0.lock().ok().and_then(|waiters| waiters.get(&agent).cloned()) {
            waiter.notify_one();
        }
    }
}

struct Waits<'a> {
    waiters: &'a Waiters,
    agent: AgentId,
    call_off: Arc<Notify>,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Ok(mut waiters) = self.waiters.0.lock() {
            waiters.remove(&self.agent);
        }
    }
}

/// The base that the agent's checkout lies on, where there is something to prepare and it has no checkout yet.
pub(super) async fn prepared_base(
    machine: &Handle,
    record: &AgentRecord,
    environment: &Environment,
    user: &AgentUser,
) -> Result<Option<PreparedBase>, StartError> {
    let Some((checkout, prepare)) = record.spec.checkout.as_ref().and_then(asked) else { return Ok(None) };
    let folder = machine.folders.agent(record.agent);
    if machine.workspaces.manifest(&folder).map_err(workspace_error)?.is_some() {
        return Ok(None);
    }
    let repo = Path::new(&checkout.repo);
    let commit = checkout.near.as_ref().unwrap_or(&checkout.commit);
    let base = machine.workspaces.resolve(repo, Some(commit)).await.map_err(workspace_error)?;
    let waits = machine.waiters.enter(record.agent);
    machine.tell(Input::Preparing { agent: record.agent }).await;
    let owner = user.launch.as_ref().map(|launch| (launch.uid, launch.gid));
    let work = work_of(machine, record, prepare, environment, user, &base);
    let made = tokio::select! {
        made = machine.workspaces.prepared_base(&base, owner, work) => made,
        () = waits.call_off.notified() => {
            let detail = "asked to stop while its base was prepared".to_owned();
            return Err(StartError { step: StartStep::Prepare, detail });
        }
    };
    match made {
        Ok(base) => Ok(Some(base)),
        Err(error) => {
            show_log(machine, record, &error).await;
            Err(workspace_error(error))
        }
    }
}

fn asked(checkout: &Checkout) -> Option<(&Checkout, &Prepare)> {
    checkout
        .prepare
        .as_deref()
        .filter(|prepare| !prepare.programs.is_empty())
        .map(|prepare| (checkout, prepare))
}

/// What is run, and all that its outcome may depend on.
fn work_of(
    machine: &Handle,
    record: &AgentRecord,
    prepare: &Prepare,
    environment: &Environment,
    user: &AgentUser,
    base: &Resolved,
) -> Preparation {
    let mut variables = environment.0.clone();
    // What differs from agent to agent is not for what they share.
    let own = machine.folders.agent(record.agent).display().to_string();
    variables.retain(|name, value| {
        let names_it = name.starts_with("GIT_AUTHOR_") || name.starts_with("GIT_COMMITTER_");
        !name.starts_with("PHALANX_") && !names_it && !value.starts_with(&own)
    });
    let mut identity = Vec::new();
    let words = prepare.programs.iter().flatten();
    let lengths = prepare.programs.iter().map(|words| words.len().to_string());
    let pairs = variables.iter().flat_map(|(name, value)| [name, value]);
    for part in words.cloned().chain(lengths).chain(pairs.cloned()) {
        identity.extend(part.len().to_be_bytes());
        identity.extend(part.as_bytes());
    }
    variables.insert("PHALANX_BASE_COMMIT".to_owned(), base.commit.clone());
    let work = Work {
        limits: record.spec.limits,
        programs: prepare.programs.clone(),
        limit: Duration::from_millis(prepare.timeout_ms),
        variables,
        user: user.launch.clone(),
        repository: base.repository.clone(),
        machine: machine.clone(),
    };
    Preparation { identity, run: Box::new(move |bench| work.run(bench).boxed()) }
}

struct Work {
    machine: Handle,
    repository: Repository,
    limits: ResourceLimits,
    programs: Vec<Vec<String>>,
    limit: Duration,
    variables: BTreeMap<String, String>,
    user: Option<LaunchUser>,
}

/// The group of one preparation; whatever is left in it is ended with this.
struct Group(AgentGroup);

impl Drop for Group {
    fn drop(&mut self) {
        let ended = self.0.kill(GONE_LIMIT).and_then(|()| self.0.remove(GONE_LIMIT).map(|_| ()));
        if let Err(error) = ended {
            tracing::error!(error = protocol::chain(&error), "a program that prepared a base may be left");
        }
    }
}

impl Work {
    async fn run(self, bench: Bench) -> Result<(), RunError> {
        let fault = |why: String| RunError { why, log: Vec::new() };
        let (cgroups, name, limits) =
            (self.machine.cgroups.clone(), bench.id.clone(), limits_of(&self.limits));
        let group = tokio::task::spawn_blocking(move || cgroups.ensure(&name, &limits))
            .await
            .map_err(|error| fault(error.to_string()))?
            .map_err(|error| fault(protocol::chain(&error)))?;
        let group = Group(group);
        let view = self
            .machine
            .containment
            .view_of_bench([&bench.tree, &bench.scratch], &self.repository, self.user.as_ref())
            .map_err(|error| fault(protocol::chain(&error)))?;
        let namespace = match &view {
            None => None,
            Some(view) => {
                let made = self.machine.containment.namespace(view).await;
                Some(made.map_err(|error| fault(protocol::chain(&error)))?)
            }
        };
        let mut log = Log::default();
        let all = self.run_all(&bench, &group.0, namespace.as_ref(), &mut log);
        let outcome = match tokio::time::timeout(self.limit, all).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let limit = humantime::format_duration(self.limit);
                Err(format!("not done within {limit} (`prepare_timeout`)"))
            }
        };
        let kills = group.0.stats().ok().and_then(|stats| stats.oom_kills).unwrap_or(0);
        // Its end waits for processes to go: not on the runtime's threads.
        let _ = tokio::task::spawn_blocking(move || drop(group)).await;
        outcome.map_err(|mut why| {
            if kills > 0 {
                why.push_str("; it reached the memory limit of the task");
            }
            RunError { why: log.told(&why), log: log.bytes }
        })
    }

    async fn run_all(
        &self,
        bench: &Bench,
        group: &AgentGroup,
        namespace: Option<&OwnedFd>,
        log: &mut Log,
    ) -> Result<(), String> {
        for (place, program) in self.programs.iter().enumerate() {
            let shown = shown(program);
            let what = format!("prepare {} of {} (`{shown}`)", place + 1, self.programs.len());
            log.add(format!("+ {shown}\n").as_bytes());
            let status = self
                .run_one(program, bench, group, namespace, log)
                .await
                .map_err(|error| format!("{what} could not be run: {error}"))?;
            match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
                (Some(0), _) => {}
                (Some(code), _) => return Err(format!("{what} ended with exit {code}")),
                (None, signal) => return Err(format!("{what} ended with signal {}", signal.unwrap_or(0))),
            }
        }
        Ok(())
    }

    async fn run_one(
        &self,
        program: &[String],
        bench: &Bench,
        group: &AgentGroup,
        namespace: Option<&OwnedFd>,
        log: &mut Log,
    ) -> io::Result<std::process::ExitStatus> {
        let (name, arguments) = program.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (reader, writer) = io::pipe()?;
        let mut output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let mut command = tokio::process::Command::new(name);
        command.args(arguments).env_clear().envs(&self.variables).current_dir(&bench.tree);
        command.env("TMPDIR", &bench.scratch).env("PHALANX_WORKSPACE", &bench.tree);
        // How its processes are found where there are no groups.
        command.env(AGENT_VARIABLE, &bench.id);
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).kill_on_drop(true);
        let entrance = namespace.map(|view| Entrance::new(view.try_clone()?, &bench.tree)).transpose()?;
        crate::sys::spawn::join_groups(&mut command, &group.agent_procs, entrance, self.user.as_ref())
            .map_err(|(path, error)| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let mut child = command.spawn()?;
        // With it the last copy of the writing end that is ours.
        drop(command);
        let mut buffer = vec![0_u8; 16 << 10];
        let status = loop {
            tokio::select! {
                read = output.read(&mut buffer) => match read? {
                    0 => break child.wait().await?,
                    count => log.add(buffer.get(..count).unwrap_or_default()),
                },
                status = child.wait() => break status?,
            }
        };
        // What it printed and is still in the pipe; a program that it left may hold it open.
        let _ = tokio::time::timeout(Duration::from_millis(200), async {
            while let Ok(count @ 1..) = output.read(&mut buffer).await {
                log.add(buffer.get(..count).unwrap_or_default());
            }
        })
        .await;
        Ok(status)
    }
}

fn shown(program: &[String]) -> String {
    let text = match program {
        [shell, flag, script] if shell == "sh" && flag == "-c" => script.clone(),
        words => words.join(" "),
    };
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() > 80 || text.lines().count() > 1 {
        format!("{}…", line.chars().take(80).collect::<String>())
    } else {
        line.to_owned()
    }
}

#[derive(Debug, Default)]
struct Log {
    bytes: Vec<u8>,
}

impl Log {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Cut now and then, not at each byte.
        if self.bytes.len() > 2 * LOG_KEPT {
            self.bytes.drain(..self.bytes.len().saturating_sub(LOG_KEPT));
        }
    }

    /// The reason with the last lines, for a person.
    fn told(&self, why: &str) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let lines: Vec<&str> = text.trim_end().lines().collect();
        let last = lines.get(lines.len().saturating_sub(TOLD_LINES)..).unwrap_or_default().join("\n");
        let from = last.char_indices().map(|(at, _)| at).find(|at| last.len() - at <= TOLD_BYTES);
        match last.get(from.unwrap_or(0)..).unwrap_or_default() {
            "" => why.to_owned(),
            tail => format!("{why}; the last that it printed:\n{tail}"),
        }
    }
}

/// What the programs printed becomes the transcript of the agent that was not started: where one looks for it.
async fn show_log(machine: &Machine, record: &AgentRecord, error: &WorkspaceError) {
    let log = match error {
        WorkspaceError::NotPrepared(why) => match &**why {
            WorkspaceError::PrepareFailed { log, .. } => log.clone(),
            _ => return,
        },
        _ => return,
    };
    let folder = machine.folders.agent(record.agent);
    let path = folder.join(file::OUTPUT);
    // Of an earlier start: its transcript is only added to.
    if log.is_empty() || path.symlink_metadata().is_ok() {
        return;
    }
    let written = tokio::task::spawn_blocking(move || replace(&path, &log)).await;
    if !matches!(written, Ok(Ok(()))) {
        return;
    }
    let (agent, epoch) = (record.agent, record.epoch.clone());
    machine.shipper.tell(Shipment::Begin { agent, folder, epoch }).await;
    machine.shipper.tell(Shipment::End { agent }).await;
}

/// Ends what an earlier hostd was running to prepare bases. Before what it left is taken away.
pub fn end_left_over(cgroups: &Cgroups, state: &Path) {
    for name in workspace::left_over(state) {
        match cgroups.open(&name) {
            Ok(group) => drop(Group(group)),
            Err(error) if error.is_absent() => {}
            Err(error) => {
                tracing::error!(
                    error = protocol::chain(&error),
                    "a program that prepared a base may be left"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_ends_with_the_last_lines() {
        let mut log = Log::default();
        for line in 0..100 {
            log.add(format!("line {line}\n").as_bytes());
        }
        let told = log.told("npm ended");
        assert!(told.starts_with("npm ended; the last that it printed:\nline 88\n"), "{told}");
        assert!(told.ends_with("line 99"), "{told}");
        log.add("é".repeat(4_000).as_bytes());
        assert!(log.told("x").len() < TOLD_BYTES + 100);
    }

    #[test]
    fn a_log_is_bounded() {
        let mut log = Log::default();
        for _ in 0..1_000 {
            log.add(&[b'x'; 4096]);
        }
        assert!(log.bytes.len() <= 2 * LOG_KEPT + 4096, "{}", log.bytes.len());
    }
}
