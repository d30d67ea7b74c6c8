//! The manager's durable state on the bus: buckets, streams, blobs, and the lead. The only place of the
//! manager, beside `daemon::bus`, that names `async_nats`.
//!
//! A [`Store`] is cheap to clone. Its connection reconnects for ever; its one writing task and its watches
//! live in a `JoinSet` of the caller's. What a value means is the caller's: here they are bytes.

pub mod blobs;
pub mod connect;
pub mod error;
pub mod inventory;
pub mod journal;
pub mod kv;
pub mod lead;
pub mod seal;
pub mod streams;
pub mod watch;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use tokio::sync::watch as level;
use tokio::task::JoinSet;

pub use connect::Link;
pub use error::StoreError;
pub use kv::{Entry, Record};
pub use streams::{Bucket, StreamState};
pub use watch::{Change, WatchEvent};
pub use writer::WriteError;

/// The server's answers are waited for this long before a write is sent again.
pub(crate) const ACK_LIMIT: Duration = Duration::from_secs(5);

/// How to reach the bus and how much of it is there.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Such as `nats://127.0.0.1:4222`.
    pub url: String,
    /// The manager's credentials file.
    pub credentials: PathBuf,
    /// What the server may store in all; streams get shares of it.
    pub max_file: u64,
    /// Of this server's streams: their subjects carry it.
    pub region: String,
    /// How often a watch compares what it has seen with the stream.
    pub check_every: Duration,
}

impl StoreConfig {
    /// Of an installation that was started: address, credentials and size are read from its files.
    pub fn of_layout(layout: &manager_installation::Layout) -> Result<Self, StoreError> {
        use manager_installation::nats::{HUB, port, setup};
        let not_started = || StoreError::NotStarted { home: layout.home().to_path_buf() };
        let port = port::read(layout).ok().flatten().ok_or_else(not_started)?;
        let max_file = setup::read_max_file(layout).ok_or_else(not_started)?;
        Ok(Self {
            url: port::url(port),
            credentials: layout.manager_creds(),
            max_file,
            region: HUB.to_owned(),
            check_every: Duration::from_secs(30),
        })
    }
}

/// The open store.
#[derive(Debug, Clone)]
pub struct Store {
    client: Client,
    jetstream: jetstream::Context,
    link: level::Receiver<Link>,
    writer: writer::Writer,
    check_every: Duration,
    region: String,
    max_file: u64,
}

impl Store {
    /// Connects, refuses a server that is too old, makes or verifies every stream and bucket. `tasks` owns
    /// the writing task: when it is dropped, writes fail with [`WriteError::Closed`].
    pub async fn open(config: &StoreConfig, tasks: &mut JoinSet<()>) -> Result<Self, StoreError> {
        let (client, link) = connect::connect(config).await?;
        let jetstream = jetstream::context::ContextBuilder::new()
            .timeout(ACK_LIMIT)
            .ack_timeout(ACK_LIMIT)
            .max_ack_inflight(4096)
            .build(client.clone());
        streams::ensure_all(&jetstream, &config.region, config.max_file).await?;
        let writer = writer::Writer::spawn(jetstream.clone(), tasks);
        let (check_every, region, max_file) = (config.check_every, config.region.clone(), config.max_file);
        Ok(Self { client, jetstream, link, writer, check_every, region, max_file })
    }

    /// Makes the streams that are missing. Cheap where none is.
    ///
    /// # Errors
    /// When the server does not do it.
    pub async fn ensure_streams(&self) -> Result<(), StoreError> {
        streams::ensure_all(&self.jetstream, &self.region, self.max_file).await
    }

    /// The connection, for orders and heartbeats.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the bus is reached, and how often it was reached anew.
    pub fn link(&self) -> level::Receiver<Link> {
        self.link.clone()
    }
}
