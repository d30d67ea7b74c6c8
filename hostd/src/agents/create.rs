//! Makes an agent: files given to it, workspace, limits, environment, and the shim that runs its program.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostd_core::{AgentRecord, Input, StartFacts};
use protocol::agent::{Blob, CheckoutKind, EndCause, Role, StartStep, first_launch};
use protocol::report::WorkspaceFacts;
use protocol::shim::{self, ExitRecord, Launch, RECORD_VERSION, Ready, file};
use protocol::time::Timestamp;

use super::environment::{environment_file, environment_of};
use super::exit::{read_exit, read_shim, set_aside, start_step};
use super::prepare::prepared_base;
use super::settings::{limits_of, limits_read};
use super::stop::end_start;
use super::user::{AgentUser, agent_user};
use super::watch::{GO_ON_EACH, Watched, go_on, watch};
use crate::clock;
use crate::containment::{ContainmentError, isolation};
use crate::machine::{Handle, Machine};
use crate::state::replace;
use crate::sys::cgroup::AgentGroup;
use crate::sys::facts::boottime_ms;
use crate::sys::process::ProcessRef;
use crate::sys::spawn::{ReadyReader, ShimSpawn, ready_pipe, spawn_shim};
use crate::workspace::{PrepareSpec, PreparedBase, Resolved, Wanted, Workspace, WorkspaceError};

/// A shim says at once whether the program was executed.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Size of a program's terminal until someone attaches.
const ROWS: u16 = 40;
const COLS: u16 = 120;

/// Why a start failed, and at which step.
#[derive(Debug)]
pub(super) struct StartError {
    pub(super) step: StartStep,
    pub(super) detail: String,
}

impl StartError {
    fn at<E: std::error::Error>(step: StartStep, what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self { step, detail: format!("{what}: {}", protocol::chain(&error)) }
    }
}

/// Makes the agent and watches it to its end.
pub async fn create(machine: Handle, record: AgentRecord) {
    let agent = record.agent;
    let started = start(&machine, &record).await;
    match started {
        Ok((watched, facts)) => {
            machine.tell(Input::Started { agent, facts: Box::new(facts) }).await;
            watch(&machine, watched).await;
        }
        Err(StartError { step, detail }) => {
            let launch = record.launch;
            let input = match was_released(&machine.folders.agent(agent), launch) {
                true => Input::SupervisorLost { agent, launch, detail },
                false => Input::StartFailed { agent, step, detail },
            };
            machine.tell(input).await;
        }
    }
}

/// Whether the program of a start that came to nothing may have been executed, and so have done work: the shim's record
/// is on the disk before the program is let go, and no exit record says that it was not.
fn was_released(folder: &Path, launch: u32) -> bool {
    let not_executed = matches!(
        read_exit(folder, launch),
        Ok(Some(ExitRecord { cause: shim::EndCause::StartFailed(_), .. }))
    );
    !not_executed && !matches!(read_shim(folder, launch), Ok(None))
}

