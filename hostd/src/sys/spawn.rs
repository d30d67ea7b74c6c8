//! Starts the shim so that it outlives hostd, in its own cgroup leaf from its first instruction.
//!
//! The shim is a child of hostd, in a session of its own and never killed on drop. A child, not a
//! double fork: its end is then known at once and exactly, and no zombie is left, since the caller
//! awaits the child in its job set, or drops it and the runtime reaps it. When hostd ends first, the
//! shim goes on and the next hostd adopts it by pid and start time.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::unistd::{Gid, Uid};
use protocol::shim::LaunchUser;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::process::ProcessRef;
use crate::containment::Entrance;

/// Signals 1 to 64 exist.
const KERNEL_SIGNALS: usize = 64;
/// Longest line taken from the ready pipe.
const READY_LINE_BYTES: u64 = 64 * 1024;

/// Why a shim was not started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    #[error("cannot open {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot make the ready pipe")]
    Pipe(#[source] io::Error),
    #[error("cannot start {}", path.display())]
    Start {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the shim ended before it could be identified")]
    Vanished,
}

/// The shim's end of the ready pipe. Made before the launch record is written, which names its number.
#[derive(Debug)]
pub struct ReadyWriter(PipeWriter);

impl ReadyWriter {
    /// The descriptor's number in hostd and, once started, in the shim.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// hostd's end of the ready pipe.
#[derive(Debug)]
pub struct ReadyReader(BufReader<pipe::Receiver>);

impl ReadyReader {
    /// The one line the shim writes when the program was executed or could not be; `None` when the
    /// shim ended without a word. Has no limit of its own.
    pub async fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        (&mut self.0).take(READY_LINE_BYTES).read_line(&mut line).await?;
        Ok(line.ends_with('\n').then(|| line.trim_end().to_owned()))
    }
}

/// Must be called on the runtime.
pub fn ready_pipe() -> Result<(ReadyReader, ReadyWriter), SpawnError> {
    let (reader, writer): (PipeReader, PipeWriter) = io::pipe().map_err(SpawnError::Pipe)?;
    let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(SpawnError::Pipe)?;
    Ok((ReadyReader(BufReader::new(reader)), ReadyWriter(writer)))
}

/// What is needed to start a shim.
#[derive(Debug)]
pub struct ShimSpawn<'a> {
    /// Absolute: nothing is looked up in PATH.
    pub shim: &'a Path,
    /// The agent's folder; `shim.log` in it takes what the shim prints about itself.
    pub dir: &'a Path,
    /// `cgroup.procs` files to join; see `AgentGroup::shim_procs`.
    pub procs: &'a [PathBuf],
    pub ready: ReadyWriter,
}

/// A started shim.
#[derive(Debug)]
pub struct SpawnedShim {
    pub process: ProcessRef,
    pub child: Child,
}

/// Starts `<shim> run <dir>`. The environment is empty: the program's own comes from the folder.
pub fn spawn_shim(spawn: ShimSpawn<'_>) -> Result<SpawnedShim, SpawnError> {
    let log_path = spawn.dir.join(protocol::shim::file::LOG);
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|source| SpawnError::Open { path: log_path.clone(), source })?;
    let log_too = log.try_clone().map_err(|source| SpawnError::Open { path: log_path, source })?;
    let mut command = Command::new(spawn.shim);
    command.arg("run").arg(spawn.dir).env_clear().current_dir(spawn.dir);
    command.stdin(Stdio::null()).stdout(log).stderr(log_too).kill_on_drop(false);
    prepare_child(&mut command, spawn.procs, Some(spawn.ready.number()), None)
        .map_err(|(path, source)| SpawnError::Open { path, source })?;
    let child =
        command.spawn().map_err(|source| SpawnError::Start { path: spawn.shim.to_path_buf(), source })?;
    // hostd's copy of the write end must go, or a shim that dies would never be seen as end of file.
    drop(spawn.ready);
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or(SpawnError::Vanished)?;
    // Not reaped yet, so the pid is the shim's even if it has ended.
    let process = ProcessRef::of(pid).ok().flatten().ok_or(SpawnError::Vanished)?;
    Ok(SpawnedShim { process, child })
}

