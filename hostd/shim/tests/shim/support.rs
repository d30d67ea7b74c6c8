//! An agent's folder with a shim in it, a connection to its socket, and waiting for conditions. Cleans up when dropped.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::codec::{Frame, Hello, read_frame, write_frame};
use protocol::shim::{
    Event, ExitRecord, Launch, RECORD_VERSION, Ready, Reply, Request, SOCKET_VERSION, ShimRecord, Status,
    TypeHow, TypeText, file, kind,
};
use tempfile::TempDir;

pub(crate) const SHIM: &str = env!("CARGO_BIN_EXE_phalanx-shim");
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn launch(program: &str, args: &[&str]) -> Launch {
    Launch {
        version: RECORD_VERSION,
        agent: "agent-of-a-test".to_owned(),
        program: program.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        cwd: PathBuf::from("/"),
        env_file: None,
        rows: 24,
        cols: 80,
        agent_procs: Vec::new(),
        cgroup_required: false,
        kill_files: Vec::new(),
        freeze_files: Vec::new(),
        launch: 1,
        events_file: None,
        user: None,
        wall_time_ms: None,
        grace_ms: 300,
        lease_deadline_boottime_ms: None,
        nofile: None,
        ready_fd: None,
        epoch: None,
        view: None,
        scoped: false,
    }
}

pub(crate) fn shell(script: &str) -> Launch {
    launch("sh", &["-c", script])
}

/// A program that exits with `code` and leaves a descendant in a session of its own, which has begun by then: before
/// that, the hang-up at the end of the program's session would end it.
pub(crate) fn leaving(descendant: &str, code: i32) -> Launch {
    let script = format!(
        "setsid sh -c ': >begun; {descendant}' & until [ -e begun ]; do sleep 0.01; done; exit {code}"
    );
    shell(&script)
}

pub(crate) struct Agent {
    _home: Option<TempDir>,
    pub(crate) dir: PathBuf,
    pub(crate) shim: Option<Child>,
}

impl Agent {
    pub(crate) fn new() -> Self {
        let home = TempDir::new().unwrap();
        let dir = home.path().to_owned();
        Self { _home: Some(home), dir, shim: None }
    }

    /// In a folder that the caller cleans.
    pub(crate) fn within(dir: &Path) -> Self {
        Self { _home: None, dir: dir.to_owned(), shim: None }
    }

    pub(crate) fn started(launch: &Launch) -> Self {
        let mut agent = Self::new();
        let ready = agent.start(launch);
        assert_eq!(ready.failure, None);
        agent
    }

    /// Started, ended and drained.
    pub(crate) fn run(launch: &Launch) -> (Self, ExitRecord) {
        let mut agent = Self::new();
        agent.start(launch);
        let record = agent.ended();
        (agent, record)
    }

    pub(crate) fn start(&mut self, launch: &Launch) -> Ready {
        self.start_by(launch, Command::new(SHIM).arg("run").arg(&self.dir))
    }

    /// `command` leads to `phalanx-shim run`.
    pub(crate) fn start_by(&mut self, launch: &Launch, command: &mut Command) -> Ready {
        // Inherited under the same number, by other children of this process too: the line is read, not the end.
        let (read, write) = nix::unistd::pipe().unwrap();
        let launch = Launch { ready_fd: Some(write.as_raw_fd()), cwd: self.cwd_of(launch), ..launch.clone() };
        std::fs::write(self.path(file::LAUNCH), serde_json::to_vec(&launch).unwrap()).unwrap();
        self.shim = Some(command.stdin(Stdio::null()).spawn().unwrap());
        drop(write);
        ready_line(read)
    }

    fn cwd_of(&self, launch: &Launch) -> PathBuf {
        if launch.cwd == Path::new("/") { self.dir.clone() } else { launch.cwd.clone() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let shim = self.shim.as_mut().unwrap();
        let mut status = None;
        wait_until("the shim ends", || {
            status = shim.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The last record of a shim that has ended as it should.
    pub(crate) fn ended(&mut self) -> ExitRecord {
        let status = self.wait();
        assert!(status.success(), "the shim ended with {status}; log: {}", self.log());
        let record = self.exit().unwrap();
        assert!(record.drained);
        assert_eq!(record.out_len, self.output().len() as u64);
        record
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path(file::LOG)).unwrap_or_default()
    }

    pub(crate) fn exit(&self) -> Option<ExitRecord> {
        serde_json::from_slice(&std::fs::read(self.path(file::EXIT)).ok()?).unwrap()
    }

    pub(crate) fn record(&self) -> ShimRecord {
        serde_json::from_slice(&std::fs::read(self.path(file::SHIM)).unwrap()).unwrap()
    }

    pub(crate) fn output(&self) -> Vec<u8> {
        std::fs::read(self.path(file::OUTPUT)).unwrap_or_default()
    }

    pub(crate) fn wait_for_output(&self, text: &str) {
        wait_until(&format!("{text:?} is printed"), || {
            String::from_utf8_lossy(&self.output()).contains(text)
        });
    }

    pub(crate) fn environment(&self, pairs: &[(&str, &str)]) -> PathBuf {
        let path = self.path("env");
        let text: String = pairs.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        path
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.dir)
    }

    /// The wall time is over now.
    pub(crate) fn reach_wall_time(&self) {
        assert_eq!(self.connect().ask(&Request::SetWallTime { wall_time_ms: Some(0) }), Reply::Done);
    }

    /// SIGKILL to the shim, and its body taken away.
    pub(crate) fn kill_shim(&mut self) {
        let shim = self.shim.as_mut().unwrap();
        shim.kill().unwrap();
        shim.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let Some(shim) = self.shim.as_mut() else { return };
        if matches!(shim.try_wait(), Ok(None)) {
            for pid in descendants(i32::try_from(shim.id()).unwrap()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = shim.kill();
            let _ = shim.wait();
        }
    }
}

fn ready_line(pipe: OwnedFd) -> Ready {
    let mut line = String::new();
    let mut reader = BufReader::new(File::from(pipe));
    reader.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("no ready line but {line:?}: {error}"))
}

/// Polls a level, with a limit.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(3));
    }
}

