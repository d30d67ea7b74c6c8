//! `exec`: a program beside an agent; its output and exit code are ours.

use std::io::Read;

use protocol::api::{Item, Reply, Request};
use protocol::order::OutputStream;

use super::super::args::agent::Exec;
use super::super::client::{Flow, Limits, StreamEnd};
use super::super::context::Context;
use super::super::error::{Failure, exit};
use super::super::output::pipe::{Stdout, say_bytes, stdout_is_terminal};
use super::super::output::sanitise::Sanitiser;
use super::environment;

/// Standard input that is passed on at most: with program and environment it goes to the host in one message.
const STDIN_LIMIT: u64 = 768 << 10;

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
    let stdin = if args.stdin { read_stdin()? } else { Vec::new() };
    let mut client = context.client()?;
    let request =
        Request::Exec { target: args.target.clone(), program: args.program.clone(), environment, stdin };
    // A program that reads our output gets the bytes; a person gets them without escape sequences.
    let raw = args.raw || !stdout_is_terminal();
    let mut out = Stdout::default();
    let (mut stdout, mut stderr) = (Sanitiser::default(), Sanitiser::default());
    let end = client.stream(&request, &Limits::default(), |item| {
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
    })?;
    out.done()?;
    match end {
        StreamEnd::Reply(Reply::Exited { code, signal }) => Ok(code_of(code, signal)),
        _ => Err(Failure::new(protocol::error::ErrorCode::Unavailable, "how the program ended is not known")),
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

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(STDIN_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("cannot read standard input: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > STDIN_LIMIT {
        return Err(Failure::usage("standard input is larger than 768K")
            .hint("phalanx file put - AGENT:PATH, then a command that reads that file"));
    }
    Ok(bytes)
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
