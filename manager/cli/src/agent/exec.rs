//! `exec`: a program beside an agent; its output and exit code are ours.

use std::io::Read;
use std::sync::mpsc::{Receiver, sync_channel};

use protocol::api::{Action, Item, Reply};
use protocol::error::ErrorCode;
use protocol::exec::{ExecInput, ExecOpen, ExecTalk, INPUT_PIECE};
use protocol::order::OutputStream;

use super::super::args::agent::Exec;
use super::super::client::{Client, Flow, Limits, StreamEnd};
use super::super::context::{Context, unexpected};
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say_bytes, stdout_is_terminal};
use super::super::output::sanitise::Sanitiser;
use super::environment;

pub fn run(context: &Context, args: &Exec) -> Result<u8, Failure> {
    // Codes of our own would be taken for the program's.
    execute(context, args).map_err(|failure| match failure {
        Failure::Closed => Failure::Closed,
        other => other.exit(exit::EXEC_FAULT),
    })
}

fn execute(context: &Context, args: &Exec) -> Result<u8, Failure> {
    let files: &[&str] = &[];
    let environment = environment::read(&args.environment, files)?;
    let mut client = context.client()?;
    let request = Action::ExecOpen(ExecOpen {
        target: args.target.clone(),
        program: args.program.clone(),
        environment,
        input: args.stdin,
    });
    // Input goes by a connection of its own, each piece when the one before was taken.
    let (to, talk) = sync_channel(1);
    let (fault, faults) = sync_channel(1);
    if args.stdin {
        let feeding = context.client()?;
        let hang_up = client.hang_up();
        std::thread::spawn(move || {
            if let Err(failure) = feed(feeding, &talk) {
                let _ = fault.send(failure);
                // What came of the input is not all of it: the program is ended with the connection.
                hang_up.now();
            }
        });
    }
    // A program that reads our output gets the bytes; a person gets them without escape sequences.
    let raw = args.raw || !stdout_is_terminal();
    let mut out = Stdout::default();
    let (mut stdout, mut stderr) = (Sanitiser::default(), Sanitiser::default());
    let end = client.stream(&request, &Limits::default(), |item| {
        if let Item::Talk(talk) = &item {
            let _ = to.try_send(talk.clone());
        }
        let Item::Output { stream, bytes } = item else { return Ok(Flow::More) };
        let mut safe = String::new();
        match (stream, raw) {
            (OutputStream::Stdout, true) => out.bytes(&bytes)?,
            (OutputStream::Stderr, true) => say_bytes(&bytes),
            (OutputStream::Stdout, false) => {
                stdout.push(&bytes, &mut safe);
                out.text(&safe)?;
            }
            (OutputStream::Stderr, false) => {
                stderr.push(&bytes, &mut safe);
                say_bytes(safe.as_bytes());
            }
        }
        out.flush()?;
        Ok(Flow::More)
    });
    if let Ok(failure) = faults.try_recv() {
        return Err(failure);
    }
    let end = end?;
    out.done()?;
    match end {
        StreamEnd::Reply(Reply::Exited { code, signal }) => Ok(code_of(code, signal)),
        _ => Err(Failure::new(ErrorCode::Unavailable, "how the program ended is not known")),
    }
}

/// As a shell has it: 128 and the signal's number.
fn code_of(code: Option<i32>, signal: Option<i32>) -> u8 {
    let value = match (code, signal) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => i32::from(exit::EXEC_FAULT),
    };
    u8::try_from(value & 0xff).unwrap_or(exit::EXEC_FAULT)
}

/// Passes standard input on, piece by piece, until its end, or until the program reads no more.
fn feed(mut client: Client, talk: &Receiver<ExecTalk>) -> Result<(), Failure> {
    // Without it the program was never started, and its refusal is what is told.
    let Ok(to) = talk.recv() else { return Ok(()) };
    let mut stdin = std::io::stdin().lock();
    let mut offset = 0_u64;
    loop {
        // What there is, at once: a person's lines do not wait for a whole piece.
        let mut bytes = vec![0; INPUT_PIECE];
        let count = loop {
            match stdin.read(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let count = count.map_err(|error| {
            Failure::new(ErrorCode::Failed, format!("cannot read standard input: {error}"))
        })?;
        bytes.truncate(count);
        let last = count == 0;
        loop {
            let input = ExecInput { offset, bytes: bytes.clone(), last };
            let taken = match client.ask(&Action::ExecInput { to: to.clone(), input }) {
                Ok(Reply::Taken(taken)) => taken,
                Ok(other) => return Err(unexpected(other)),
                // It has ended: how is told by its own answer.
                Err(failure) if failure.exit_code() == exit::MISSING => return Ok(()),
                Err(failure) => return Err(failure),
            };
            let new = usize::try_from(taken.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
            bytes.drain(..new.min(bytes.len()));
            offset = taken.bytes;
            if !taken.open {
                return Ok(());
            }
            if bytes.is_empty() && !last {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_code_is_ours_and_a_signal_is_128_more() {
        assert_eq!(code_of(Some(7), None), 7);
        assert_eq!(code_of(None, Some(9)), 137);
        assert_eq!(code_of(None, None), 125);
    }
}
