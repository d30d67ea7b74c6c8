//! A program beside an agent that is spoken with: its input comes in pieces, its output goes no faster than its reader
//! takes it. Nothing is held but the piece under way; a program that reads or a reader that takes nothing makes the other
//! side wait. Without a sign of the reader's life the program is ended, and never takes what came of its input for all.

use std::collections::HashMap;
use std::convert::Infallible;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hostd_core::AgentRecord;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use protocol::agent::Environment;
use protocol::error::{ErrorCode, WireError};
use protocol::exec::{ExecInput, InputTaken};
use protocol::ids::OrderId;
use protocol::order::{Answer, OutputStream};
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::busy;
use super::exec::{OUTPUT_PIECE, Rest, launch, signs_of_life, until_over};
use crate::bus::Replier;
use crate::machine::Handle;

/// A reader that gives no sign of life for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// A piece that finds no room for so long is answered with what was taken, and comes again.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// Between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// Programs that are spoken with, by the id of the ask that opened each.
#[derive(Debug, Default)]
pub struct Programs(Mutex<HashMap<String, Lines>>);

/// The ways to one program.
#[derive(Clone, Debug)]
struct Lines {
    input: mpsc::Sender<Piece>,
    sign: Arc<watch::Sender<Sign>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Life,
    End,
}

#[derive(Debug)]
struct Piece {
    input: ExecInput,
    taken: oneshot::Sender<InputTaken>,
}

/// One of them, forgotten at its end.
struct Known<'a> {
    programs: &'a Programs,
    id: &'a str,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        lock(&self.programs.0).remove(self.id);
    }
}

impl Programs {
    fn lines(&self, talk: OrderId) -> Option<Lines> {
        lock(&self.0).get(&talk.to_string()).cloned()
    }

    /// Its reader is there. A program that is over is no fault of its reader.
    pub(super) fn alive(&self, talk: OrderId) {
        if let Some(lines) = self.lines(talk) {
            lines.sign.send_if_modified(|sign| *sign == Sign::Life);
        }
    }

    pub(super) fn end(&self, talk: OrderId) {
        if let Some(lines) = self.lines(talk) {
            let _ = lines.sign.send(Sign::End);
        }
    }

    /// # Errors
    /// `NotFound` when the program is over.
    pub(super) async fn input(&self, talk: OrderId, input: ExecInput) -> Result<Answer, WireError> {
        let over = || WireError::new(ErrorCode::NotFound, "the program has ended");
        let lines = self.lines(talk).ok_or_else(over)?;
        self.alive(talk);
        let (taken, told) = oneshot::channel();
        lines.input.send(Piece { input, taken }).await.map_err(|_| over())?;
        told.await.map(Answer::Taken).map_err(|_| over())
    }
}

pub(super) async fn open(
    machine: &Handle,
    record: &AgentRecord,
    program: &[String],
    environment: Environment,
    input: bool,
    replier: &Replier,
) -> Result<Answer, WireError> {
    let _permit = machine.execs.try_acquire().map_err(|_| busy())?;
    let talk = machine.talks.begin(replier.ask())?;
    let (pieces, pieces_in) = mpsc::channel(1);
    let (sign, signs) = watch::channel(Sign::Life);
    let lines = Lines { input: pieces, sign: Arc::new(sign) };
    lock(&machine.programs.0).insert(replier.ask().to_owned(), lines);
    let _known = Known { programs: &machine.programs, id: replier.ask() };
    let stdin = if input { Stdio::piped() } else { Stdio::null() };
    let mut child = launch(machine, record, program, environment, stdin).await?;
    // It has begun and is known: its reader may speak from here on.
    replier.send(&Answer::Output { stream: OutputStream::Stdout, bytes: Vec::new() }).await;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Kept out of what may be dropped before the program is ended: a closed input would look whole.
    let mut given = child.stdin.take();
    let room = talk.room();
    let (over, is_over) = watch::channel(false);
    let relays = async {
        tokio::join!(
            relay(out, OutputStream::Stdout, is_over.clone(), room, replier),
            relay(err, OutputStream::Stderr, is_over.clone(), room, replier)
        );
    };
    let ended = until_over(&mut child, over, std::future::ready(()), relays);
    let status = tokio::select! {
        status = ended => Some(status),
        never = feed(&mut given, pieces_in) => match never {},
        never = signs_of_life(replier) => match never {},
        () = silence(signs) => None,
    };
    match status {
        Some(status) => {
            let status = status.map_err(|error| WireError::new(ErrorCode::Failed, error.to_string()))?;
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            Ok(Answer::Exited { code: status.code(), signal })
        }
        None => {
            end(&mut child).await;
            drop(given);
            Err(WireError::new(
                ErrorCode::Unavailable,
                "nobody waited for the program any more: it was ended",
            ))
        }
    }
}

