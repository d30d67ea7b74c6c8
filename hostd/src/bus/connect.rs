//! The one connection of a hostd, as the user that may publish on this host's subjects only.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream;
use protocol::host_config::BusConfig;
use protocol::ids::{HostId, Region};

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("cannot read the credentials {path}")]
    Credentials {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot connect to the bus at {url}")]
    Connect {
        url: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error("cannot listen on {subject}")]
    Subscribe {
        subject: String,
        #[source]
        source: async_nats::SubscribeError,
    },
}

/// The connection and who speaks over it.
#[derive(Clone)]
pub struct Bus {
    pub(super) client: async_nats::Client,
    pub(super) stream: jetstream::Context,
    pub region: Region,
    pub host: HostId,
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("region", &self.region).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Bus {
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Sends what is buffered, within `limit`.
    pub async fn flush(&self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.client.flush()).await;
    }
}

/// Returns at once, also while the bus is away: it is looked for in the background, for ever.
///
/// # Errors
/// Credentials that cannot be read, or an address that is none.
pub async fn connect(config: &BusConfig, region: Region, host: HostId) -> Result<Bus, BusError> {
    let credentials = config.credentials.display().to_string();
    let options = async_nats::ConnectOptions::new()
        .credentials_file(&config.credentials)
        .await
        .map_err(|source| BusError::Credentials { path: credentials, source })?;
    let client = options
        .name(format!("hostd/{region}/{host}"))
        .custom_inbox_prefix(config.inbox_prefix.clone())
        .retry_on_initial_connect()
        .max_reconnects(None)
        .ping_interval(Duration::from_secs(5))
        .connection_timeout(Duration::from_secs(5))
        .reconnect_delay_callback(reconnect_delay)
        .subscription_capacity(8192)
        // A denied publish shows only here; the publish itself just times out.
        .event_callback(|event| async move {
            match event {
                async_nats::Event::Connected | async_nats::Event::Disconnected => {
                    tracing::info!(%event, "the bus");
                }
                other => tracing::warn!(event = %other, "the bus"),
            }
        })
        .connect(&config.url)
        .await
        .map_err(|source| BusError::Connect { url: config.url.clone(), source })?;
    let stream = jetstream::context::ContextBuilder::new()
        .timeout(Duration::from_secs(5))
        .max_ack_inflight(4096)
        .build(client.clone());
    Ok(Bus { client, stream, region, host })
}

/// Full jitter under a doubling bound of at most 2 s: a fleet that returns at once does not storm the server.
fn reconnect_delay(attempt: usize) -> Duration {
    let exponent = u32::try_from(attempt.min(6)).unwrap_or(6);
    let bound = (50_u64 << exponent).min(2_000);
    let mut random = [0_u8; 8];
    let drawn = if getrandom::fill(&mut random).is_ok() { u64::from_le_bytes(random) } else { bound };
    Duration::from_millis(drawn % (bound + 1))
}