pub(crate) fn alive(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned()).unwrap_or_default();
    !state.is_empty() && !state.starts_with('Z') && !state.starts_with('X')
}

pub(crate) fn descendants(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
            if rest.split_ascii_whitespace().nth(1) == Some(&parent.to_string()) {
                found.push(pid);
                next.push(pid);
            }
        }
    }
    found
}

/// False, with a reason printed, where a test cannot run; a failure where it must.
pub(crate) fn is_root(what: &str) -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var_os("PHALANX_REQUIRE_ROOT_TESTS").is_none(), "{what} needs root");
    println!("skipped: {what} needs root");
    false
}

pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    next: u64,
    pub(crate) shown: Vec<u8>,
    pub(crate) events: VecDeque<Event>,
}

impl Connection {
    /// Through the folder's descriptor: its path may be longer than a socket address.
    pub(crate) fn open(dir: &Path) -> Self {
        let folder = File::open(dir).unwrap();
        let path = format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), file::SOCKET);
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut connection = Self { stream, next: 0, shown: Vec::new(), events: VecDeque::new() };
        let hello = Hello { versions: vec![SOCKET_VERSION], build: "test".to_owned() };
        write_frame(&mut connection.stream, Frame::of(Hello::KIND, "", &hello).unwrap()).unwrap();
        let theirs = read_frame(&mut connection.stream).unwrap().unwrap();
        assert!(theirs.body::<Hello>().unwrap().versions.contains(&SOCKET_VERSION));
        connection
    }

    pub(crate) fn send(&mut self, request: &Request) -> String {
        self.next += 1;
        let id = self.next.to_string();
        write_frame(&mut self.stream, Frame::of(kind::REQUEST, &id, request).unwrap()).unwrap();
        id
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Reply {
        let id = self.send(request);
        loop {
            let frame = read_frame(&mut self.stream).unwrap().expect("an answer before the end");
            if frame.kind == kind::REPLY && frame.id == id {
                return frame.body().unwrap();
            }
            self.take(&frame);
        }
    }

    fn take(&mut self, frame: &Frame) {
        match frame.kind.as_str() {
            kind::OUTPUT => self.shown.extend_from_slice(&frame.body),
            kind::EVENT => self.events.push_back(frame.body().unwrap()),
            _ => {}
        }
    }

    pub(crate) fn attach(&mut self, rows: u16, cols: u16) {
        assert_eq!(self.ask(&Request::Attach { rows, cols, read_only: false }), Reply::Done);
    }

    pub(crate) fn input(&mut self, bytes: &[u8]) {
        write_frame(&mut self.stream, Frame::new(kind::INPUT, "", bytes.to_vec())).unwrap();
    }

    pub(crate) fn wait_shown(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.shown).contains(text) {
            let frame = read_frame(&mut self.stream).unwrap();
            let shown = String::from_utf8_lossy(&self.shown).into_owned();
            self.take(&frame.unwrap_or_else(|| panic!("the end before {text:?}; shown: {shown:?}")));
        }
    }

    pub(crate) fn event(&mut self) -> Option<Event> {
        while self.events.is_empty() {
            let frame = read_frame(&mut self.stream).unwrap()?;
            self.take(&frame);
        }
        self.events.pop_front()
    }

    pub(crate) fn status(&mut self) -> Status {
        match self.ask(&Request::Status) {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn modes(&mut self) -> Vec<u16> {
        match self.ask(&Request::Modes) {
            Reply::Modes { set } => set,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn type_text(&mut self, bytes: &[u8], how: TypeHow, enter_after_ms: Option<u64>) -> Reply {
        let bytes = bytes.to_vec();
        let text = TypeText {
            bytes,
            how,
            enter_after_ms,
            refuse_on_draft: false,
            timeout_ms: 10_000,
            refuse_lines: false,
        };
        self.ask(&Request::Type(text))
    }

    pub(crate) fn read_to_end(mut self) {
        let _ = self.stream.read_to_end(&mut Vec::new());
    }
}
