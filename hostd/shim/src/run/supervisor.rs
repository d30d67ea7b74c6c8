//! The loop of a running shim: one thread, one poll. It owns all state; `requests` answers clients, `ending` says how
//! the program ends and is recorded.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, geteuid};
use protocol::codec::{Frame, Hello, socket_bytes};
use protocol::shim::{Event, Launch, ProcessRef, SOCKET_VERSION, ShimRecord, kind};

use super::client::{Client, View};
use super::ending::End;
use super::limits::{Action, Limits};
use super::output::Output;
use super::processes::Family;
use super::pty::Pty;
use super::typing::Typist;
use crate::modes::Modes;
use crate::{BUILD, facts, log};

/// Read from the terminal at once, and written to the disk at once.
const BUFFER_BYTES: usize = 16 * 1024;
/// Read in one turn, so that a program that prints without end does not keep clients waiting.
const TURN_BYTES: usize = 8 * BUFFER_BYTES;
/// A disk that refused is asked again, and so is a process out of descriptors.
pub(crate) const RETRY_MS: u64 = 500;
const HELLO_MS: u64 = 10_000;
const CLIENTS_LIMIT: usize = 64;

/// What a start hands over.
pub(crate) struct Supplies {
    pub(crate) launch: Launch,
    pub(crate) record: ShimRecord,
    pub(crate) pty: Pty,
    pub(crate) output: Output,
    pub(crate) listener: UnixListener,
    pub(crate) signals: SignalFd,
    /// What is lasting short of what was asked for.
    pub(crate) warnings: Vec<String>,
}

/// What is not as it should be.
#[derive(Default)]
pub(crate) struct Degraded {
    pub(crate) lasting: Vec<String>,
    pub(crate) output: Option<String>,
    pub(crate) exit: Option<String>,
}

impl Degraded {
    pub(crate) fn all(&self) -> Vec<String> {
        self.lasting.iter().chain(&self.output).chain(&self.exit).cloned().collect()
    }
}

pub(crate) struct Supervisor {
    pub(crate) launch: Launch,
    pub(crate) record: ShimRecord,
    pub(crate) pty: Pty,
    pub(crate) output: Output,
    pub(crate) modes: Modes,
    pub(crate) typist: Typist,
    pub(crate) limits: Limits,
    pub(crate) clients: Vec<Client>,
    pub(crate) degraded: Degraded,
    pub(crate) last_output_at_ms: u64,
    /// When the second half of a nudge is due.
    pub(crate) nudge_at: Option<u64>,
    pub(crate) end: Option<End>,
    pub(crate) children_left: bool,
    /// When the disk is asked again.
    pub(crate) retry_at: Option<u64>,
    signals: SignalFd,
    timer: TimerFd,
    timer_at: Option<u64>,
    listener: UnixListener,
    accept_again_at: Option<u64>,
    next_client: u64,
    buffer: Box<[u8]>,
    terminal_failed: bool,
}

/// What poll(2) has found.
#[derive(Default)]
struct Found {
    signals: bool,
    timer: bool,
    accept: bool,
    terminal_in: bool,
    terminal_out: bool,
    readable: Vec<u64>,
    writable: Vec<u64>,
}

impl Supervisor {
    pub(crate) fn new(supplies: Supplies) -> io::Result<Self> {
        let Supplies { launch, record, pty, output, listener, signals, warnings } = supplies;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let limits = Limits::new(
            record.started_boottime_ms,
            record.wall_time_ms,
            record.lease_deadline_boottime_ms,
            launch.grace_ms,
        );
        Ok(Self {
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?,
            limits,
            launch,
            record,
            pty,
            output,
            listener,
            signals,
            degraded: Degraded { lasting: warnings, ..Degraded::default() },
            modes: Modes::default(),
            typist: Typist::default(),
            clients: Vec::new(),
            last_output_at_ms: 0,
            nudge_at: None,
            end: None,
            children_left: true,
            retry_at: None,
            timer_at: None,
            accept_again_at: None,
            next_client: 0,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            terminal_failed: false,
        })
    }

    pub(crate) const fn program(&self) -> ProcessRef {
        self.record.child
    }