async fn start(machine: &Handle, record: &AgentRecord) -> Result<(Watched, StartFacts), StartError> {
    let spec = &record.spec;
    let folder = machine.folders.agent(record.agent);
    let user =
        agent_user(spec.user.as_deref()).map_err(StartError::at(StartStep::User, "whom it should run as"))?;
    let environment = environment_of(machine, record, &user)
        .await
        .map_err(StartError::at(StartStep::Environment, "the values of its environment"))?;
    check_containment(machine, record, &user).await?;
    // Others may be made meanwhile: this may take as long as the programs of a task take.
    let prepared = prepared_base(machine, record, &environment, &user).await?;
    let _permit = machine.starts.acquire().await;
    make_folders(&folder, &user).map_err(StartError::at(StartStep::Host, "its folders"))?;
    set_aside(&folder, record.launch).map_err(|detail| StartError { step: StartStep::Supervisor, detail })?;
    if record.launch == 1 {
        fetch(machine, &folder, "prompt", spec.prompt.as_ref(), &user).await?;
        fetch(machine, &folder, "feedback", spec.feedback.as_ref(), &user).await?;
        fetch(machine, &folder, "inputs", spec.inputs.as_ref(), &user).await?;
    }
    let workspace = make_workspace(machine, record, &folder, &user, prepared).await?;
    let group = make_group(machine, record).await?;
    let env_file = folder.join("env");
    let (mut ready, writer) =
        ready_pipe().map_err(StartError::at(StartStep::Supervisor, "a pipe for its supervisor"))?;
    let contained = machine
        .containment
        .view_of(&folder, &workspace.manifest, user.launch.as_ref())
        .map_err(uncontained)?;
    let launch = Launch {
        view: contained,
        scoped: user.launch.is_some(),
        ready_fd: Some(writer.number()),
        env_file: Some(env_file.clone()),
        ..launch_of(record, &workspace.path, &group, &user)?
    };
    let isolation = isolation(&launch);
    let content =
        serde_json::to_vec(&launch).map_err(StartError::at(StartStep::Supervisor, "the launch record"))?;
    put(env_file, environment_file(&environment), "its environment").await?;
    put(folder.join(file::LAUNCH), content, "its launch").await?;
    let spawned =
        spawn_shim(ShimSpawn { shim: &machine.shim, dir: &folder, procs: &group.shim_procs, ready: writer })
            .map_err(StartError::at(StartStep::Supervisor, "its supervisor"))?;
    // Dropped, not waited for here: the runtime reaps it whenever it ends.
    drop(spawned.child);
    let mut group = group;
    group.set_shim(spawned.process);
    let said = heard(&mut ready, spawned.process, record).await;
    if let Err(error) = said.and_then(|line| executed(line.as_deref(), &folder, record.launch)) {
        // What may live is ended before the start is said to have failed: another one would run beside it.
        end_start(record.agent, &group, spawned.process).await;
        return Err(error);
    }
    let started_at = read_shim(&folder, record.launch)
        .ok()
        .flatten()
        .map_or_else(clock::now, |shim| Timestamp(shim.started_at_ms));
    let facts =
        StartFacts { started_at, ..facts_of(machine, &workspace, &group, &user, spec.limits.time_ms) };
    let facts = StartFacts { isolation: Some(isolation), ..facts };
    let watched = Watched { record: record.clone(), folder, shim: spawned.process, group, exited: false };
    Ok((watched, facts))
}

/// The shim's line on the pipe. A program that stops its shim by a signal does not keep it from speaking.
async fn heard(
    ready: &mut ReadyReader,
    shim: ProcessRef,
    record: &AgentRecord,
) -> Result<Option<String>, StartError> {
    let line = async {
        let mut line = std::pin::pin!(ready.line());
        loop {
            match tokio::time::timeout(GO_ON_EACH, &mut line).await {
                Ok(line) => return line,
                Err(_) => go_on(record.agent, shim),
            }
        }
    };
    let silent = format!("its supervisor said nothing within {} s, and was ended", READY_LIMIT.as_secs());
    tokio::time::timeout(READY_LIMIT, line)
        .await
        .map_err(|_| StartError { step: StartStep::Supervisor, detail: silent })?
        .map_err(StartError::at(StartStep::Supervisor, "its supervisor cannot be heard"))
}

/// What the shim said on the pipe; when it said nothing, what it left on the disk.
fn executed(line: Option<&str>, folder: &Path, launch: u32) -> Result<(), StartError> {
    let said = line.and_then(|line| serde_json::from_str::<Ready>(line).ok());
    match said {
        Some(Ready { failure: None, .. }) => Ok(()),
        Some(Ready { failure: Some(failure), .. }) => {
            Err(StartError { step: start_step(&failure), detail: failure.message })
        }
        // A second shim of one folder says nothing: the first one has it.
        None if read_shim(folder, launch).is_ok_and(|shim| shim.is_some()) => Ok(()),
        None => {
            let detail = match read_exit(folder, launch) {
                Ok(Some(exit)) => format!("{:?}", exit.cause),
                Ok(None) | Err(_) => {
                    let log = std::fs::read_to_string(folder.join(file::LOG)).unwrap_or_default();
                    format!("its supervisor ended without a word; its log: {:?}", log.trim_end())
                }
            };
            Err(StartError { step: StartStep::Supervisor, detail })
        }
    }
}

fn make_folders(folder: &Path, user: &AgentUser) -> std::io::Result<()> {
    let make = |path: PathBuf| -> std::io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        if user.launch.is_some() {
            chown(&path, Some(user.uid), Some(user.gid))?;
        }
        Ok(())
    };
    ["scratch", "cache", "given"].into_iter().try_for_each(|name| make(folder.join(name)))?;
    // Whoever it runs as has a view of its own, which needs no way through.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
}

/// Before anything is made: whether an agent of this user can run here.
async fn check_containment(
    machine: &Machine,
    record: &AgentRecord,
    user: &AgentUser,
) -> Result<(), StartError> {
    let Some(launch) = &user.launch else { return Ok(()) };
    let repository = match &record.spec.checkout {
        None => None,
        Some(checkout) => {
            let found = machine.workspaces.locate(Path::new(&checkout.repo)).await;
            Some(found.map_err(workspace_error)?)
        }
    };
    machine.containment.check(repository.as_ref(), launch).map_err(uncontained)
}

