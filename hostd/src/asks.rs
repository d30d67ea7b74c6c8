//! Answers the manager's questions. Each gets an answer in every path; nothing here changes what is known of an agent.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use hostd_core::AgentRecord;
use protocol::agent::Environment;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::{Answer, OutputStream, Question, ResolvedBase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::agents::{environment_of, name_agent};
use crate::bus::{Replier, Shipment};
use crate::machine::Handle;
use crate::workspace::WorkspaceError;

/// Largest piece of a transcript or of an output in one answer.
const PIECE: usize = 512 << 10;
const OUTPUT_PIECE: usize = 64 << 10;
/// Between two signs of life of a program that prints nothing.
const SIGN_OF_LIFE: std::time::Duration = std::time::Duration::from_secs(60);
/// Largest difference that is answered.
const DIFF_LIMIT: usize = 800 << 10;

/// A question with what the driver knows of its agent.
#[derive(Debug)]
pub struct Asked {
    pub machine: Handle,
    pub question: Question,
    pub record: Option<AgentRecord>,
    /// Decided already.
    pub refusal: Option<WireError>,
}

#[must_use]
pub fn busy() -> WireError {
    WireError::new(ErrorCode::Unavailable, "the host answers as many questions as it takes").hint("try again")
}

#[must_use]
pub fn outdated() -> WireError {
    WireError::new(ErrorCode::Conflict, "the question has expired or comes from a manager that leads no more")
}

/// The agent that a question is about.
#[must_use]
pub fn agent_of(question: &Question) -> Option<AgentId> {
    match question {
        Question::Read { agent, .. } | Question::Follow { agent, .. } | Question::Exec { agent, .. } => {
            Some(*agent)
        }
        Question::Resolve { .. }
        | Question::Report { .. }
        | Question::Land { .. }
        | Question::Diff { .. } => None,
    }
}

/// 128 random bits as hex: identity of a transcript.
///
/// # Errors
/// When the kernel has no randomness.
pub fn random_hex() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

/// Sends one or more answers; the last one ends the talk.
pub async fn answer(asked: Asked, replier: Replier) {
    if let Some(refusal) = asked.refusal {
        return replier.refuse(refusal).await;
    }
    let machine = &asked.machine;
    let answered = match asked.question {
        Question::Resolve { repo, base } => resolve(machine, &repo, base.as_deref()).await,
        Question::Read { agent, offset, max } => {
            read(machine, agent, offset, max, asked.record.as_ref()).await
        }
        Question::Follow { agent, until } => {
            machine.shipper.tell(Shipment::Follow { agent, until }).await;
            Ok(Answer::Done)
        }
        Question::Report { .. } => Ok(Answer::Done),
        Question::Exec { program, environment, stdin, .. } => match asked.record {
            Some(record) => exec(machine, &record, &program, environment, stdin, &replier).await,
            None => Err(WireError::new(ErrorCode::NotFound, "there is no such agent on this host")),
        },
        Question::Land { repo, branch, commit } => land(machine, &repo, branch, commit).await,
        Question::Diff { repo, from, to } => diff(machine, &repo, &from, &to).await,
    };
    match answered {
        Ok(answer) => replier.send(&answer).await,
        Err(error) => replier.refuse(error).await,
    }
}

async fn resolve(machine: &Handle, repo: &str, base: Option<&str>) -> Result<Answer, WireError> {
    let resolved =
        machine.workspaces.resolve(Path::new(repo), base).await.map_err(|error| workspace_error(&error))?;
    Ok(Answer::Resolved(ResolvedBase {
        repo: resolved.repository.path.display().to_string(),
        commit: resolved.commit,
        // Not known is not clean.
        dirty: resolved.dirty.unwrap_or(true),
    }))
}

async fn land(machine: &Handle, repo: &str, branch: String, commit: String) -> Result<Answer, WireError> {
    let repository =
        machine.workspaces.locate(Path::new(repo)).await.map_err(|error| workspace_error(&error))?;
    machine
        .workspaces
        .land(&repository, &branch, &commit, None)
        .await
        .map_err(|error| workspace_error(&error))?;
    Ok(Answer::Landed { branch, commit })
}

async fn diff(machine: &Handle, repo: &str, from: &str, to: &str) -> Result<Answer, WireError> {
    let repository =
        machine.workspaces.locate(Path::new(repo)).await.map_err(|error| workspace_error(&error))?;
    let diff = machine
        .workspaces
        .diff(&repository, from, to, DIFF_LIMIT)
        .await
        .map_err(|error| workspace_error(&error))?;
    Ok(Answer::Diff { bytes: diff.bytes, whole: !diff.truncated })
}

fn workspace_error(error: &WorkspaceError) -> WireError {
    let code = match error {
        WorkspaceError::PathMissing { .. } => ErrorCode::NotFound,
        WorkspaceError::Permission { .. } => ErrorCode::Denied,
        WorkspaceError::CheckedOut { .. } | WorkspaceError::RefMoved { .. } => ErrorCode::Conflict,
        WorkspaceError::RelativePath { .. }
        | WorkspaceError::NotAFolder { .. }
        | WorkspaceError::NotARepository { .. }
        | WorkspaceError::EmptyRepository { .. }
        | WorkspaceError::UnknownBase { .. }
        | WorkspaceError::AmbiguousBase { .. }
        | WorkspaceError::BadName { .. } => ErrorCode::Invalid,
        WorkspaceError::TimedOut { .. } | WorkspaceError::Interrupted { .. } => ErrorCode::Unavailable,
        _ => ErrorCode::Failed,
    };
    WireError::new(code, crate::chain(error))
}

async fn read(
    machine: &Handle,
    agent: AgentId,
    offset: u64,
    max: u64,
    record: Option<&AgentRecord>,
) -> Result<Answer, WireError> {
    let ended = record.is_some_and(|record| record.end.is_some());
    let path = machine.folders.transcript(agent);
    let max = usize::try_from(max).unwrap_or(PIECE).min(PIECE);
    let read = tokio::task::spawn_blocking(move || -> std::io::Result<(Vec<u8>, u64)> {
        let file = match std::fs::File::open(&path) {
            Ok(file) => file,
            // Not started yet, or its start failed: nothing was printed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        // A manager that asks past the end wants the length; the kernel would refuse the offset.
        if offset >= length {
            return Ok((Vec::new(), length));
        }
        let mut bytes = vec![0_u8; max];
        let count = file.read_at(&mut bytes, offset)?;
        bytes.truncate(count);
        Ok((bytes, length))
    });
    match read.await {
        Ok(Ok((bytes, length))) if record.is_some() || length > 0 => {
            Ok(Answer::Bytes { offset, length, bytes, ended })
        }
        Ok(Ok(_)) => Err(WireError::new(ErrorCode::NotFound, "there is no transcript of this agent here")),
        Ok(Err(error)) => {
            Err(WireError::new(ErrorCode::Failed, format!("cannot read the transcript: {error}")))
        }
        Err(error) => Err(WireError::new(ErrorCode::Failed, error.to_string())),
    }
}

async fn exec(
    machine: &Handle,
    record: &AgentRecord,
    program: &[String],
    environment: Environment,
    stdin: Vec<u8>,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let failed = |error: String| WireError::new(ErrorCode::Failed, error);
    let _permit = machine.execs.try_acquire().map_err(|_| busy())?;
    let (name, arguments) =
        program.split_first().ok_or_else(|| WireError::new(ErrorCode::Invalid, "no program was given"))?;
    let user = crate::agents::agent_user(record.spec.user.as_deref())
        .map_err(|error| failed(crate::chain(&error)))?;
    let mut variables =
        environment_of(machine, record, &user).await.map_err(|error| failed(crate::chain(&error)))?;
    variables.0.extend(environment.0);
    name_agent(&mut variables, record.agent);
    let folder = machine.folders.agent(record.agent);
    let group =
        machine.cgroups.open(&record.agent.to_string()).map_err(|error| failed(crate::chain(&error)))?;
    let mut command = tokio::process::Command::new(name);
    command.args(arguments).env_clear().envs(&variables.0).current_dir(folder.join("work"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    crate::sys::spawn::join_groups(&mut command, &group.agent_procs, user.launch.as_ref())
        .map_err(|(path, error)| failed(format!("{}: {error}", path.display())))?;
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            WireError::new(ErrorCode::NotFound, format!("{name}: no such program in the agent's PATH"))
        }
        std::io::ErrorKind::PermissionDenied => {
            WireError::new(ErrorCode::Denied, format!("{name}: may not be executed"))
        }
        _ => failed(format!("{name}: {error}")),
    })?;
    let (given, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut given) = given {
            // A program that does not read its input is not an error.
            let _ = given.write_all(&stdin).await;
        }
    };
    let ended = async {
        tokio::join!(
            feed,
            relay(out, OutputStream::Stdout, replier),
            relay(err, OutputStream::Stderr, replier)
        );
        child.wait().await
    };
    let status = tokio::select! {
        status = ended => status.map_err(|error| failed(error.to_string()))?,
        never = signs_of_life(replier) => match never {},
    };
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    Ok(Answer::Exited { code: status.code(), signal })
}

/// A way back that nothing uses is forgotten by the bus: an empty piece now and then keeps it.
async fn signs_of_life(replier: &Replier) -> std::convert::Infallible {
    let sign = Answer::Output { stream: OutputStream::Stdout, bytes: Vec::new() };
    loop {
        tokio::time::sleep(SIGN_OF_LIFE).await;
        replier.send(&sign).await;
    }
}

async fn relay(source: Option<impl tokio::io::AsyncRead + Unpin>, stream: OutputStream, replier: &Replier) {
    let Some(mut source) = source else { return };
    let mut buffer = vec![0_u8; OUTPUT_PIECE];
    loop {
        match source.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                replier.send(&Answer::Output { stream, bytes }).await;
            }
        }
    }
}
