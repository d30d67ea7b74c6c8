//! Seals secrets before they are stored: XChaCha20-Poly1305 under a key that only managers hold, so that a
//! copy of the bus's disk or a reader of the bucket has nothing. The record's name is bound in: a sealed
//! value is no other's.
//!
//! Sealed form: one version byte (1), a random nonce of 24 bytes, the ciphertext with its tag.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use data_encoding::HEXLOWER;

use manager_installation::atomic_file::{self, Durability, WriteFailed};

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{path} holds no fleet key; restore it from a backup (with a new one stored secrets cannot be read)"
    )]
    Damaged { path: PathBuf },
    #[error(transparent)]
    Write(#[from] WriteFailed),
    #[error("the system gives no randomness")]
    Random(#[source] getrandom::Error),
    #[error("{name} cannot be sealed")]
    Seal { name: String },
    #[error("{name} is not sealed with this fleet's key, or was changed")]
    Open { name: String },
}

/// The key of a fleet's managers.
pub struct FleetKey {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FleetKey")
    }
}

impl FleetKey {
    /// Reads the key at `path` (64 hex digits, mode 0600), made when the file is not there.
    pub fn ensure(path: &Path) -> Result<Self, SealError> {
        let damaged = || SealError::Damaged { path: path.to_path_buf() };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut key = [0_u8; KEY_BYTES];
                getrandom::fill(&mut key).map_err(SealError::Random)?;
                let text = format!("{}\n", HEXLOWER.encode(&key));
                atomic_file::write(path, text.as_bytes(), Durability::Disk)?;
                text
            }
            Err(source) => return Err(SealError::Read { path: path.to_path_buf(), source }),
        };
        let key = HEXLOWER.decode(text.trim().as_bytes()).map_err(|_| damaged())?;
        let cipher = XChaCha20Poly1305::new_from_slice(&key).map_err(|_| damaged())?;
        Ok(Self { cipher })
    }

    /// Seals `secret` as the value of `name`.
    pub fn seal(&self, name: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut nonce = [0_u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(SealError::Random)?;
        let payload = Payload { msg: secret, aad: name.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| SealError::Seal { name: name.to_owned() })?;
        Ok([&[VERSION], nonce.as_slice(), sealed.as_slice()].concat())
    }

    /// Opens what was sealed as the value of `name`.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let refused = || SealError::Open { name: name.to_owned() };
        let rest = sealed.strip_prefix(&[VERSION]).ok_or_else(refused)?;
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(refused)?;
        let payload = Payload { msg: ciphertext, aad: name.as_bytes() };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| refused())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_secret_opens_under_its_name_and_key_only() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("fleet.key");
        let key = FleetKey::ensure(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let sealed = key.seal("agent-1", b"s3cr3t").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"s3cr3t"));
        let again = FleetKey::ensure(&path).unwrap();
        assert_eq!(again.open("agent-1", &sealed).unwrap(), b"s3cr3t");
        assert!(again.open("agent-2", &sealed).is_err(), "another record");
        let other = FleetKey::ensure(&temp.path().join("other.key")).unwrap();
        assert!(other.open("agent-1", &sealed).is_err(), "another key");
        for at in [0, 1, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(again.open("agent-1", &changed).is_err(), "byte {at} changed");
        }
        assert!(again.open("agent-1", b"").is_err());
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("fleet.key");
        fs::write(&path, "").unwrap();
        assert!(matches!(FleetKey::ensure(&path), Err(SealError::Damaged { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