/// Until the reader wants it ended, or gives no sign any more.
async fn silence(mut signs: watch::Receiver<Sign>) {
    loop {
        if *signs.borrow_and_update() == Sign::End {
            return;
        }
        match tokio::time::timeout(PATIENCE, signs.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// The program and all that it has started in its session's group.
async fn end(child: &mut Child) {
    let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) else { return };
    let group = Pid::from_raw(pid);
    let _ = killpg(group, Signal::SIGTERM);
    let _ = tokio::time::timeout(GRACE, child.wait()).await;
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait().await;
}

async fn feed(given: &mut Option<ChildStdin>, mut pieces: mpsc::Receiver<Piece>) -> Infallible {
    let mut taken = 0;
    while let Some(piece) = pieces.recv().await {
        let open = take(given, &mut taken, &piece.input).await;
        let _ = piece.taken.send(InputTaken { bytes: taken, open });
    }
    std::future::pending().await
}

/// Writes what is new of a piece, as far as there is room in time; whether more may be read.
async fn take(given: &mut Option<ChildStdin>, taken: &mut u64, input: &ExecInput) -> bool {
    let Some(stdin) = given.as_mut() else { return false };
    let Some(known) = taken.checked_sub(input.offset) else { return true };
    let known = usize::try_from(known).unwrap_or(usize::MAX);
    let mut rest = input.bytes.get(known..).unwrap_or_default();
    let until = tokio::time::Instant::now() + ROOM_WITHIN;
    while !rest.is_empty() {
        match tokio::time::timeout_at(until, stdin.write(rest)).await {
            Ok(Ok(count)) => {
                *taken = taken.saturating_add(u64::try_from(count).unwrap_or(0));
                rest = rest.get(count..).unwrap_or_default();
            }
            // It does not read any more, which is no error of it.
            Ok(Err(_)) => {
                *given = None;
                return false;
            }
            Err(_) => return true,
        }
    }
    if input.last {
        *given = None;
        return false;
    }
    true
}

async fn relay(
    source: Option<impl AsyncRead + Unpin>,
    stream: OutputStream,
    over: watch::Receiver<bool>,
    room: &Semaphore,
    replier: &Replier,
) {
    let Some(mut source) = source else { return };
    let (mut buffer, mut rest) = (vec![0_u8; OUTPUT_PIECE], Rest::new(over));
    loop {
        // First the room, so that nothing is read that could not be sent: the program waits instead.
        let Ok(permit) = room.acquire().await else { return };
        let count = rest.read(&mut source, &mut buffer).await;
        if count == 0 {
            return;
        }
        permit.forget();
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        replier.send(&Answer::Output { stream, bytes }).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A map of handles is right after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who heard no answer sends a piece again, maybe with more; what came before it comes first.
    #[tokio::test]
    async fn input_that_comes_again_is_taken_once_and_none_is_taken_out_of_turn() {
        let mut child =
            tokio::process::Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut given, mut taken) = (child.stdin.take(), 0);
        for (offset, bytes, last, wanted, open) in [
            (0, "abc", false, 3, true),
            (0, "abc", false, 3, true),
            (0, "abcde", false, 5, true),
            (9, "never", false, 5, true),
            (9, "never", true, 5, true),
            (4, "efg", true, 7, false),
            (7, "late", false, 7, false),
        ] {
            let input = ExecInput { offset, bytes: bytes.as_bytes().to_vec(), last };
            assert_eq!(take(&mut given, &mut taken, &input).await, open, "{offset} {bytes}");
            assert_eq!(taken, wanted, "{offset} {bytes}");
        }
        assert_eq!(child.wait_with_output().await.unwrap().stdout, b"abcdefg");
    }
}
