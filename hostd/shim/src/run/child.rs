//! From fork to exec: the child's session, terminal, leaf, user, folder and program, and how far it came.
//!
//! The child waits after the fork until it is released, so that the shim's record is on disk before the program can do
//! anything. What goes wrong comes back through a pipe that a successful exec closes.

use std::ffi::{CStr, CString, NulError, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, chdir, execve, fork, getpid, getppid, pipe2, setgroups, setresgid, setresuid,
    setsid,
};
use protocol::shim::{Launch, StartFailure, StartStep};

const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// Everything the child needs, made before the fork.
pub(crate) struct Plan<'a> {
    launch: &'a Launch,
    candidates: Vec<CString>,
    argv: Vec<CString>,
    envp: Vec<CString>,
    umask: Mode,
}

impl<'a> Plan<'a> {
    /// `environment`: NUL-separated `K=V`.
    pub(crate) fn new(launch: &'a Launch, environment: &[u8], umask: Mode) -> Result<Self, StartFailure> {
        let no_nul = |_: NulError| failure(StartStep::Launch, 0, "an argument holds a NUL byte".to_owned());
        let envp: Vec<CString> = environment
            .split(|&byte| byte == 0)
            .filter(|pair| pair.contains(&b'='))
            .filter_map(|pair| CString::new(pair).ok())
            .collect();
        let path = envp.iter().find_map(|pair| pair.to_bytes().strip_prefix(b"PATH=".as_slice()));
        let candidates = candidates(&launch.program, path.unwrap_or(DEFAULT_PATH)).map_err(no_nul)?;
        let words = std::iter::once(&launch.program).chain(&launch.args);
        let argv = words.map(|word| CString::new(word.as_str())).collect::<Result<_, _>>().map_err(no_nul)?;
        Ok(Self { launch, candidates, argv, envp, umask })
    }

    /// The environment holds secrets and the shim lives as long as its agent.
    fn wipe(self) {
        self.envp.into_iter().map(CString::into_bytes).for_each(wipe);
    }

    /// A child that waits to be released.
    pub(crate) fn fork(self, terminal: BorrowedFd<'_>) -> io::Result<Held> {
        let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (report_read, report_write) = pipe2(OFlag::O_CLOEXEC)?;
        let shim = getpid();
        match fork_here()? {
            ForkResult::Child => {
                drop(go_write);
                let mut report = Report(File::from(report_write));
                let outcome = self.become_program(shim, terminal, go_read, &mut report);
                // Reached only when the exec failed.
                report.send(FATAL, outcome);
                exit_now()
            }
            ForkResult::Parent { child } => {
                self.wipe();
                Ok(Held { pid: child, go: go_write, report: File::from(report_read) })
            }
        }
    }

    /// Returns only with what went wrong.
    fn become_program(&self, shim: Pid, tty: BorrowedFd<'_>, go: OwnedFd, report: &mut Report) -> Broken {
        // The end of the pipe without a byte: the shim has died.
        if !matches!(File::from(go).read(&mut [0]), Ok(1)) {
            exit_now();
        }
        if let Err(error) = own_terminal(tty) {
            return Broken::at(StartStep::Supervise, error);
        }
        default_signals();
        for (index, file) in self.launch.agent_procs.iter().enumerate() {
            if let Err(error) = std::fs::write(file, "0") {
                let broken = Broken { index, ..Broken::io(StartStep::Cgroup, &error) };
                if self.launch.cgroup_required {
                    return broken;
                }
                report.send(WARNING, broken);
            }
        }
        if let Some(files) = self.launch.nofile
            && let Err(error) = limit_files(files)
        {
            report.send(WARNING, Broken::at(StartStep::Supervise, error));
        }
        if self.launch.scoped {
            crate::view::scope();
        }
        if let Err(error) = self.take_on_user() {
            return Broken::at(StartStep::User, error);
        }
        // After the change of user, which clears it. Without this a killed shim would leave the program unwatched.
        if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
            return Broken::at(StartStep::Supervise, error);
        }
        if getppid() != shim {
            exit_now();
        }
        umask(self.umask);
        if let Err(error) = chdir(self.launch.cwd.as_path()) {
            return Broken::at(StartStep::Cwd, error);
        }
        inherit_nothing();
        self.exec()
    }

    fn take_on_user(&self) -> nix::Result<()> {
        let Some(user) = &self.launch.user else { return Ok(()) };
        let groups: Vec<Gid> = user.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        setgroups(&groups)?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    }

    /// As execvp(3), but never through a shell, and telling a missing interpreter from a missing program.
    fn exec(&self) -> Broken {
        let mut denied = false;
        for candidate in &self.candidates {
            let Err(error) = execve(candidate, &self.argv, &self.envp);
            match error {
                Errno::ENOENT | Errno::ENOTDIR => {
                    if is_there(candidate) {
                        return Broken::at(StartStep::Interpreter, error);
                    }
                }
                // A folder of PATH that may not be searched says nothing of the program.
                Errno::EACCES => denied |= self.launch.program.contains('/') || is_there(candidate),
                Errno::ENOEXEC => return Broken::at(StartStep::Interpreter, error),
                _ => return Broken::at(StartStep::Exec, error),
            }
        }
        Broken::at(StartStep::Exec, if denied { Errno::EACCES } else { Errno::ENOENT })
    }
}