/// Lets a program that is about to be started join `procs`, in a session of its own, enter a view through `entrance`,
/// and take on `user` after that;
/// see `AgentGroup::agent_procs`.
///
/// # Errors
/// A group that cannot be opened.
pub fn join_groups(
    command: &mut Command,
    procs: &[PathBuf],
    entrance: Option<Entrance>,
    user: Option<&LaunchUser>,
) -> Result<(), (PathBuf, io::Error)> {
    prepare_child(command, procs, None, None)?;
    if let Some(Entrance { namespace, folder }) = entrance {
        run_before_exec(command, move || {
            nix::sched::setns(&namespace, nix::sched::CloneFlags::CLONE_NEWNS)?;
            Ok(nix::unistd::chdir(folder.as_c_str())?)
        });
    }
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
        run_before_exec(command, move || {
            nix::unistd::setgroups(&groups)?;
            nix::unistd::setgid(gid)?;
            Ok(nix::unistd::setuid(uid)?)
        });
    }
    Ok(())
}

/// The child: own session, joined to the groups, nothing inherited but stdio and `keep`. Signals that whoever started
/// hostd ignores act on it as on a program of a login.
pub(super) fn prepare_child(
    command: &mut Command,
    procs: &[PathBuf],
    keep: Option<RawFd>,
    descriptors: Option<u64>,
) -> Result<(), (PathBuf, io::Error)> {
    let open =
        |path: &PathBuf| OpenOptions::new().write(true).open(path).map_err(|source| (path.clone(), source));
    let groups = procs.iter().map(open).collect::<Result<Vec<File>, _>>()?;
    let in_child = move || {
        nix::unistd::setsid()?;
        default_signals();
        for mut group in &groups {
            // "0" is the writer itself, so no pid is formatted between fork and exec.
            group.write_all(b"0")?;
        }
        if let Some(most) = descriptors {
            raise_descriptor_limit(most)?;
        }
        close_all_on_exec(keep)
    };
    run_before_exec(command, in_child);
    Ok(())
}

#[expect(unsafe_code, reason = "code between fork and exec")]
fn run_before_exec(command: &mut Command, in_child: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: what is passed here only makes system calls (setsid, rt_sigaction, write, getrlimit, setrlimit,
    // close_range, fcntl, setns, chdir, setgroups, setgid, setuid) on values made before the fork; it takes no lock and
    // allocates nothing
    // unless a call fails, and then only the error number is carried.
    unsafe { command.pre_exec(in_child) };
}

/// What is ignored would stay so in all that is started; the standard library resets the mask and `SIGPIPE` alone.
#[expect(unsafe_code, reason = "glibc's own calls leave out the two signals it uses for threads")]
fn default_signals() {
    // A kernel sigaction of zeros is SIG_DFL without flags or mask, on every architecture; it has at most 32 bytes.
    let default = [0_u64; 4];
    for signal in 1..=KERNEL_SIGNALS {
        let (no_old, mask_bytes) = (std::ptr::null_mut::<u64>(), KERNEL_SIGNALS / 8);
        // SAFETY: SIG_DFL runs no handler; the pointer is to a live local of the size that is read. SIGKILL and
        // SIGSTOP are refused, which changes nothing.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), no_old, mask_bytes) };
    }
}

fn raise_descriptor_limit(most: u64) -> io::Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < most.min(hard) {
        setrlimit(Resource::RLIMIT_NOFILE, most.min(hard), hard)?;
    }
    Ok(())
}

/// Whatever was opened without close-on-exec by a library must not reach a process that lives for days.
#[expect(unsafe_code, reason = "close_range(2) and fcntl(2) on a raw number between fork and exec")]
fn close_all_on_exec(keep: Option<RawFd>) -> io::Result<()> {
    // SAFETY: only sets flags on descriptors of this (child) process; nothing is closed before exec.
    unsafe {
        // Absent before Linux 5.11; every descriptor of ours has the flag anyway. Not by its wrapper, which glibc has
        // only since 2.34.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
        if let Some(fd) = keep
            && libc::fcntl(fd, libc::F_SETFD, 0) < 0
        {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_that_hostd_ignores_is_not_ignored_by_what_it_starts() {
        use nix::sys::signal::{SigHandler, Signal, signal};
        let ignored = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        #[expect(unsafe_code, reason = "signal(2)")]
        // SAFETY: no handler is set.
        unsafe { signal(Signal::SIGUSR1, SigHandler::SigIgn) }.unwrap();
        assert_ne!(ignored(&std::fs::read_to_string("/proc/self/status").unwrap()), 0);
        let mut command = Command::new("cat");
        command.arg("/proc/self/status");
        join_groups(&mut command, &[], None, None).unwrap();
        let said = command.output().await.unwrap().stdout;
        assert_eq!(ignored(&String::from_utf8(said).unwrap()), 0);
    }
}
