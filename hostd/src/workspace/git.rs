//! Runs git so that nothing in a repository, hostile or not, can make it execute anything.
//! The environment is built from nothing; hooks, fsmonitor, external diff, transports, gc and
//! signing are switched off on the command line, which outranks every configuration file. Filter
//! and textconv drivers have names of their own and cannot be switched off that way: whoever
//! touches files or shows differences uses a git folder that is ours (`checkout::GitDir`).
//! Leaves to others: what the answers mean.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::error::{At, Error, Result};

/// Uid and gid.
pub type User = (u32, u32);

/// Outranks the configuration of any repository. An empty `core.fsmonitor` means off for every
/// version; `false` is a program name to git before 2.36.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.sshCommand=false",
    "core.askPass=",
    "core.pager=cat",
    "core.editor=false",
    "core.alternateRefsCommand=",
    "core.quotePath=false",
    "diff.external=",
    "credential.helper=",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "advice.detachedHead=false",
    "init.defaultRefFormat=files",
    "i18n.commitEncoding=UTF-8",
    "safe.directory=*",
];

const STDERR_KEPT: u64 = 8 * 1024;
const STDOUT_LIMIT: usize = 256 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Git {
    binary: PathBuf,
    path_variable: OsString,
    home: PathBuf,
    scratch: PathBuf,
    excludes: PathBuf,
    slots: Arc<Semaphore>,
    limit: Duration,
    ours: u32,
    pub(crate) version: String,
}

/// How many git processes at once, and how long each may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) at_once: usize,
    pub(crate) limit: Duration,
}

impl Git {
    /// Finds git on PATH, reads its version, and makes the home that its calls see.
    pub(crate) async fn find(state: &Path, excludes: Option<PathBuf>, bounds: Bounds) -> Result<Self> {
        let path_variable =
            std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
        let binary = std::env::split_paths(&path_variable)
            .map(|folder| folder.join("git"))
            .find(|candidate| candidate.is_absolute() && candidate.is_file())
            .ok_or(Error::GitMissing)?;
        let home = state.join("git-home");
        std::fs::create_dir_all(&home).at("made", &home)?;
        let config = home.join(".gitconfig");
        // git before 2.38 takes safe.directory from files only.
        std::fs::write(&config, "[safe]\n\tdirectory = *\n").at("written", &config)?;
        let mut git = Self {
            binary,
            path_variable,
            home,
            scratch: state.join("git-scratch"),
            excludes: excludes.unwrap_or_else(|| PathBuf::from("/dev/null")),
            slots: Arc::new(Semaphore::new(bounds.at_once)),
            limit: bounds.limit,
            ours: nix::unistd::geteuid().as_raw(),
            version: String::new(),
        };
        let said = git.call("tell its version").args(["version"]).ok().await?;
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        let number = said.split_whitespace().nth(2).unwrap_or_default().to_owned();
        let mut parts = number.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (2, 30) {
            return Err(Error::GitTooOld { found: said });
        }
        git.version = number;
        Ok(git)
    }

    /// Whether it is of this version or a later one.
    pub(crate) fn is_at_least(&self, wanted: (u32, u32)) -> bool {
        let mut parts = self.version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= wanted
    }

    /// Where git folders for one job are made.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn call(&self, operation: &'static str) -> Call<'_> {
        Call {
            git: self,
            operation,
            before: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            folder: None,
            act_as: None,
            stdin: Vec::new(),
            stdout_limit: STDOUT_LIMIT,
            cut: Cut::Refuse,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Refuse,
    Keep,
}

/// One invocation of git. Build it, then `output` or `ok`.
#[derive(Debug)]
#[must_use]
pub(crate) struct Call<'a> {
    git: &'a Git,
    operation: &'static str,
    before: Vec<OsString>,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    folder: Option<PathBuf>,
    act_as: Option<User>,
    stdin: Vec<u8>,
    stdout_limit: usize,
    cut: Cut,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    /// More was to come than the limit of `first_bytes`.
    pub(crate) truncated: bool,
}

/// A git process whose standard input and output the caller moves.
#[derive(Debug)]
pub(crate) struct Piped<'a> {
    pub(crate) child: Child,
    pub(crate) operation: &'static str,
    _slot: Option<SemaphorePermit<'a>>,
}

impl<'a> Call<'a> {
    pub(crate) fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn arg_path(mut self, path: &Path) -> Self {
        self.args.push(path.into());
        self
    }

    /// Names the git folder: no discovery, so no parent repository can be met by mistake, and no
    /// ownership check.
    pub(crate) fn git_dir(mut self, git_dir: &Path) -> Self {
        self.env.push(("GIT_DIR", git_dir.into()));
        self
    }

    pub(crate) fn work_tree(mut self, work_tree: &Path) -> Self {
        self.env.push(("GIT_WORK_TREE", work_tree.into()));
        self.folder = Some(work_tree.to_path_buf());
        self
    }

    pub(crate) fn index(mut self, index: &Path) -> Self {
        self.env.push(("GIT_INDEX_FILE", index.into()));
        self
    }

