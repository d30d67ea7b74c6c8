//! The keys of the bus, made once and never again: an account's streams are stored under its key, so a key
//! that is lost or made anew loses them. Each seed lies in a file of its own, mode 0600.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nkeys::{KeyPair, KeyPairType};

use crate::atomic_file::{self, Durability, WriteFailed};
use crate::layout::Layout;

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} holds no {kind} key; restore it from a backup (a new one would lose what the bus stores)"
    )]
    Damaged { path: PathBuf, kind: &'static str },
    #[error(
        "{path} is missing, but {data} holds data stored under it; restore the key from a backup, \
         or move {data} away to start empty"
    )]
    Lost { path: PathBuf, data: PathBuf },
    #[error("cannot make a key")]
    Generate(#[source] nkeys::error::Error),
    #[error(transparent)]
    Write(#[from] WriteFailed),
}

/// All key pairs of an installation.
pub struct BusKeys {
    pub operator: KeyPair,
    pub system: KeyPair,
    pub fleet: KeyPair,
    pub hosts: KeyPair,
    /// Signs the users of hosts, so that the key of the account itself is needed for nothing daily.
    pub hosts_signing: KeyPair,
    pub manager: KeyPair,
    pub host: KeyPair,
    /// Signs orders; is no user of the bus.
    pub order_signing: KeyPair,
}

impl std::fmt::Debug for BusKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusKeys").field("fleet", &self.fleet.public_key()).finish_non_exhaustive()
    }
}

/// Reads the keys and makes those that are not there yet. Called by one process at a time (the supervisor).
pub fn ensure(layout: &Layout) -> Result<BusKeys, KeyError> {
    let has_data = fs::read_dir(layout.jetstream()).is_ok_and(|mut entries| entries.next().is_some());
    let data = has_data.then(|| layout.jetstream());
    let key = |name: &str, kind| ensure_key(&layout.keys().join(format!("{name}.nk")), kind, data.as_deref());
    Ok(BusKeys {
        operator: key("operator", KeyPairType::Operator)?,
        system: key("system", KeyPairType::Account)?,
        fleet: key("fleet", KeyPairType::Account)?,
        hosts: key("hosts", KeyPairType::Account)?,
        hosts_signing: key("hosts-signing", KeyPairType::Account)?,
        manager: ensure_key(&layout.keys().join("manager.nk"), KeyPairType::User, None)?,
        host: ensure_key(&layout.keys().join("host.nk"), KeyPairType::User, None)?,
        order_signing: ensure_key(&layout.order_key(), KeyPairType::User, None)?,
    })
}

/// The key at `path`, made when it is not there. With `data`, what is stored under the key, it is not made
/// anew.
fn ensure_key(path: &Path, kind: KeyPairType, data: Option<&Path>) -> Result<KeyPair, KeyError> {
    match fs::read_to_string(path) {
        Ok(seed) => parse(path, &seed, kind),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match data {
            Some(data) => Err(KeyError::Lost { path: path.to_path_buf(), data: data.to_path_buf() }),
            None => {
                let pair = KeyPair::new(kind);
                let seed = pair.seed().map_err(KeyError::Generate)?;
                atomic_file::write(path, format!("{seed}\n").as_bytes(), Durability::Disk)?;
                Ok(pair)
            }
        },
        Err(source) => Err(KeyError::Read { path: path.to_path_buf(), source }),
    }
}

/// Reads the seed that signs orders, for the manager.
pub fn read_order_signing(layout: &Layout) -> Result<KeyPair, KeyError> {
    let path = layout.order_key();
    let seed = fs::read_to_string(&path).map_err(|source| KeyError::Read { path: path.clone(), source })?;
    parse(&path, &seed, KeyPairType::User)
}

fn parse(path: &Path, seed: &str, kind: KeyPairType) -> Result<KeyPair, KeyError> {
    let name = match kind {
        KeyPairType::Operator => "operator",
        KeyPairType::Account => "account",
        _ => "user",
    };
    let damaged = || KeyError::Damaged { path: path.to_path_buf(), kind: name };
    let pair = KeyPair::from_seed(seed.trim()).map_err(|_| damaged())?;
    let same_kind = std::mem::discriminant(&pair.key_pair_type()) == std::mem::discriminant(&kind);
    if same_kind { Ok(pair) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn fresh() -> (tempfile::TempDir, Layout) {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        (temp, layout)
    }

    #[test]
    fn keys_are_made_once_and_are_private() {
        let (_temp, layout) = fresh();
        let first = ensure(&layout).unwrap();
        let second = ensure(&layout).unwrap();
        assert_eq!(first.fleet.public_key(), second.fleet.public_key());
        assert_eq!(first.order_signing.public_key(), second.order_signing.public_key());
        assert_eq!(read_order_signing(&layout).unwrap().public_key(), first.order_signing.public_key());
        for entry in fs::read_dir(layout.keys()).unwrap().flatten() {
            assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
    }

    #[test]
    fn a_damaged_key_is_never_replaced() {
        let (_temp, layout) = fresh();
        ensure(&layout).unwrap();
        let path = layout.keys().join("fleet.nk");
        for bad in ["", "garbage", &KeyPair::new_user().seed().unwrap()] {
            fs::write(&path, bad).unwrap();
            assert!(matches!(ensure(&layout), Err(KeyError::Damaged { .. })), "{bad:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
    }

    #[test]
    fn a_lost_account_key_is_not_made_anew_over_stored_data() {
        let (_temp, layout) = fresh();
        ensure(&layout).unwrap();
        fs::remove_file(layout.keys().join("fleet.nk")).unwrap();
        fs::create_dir_all(layout.jetstream().join("jetstream")).unwrap();
        assert!(matches!(ensure(&layout), Err(KeyError::Lost { .. })));
        fs::remove_dir_all(layout.jetstream()).unwrap();
        ensure(&layout).unwrap();
    }
}
