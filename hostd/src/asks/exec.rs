//! A program beside an agent: in its workspace, environment and limits.

use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;

use hostd_core::AgentRecord;
use protocol::agent::Environment;
use protocol::error::{ErrorCode, WireError};
use protocol::order::{Answer, OutputStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::watch;

use super::busy;
use crate::agents::{environment_of, name_agent};
use crate::bus::Replier;
use crate::containment::{ContainmentError, Entrance};
use crate::machine::Handle;

pub(super) const OUTPUT_PIECE: usize = 64 << 10;
/// Between two signs of life of a program that prints nothing.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);
/// After a program's end its output is waited for so long in all: what it left behind may hold it open.
const REST_WITHIN: Duration = Duration::from_millis(500);
/// The most that a pipe holds, unless someone has made it larger.
const REST_BYTES: usize = 1 << 20;

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
    let (over, is_over) = watch::channel(false);
    let relays = async {
        tokio::join!(
            relay(out, OutputStream::Stdout, is_over.clone(), replier),
            relay(err, OutputStream::Stderr, is_over.clone(), replier)
        );
    };
    let ended = until_over(&mut child, over, feed, relays);
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
    let entrance = entrance_of(&folder, record.launch).map_err(|error| failed(protocol::chain(&error)))?;
    crate::sys::spawn::join_groups(&mut command, &group.agent_procs, entrance, user.launch.as_ref())
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

/// It sees what the agent sees.
fn entrance_of(folder: &std::path::Path, launch: u32) -> Result<Option<Entrance>, ContainmentError> {
    match crate::agents::shim_of(folder, launch) {
        Some(shim) => Entrance::beside(shim.pid, &folder.join("work")),
        None => Err(ContainmentError::Enter(std::io::ErrorKind::NotFound.into())),
    }
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

/// How the program ended, once its output is relayed. What it left behind may hold its output open for as long as it
/// likes: from the program's end on the relays take what is there, see [`Rest`].
pub(super) async fn until_over(
    child: &mut Child,
    over: watch::Sender<bool>,
    feed: impl Future<Output = ()>,
    relays: impl Future<Output = ()>,
) -> std::io::Result<std::process::ExitStatus> {
    let (mut feed, mut relays) = (pin!(feed), pin!(relays));
    let (mut is_fed, mut is_relayed) = (false, false);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            () = &mut feed, if !is_fed => is_fed = true,
            () = &mut relays, if !is_relayed => is_relayed = true,
        }
    };
    over.send_replace(true);
    if !is_relayed {
        relays.await;
    }
    Ok(status)
}

/// Reads what a program prints; after its end no more than what it can have left unread.
pub(super) struct Rest {
    over: watch::Receiver<bool>,
    waits: Duration,
    bytes: usize,
}

impl Rest {
    pub(super) fn new(over: watch::Receiver<bool>) -> Self {
        Self { over, waits: REST_WITHIN, bytes: REST_BYTES }
    }

    /// How many bytes were read; none at the end.
    pub(super) async fn read(
        &mut self,
        source: &mut (impl tokio::io::AsyncRead + Unpin),
        buffer: &mut [u8],
    ) -> usize {
        if !*self.over.borrow() {
            tokio::select! {
                biased;
                read = source.read(buffer) => return read.unwrap_or(0),
                _ = self.over.wait_for(|over| *over) => {}
            }
        }
        let begun = tokio::time::Instant::now();
        let read = tokio::time::timeout(self.waits, source.read(buffer)).await;
        self.waits = self.waits.saturating_sub(begun.elapsed());
        let count = if self.bytes == 0 { 0 } else { read.map_or(0, |read| read.unwrap_or(0)) };
        self.bytes = self.bytes.saturating_sub(count);
        count
    }
}

async fn relay(
    source: Option<impl tokio::io::AsyncRead + Unpin>,
    stream: OutputStream,
    over: watch::Receiver<bool>,
    replier: &Replier,
) {
    let Some(mut source) = source else { return };
    let (mut buffer, mut rest) = (vec![0_u8; OUTPUT_PIECE], Rest::new(over));
    loop {
        let count = rest.read(&mut source, &mut buffer).await;
        if count == 0 {
            return;
        }
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        replier.send(&Answer::Output { stream, bytes }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it has printed is whole, whatever its reader's pace; a child that holds its output open is not waited for.
    #[tokio::test]
    async fn a_program_is_over_with_its_own_end_and_not_with_that_of_what_it_left() {
        for left in ["sleep 600 &", "while sleep 0.01; do echo more; done 2>/dev/null &"] {
            let script = format!("{left} echo $! >&2; head -c 300000 /dev/zero; exit 4");
            let mut child = tokio::process::Command::new("sh")
                .args(["-c", &script])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
            let (over, is_over) = watch::channel(false);
            let (mut zeros, mut pid) = (0, Vec::new());
            let relays = async {
                let (mut rest, mut buffer) = (Rest::new(is_over), vec![0; 4096]);
                loop {
                    let count = rest.read(&mut out, &mut buffer).await;
                    if count == 0 {
                        break;
                    }
                    zeros += buffer.iter().take(count).filter(|byte| **byte == 0).count();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                err.read_buf(&mut pid).await.unwrap();
            };
            let ended = until_over(&mut child, over, async {}, relays);
            let status = tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap().unwrap();
            assert_eq!((status.code(), zeros), (Some(4), 300_000), "{left}");
            let pid = String::from_utf8(pid).unwrap().trim().parse().unwrap();
            let left = crate::sys::process::ProcessRef::of(pid).unwrap();
            let Some(left) = left else { continue };
            left.signal(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
    }
}
