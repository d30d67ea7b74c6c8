//! Makes the local host: its id, fixed for life, and the configuration its hostd reads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use protocol::host_config::{BusConfig, HOST_CONFIG_VERSION, HostConfig, RetentionConfig, SupervisorConfig};
use protocol::ids::HostId;
use protocol::subject::host_inbox;

use manager_plan::config::{Settings, key};

use super::atomic_file::{self, WriteFailed};
use super::layout::Layout;
use super::nats::{HUB, port};

const HOST_ID_MAX: usize = 40;

/// Why the host cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum HostSetupError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} holds no host id ([a-z0-9-], 1 to 40 characters); restore it from a backup")]
    Damaged { path: PathBuf },
    #[error("cannot write down the configuration of hostd")]
    Encode(#[source] serde_json::Error),
    #[error("{path} is not a host's configuration")]
    Decode {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    #[error(transparent)]
    Write(#[from] WriteFailed),
}

/// The id of this host: read, or made from the host name at the first start.
pub fn ensure_host_id(layout: &Layout) -> Result<HostId, HostSetupError> {
    let path = layout.host().join("id");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| HostSetupError::Damaged { path }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = nix::unistd::gethostname().unwrap_or_default();
            let id = host_id_of(&name.to_string_lossy());
            atomic_file::write_if_changed(&path, format!("{id}\n").as_bytes())?;
            id.parse().map_err(|_| HostSetupError::Damaged { path })
        }
        Err(source) => Err(HostSetupError::Read { path, source }),
    }
}

/// Writes `host/hostd.json` when it is not already exactly that.
pub fn ensure_config(
    layout: &Layout,
    host: &HostId,
    bus_port: u16,
    order_key: &str,
    supervise: &[String],
    settings: &Settings,
) -> Result<(), HostSetupError> {
    let config = HostConfig {
        version: HOST_CONFIG_VERSION,
        home: layout.home().to_path_buf(),
        state: layout.host(),
        run: layout.run(),
        log: layout.log(),
        host: host.to_string(),
        region: HUB.to_owned(),
        bus: BusConfig {
            url: port::url(bus_port),
            credentials: layout.host_creds(),
            inbox_prefix: host_inbox(host),
            order_key: order_key.to_owned(),
        },
        lock: layout.lock("hostd"),
        supervisor: SupervisorConfig {
            lock: layout.lock("supervisor"),
            command: (!supervise.is_empty()).then(|| supervise.to_vec()),
        },
        disk_share_max: f64::from(settings.percent(&key::DISK_SHARE).unwrap_or(85)) / 100.0,
        retention: RetentionConfig {
            archived_most: settings.whole(&key::RETAIN_ARCHIVE),
            archived_ms: settings.duration_ms(&key::RETAIN_TRANSCRIPTS),
        },
    };
    let mut bytes = serde_json::to_vec_pretty(&config).map_err(HostSetupError::Encode)?;
    bytes.push(b'\n');
    atomic_file::write_if_changed(&layout.host_config(), &bytes)?;
    Ok(())
}

/// Reads `host/hostd.json`.
pub fn read_config(path: &Path) -> Result<HostConfig, HostSetupError> {
    let bytes = fs::read(path).map_err(|source| HostSetupError::Read { path: path.to_path_buf(), source })?;
    serde_json::from_slice(&bytes)
        .map_err(|source| HostSetupError::Decode { path: path.to_path_buf(), source })
}

/// The first label of a host name, with what an id may not hold turned into `-`.
fn host_id_of(name: &str) -> String {
    let label = name.split('.').next().unwrap_or_default().to_lowercase();
    let plain: String =
        label.chars().map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }).collect();
    let short: String = plain.trim_matches('-').chars().take(HOST_ID_MAX).collect();
    let id = short.trim_matches('-');
    if id.parse::<HostId>().is_ok() { id.to_owned() } else { "local".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_host_name_gives_an_id() {
        assert_eq!(host_id_of("Build-01.example.org"), "build-01");
        assert_eq!(host_id_of("_odd_name_"), "odd-name");
        assert_eq!(host_id_of("名前"), "local");
        assert_eq!(host_id_of(""), "local");
        assert_eq!(host_id_of(&"a".repeat(63)).len(), 40);
    }

    #[test]
    fn an_id_outlives_a_new_host_name_and_a_damaged_one_is_not_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        fs::write(layout.host().join("id"), "first-name\n").unwrap();
        assert_eq!(ensure_host_id(&layout).unwrap().as_str(), "first-name");
        fs::write(layout.host().join("id"), "").unwrap();
        assert!(matches!(ensure_host_id(&layout), Err(HostSetupError::Damaged { .. })));
    }
}
