//! The terminal `attach` runs in: raw while it relays, as it was afterwards, on every way out but SIGKILL.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// Off again what an agent may have set: alternate screen, paste, focus and mouse reports; the cursor on.
pub(super) const RESET_MODES: &[u8] =
    b"\x1b[?1049l\x1b[?2004l\x1b[?1004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1l\x1b[?25h\x1b[0m";

pub(super) struct Terminal {
    /// `None`: stdin is none.
    original: Option<Termios>,
}

impl Terminal {
    pub(super) fn raw() -> io::Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { original: None });
        }
        let original = tcgetattr(&stdin)?;
        let mut raw = original.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        Ok(Self { original: Some(original) })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(original) = &self.original {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, original);
            let mut out = io::stdout().lock();
            let _ = out.write_all(RESET_MODES).and_then(|()| out.flush());
        }
    }
}

/// Rows and columns; zeros where stdout is no terminal, which leaves the agent's size as it is.
#[expect(unsafe_code, reason = "ioctl TIOCGWINSZ has no safe wrapper")]
pub(super) fn size() -> (u16, u16) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel writes one struct into `size`, or nothing.
    unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (size.ws_row, size.ws_col)
}

/// Until Enter, the end of stdin, or a signal to end.
pub(super) fn wait_for_enter(signals: &SignalFd) -> io::Result<()> {
    let stdin = io::stdin();
    loop {
        let mut polled =
            [PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [told, keys] = polled.map(|fd| fd.any().unwrap_or(false));
        if told {
            while let Some(info) = signals.read_signal()? {
                if info.ssi_signo != Signal::SIGWINCH as u32 {
                    return Ok(());
                }
            }
        }
        if keys {
            let mut buffer = [0; 64];
            match nix::unistd::read(&stdin, &mut buffer) {
                Ok(count) if count > 0 => {
                    if buffer.iter().take(count).any(|byte| matches!(byte, b'\n' | b'\r')) {
                        return Ok(());
                    }
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Ok(_) | Err(_) => return Ok(()),
            }
        }
    }
}
