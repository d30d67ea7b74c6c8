//! A server, a manager and a host; each may be ended and started again.

use std::time::Duration;

use manager_daemon::{DaemonError, Options, run};
use manager_installation::Layout;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::client::Client;
use super::host::Host;
use super::server::{Server, within};

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) host: Host,
    /// Of the managers that are started from now on.
    pub(crate) blob_grace_ms: u64,
    manager: Option<Manager>,
}

struct Manager {
    stop: oneshot::Sender<()>,
    task: JoinSet<Result<(), DaemonError>>,
}

impl Manager {
    fn start(layout: &Layout, blob_grace_ms: u64) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let options = Options {
            layout: layout.clone(),
            supervise: None,
            host_cap: None,
            label_caps: Default::default(),
            blob_grace_ms,
        };
        let mut task = JoinSet::new();
        task.spawn(run(options, async {
            let _ = stopped.await;
        }));
        Self { stop, task }
    }
}

impl World {
    /// All three, and the host heard.
    pub(crate) async fn start() -> Self {
        let server = Server::start().await;
        let (host, blob_grace_ms) = (Host::start(&server).await, manager_plan::config::BLOB_GRACE_MS);
        let mut world = Self { host, server, blob_grace_ms, manager: None };
        world.start_manager().await;
        world
    }

    /// From here on the host takes no agent, and the manager knows: what is submitted waits.
    pub(crate) async fn fill_disk(&self) {
        self.host.fill_disk();
        within(Duration::from_secs(10), "the host's disk is known to be full", async || {
            let mut client = self.client().await;
            client.hosts().await.iter().all(|host| host.facts.disk_free_bytes == 0).then_some(())
        })
        .await;
    }

    pub(crate) async fn start_manager(&mut self) {
        self.manager = Some(Manager::start(&self.server.layout, self.blob_grace_ms));
        let socket = self.server.layout.manager_socket();
        within(Duration::from_secs(10), "the host is heard", async || {
            let mut client = Client::connect(&socket).await?;
            let hosts = client.hosts().await;
            hosts.iter().any(|host| host.last_seen.0 > 0).then_some(())
        })
        .await;
    }

    /// In good order.
    pub(crate) async fn stop_manager(&mut self) -> Result<(), DaemonError> {
        let mut manager = self.manager.take().expect("it runs");
        let _ = manager.stop.send(());
        manager.task.join_next().await.unwrap().unwrap()
    }

    /// As kill -9 does: nothing more is done.
    pub(crate) async fn kill_manager(&mut self) {
        let mut manager = self.manager.take().expect("it runs");
        manager.task.shutdown().await;
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.server.layout.manager_socket()).await.expect("the socket is there")
    }
}
