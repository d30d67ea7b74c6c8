//! `attach DIR`: shows an agent in this terminal. A relay without state: killed at any time, made again at any time.
//! When the agent has ended it says how, and stays so that the screen can be read.

mod arrival;
mod terminal;

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::chdir;
use protocol::codec::{CodecError, Frame, Hello, socket_bytes};
use protocol::shim::{EndCause, ExitRecord, Request, SOCKET_VERSION, file, kind};

use crate::frames::FrameReader;
use crate::{BUILD, log, records, replay};
use arrival::Arrival;
use terminal::Terminal;

const NOT_FOUND: u8 = 3;
const UNAVAILABLE: u8 = 9;
const BUFFER_BYTES: usize = 8 * 1024;
/// Typed and not taken by the shim; over this the keyboard is not read.
const TYPED_LIMIT: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Full,
    ReadOnly,
}

#[derive(Debug, thiserror::Error)]
enum AttachError {
    #[error("cannot enter the agent's folder")]
    Folder(#[source] nix::Error),
    #[error("the agent has not started")]
    NotStarted,
    #[error(
        "this attach speaks version {SOCKET_VERSION} of the socket, the agent's shim {theirs:?}; \
             attach with the shim's own build ({build})"
    )]
    Version { theirs: Vec<u16>, build: String },
    #[error("cannot talk to the shim")]
    Talk(#[source] CodecError),
    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),
}

/// How a relay came to its end.
enum Left {
    /// The shim has closed the connection.
    ShimEnded,
    /// This terminal has.
    Told,
}

pub(crate) fn attach(dir: &Path, access: Access) -> ExitCode {
    match show(dir, access) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            log(&format!("phalanx-shim: {}: {error}{}", dir.display(), source.unwrap_or_default()));
            ExitCode::from(match error {
                AttachError::Folder(_) => NOT_FOUND,
                AttachError::NotStarted | AttachError::Version { .. } => UNAVAILABLE,
                AttachError::Talk(_) | AttachError::Terminal(_) => 1,
            })
        }
    }
}

fn show(dir: &Path, access: Access) -> Result<(), AttachError> {
    chdir(dir).map_err(AttachError::Folder)?;
    let signals = signals().map_err(AttachError::Terminal)?;
    let arrival = arrival::wait_for_shim().map_err(AttachError::Terminal)?;
    let left = match arrival {
        Arrival::Shim(stream) => {
            let mut relay = Relay::begin(stream, access)?;
            let raw = Terminal::raw().map_err(AttachError::Terminal)?;
            let left = relay.run(&signals);
            drop(raw);
            left?
        }
        Arrival::Ended | Arrival::Gone => {
            show_last_output();
            Left::ShimEnded
        }
        Arrival::Late => return Err(AttachError::NotStarted),
    };
    if matches!(left, Left::ShimEnded) {
        let line = match records::load::<ExitRecord>(file::EXIT) {
            Ok(record) => describe(&record),
            Err(_) if arrival::has_died_soon().map_err(AttachError::Terminal)? => {
                "the agent's supervisor is gone and has left no exit record".to_owned()
            }
            // Whether the agent lives is not known: nothing is said about it.
            Err(_) => "the connection to the agent's supervisor is lost; attach again".to_owned(),
        };
        print(format!("\r\n[{line}]\r\n").as_bytes());
        terminal::wait_for_enter(&signals).map_err(AttachError::Terminal)?;
    }
    Ok(())
}

fn describe(record: &ExitRecord) -> String {
    let status = match (record.code, record.signal) {
        (Some(code), _) => format!("exit {code}"),
        (None, Some(number)) => match Signal::try_from(number) {
            Ok(signal) => format!("signal {number}, {signal}"),
            Err(_) => format!("signal {number}"),
        },
        (None, None) => "no status".to_owned(),
    };
    match &record.cause {
        EndCause::Exited | EndCause::Signalled | EndCause::Unknown => format!("agent ended: {status}"),
        EndCause::WallTime => format!("agent ended: its time was over ({status})"),
        EndCause::Lease => format!("agent ended: its lease ran out ({status})"),
        EndCause::ShimTerminated => format!("agent ended: its supervisor was told to end ({status})"),
        EndCause::StartFailed(failure) => format!("agent was not started: {}", failure.message),
    }
}

/// A pane made after the end shows what there was to see.
fn show_last_output() {
    let tail = std::fs::File::open(file::OUTPUT).and_then(|file| {
        let len = file.metadata()?.len();
        replay::tail(&file, len)
    });
    if let Ok(bytes) = tail {
        print(&bytes);
        print(terminal::RESET_MODES);
    }
}