#[expect(clippy::needless_pass_by_value, reason = "the form of map_err")]
fn uncontained(error: ContainmentError) -> StartError {
    StartError { step: StartStep::User, detail: protocol::chain(&error) }
}

async fn fetch(
    machine: &Machine,
    folder: &Path,
    name: &'static str,
    blob: Option<&Blob>,
    user: &AgentUser,
) -> Result<(), StartError> {
    let Some(blob) = blob else { return Ok(()) };
    let content = machine.requests.blob(blob).await.map_err(|error| StartError {
        step: StartStep::Environment,
        detail: format!("its {name}: {}", protocol::chain(&error)),
    })?;
    let path = folder.join("given").join(name);
    put(path.clone(), content, "a file given to it").await?;
    if user.launch.is_some() {
        chown(&path, Some(user.uid), Some(user.gid))
            .map_err(StartError::at(StartStep::Host, "a file given to it"))?;
    }
    Ok(())
}

/// Writes a file whole, and not on the runtime's threads: a disk that stands still must not hold up the heartbeat.
async fn put(path: PathBuf, content: Vec<u8>, what: &'static str) -> Result<(), StartError> {
    tokio::task::spawn_blocking(move || replace(&path, &content))
        .await
        .map_err(StartError::at(StartStep::Host, what))?
        .map_err(StartError::at(StartStep::Host, what))
}

async fn make_workspace(
    machine: &Machine,
    record: &AgentRecord,
    folder: &Path,
    user: &AgentUser,
    prepared: Option<PreparedBase>,
) -> Result<Workspace, StartError> {
    let owner = user.launch.as_ref().map(|launch| (launch.uid, launch.gid));
    let made = match &record.spec.checkout {
        None => {
            let spec = PrepareSpec {
                repo: None,
                branch: String::new(),
                user: owner,
                kind: Wanted::Plain,
                prepared: None,
            };
            machine.workspaces.prepare(folder, &spec).await
        }
        Some(checkout) => {
            let repo = Path::new(&checkout.repo);
            let resolved =
                machine.workspaces.resolve(repo, Some(&checkout.commit)).await.map_err(workspace_error)?;
            match &checkout.branch {
                Some(branch) => {
                    let kind = match checkout.kind {
                        CheckoutKind::Auto | CheckoutKind::Unknown => Wanted::Auto,
                        CheckoutKind::Overlay => Wanted::Overlay,
                        CheckoutKind::Clone => Wanted::Clone,
                        CheckoutKind::Worktree => Wanted::Worktree,
                    };
                    let watched = machine.workspaces.watch_source(folder, &resolved.repository).await;
                    watched.map_err(workspace_error)?;
                    let from = resolved.clone();
                    let (repo, branch) = (Some(resolved), branch.clone());
                    let spec = PrepareSpec { repo, branch, user: owner, kind, prepared };
                    let made = machine.workspaces.prepare(folder, &spec).await;
                    if let (Ok(_), Some(snapshot)) = (&made, &checkout.snapshot) {
                        machine.workspaces.lay(folder, snapshot).await.map_err(workspace_error)?;
                    }
                    made.map_err(workspace_error)?;
                    bring(machine, record, folder, &from, &checkout.copy).await
                }
                None => {
                    let near = match &checkout.near {
                        Some(near) => {
                            machine.workspaces.resolve(repo, Some(near)).await.map_err(workspace_error)?
                        }
                        None => resolved,
                    };
                    let prepared = prepared.as_ref();
                    let workspaces = &machine.workspaces;
                    let made = workspaces.fresh_checkout(folder, &near, &checkout.commit, owner, prepared);
                    made.await.map_err(workspace_error)?;
                    bring(machine, record, folder, &near, &checkout.copy).await
                }
            }
        }
    };
    made.map_err(workspace_error)
}

/// Files that git does not track, the first time only: at a later start they are the agent's.
async fn bring(
    machine: &Machine,
    record: &AgentRecord,
    folder: &Path,
    from: &Resolved,
    wanted: &[String],
) -> crate::workspace::Result<Workspace> {
    if record.launch == first_launch() {
        return machine.workspaces.bring(folder, from, wanted).await;
    }
    machine.workspaces.remount(folder).await
}