fn is_there(candidate: &CStr) -> bool {
    Path::new(OsStr::from_bytes(candidate.to_bytes())).exists()
}

/// A forked child before its release; dropped, it ends by itself.
pub(crate) struct Held {
    pub(crate) pid: Pid,
    go: OwnedFd,
    report: File,
}

impl Held {
    /// Lets it become the program. Returns what is degraded, or why there is no program; then the child has ended
    /// and is to be reaped.
    pub(crate) fn release(self, launch: &Launch) -> Result<Vec<String>, StartFailure> {
        let Self { go, mut report, .. } = self;
        // A failing write means that the child is dead already: the report then says nothing, and reaping does.
        let _ = File::from(go).write_all(&[1]);
        let mut warnings = Vec::new();
        let mut line = [0_u8; REPORT_BYTES];
        while report.read_exact(&mut line).is_ok() {
            let (kind, broken) = decode(line);
            let told = broken.explain(launch);
            if kind == FATAL {
                return Err(told);
            }
            warnings.push(told.message);
        }
        Ok(warnings)
    }
}

/// Signals 1 to 64 exist.
const KERNEL_SIGNALS: usize = 64;
const FATAL: u8 = 1;
const WARNING: u8 = 0;
const REPORT_BYTES: usize = 8;
/// The steps a child can break at, by their number on the pipe.
const STEPS: [StartStep; 6] = [
    StartStep::Supervise,
    StartStep::Cgroup,
    StartStep::User,
    StartStep::Cwd,
    StartStep::Exec,
    StartStep::Interpreter,
];

struct Broken {
    step: StartStep,
    errno: i32,
    /// Which of several things.
    index: usize,
}

impl Broken {
    const fn at(step: StartStep, error: Errno) -> Self {
        Self { step, errno: error as i32, index: 0 }
    }

    fn io(step: StartStep, error: &io::Error) -> Self {
        Self { step, errno: error.raw_os_error().unwrap_or(0), index: 0 }
    }

    fn explain(self, launch: &Launch) -> StartFailure {
        let cause = io::Error::from_raw_os_error(self.errno);
        let program = &launch.program;
        let message = match self.step {
            StartStep::Cgroup => {
                let file = launch.agent_procs.get(self.index).map(|file| file.display().to_string());
                format!("cannot join the agent's cgroup {}: {cause}", file.unwrap_or_default())
            }
            StartStep::User => {
                let uid = launch.user.as_ref().map_or(0, |user| user.uid);
                format!("cannot become user {uid}: {cause}")
            }
            StartStep::Cwd => format!("cannot enter the folder {}: {cause}", launch.cwd.display()),
            StartStep::Exec if self.errno == libc::ENOENT => format!("there is no program {program}"),
            StartStep::Exec => format!("cannot execute {program}: {cause}"),
            StartStep::Interpreter if self.errno == libc::ENOEXEC => {
                format!("{program} is neither a binary for this machine nor a script with a `#!` line")
            }
            StartStep::Interpreter => format!("the interpreter or loader that {program} names is missing"),
            _ => format!("cannot prepare the program's process: {cause}"),
        };
        failure(self.step, self.errno, message)
    }
}

pub(crate) const fn failure(step: StartStep, errno: i32, message: String) -> StartFailure {
    StartFailure { step, errno, message }
}

struct Report(File);