fn print(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    // A terminal that is gone is noticed by its hang-up.
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}

fn signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGWINCH, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

struct Relay {
    stream: UnixStream,
    reader: FrameReader,
    /// Frames the shim has not taken yet.
    typed: Vec<u8>,
    access: Access,
    keyboard_open: bool,
}

impl Relay {
    /// Both hellos, then the attach.
    fn begin(stream: UnixStream, access: Access) -> Result<Self, AttachError> {
        let mut relay =
            Self { stream, reader: FrameReader::default(), typed: Vec::new(), access, keyboard_open: true };
        let ours = Hello { versions: vec![SOCKET_VERSION], build: BUILD.to_owned() };
        relay.queue(&Frame::of(Hello::KIND, "", &ours).map_err(AttachError::Talk)?)?;
        let (rows, cols) = terminal::size();
        let attach = Request::Attach { rows, cols, read_only: access == Access::ReadOnly };
        relay.queue(&Frame::of(kind::REQUEST, "attach", &attach).map_err(AttachError::Talk)?)?;
        relay.stream.set_nonblocking(true).map_err(AttachError::Terminal)?;
        Ok(relay)
    }

    fn queue(&mut self, frame: &Frame) -> Result<(), AttachError> {
        self.typed.extend_from_slice(&socket_bytes(frame).map_err(AttachError::Talk)?);
        Ok(())
    }

    fn run(&mut self, signals: &SignalFd) -> Result<Left, AttachError> {
        loop {
            let (told, keys, shim) = self.wait(signals).map_err(AttachError::Terminal)?;
            if told {
                while let Ok(Some(info)) = signals.read_signal() {
                    if info.ssi_signo != Signal::SIGWINCH as u32 {
                        return Ok(Left::Told);
                    }
                    let (rows, cols) = terminal::size();
                    let resize = Request::Resize { rows, cols };
                    self.queue(&Frame::of(kind::REQUEST, "resize", &resize).map_err(AttachError::Talk)?)?;
                }
            }
            if keys {
                self.read_keys()?;
            }
            if shim && !self.read_shim()? {
                return Ok(Left::ShimEnded);
            }
            if !self.flush() {
                return Ok(Left::ShimEnded);
            }
        }
    }

    /// Which of signals, keyboard and shim have something.
    fn wait(&self, signals: &SignalFd) -> io::Result<(bool, bool, bool)> {
        let stdin = io::stdin();
        let mut interest = PollFlags::POLLIN;
        interest.set(PollFlags::POLLOUT, !self.typed.is_empty());
        let mut polled =
            vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(self.stream.as_fd(), interest)];
        if self.keyboard_open && self.typed.len() < TYPED_LIMIT {
            polled.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut any = polled.iter().map(|fd| fd.any().unwrap_or(false));
        let mut next = || any.next().unwrap_or(false);
        let (told, shim) = (next(), next());
        Ok((told, next(), shim))
    }

    fn read_keys(&mut self) -> Result<(), AttachError> {
        let mut buffer = [0; BUFFER_BYTES];
        match nix::unistd::read(io::stdin(), &mut buffer) {
            // A script that pipes into it: what the agent prints is still shown.
            Ok(0) | Err(Errno::EIO) => self.keyboard_open = false,
            Ok(count) if self.access == Access::Full => {
                let keys = buffer.get(..count).unwrap_or_default().to_vec();
                self.queue(&Frame::new(kind::INPUT, "", keys))?;
            }
            Ok(_) | Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(error) => return Err(AttachError::Terminal(error.into())),
        }
        Ok(())
    }

    /// False when the connection has ended.
    fn read_shim(&mut self) -> Result<bool, AttachError> {
        let mut buffer = [0; BUFFER_BYTES];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => self.reader.push(buffer.get(..count).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Ok(false),
        }
        while let Some(frame) = self.reader.next().map_err(AttachError::Talk)? {
            match frame.kind.as_str() {
                kind::OUTPUT => print(&frame.body),
                Hello::KIND => {
                    let hello: Hello = frame.body().map_err(AttachError::Talk)?;
                    if !hello.versions.contains(&SOCKET_VERSION) {
                        return Err(AttachError::Version { theirs: hello.versions, build: hello.build });
                    }
                }
                // Replies to attach and resize, and what a newer shim may say.
                _ => {}
            }
        }
        Ok(true)
    }

    /// False when the shim is gone.
    fn flush(&mut self) -> bool {
        while !self.typed.is_empty() {
            match self.stream.write(&self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What it has said before it went is still to be read: its end is seen there.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.typed.clear();
                    self.keyboard_open = false;
                }
                Err(_) => return false,
            }
        }
        true
    }
}
