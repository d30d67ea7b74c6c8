//! Commands of a person at this installation: run to the end within a limit, or in the background.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Install;
use crate::programs;

/// No command of a test takes longer; one that does hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    pub words: String,
    /// The exit code; 128 and the signal when there was one, as shells say it.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub took: Duration,
}

impl Ran {
    /// # Panics
    /// When it ended with another code.
    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        let said = String::from_utf8_lossy(&self.stdout);
        assert_eq!(self.code, code, "{}: {} {said}", self.words, self.stderr);
        self
    }

    /// # Panics
    /// When it failed.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.ended_with(0)
    }

    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// A command that runs.
pub struct Background {
    words: String,
    child: Child,
    begun: Instant,
}

impl Background {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// # Panics
    /// When it does not end in time.
    #[must_use]
    pub fn end(self) -> Ran {
        let (pid, words, begun) = (self.child.id(), self.words, self.begun);
        let (sender, receiver) = mpsc::channel();
        let child = self.child;
        let reader = std::thread::spawn(move || {
            let _ = sender.send(child.wait_with_output());
        });
        let limit = LIMIT * crate::wait::slowness();
        let Ok(output) = receiver.recv_timeout(limit) else {
            super::kill_and_wait(pid);
            panic!("{words}: not done within {limit:?}");
        };
        reader.join().unwrap();
        let Output { status, stdout, stderr } = output.unwrap();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ran { words, code: code_of(status), stdout, stderr, took: begun.elapsed() }
    }
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

impl Install {
    /// `phalanx` with the environment of a bare login, in the folder of the test.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(programs::path_of("phalanx"));
        command
            .args(args)
            .env_clear()
            .env("PATH", search_path())
            .env("HOME", self.path("user"))
            .env("PHALANX_HOME", self.home())
            .env("LANG", "C.UTF-8")
            .current_dir(self.path("user"))
            .stdin(Stdio::null());
        command
    }

    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn spawn(&self, args: &[&str]) -> Background {
        start(self.command(args), format!("phalanx {}", args.join(" ")))
    }

    /// Runs it to its end, whatever that is.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Ran {
        self.spawn(args).end()
    }

    /// Runs it with this standard input.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped());
        let mut running = start(command, format!("phalanx {}", args.join(" ")));
        let mut stdin = running.child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // It may end before it has read all: then it does not want it.
            let _ = stdin.write_all(&input);
        });
        let ran = running.end();
        writer.join().unwrap();
        ran
    }

    /// `create NAME [options] -- fake-agent STEPS`, which must start.
    #[track_caller]
    pub fn create(&self, name: &str, options: &[&str], steps: &[&str]) -> crate::json::Agent {
        self.try_create(name, options, steps).succeeded();
        self.agent(name)
    }

    #[must_use]
    pub fn try_create(&self, name: &str, options: &[&str], steps: &[&str]) -> Ran {
        let fake = programs::fake_agent();
        let mut args = vec!["create", name];
        args.extend(options);
        args.extend(["--", &fake]);
        args.extend(steps);
        self.run(&args)
    }
}

/// The caller's search path without what he may not look into, as a login of his own would have it.
fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let readable = std::env::split_paths(&path).filter(|folder| std::fs::read_dir(folder).is_ok());
    std::env::join_paths(readable).unwrap()
}

/// # Panics
/// When it cannot be started.
#[must_use]
fn start(mut command: Command, words: String) -> Background {
    let begun = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
    Background { words, child, begun }
}