    /// Where the call runs; git finds the repository from there.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_path_buf());
        self
    }

    /// Who wrote what is committed, and when (RFC 3339 or git's own form).
    pub(crate) fn author(mut self, name: &[u8], mail: &[u8], date: &[u8]) -> Self {
        use std::os::unix::ffi::OsStringExt;
        for (variable, value) in
            [("GIT_AUTHOR_NAME", name), ("GIT_AUTHOR_EMAIL", mail), ("GIT_AUTHOR_DATE", date)]
        {
            // Without a value git would refuse to commit; ours stands in.
            if !value.is_empty() {
                self.env.push((variable, OsString::from_vec(value.to_vec())));
            }
        }
        self
    }

    /// The date of what is committed, so that a repetition makes the same commit.
    pub(crate) fn dated(mut self, unix_seconds: u64) -> Self {
        for variable in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            self.env.push((variable, format!("@{unix_seconds} +0000").into()));
        }
        self
    }

    /// Runs as the owner of a repository, so that what is written there belongs to him.
    pub(crate) fn act_as(mut self, user: Option<User>) -> Self {
        self.act_as = user.filter(|(uid, _)| *uid != self.git.ours);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Nothing that is written matters after a power cut: it is made anew.
    pub(crate) fn volatile(self) -> Self {
        self.setting("core.fsync=none")
    }

    /// What is written must be on disk before a ref names it.
    pub(crate) fn durable(self) -> Self {
        self.setting("core.fsync=all").setting("core.fsyncMethod=batch")
    }

    fn setting(mut self, setting: &str) -> Self {
        self.before.extend(["-c".into(), setting.into()]);
        self
    }

    /// Keeps the first `limit` bytes and ends git there.
    pub(crate) fn first_bytes(mut self, limit: usize) -> Self {
        self.stdout_limit = limit;
        self.cut = Cut::Keep;
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.git.binary);
        command
            .env_clear()
            .env("PATH", &self.git.path_variable)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_PROTOCOL_FROM_USER", "0")
            .env("GIT_AUTHOR_NAME", "Phalanx")
            .env("GIT_AUTHOR_EMAIL", "phalanx@localhost")
            .env("GIT_COMMITTER_NAME", "Phalanx")
            .env("GIT_COMMITTER_EMAIL", "phalanx@localhost")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        // A file in our home may be out of reach for another user, and git dies of that.
        let home = if self.act_as.is_some() { Path::new("/nonexistent") } else { &self.git.home };
        command.env("HOME", home).env("XDG_CONFIG_HOME", home);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let mut excludes = OsString::from("core.excludesFile=");
        excludes.push(&self.git.excludes);
        command.arg("-c").arg(excludes);
        command.args(&self.before).args(&self.args);
        command.current_dir(self.folder.as_deref().unwrap_or(Path::new("/")));
        if let Some((uid, gid)) = self.act_as {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Starts the process without waiting for a slot: of two piped into each other, one that waits
    /// would hold up the other for ever.
    pub(crate) fn start(self) -> Result<Piped<'a>> {
        let operation = self.operation;
        let child = self.command().spawn().map_err(|source| Error::GitStart { operation, source })?;
        Ok(Piped { child, operation, _slot: None })
    }

    pub(crate) async fn slot(&self) -> Result<SemaphorePermit<'a>> {
        let operation = self.operation;
        self.git.slots.acquire().await.map_err(|_| Error::Interrupted { operation })
    }

    pub(crate) async fn output(self) -> Result<Output> {
        let _slot = self.slot().await?;
        let (operation, limit) = (self.operation, self.git.limit);
        tokio::time::timeout(limit, self.talk()).await.map_err(|_| Error::TimedOut { operation, limit })?
    }

    async fn talk(mut self) -> Result<Output> {
        let operation = self.operation;
        let failed = |source| Error::GitStart { operation, source };
        let (input, limit, cut) = (std::mem::take(&mut self.stdin), self.stdout_limit, self.cut);
        let mut child = self.command().spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A git that stops reading has said why on its standard error.
                let _ = stdin.write_all(&input).await;
            }
        };
        let read = read_first(stdout, limit);
        let ((), stdout, stderr) = tokio::join!(write, read, read_some(stderr));
        let (stdout, truncated) = stdout.map_err(failed)?;
        if truncated {
            let _ = child.start_kill();
            if cut == Cut::Refuse {
                return Err(Error::GitTooMuch { operation, limit });
            }
        }
        let status = child.wait().await.map_err(failed)?;
        Ok(Output { status, stdout, stderr, truncated })
    }

    /// The standard output of a call that must succeed.
    pub(crate) async fn ok(self) -> Result<Vec<u8>> {
        let operation = self.operation;
        let output = self.output().await?;
        output.checked(operation)
    }
}

impl Output {
    pub(crate) fn checked(self, operation: &'static str) -> Result<Vec<u8>> {
        if self.status.success() || self.truncated {
            return Ok(self.stdout);
        }
        Err(Error::Git { operation, status: describe(self.status), stderr: self.stderr })
    }
}

impl Piped<'_> {
    /// Waits for the end and turns a failure into an error with git's words.
    pub(crate) async fn finish(mut self) -> Result<()> {
        let operation = self.operation;
        let stderr = read_some(self.child.stderr.take()).await;
        let status = self.child.wait().await.map_err(|source| Error::GitStart { operation, source })?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Git { operation, status: describe(status), stderr })
    }
}

fn describe(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => code.to_string(),
        None => status.to_string(),
    }
}

async fn read_first(
    source: Option<impl AsyncRead + Unpin>,
    limit: usize,
) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let Some(source) = source else { return Ok((bytes, false)) };
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    source.take(bound).read_to_end(&mut bytes).await?;
    let truncated = bytes.len() > limit;
    bytes.truncate(limit);
    Ok((bytes, truncated))
}

/// The head of what git complains of; the rest is read and dropped so that it never blocks.
async fn read_some(source: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut source) = source {
        let _ = (&mut source).take(STDERR_KEPT).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut source, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// One line of text that must be a full object id.
pub(crate) fn object_id(operation: &'static str, bytes: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(bytes).trim().to_owned();
    if is_object_id(&text) {
        return Ok(text);
    }
    Err(Error::GitAnswer { operation, detail: format!("{text:?} is not an object id") })
}

pub(crate) fn is_object_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
