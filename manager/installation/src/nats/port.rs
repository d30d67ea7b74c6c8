//! The loopback port of the bus: chosen free once, kept, and chosen anew only when somebody else has taken
//! it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::PathBuf;

use crate::atomic_file::{self, Durability, WriteFailed};
use crate::layout::Layout;

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("no free port on 127.0.0.1")]
    None(#[source] io::Error),
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Write(#[from] WriteFailed),
}

/// The port in use, `None` before the first start.
pub fn read(layout: &Layout) -> Result<Option<u16>, PortError> {
    let path = layout.port_file();
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().parse().ok().filter(|port| *port != 0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PortError::Read { path, source }),
    }
}

/// The address clients connect to.
pub fn url(port: u16) -> String {
    format!("nats://127.0.0.1:{port}")
}

/// The port a server of ours can listen on now. Called only while ours does not run: a port in use is
/// another's.
pub fn ensure_free(layout: &Layout) -> Result<u16, PortError> {
    if let Some(port) = read(layout)?
        && TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok()
    {
        return Ok(port);
    }
    let port = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(PortError::None)?
        .port();
    atomic_file::write(&layout.port_file(), format!("{port}\n").as_bytes(), Durability::Disk)?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_kept_while_it_is_free_and_changed_when_taken() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::at(temp.path().join("home")).unwrap();
        layout.ensure_folders().unwrap();
        let port = ensure_free(&layout).unwrap();
        assert_eq!(ensure_free(&layout).unwrap(), port);
        let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let other = ensure_free(&layout).unwrap();
        assert_ne!(other, port);
        assert_eq!(read(&layout).unwrap(), Some(other));
        drop(taken);
        assert_eq!(ensure_free(&layout).unwrap(), other);
    }
}