/// What the request names wrongly is the request's fault; all else is this host's.
pub(super) fn workspace_error(error: WorkspaceError) -> StartError {
    let step = match &error {
        WorkspaceError::NotPrepared(why) => match &**why {
            WorkspaceError::PrepareFailed { .. } | WorkspaceError::PrepareChanged { .. } => {
                StartStep::Prepare
            }
            _ => StartStep::Checkout,
        },
        WorkspaceError::RelativePath { .. }
        | WorkspaceError::PathMissing { .. }
        | WorkspaceError::NotAFolder { .. }
        | WorkspaceError::NotARepository { .. }
        | WorkspaceError::EmptyRepository { .. }
        | WorkspaceError::UnknownBase { .. }
        | WorkspaceError::AmbiguousBase { .. }
        | WorkspaceError::BadName { .. }
        | WorkspaceError::OverlayUnavailable { .. }
        | WorkspaceError::OtherUser { .. }
        | WorkspaceError::WorktreeUser { .. }
        | WorkspaceError::Forged { .. }
        | WorkspaceError::PartialClone { .. }
        | WorkspaceError::WrongCheckout { .. }
        | WorkspaceError::Permission { .. } => StartStep::Workspace,
        error if error.is_of_a_missing_object() => StartStep::Workspace,
        _ => StartStep::Checkout,
    };
    StartError { step, detail: protocol::chain(&error) }
}

async fn make_group(machine: &Handle, record: &AgentRecord) -> Result<AgentGroup, StartError> {
    let limits = limits_of(&record.spec.limits);
    let (machine, agent) = (machine.clone(), record.agent.to_string());
    tokio::task::spawn_blocking(move || machine.cgroups.ensure(&agent, &limits))
        .await
        .map_err(StartError::at(StartStep::Limits, "its limits"))?
        .map_err(|error| StartError { step: StartStep::Limits, detail: protocol::chain(&error) })
}

fn launch_of(
    record: &AgentRecord,
    cwd: &Path,
    group: &AgentGroup,
    user: &AgentUser,
) -> Result<Launch, StartError> {
    let spec = &record.spec;
    let (program, args) = spec.program.split_first().ok_or_else(|| StartError {
        step: StartStep::ProgramMissing,
        detail: "no program was given".to_owned(),
    })?;
    let lease = spec.lease_ms.zip(record.first_lease_until()).zip(boottime_ms()).map(
        // A wall clock that was set back since the acceptance gives no more than the whole length.
        |((length_ms, until), boottime_ms)| boottime_ms + until.ms_since(clock::now()).min(length_ms),
    );
    Ok(Launch {
        version: RECORD_VERSION,
        agent: record.agent.to_string(),
        program: program.clone(),
        args: args.to_vec(),
        cwd: cwd.to_owned(),
        env_file: None,
        rows: ROWS,
        cols: COLS,
        agent_procs: group.agent_procs.clone(),
        // Where groups can be made at all, a program outside of its own would escape stop and limits.
        cgroup_required: !group.agent_procs.is_empty(),
        kill_files: group.kill_files.clone(),
        freeze_files: group.freeze_files.clone(),
        events_file: None,
        user: user.launch.clone(),
        wall_time_ms: spec.limits.time_ms,
        grace_ms: spec.grace_ms,
        lease_deadline_boottime_ms: lease,
        nofile: None,
        ready_fd: None,
        epoch: Some(record.epoch.clone()),
        view: None,
        scoped: false,
        launch: record.launch,
    })
}

/// What is true of the agent on this machine, for its reports.
#[must_use]
pub(super) fn facts_of(
    machine: &Machine,
    workspace: &Workspace,
    group: &AgentGroup,
    user: &AgentUser,
    time_ms: Option<u64>,
) -> StartFacts {
    let read = limits_read(machine, group, time_ms);
    StartFacts {
        started_at: Timestamp::default(),
        workspace: Some(WorkspaceFacts {
            path: workspace.path.display().to_string(),
            kind: format!("{:?}", workspace.kind).to_lowercase(),
            repo: workspace.manifest.repository.as_ref().map(|repo| repo.path.display().to_string()),
            base_commit: workspace.base_commit.clone(),
            base_tree: workspace.base_tree.clone(),
            branch: workspace.branch.clone(),
            warnings: workspace.warnings.clone(),
        }),
        enforced: read.enforced,
        degraded: read.degraded,
        user: user.name.clone(),
        isolation: None,
        frozen: false,
    }
}

/// Whether removal may skip the question of what would be lost: a verification's checkout is never the only copy, and
/// what was not started has done nothing.
#[must_use]
pub(super) fn holds_no_work(record: &AgentRecord) -> bool {
    let never_ran = record.end.as_ref().is_some_and(|end| end.cause == EndCause::StartFailed);
    record.spec.role == Role::Verify || never_ran
}
