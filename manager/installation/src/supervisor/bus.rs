//! The bus as the supervisor starts it: which server, its files made ready, the local host's configuration
//! beside them, and when it answers.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::component::{Component, NATS, Ready};
use crate::host_setup;
use crate::layout::Layout;
use crate::lock;
use crate::nats::setup::PortChoice;
use crate::nats::{binary, port, setup};
use manager_plan::config::Settings;

const PROBE_LIMIT: Duration = Duration::from_millis(500);

/// The component that is the server; its program is found at each start.
pub(super) fn component(layout: &Layout) -> Component {
    Component {
        name: NATS.to_owned(),
        program: PathBuf::from(NATS),
        args: vec!["-c".into(), layout.nats_conf().into()],
        env: Vec::new(),
        ready: Ready::Locked,
        stop_limit: Duration::from_secs(10),
    }
}

/// What is done before each start of the server.
#[derive(Debug, Clone)]
pub(super) struct BusPreparation {
    /// Those that hold the address of the bus and must be restarted when it moves.
    pub(super) clients: Vec<String>,
    /// How hostd is to start a supervisor.
    pub(super) supervise: Vec<String>,
}

impl BusPreparation {
    /// Makes everything ready and returns the program to start, `None` when the server runs already. Errors
    /// are whole sentences for a person.
    pub(super) async fn prepare(&self, layout: &Layout, running: bool) -> Result<Option<PathBuf>, String> {
        let (this, layout) = (self.clone(), layout.clone());
        let work = move || this.prepare_now(&layout, running);
        tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
    }

    fn prepare_now(&self, layout: &Layout, running: bool) -> Result<Option<PathBuf>, String> {
        let program = if running {
            None
        } else {
            Some(binary::find(layout).map_err(|error| protocol::chain(&error))?.path)
        };
        let host = host_setup::ensure_host_id(layout).map_err(|error| protocol::chain(&error))?;
        let choice = if running { PortChoice::Keep } else { PortChoice::Choose };
        let bus = setup::ensure(layout, &host, choice).map_err(|error| protocol::chain(&error))?;
        let settings = settings();
        host_setup::ensure_config(layout, &host, bus.port, &bus.order_key, &self.supervise, &settings)
            .map_err(|error| protocol::chain(&error))?;
        if bus.moved {
            tracing::warn!(port = bus.port, "the port of the bus was taken, it moved");
            for name in &self.clients {
                if let Ok(Some(process)) = lock::holder(&layout.lock(name)) {
                    process
                        .signal(Signal::TERM)
                        .map_err(|error| format!("cannot restart {name}: {error}"))?;
                }
            }
        }
        Ok(program)
    }

    /// Whether a NATS server answers on our port.
    pub(super) async fn is_ready(&self, layout: &Layout) -> bool {
        let Ok(Some(port)) = port::read(layout) else { return false };
        let hello = async {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
            let mut word = [0_u8; 5];
            stream.read_exact(&mut word).await?;
            std::io::Result::Ok(&word == b"INFO ")
        };
        tokio::time::timeout(PROBE_LIMIT, hello).await.is_ok_and(|said| said.unwrap_or(false))
    }
}

/// `phalanx up` refuses settings that are wrong. Those that became so later must not keep the bus from coming back.
fn settings() -> Settings {
    Settings::of_daemons().unwrap_or_else(|wrong| {
        tracing::error!(%wrong, "the settings are wrong: the built-in ones are used");
        Settings::default()
    })
}
