//! Frames from a socket with a deadline and, where wanted, until a signal comes. A frame that is half here when the
//! deadline passes is not lost: it stays in the buffer.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use protocol::codec::{CodecError, Frame, Joiner, frame_length};

/// Catches SIGINT and SIGTERM of this process from now on, so that a wait can end in order.
pub struct Interrupts(SignalFd);

impl Interrupts {
    pub fn catch() -> nix::Result<Self> {
        Self::catch_all(&[Signal::SIGINT, Signal::SIGTERM])
    }

    /// Also the terminal's other size, and the return from a stop: what is drawn is no longer right then.
    pub fn catch_with_redraws() -> nix::Result<Self> {
        Self::catch_all(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGWINCH, Signal::SIGCONT])
    }

    fn catch_all(wanted: &[Signal]) -> nix::Result<Self> {
        let mut signals = SigSet::empty();
        wanted.iter().for_each(|signal| signals.add(*signal));
        signals.thread_block()?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Lets `time` go by, or ends at once with the signal that came.
    pub fn wait(&self, time: Duration) -> Option<i32> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        // A failed poll is a shorter wait; the caller looks again.
        let _ = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout);
        self.take()
    }

    fn take(&self) -> Option<i32> {
        let info = self.0.read_signal().ok().flatten()?;
        i32::try_from(info.ssi_signo).ok()
    }
}

/// What came.
#[derive(Debug)]
pub enum Next {
    Frame(Frame),
    /// The other side closed the connection between frames.
    Closed,
    TimedOut,
    Interrupted(i32),
}

#[derive(Default)]
pub struct Reader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are used up.
    used: usize,
    joiner: Joiner,
}

impl Reader {
    pub fn next(
        &mut self,
        stream: &mut UnixStream,
        deadline: Option<Instant>,
        interrupts: Option<&Interrupts>,
    ) -> Result<Next, CodecError> {
        loop {
            while let Some(frame) = self.buffered()? {
                if let Some(whole) = self.joiner.push(frame)? {
                    return Ok(Next::Frame(whole));
                }
            }
            match wait(stream, deadline, interrupts)? {
                Ready::Stream => {}
                Ready::TimedOut => return Ok(Next::TimedOut),
                Ready::Interrupted(signal) => return Ok(Next::Interrupted(signal)),
            }
            if !self.fill(stream)? {
                let torn = self.buffer.len() > self.used;
                return if torn { Err(CodecError::Torn) } else { Ok(Next::Closed) };
            }
        }
    }

    /// A frame that is whole in the buffer.
    fn buffered(&mut self) -> Result<Option<Frame>, CodecError> {
        let rest = self.buffer.get(self.used..).unwrap_or_default();
        let Some((prefix, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = frame_length(*prefix)?;
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(bytes)?;
        self.used += 4 + length;
        Ok(Some(frame))
    }

    fn fill(&mut self, stream: &mut UnixStream) -> Result<bool, CodecError> {
        self.buffer.drain(..self.used.min(self.buffer.len()));
        self.used = 0;
        let mut chunk = [0_u8; 64 * 1024];
        loop {
            match stream.read(&mut chunk) {
                Ok(count) => {
                    self.buffer.extend_from_slice(chunk.get(..count).unwrap_or_default());
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(CodecError::Io(error)),
            }
        }
    }
}

enum Ready {
    Stream,
    TimedOut,
    Interrupted(i32),
}

fn wait(
    stream: &UnixStream,
    deadline: Option<Instant>,
    interrupts: Option<&Interrupts>,
) -> Result<Ready, CodecError> {
    loop {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Ready::TimedOut);
                }
                // Up to the next whole millisecond: a poll of 0 ms would spin until the deadline.
                let left = (left + Duration::from_micros(999)).min(Duration::from_secs(3600));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut fds = vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        fds.extend(interrupts.map(|interrupts| PollFd::new(interrupts.0.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(CodecError::Io(error.into())),
        }
        if let Some(signal) = interrupts.and_then(Interrupts::take) {
            return Ok(Ready::Interrupted(signal));
        }
        if fds.first().and_then(PollFd::any) == Some(true) {
            return Ok(Ready::Stream);
        }
    }
}
