//! Other programs, run to their end within a limit: one that hangs is told as such, not waited for.

use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::BootError;

/// Longer than systemd takes for a restart of ours, which is its stop and its start.
const LIMIT: Duration = Duration::from_secs(300);

/// `None` when there is no such program. What it says is in English.
pub(super) fn run(
    program: &'static str,
    args: &[&str],
    environment: &[(&str, String)],
    input: &[u8],
) -> Result<Option<Output>, BootError> {
    let failed = |source| BootError::Run { program, source };
    let started = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let handle = crate::process::ProcessHandle::open(child.id()).map_err(failed)?;
    let (stdin, input) = (child.stdin.take(), input.to_vec());
    let (sender, receiver) = mpsc::channel();
    // Ends with the program, which is ended below if need be.
    std::thread::Builder::new()
        .spawn(move || {
            if let Some(mut stdin) = stdin {
                // One that does not read tells of that by its exit code.
                let _ = stdin.write_all(&input);
            }
            let _ = sender.send(child.wait_with_output());
        })
        .map_err(failed)?;
    match receiver.recv_timeout(LIMIT) {
        Ok(output) => output.map(Some).map_err(failed),
        Err(_) => {
            let killed = handle.map(|handle| handle.signal(rustix::process::Signal::KILL));
            killed.transpose().map_err(failed)?;
            Err(failed(io::Error::new(io::ErrorKind::TimedOut, format!("not done after {LIMIT:?}"))))
        }
    }
}

/// What a program that failed says of it, in one line.
pub(super) fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    if text.is_empty() { output.status.to_string() } else { text }
}
