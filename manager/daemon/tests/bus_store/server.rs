//! A nats-server of its own, set up as `up` does it, killed by pid when dropped.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::Client;
use manager_daemon::store::{Store, StoreConfig};
use manager_installation::Layout;
use manager_installation::nats::setup::{self, PortChoice};
use manager_installation::nats::{binary, port};
use protocol::ids::HostId;
use tokio::task::JoinSet;

pub(crate) const HOST: &str = "h1";

pub(crate) struct Server {
    pub(crate) layout: Layout,
    process: Option<Child>,
    _folder: tempfile::TempDir,
}

/// A store and the tasks it runs in.
pub(crate) struct Open {
    pub(crate) store: Store,
    pub(crate) tasks: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        let host: HostId = HOST.parse().unwrap();
        setup::ensure(&layout, &host, PortChoice::Choose).unwrap();
        let mut server = Self { layout, process: None, _folder: folder };
        server.run().await;
        server
    }

    /// Starts the program and waits until it answers.
    pub(crate) async fn run(&mut self) {
        let program = binary::find(&self.layout).unwrap().path;
        let log = std::fs::File::create(self.layout.log_file("stderr")).unwrap();
        let child = Command::new(program)
            .arg("-c")
            .arg(self.layout.nats_conf())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(child);
        let address = ("127.0.0.1", self.port());
        within(Duration::from_secs(10), "the server answers", async || {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await;
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        let mut child = self.process.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn port(&self) -> u16 {
        port::read(&self.layout).unwrap().unwrap()
    }

    pub(crate) fn config(&self) -> StoreConfig {
        let mut config = StoreConfig::of_layout(&self.layout).unwrap();
        config.check_every = Duration::from_millis(500);
        config
    }

    pub(crate) async fn open(&self) -> Open {
        let mut tasks = JoinSet::new();
        let store = Store::open(&self.config(), &mut tasks).await.unwrap();
        Open { store, tasks }
    }

    /// Connected as the local hostd is.
    pub(crate) async fn host(&self) -> Client {
        let credentials = std::fs::read_to_string(self.layout.host_creds()).unwrap();
        async_nats::ConnectOptions::with_credentials(&credentials)
            .unwrap()
            .custom_inbox_prefix(format!("_INBOX_{HOST}"))
            .request_timeout(Some(Duration::from_millis(700)))
            .connect(port::url(self.port()))
            .await
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.layout.log_file("nats-server")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("server log:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
        }
    }
}

/// Asks until there is an answer; fails after `limit`.
pub(crate) async fn within<T>(limit: Duration, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