    /// Until the program and all it started have ended and that is on disk.
    pub(crate) fn serve(mut self) {
        loop {
            self.arm_timer();
            let found = match self.wait() {
                Ok(found) => found,
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    // Without poll nothing can be supervised; the kernel ends the program with us.
                    log(&format!("cannot poll: {error}"));
                    return;
                }
            };
            self.turn(&found);
            self.clients.retain(|client| !client.is_closed());
            if self.may_leave() {
                return;
            }
        }
    }

    fn wait(&self) -> nix::Result<Found> {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(4 + self.clients.len());
        let read = PollFlags::POLLIN;
        // A negative timeout and empty event sets keep the places fixed: the first four are always these.
        let accept = if self.accept_again_at.is_none() { read } else { PollFlags::empty() };
        polled.push(PollFd::new(self.signals.as_fd(), read));
        polled.push(PollFd::new(self.timer.as_fd(), read));
        polled.push(PollFd::new(self.listener.as_fd(), accept));
        polled.push(PollFd::new(self.terminal_or_timer(), self.terminal_interest()));
        for client in &self.clients {
            let mut interest = PollFlags::empty();
            // A person types no faster than the program reads; others go on being answered.
            let room = client.view != View::Full || self.typist.has_room();
            interest.set(PollFlags::POLLIN, client.wants_read() && room);
            interest.set(PollFlags::POLLOUT, client.wants_write());
            polled.push(PollFd::new(client.stream.as_fd(), interest));
        }
        poll(&mut polled, PollTimeout::NONE)?;
        let ended = PollFlags::POLLHUP | PollFlags::POLLERR;
        let mut events = polled.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        let mut next = || events.next().unwrap_or(PollFlags::empty());
        let (signals, timer, accept, terminal) = (next(), next(), next(), next());
        let mut found = Found {
            signals: signals.contains(read),
            timer: timer.contains(read),
            accept: accept.contains(read),
            terminal_in: !self.terminal_failed && terminal.intersects(read | ended),
            terminal_out: terminal.contains(PollFlags::POLLOUT),
            ..Found::default()
        };
        for client in &self.clients {
            let events = next();
            if events.intersects(read | ended) {
                found.readable.push(client.id);
            }
            if events.contains(PollFlags::POLLOUT) {
                found.writable.push(client.id);
            }
        }
        Ok(found)
    }

    fn terminal_or_timer(&self) -> BorrowedFd<'_> {
        if self.terminal_failed { self.timer.as_fd() } else { self.pty.as_fd() }
    }

    /// While the disk refuses, the terminal is not read: the program waits, and nothing is lost.
    fn terminal_interest(&self) -> PollFlags {
        let mut interest = PollFlags::empty();
        if !self.terminal_failed {
            interest.set(PollFlags::POLLIN, !self.output.is_held());
            interest.set(PollFlags::POLLOUT, self.end.is_none() && self.typist.next_bytes().is_some());
        }
        interest
    }

    fn turn(&mut self, found: &Found) {
        if found.timer {
            let _ = self.timer.wait();
            self.timer_at = None;
        }
        if found.terminal_in {
            self.read_terminal(TURN_BYTES);
        }
        if found.signals {
            self.on_signals();
        }
        if found.terminal_out {
            self.write_terminal();
        }
        if found.accept {
            self.accept();
        }
        for &id in &found.readable {
            self.on_readable(id);
        }
        for &id in &found.writable {
            self.on_writable(id);
        }
        self.tick(facts::boottime_ms());
    }

    fn tick(&mut self, now: u64) {
        if self.end.as_ref().is_none_or(|end| !end.record.drained) {
            while let Some(action) = self.limits.tick(now) {
                let family = Family { launch: &self.launch, program: self.program_group() };
                match action {
                    Action::Terminate => family.terminate(),
                    Action::Kill => family.kill(),
                }
            }
        }
        while let Some(answer) = self.typist.tick(now, || self.pty.has_unread_input()) {
            self.answer_typed(answer);
        }
        if self.nudge_at.is_some_and(|at| at <= now) {
            self.nudge_at = None;
            let (rows, cols) = self.pty.size();
            self.pty.resize(rows, cols);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            if self.output.is_held() {
                let (written, result) = self.output.retry();
                self.printed(&written, result);
            }
        }
        self.settle(now);
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
        }
        for client in &mut self.clients {
            if !client.greeted && client.hello_by <= now {
                client.close();
            }
        }
    }

    fn arm_timer(&mut self) {
        let limit =
            self.limits.deadline().filter(|_| self.end.as_ref().is_none_or(|end| !end.record.drained));
        let hello = self.clients.iter().filter(|client| !client.greeted).map(|client| client.hello_by).min();
        let leave = self.end.as_ref().and_then(|end| end.leave_by);
        let due =
            [limit, self.typist.deadline(), self.nudge_at, self.retry_at, hello, leave, self.accept_again_at];
        let Some(at) = due.into_iter().flatten().min().filter(|&at| self.timer_at != Some(at)) else {
            return;
        };
        self.timer_at = Some(at);
        // Zero would disarm it; what is due in the past fires at once.
        let (seconds, millis) = (at.max(1) / 1000, at.max(1) % 1000);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let nanos = i64::try_from(millis * 1_000_000).unwrap_or(0);
        let once = Expiration::OneShot(TimeSpec::new(seconds, nanos));
        if let Err(error) = self.timer.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME) {
            log(&format!("cannot set the timer: {error}"));
        }
    }

    fn on_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            match i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()) {
                Some(Signal::SIGCHLD) => self.reap(),
                // Whoever asks a shim to end, a machine going down above all, asks its program too.
                Some(Signal::SIGTERM) => self.limits.tell_to_end(),
                _ => {}
            }
        }
    }

    /// Reads up to about `limit` bytes. True when nothing is left to read and all is on disk.
    pub(crate) fn read_terminal(&mut self, limit: usize) -> bool {
        let mut total = 0;
        while total < limit && !self.output.is_held() {
            let mut buffer = std::mem::take(&mut self.buffer);
            let (mut filled, mut empty) = (0, false);
            while let Some(room) = buffer.get_mut(filled..).filter(|room| !room.is_empty()) {
                match self.pty.read(room) {
                    Ok(Some(count)) => filled += count,
                    Ok(None) => {
                        empty = true;
                        break;
                    }
                    Err(error) => {
                        self.terminal_failed = true;
                        self.degraded.lasting.push(format!("cannot read the terminal: {error}"));
                        empty = true;
                        break;
                    }
                }
            }
            if let Some(bytes) = buffer.get(..filled).filter(|bytes| !bytes.is_empty()) {
                let (count, result) = self.output.append(bytes);
                self.printed(bytes.get(..count).unwrap_or_default(), result);
            }
            self.buffer = buffer;
            total += filled;
            if empty {
                return !self.output.is_held();
            }
        }
        false
    }

    /// Output is on disk: now it may be seen.
    fn printed(&mut self, bytes: &[u8], result: io::Result<()>) {
        if !bytes.is_empty() {
            self.last_output_at_ms = facts::wall_ms();
            self.modes.feed(bytes);
            if self.clients.iter().any(Client::wants_output) {
                match socket_bytes(&Frame::new(kind::OUTPUT, "", bytes.to_vec())) {
                    Ok(frame) => self.clients.iter_mut().for_each(|client| client.show(&frame)),
                    Err(error) => log(&format!("cannot encode output: {error}")),
                }
            }
        }
        let trouble = result.err().map(|error| format!("cannot write out.raw, the program waits: {error}"));
        if trouble.is_some() {
            self.retry_at = Some(facts::boottime_ms() + RETRY_MS);
        }
        let damage = self.output.take_damage();
        if trouble != self.degraded.output || damage.is_some() {
            self.degraded.output = trouble;
            self.degraded.lasting.extend(damage);
            self.tell_degraded();
        }
    }

    fn write_terminal(&mut self) {
        while let Some(bytes) = self.typist.next_bytes() {
            match self.pty.write(bytes) {
                Ok(0) => return,
                Ok(count) => {
                    if let Some(answer) = self.typist.wrote(facts::boottime_ms(), count, self.output.len()) {
                        self.answer_typed(answer);
                    }
                }
                Err(error) => {
                    log(&format!("cannot write to the terminal: {error}"));
                    return;
                }
            }
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => {
                let ours = getsockopt(&stream, PeerCredentials)
                    .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw());
                if !ours || self.clients.len() >= CLIENTS_LIMIT {
                    return;
                }
                self.next_client += 1;
                match Client::new(self.next_client, stream, facts::boottime_ms() + HELLO_MS) {
                    Ok(mut client) => {
                        let hello = Hello { versions: vec![SOCKET_VERSION], build: BUILD.to_owned() };
                        if let Ok(frame) = Frame::of(Hello::KIND, "", &hello) {
                            client.send(frame);
                        }
                        self.clients.push(client);
                    }
                    Err(error) => log(&format!("cannot serve a client: {error}")),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                log(&format!("cannot accept a client: {error}"));
                self.accept_again_at = Some(facts::boottime_ms() + RETRY_MS);
            }
        }
    }

    /// The program's process group, until it has been reaped and its number may be another's.
    pub(crate) fn program_group(&self) -> Option<Pid> {
        self.end.is_none().then(|| Pid::from_raw(self.record.child.pid))
    }

    pub(crate) fn tell_degraded(&mut self) {
        let what = self.degraded.all();
        for line in &what {
            log(&format!("degraded: {line}"));
        }
        self.broadcast(&Event::Degraded { what });
    }

    pub(crate) fn broadcast(&mut self, event: &Event) {
        for client in self.clients.iter_mut().filter(|client| client.watching) {
            match Frame::of(kind::EVENT, "", event) {
                Ok(frame) => client.send(frame),
                Err(error) => log(&format!("cannot encode an event: {error}")),
            }
        }
    }
}
