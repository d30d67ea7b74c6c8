//! Everything nats-server needs before it is started, made once and rewritten only on change: keys, JWTs,
//! credentials, the share of the disk, the port, the configuration. Called by the supervisor alone.

use std::fs;
use std::path::PathBuf;

use nkeys::KeyPair;
use protocol::ids::HostId;

use super::conf::Conf;
use super::jwt::{self, Claims, JwtError};
use super::keys::{self, BusKeys, KeyError};
use super::port::{self, PortError};
use super::{HUB, accounts};
use crate::atomic_file::{self, Durability, WriteFailed};
use crate::layout::Layout;

/// JetStream takes a quarter of what is free at the first start, within these bounds.
const DISK_SHARE_DIVISOR: u64 = 4;
const MAX_FILE_MOST: u64 = 200 << 30;
const MAX_FILE_LEAST: u64 = 256 << 20;

/// Why the bus cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Jwt(#[from] JwtError),
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Write(#[from] WriteFailed),
    #[error("cannot learn the free space of {path}")]
    FreeSpace {
        path: PathBuf,
        #[source]
        source: nix::Error,
    },
    #[error(
        "{path} has {free_mb} MB free, and the bus needs {needed_mb} MB; free some space or set PHALANX_HOME"
    )]
    NoSpace { path: PathBuf, free_mb: u64, needed_mb: u64 },
}

/// What was set up.
#[derive(Debug)]
pub struct Bus {
    pub port: u16,
    pub order_key: String,
    /// Whether the port is another than the last time.
    pub moved: bool,
}

/// Which port the configuration names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortChoice {
    /// Ours is not running: keep the port if it can be had, else take another.
    Choose,
    /// Ours is running on the port of the file.
    Keep,
}

/// Makes all of it, for the local host named `host`.
pub fn ensure(layout: &Layout, host: &HostId, choice: PortChoice) -> Result<Bus, SetupError> {
    let keys = keys::ensure(layout)?;
    let before = port::read(layout)?;
    let port = match (choice, before) {
        (PortChoice::Keep, Some(port)) => port,
        _ => port::ensure_free(layout)?,
    };
    let max_file = ensure_max_file(layout)?;
    let operator = ensure_jwt(layout, "operator", &accounts::operator(&keys), &keys.operator)?;
    let mut preload = Vec::new();
    for (name, claims) in [
        ("system", accounts::system(&keys)),
        ("fleet", accounts::fleet(&keys)),
        ("hosts", accounts::hosts(&keys)),
    ] {
        let token = ensure_jwt(layout, name, &claims, &keys.operator)?;
        preload.push((claims.subject, token));
    }
    ensure_credentials(layout, &keys, host)?;
    let conf = Conf {
        layout,
        port,
        max_file,
        operator_jwt: &operator,
        system_account: &keys.system.public_key(),
        preload: &preload,
    };
    atomic_file::write_if_changed(&layout.nats_conf(), conf.render().as_bytes())?;
    Ok(Bus { port, order_key: keys.order_signing.public_key(), moved: before.is_some_and(|old| old != port) })
}

/// The bytes JetStream may use, chosen at the first start: the sizes of streams follow from it and must not
/// change with the disk's fill.
pub fn ensure_max_file(layout: &Layout) -> Result<u64, SetupError> {
    if let Some(chosen) = read_max_file(layout) {
        return Ok(chosen);
    }
    let bus = layout.bus();
    let disk = nix::sys::statvfs::statvfs(&bus)
        .map_err(|source| SetupError::FreeSpace { path: bus.clone(), source })?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    if free < MAX_FILE_LEAST {
        let (free_mb, needed_mb) = (free >> 20, MAX_FILE_LEAST >> 20);
        return Err(SetupError::NoSpace { path: bus, free_mb, needed_mb });
    }
    let chosen = (free / DISK_SHARE_DIVISOR).clamp(MAX_FILE_LEAST, MAX_FILE_MOST);
    atomic_file::write(&layout.max_file(), format!("{chosen}\n").as_bytes(), Durability::Disk)?;
    Ok(chosen)
}

/// The bytes JetStream may use, once chosen.
pub fn read_max_file(layout: &Layout) -> Option<u64> {
    fs::read_to_string(layout.max_file()).ok()?.trim().parse().ok()
}

fn ensure_jwt(layout: &Layout, name: &str, claims: &Claims, issuer: &KeyPair) -> Result<String, SetupError> {
    let path = layout.jwts().join(format!("{name}.jwt"));
    if let Ok(present) = fs::read_to_string(&path)
        && jwt::says(&present, claims, issuer)
    {
        return Ok(present.trim().to_owned());
    }
    let token = jwt::encode(claims, issuer)?;
    atomic_file::write(&path, format!("{token}\n").as_bytes(), Durability::Disk)?;
    Ok(token)
}

fn ensure_credentials(layout: &Layout, keys: &BusKeys, host: &HostId) -> Result<(), SetupError> {
    let host_claims = accounts::host_user(&keys.hosts.public_key(), &keys.host.public_key(), HUB, host);
    let users = [
        (layout.manager_creds(), accounts::manager_user(keys), &keys.fleet, &keys.manager),
        (layout.host_creds(), host_claims, &keys.hosts_signing, &keys.host),
    ];
    for (path, claims, issuer, user) in users {
        let present = fs::read_to_string(&path).unwrap_or_default();
        if jwt::of_credentials(&present).is_some_and(|token| jwt::says(token, &claims, issuer)) {
            continue;
        }
        let text = jwt::credentials(&jwt::encode(&claims, issuer)?, user, &claims.name)?;
        atomic_file::write(&path, text.as_bytes(), Durability::Disk)?;
    }
    Ok(())
}