impl Report {
    fn send(&mut self, kind: u8, broken: Broken) {
        let step = STEPS.iter().position(|step| *step == broken.step).unwrap_or(0);
        let [e0, e1, e2, e3] = broken.errno.to_ne_bytes();
        let (step, index) = (u8::try_from(step).unwrap_or(0), u8::try_from(broken.index).unwrap_or(u8::MAX));
        // Nobody is left to be told when this fails; the exit says the rest.
        let _ = self.0.write_all(&[kind, step, index, 0, e0, e1, e2, e3]);
    }
}

fn decode([kind, step, index, _, e0, e1, e2, e3]: [u8; REPORT_BYTES]) -> (u8, Broken) {
    let step = STEPS.get(usize::from(step)).copied().unwrap_or(StartStep::Unknown);
    (kind, Broken { step, errno: i32::from_ne_bytes([e0, e1, e2, e3]), index: usize::from(index) })
}

/// A name with a slash is a path; any other is looked for in `path`, where an empty entry is the working folder.
fn candidates(program: &str, path: &[u8]) -> Result<Vec<CString>, NulError> {
    if program.contains('/') || program.is_empty() {
        return Ok(vec![CString::new(program)?]);
    }
    let in_folder = |folder: &[u8]| {
        let folder = if folder.is_empty() { b".".as_slice() } else { folder };
        CString::new([folder, b"/", program.as_bytes()].concat())
    };
    path.split(|&byte| byte == b':').map(in_folder).collect()
}

/// Overwrites a secret; the optimizer must not see that nobody reads it again.
pub(crate) fn wipe(mut bytes: Vec<u8>) {
    bytes.fill(0);
    std::hint::black_box(&bytes);
}

#[expect(unsafe_code, reason = "fork has no safe form")]
fn fork_here() -> nix::Result<ForkResult> {
    // SAFETY: the shim has one thread, so no lock of another is copied in a locked state and the child may allocate.
    unsafe { fork() }
}

#[expect(
    unsafe_code,
    reason = "ioctl TIOCSCTTY and dup2 onto the standard descriptors have no safe wrappers"
)]
fn own_terminal(terminal: BorrowedFd<'_>) -> nix::Result<()> {
    setsid()?;
    // SAFETY: only numbers are handed over; descriptors 0 to 2 are replaced, which no Rust object owns.
    unsafe {
        Errno::result(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0))?;
        for standard in 0..3 {
            Errno::result(libc::dup2(terminal.as_raw_fd(), standard))?;
        }
    }
    Ok(())
}

/// The shim ignores and blocks signals; the program begins as one started from a login does.
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
    let _ = SigSet::empty().thread_set_mask();
}

fn limit_files(files: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    match setrlimit(Resource::RLIMIT_NOFILE, files, files) {
        Err(Errno::EPERM) => setrlimit(Resource::RLIMIT_NOFILE, files.min(hard), hard),
        other => other,
    }
}

/// Whatever is open beyond the terminal closes with the exec.
#[expect(unsafe_code, reason = "close_range has no safe wrapper")]
fn inherit_nothing() {
    // SAFETY: marks descriptors close-on-exec, closes none. An older kernel refuses the flag; the shim's own are
    // marked one by one as well.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

#[expect(unsafe_code, reason = "a forked child must not run the exit handlers of its parent")]
fn exit_now() -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(127) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_in_each_folder_of_the_path_and_a_path_is_taken_as_it_is() {
        let found = |program| -> Vec<String> {
            let found = candidates(program, b"/a::/b").unwrap();
            found.into_iter().map(|c| c.into_string().unwrap()).collect()
        };
        assert_eq!(found("x"), ["/a/x", "./x", "/b/x"]);
        assert_eq!(found("./x"), ["./x"]);
        assert_eq!(found(""), [""]);
    }

    #[test]
    fn a_report_survives_the_pipe() {
        let mut file = tempfile::tempfile().unwrap();
        let mut report = Report(file.try_clone().unwrap());
        report.send(FATAL, Broken { step: StartStep::Cwd, errno: libc::EACCES, index: 3 });
        let mut line = [0; REPORT_BYTES];
        io::Seek::rewind(&mut file).unwrap();
        file.read_exact(&mut line).unwrap();
        let (kind, broken) = decode(line);
        assert_eq!((kind, broken.step, broken.errno, broken.index), (FATAL, StartStep::Cwd, libc::EACCES, 3));
    }
}
