//! `run --follow`: tasks or rows from standard input, each started as it comes. The run is open until the input ends; a
//! client that is killed leaves it open, and `--resume` goes on with it.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::error::ErrorCode;
use protocol::ids::RunId;

use super::super::args::run::Run;
use super::super::client::Client;
use super::super::client::reader::Interrupts;
use super::super::context::{Context, request_key};
use super::super::error::{Failure, exit};
use super::super::output::pipe::say;
use super::super::output::sanitise::safe_line;
use super::submit::{Ending, Resolved, add, close, finish, resolve, submit, upload};
use super::{list as runs, plan};
use manager_plan::runfile::Before;

/// Lines that are sent together, when they come faster than they are sent.
const TOGETHER: usize = 200;
/// Lines that wait to be sent; the reader waits when they are more.
const WAITING: usize = 1_000;
/// Between two looks for a signal.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A manager that was restarted answers again within this time.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_AGAIN_AFTER: Duration = Duration::from_millis(200);

pub fn run(context: &Context, args: &Run) -> Result<u8, Failure> {
    match (args.file.as_deref().map(|file| file.as_os_str() == "-"), args.map.as_deref()) {
        (Some(false), Some("-")) | (Some(true), None) => {}
        _ => {
            return Err(Failure::usage("--follow reads tasks or rows from standard input")
                .hint("phalanx run - --follow, or: phalanx run FILE --map - --follow"));
        }
    }
    let interrupts = Interrupts::catch()
        .map_err(|error| Failure::new(ErrorCode::Failed, format!("cannot catch Ctrl-C: {error}")))?;
    let mut client = context.client()?;
    let run = args.resume.as_deref().map(|target| runs::whole(&mut client, target)).transpose()?;
    let mut before = Before::default();
    if let Some((_, tasks)) = &run {
        before.count = tasks.len();
        before.names = tasks.iter().map(|task| task.spec.name.to_string()).collect();
    }
    let run = run.map(|(view, _)| view.id);
    let mut feed = Feed { context, args, client, run, before, resolved: Resolved::new(), refused: 0 };
    let ended = feed.all(&lines(), &interrupts);
    let Some(run) = feed.run else {
        ended?;
        return Err(Failure::usage("no task came on standard input; nothing was sent"));
    };
    if let Some(signal) = ended? {
        say(&format!(
            "run {run} stays open; go on with it: phalanx run --resume {run}; end it: phalanx cancel {run}"
        ));
        let terminated = signal == Signal::SIGTERM as i32;
        return Err(Failure::Told(if terminated { exit::TERMINATED } else { exit::INTERRUPTED }));
    }
    patiently(context, &mut feed.client, |client| close(client, run))?;
    let refused = feed.refused;
    let code = finish(context, args, feed.client, run)?;
    Ok(if code == exit::OK && refused > 0 { exit::SOME_ACCEPTED } else { code })
}

/// The lines of standard input, as they come.
fn lines() -> Receiver<std::io::Result<String>> {
    let (sender, receiver) = sync_channel(WAITING);
    // Ends with the process: a read of standard input cannot be broken off.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let failed = line.is_err();
            if sender.send(line).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

struct Feed<'a> {
    context: &'a Context,
    args: &'a Run,
    client: Client,
    /// Once there is one.
    run: Option<RunId>,
    before: Before,
    resolved: Resolved,
    /// Lines that were wrong.
    refused: usize,
}

impl Feed<'_> {
    /// Until the input ends, or a signal comes.
    fn all(
        &mut self,
        lines: &Receiver<std::io::Result<String>>,
        interrupts: &Interrupts,
    ) -> Result<Option<i32>, Failure> {
        loop {
            if let Some(signal) = interrupts.wait(Duration::ZERO) {
                return Ok(Some(signal));
            }
            let first = match lines.recv_timeout(LOOK_AGAIN) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            };
            let mut piece = Vec::new();
            for line in std::iter::once(first).chain(lines.try_iter()).take(TOGETHER) {
                let line = line.map_err(|error| {
                    let failure = Failure::usage(format!("cannot read standard input: {error}"));
                    match self.run {
                        Some(run) => failure.hint(format!("phalanx run --resume {run}")),
                        None => failure,
                    }
                })?;
                if !line.trim().is_empty() {
                    piece.push(line);
                }
            }
            self.hooks_are_there(&piece)?;
            self.take(&piece)?;
        }
    }

    /// A hook that is not there is the whole input's fault: no line is left out for it.
    fn hooks_are_there(&self, lines: &[String]) -> Result<(), Failure> {
        if self.run.is_some() || lines.is_empty() {
            return Ok(());
        }
        let text = format!("{}\n", lines.join("\n"));
        // A line that is wrong is told when it is sent.
        match plan::read_piece(self.args, &self.context.settings, &text, self.before.clone()) {
            Ok(plan) => plan::check_hooks(self.context, self.args, &plan),
            Err(_) => Ok(()),
        }
    }

    /// Sends a piece; where something in it is wrong, line by line, so that only what is wrong is left out.
    fn take(&mut self, lines: &[String]) -> Result<(), Failure> {
        match self.send(lines) {
            Err(failure) if is_wrong(&failure) && lines.len() > 1 => {
                lines.chunks(1).try_for_each(|line| self.take(line))
            }
            Err(failure) if is_wrong(&failure) => {
                self.refused += 1;
                self.before.count += 1;
                if let Some(text) = failure.rendered(false) {
                    let number = self.before.count;
                    say(&safe_line(&format!("line {number} was left out: {}", text.replace('\n', " "))));
                }
                Ok(())
            }
            other => other,
        }
    }

    fn send(&mut self, lines: &[String]) -> Result<(), Failure> {
        if lines.is_empty() {
            return Ok(());
        }
        let text = format!("{}\n", lines.join("\n"));
        let plan = plan::read_piece(self.args, &self.context.settings, &text, self.before.clone())?;
        let names: BTreeSet<String> = plan.tasks.iter().map(|task| task.spec.name.to_string()).collect();
        let key = request_key(None)?;
        let (run, resolved) = (self.run, &mut self.resolved);
        let run = patiently(self.context, &mut self.client, |client| {
            resolve(client, &plan, resolved)?;
            upload(client, &plan)?;
            // The same key: a manager that was killed in between does it once.
            match run {
                Some(run) => add(client, run, plan.clone(), resolved, &key),
                None => submit(client, plan.clone(), resolved, &key, Ending::Open),
            }
        })?;
        if !self.context.quiet {
            if self.run.is_none() {
                say(&format!("run {run} is open"));
            }
            say(&format!("{} tasks added", names.len()));
        }
        self.run = Some(run);
        self.before.count += lines.len();
        self.before.names.extend(names);
        Ok(())
    }
}

/// The line's own fault, not the machine's.
fn is_wrong(failure: &Failure) -> bool {
    matches!(failure.exit_code(), exit::USAGE | exit::MISSING | exit::CONFLICT)
}

/// Again over a restart of the manager.
fn patiently<T>(
    context: &Context,
    client: &mut Client,
    mut ask: impl FnMut(&mut Client) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    loop {
        match ask(client) {
            Err(failure) if failure.exit_code() == exit::UNAVAILABLE && begun.elapsed() < PATIENCE => {
                #[expect(clippy::disallowed_methods, reason = "a blocking client waits for its manager")]
                std::thread::sleep(CONNECT_AGAIN_AFTER);
                if let Ok(fresh) = context.client() {
                    *client = fresh;
                }
            }
            other => return other,
        }
    }
}
