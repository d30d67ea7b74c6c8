//! A program beside an agent: in its workspace, environment and limits.

use std::process::Stdio;

use hostd_core::AgentRecord;
use protocol::agent::Environment;
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, OutputStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::busy;
use crate::agents::{environment_of, name_agent};
use crate::bus::Replier;
use crate::machine::Handle;

pub(super) const OUTPUT_PIECE: usize = 64 << 10;
/// Between two signs of life of a program that prints nothing.
const SIGN_OF_LIFE: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn exec(
    machine: &Handle,
    record: &AgentRecord,
    program: &[String],
    environment: Environment,
    stdin: Vec<u8>,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let failed = |error: String| WireError::new(ErrorCode::Failed, error);
    let _permit = machine.execs.try_acquire().map_err(|_| busy())?;
    let mut child = launch(machine, record, program, environment, Stdio::piped()).await?;
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

/// The program, in the agent's workspace, environment and limits, and in a session of its own.
pub(super) async fn launch(
    machine: &Handle,
    record: &AgentRecord,
    program: &[String],
    environment: Environment,
    stdin: Stdio,
) -> Result<Child, WireError> {
    let failed = |error: String| WireError::new(ErrorCode::Failed, error);
    let (name, arguments) =
        program.split_first().ok_or_else(|| WireError::new(ErrorCode::Invalid, "no program was given"))?;
    can_run_beside(record)?;
    let user = crate::agents::agent_user(record.spec.user.as_deref())
        .map_err(|error| failed(protocol::chain(&error)))?;
    let mut variables =
        environment_of(machine, record, &user).await.map_err(|error| failed(protocol::chain(&error)))?;
    variables.0.extend(environment.0);
    name_agent(&mut variables, record.agent);
    let folder = machine.folders.agent(record.agent);
    let group =
        machine.cgroups.open(&record.agent.to_string()).map_err(|error| failed(protocol::chain(&error)))?;
    if group.frozen().is_ok_and(|frozen| frozen) {
        let message = "it is paused: what is started beside it would stand still too";
        let hint = format!("phalanx resume {}", record.agent);
        return Err(WireError::new(ErrorCode::Conflict, message).hint(hint));
    }
    let mut command = tokio::process::Command::new(name);
    command.args(arguments).env_clear().envs(&variables.0).current_dir(folder.join("work"));
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    crate::sys::spawn::join_groups(&mut command, &group.agent_procs, user.launch.as_ref())
        .map_err(|(path, error)| failed(format!("{}: {error}", path.display())))?;
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            WireError::new(ErrorCode::NotFound, format!("{name}: no such program in the agent's PATH"))
        }
        std::io::ErrorKind::PermissionDenied => {
            WireError::new(ErrorCode::Denied, format!("{name}: may not be executed"))
        }
        _ => failed(format!("{name}: {error}")),
    })
}

/// What is ended has no limits for anything to run in.
fn can_run_beside(record: &AgentRecord) -> Result<(), WireError> {
    if record.removed {
        return Err(WireError::new(
            ErrorCode::Conflict,
            "it is destroyed; only its transcript and its end are left",
        ));
    }
    if record.end.is_some() {
        let message = "it has ended: a program can be run only beside a running one";
        let hint =
            format!("phalanx start {0} goes on with it; phalanx file ls {0} shows its files", record.agent);
        return Err(WireError::new(ErrorCode::Conflict, message).hint(hint));
    }
    Ok(())
}

/// A way back that nothing uses is forgotten by the bus: an empty piece now and then keeps it.
pub(super) async fn signs_of_life(replier: &Replier) -> std::convert::Infallible {
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
