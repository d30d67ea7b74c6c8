//! The program's terminal. The shim keeps the program's side open as well, so that a program which closes its
//! terminal for a while and opens it again goes on being read, and so that it can see what the program has not read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{InputFlags, LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Uid, fchown};

pub(crate) struct Pty {
    master: OwnedFd,
    slave: OwnedFd,
    rows: u16,
    cols: u16,
}

impl Pty {
    /// `owner`: the program's user, who may then open the terminal by its name.
    pub(crate) fn open(rows: u16, cols: u16, owner: Option<u32>) -> io::Result<Self> {
        let (rows, cols) = (rows.max(1), cols.max(1));
        let pair = openpty(Some(&winsize(rows, cols)), None)?;
        for side in [&pair.master, &pair.slave] {
            fcntl(side, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // Erasing in a cooked line takes a whole character.
        let mut settings = tcgetattr(&pair.slave)?;
        settings.input_flags |= InputFlags::IUTF8;
        tcsetattr(&pair.slave, SetArg::TCSANOW, &settings)?;
        if let Some(uid) = owner {
            fchown(&pair.slave, Some(Uid::from_raw(uid)), None)?;
        }
        Ok(Self { master: pair.master, slave: pair.slave, rows, cols })
    }

    pub(crate) fn slave(&self) -> BorrowedFd<'_> {
        self.slave.as_fd()
    }

    pub(crate) const fn size(&self) -> (u16, u16) {
        (self.rows, self.cols)
    }

    /// Sets the size; the kernel signals SIGWINCH where it differs.
    pub(crate) fn resize(&mut self, rows: u16, cols: u16) {
        (self.rows, self.cols) = (rows, cols);
        self.apply(rows, cols);
    }

    /// One row off: the first half of a nudge, which [`Self::resize`] completes.
    pub(crate) fn nudge(&self) {
        self.apply(if self.rows > 1 { self.rows - 1 } else { 2 }, self.cols);
    }

    #[expect(unsafe_code, reason = "ioctl TIOCSWINSZ has no safe wrapper")]
    fn apply(&self, rows: u16, cols: u16) {
        let size = winsize(rows, cols);
        // SAFETY: the descriptor is open and the kernel only reads the struct during the call.
        let result = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        if result != 0 {
            crate::log(&format!("cannot set the terminal's size: {}", io::Error::last_os_error()));
        }
    }

    /// `None`: nothing to read now. Everything written before this call is seen by it.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match nix::unistd::read(&self.master, buffer) {
                Ok(0) | Err(Errno::EAGAIN) => return Ok(None),
                Ok(count) => return Ok(Some(count)),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// How much the terminal took; 0 when it is full.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::write(&self.master, bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::EAGAIN) => return Ok(0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the terminal collects lines before the program sees them (canonical mode). Unknown counts as no.
    pub(crate) fn collects_lines(&self) -> bool {
        tcgetattr(&self.slave).is_ok_and(|settings| settings.local_flags.contains(LocalFlags::ICANON))
    }

    /// Whether the program has left input unread. Asked with poll(2), which, unlike FIONREAD, first moves what is
    /// still on its way. Unknown counts as read: it only shortens a delay.
    pub(crate) fn has_unread_input(&self) -> bool {
        let mut polled = [PollFd::new(self.slave.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

impl AsFd for Pty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }
}

const fn winsize(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }
}
