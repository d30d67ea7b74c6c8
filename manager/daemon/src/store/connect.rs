//! One connection to the bus that comes back by itself, with every reason for a refusal in the log: the
//! library turns a permission violation into a timeout, and only its events tell the cause.

use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::watch;

use super::StoreConfig;
use super::error::StoreError;
use manager_installation::nats::binary::{MINIMUM, Version};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const PING_EVERY: Duration = Duration::from_secs(5);
const RECONNECT_MOST_MS: u64 = 2000;

/// The state of the connection; `epoch` counts how often it was made, so that a watcher notices a short cut
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    pub up: bool,
    pub epoch: u64,
}

pub(super) async fn connect(config: &StoreConfig) -> Result<(Client, watch::Receiver<Link>), StoreError> {
    let path = config.credentials.clone();
    let credentials = std::fs::read_to_string(&path)
        .map_err(|source| StoreError::Credentials { path: path.clone(), source })?;
    let (level, link) = watch::channel(Link::default());
    let options = ConnectOptions::new()
        .credentials(&credentials)
        .map_err(|source| StoreError::Credentials { path: path.clone(), source })?
        .name("phalanx/manager")
        .custom_inbox_prefix(protocol::subject::MANAGER_INBOX)
        .ping_interval(PING_EVERY)
        .connection_timeout(CONNECT_LIMIT)
        .max_reconnects(None)
        .reconnect_delay_callback(reconnect_delay)
        .subscription_capacity(8192)
        .ignore_discovered_servers()
        .event_callback(move |event| {
            note(&event, &level);
            std::future::ready(())
        });
    let client = options.connect(&config.url).await.map_err(|error| {
        let url = config.url.clone();
        match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                StoreError::Refused { url, path, source: error.into() }
            }
            _ => StoreError::Unreachable { url, source: error.into() },
        }
    })?;
    let found = client.server_info().version;
    if Version::parse(&found).is_none_or(|version| version < MINIMUM) {
        return Err(StoreError::TooOld { url: config.url.clone(), found });
    }
    Ok((client, link))
}

/// Up to 50 ms at first, doubling to 2 s, each time a random part of it, so that many do not come back at
/// once.
fn reconnect_delay(attempt: usize) -> Duration {
    let exponent = u32::try_from(attempt.min(6)).unwrap_or(6);
    let most = (50_u64 << exponent).min(RECONNECT_MOST_MS);
    Duration::from_millis(random_below(most + 1))
}

/// A random number below `bound`; the upper half when the system has no randomness.
pub(super) fn random_below(bound: u64) -> u64 {
    getrandom::u64().map_or(bound / 2, |random| random % bound.max(1))
}

fn note(event: &Event, level: &watch::Sender<Link>) {
    match event {
        Event::Connected => {
            level.send_modify(|link| *link = Link { up: true, epoch: link.epoch + 1 });
            tracing::info!("bus connected");
        }
        Event::Disconnected | Event::Closed => {
            level.send_modify(|link| link.up = false);
            tracing::warn!(%event, "bus lost, connecting again");
        }
        // A permission violation, a refused credential: someone must act.
        Event::ServerError(error) => tracing::error!(%error, "bus refuses"),
        Event::SlowConsumer(_) => tracing::warn!(%event, "messages dropped"),
        Event::ClientError(error) => tracing::warn!(%error, "bus client"),
        Event::LameDuckMode | Event::Draining => tracing::info!(%event, "bus is closing"),
    }
}
