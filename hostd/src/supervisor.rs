//! Brings the supervisor back when it is gone: whoever looks after hostd is looked after by hostd.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use protocol::host_config::SupervisorConfig;

const LOOK: Duration = Duration::from_secs(3);

/// Looks until it is dropped. A supervisor that holds its lock lives.
pub async fn keep(config: SupervisorConfig) {
    let Some(command) = config.command.as_ref() else { return };
    loop {
        tokio::time::sleep(LOOK).await;
        if is_held(&config) {
            continue;
        }
        let Some((program, arguments)) = command.split_first() else { return };
        tracing::warn!("the supervisor is gone: started again");
        let started = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .await;
        if let Err(error) = started {
            tracing::error!(%error, program, "the supervisor could not be started");
        }
    }
}

/// A lock that cannot be looked at counts as held: unknown starts nothing.
fn is_held(config: &SupervisorConfig) -> bool {
    match File::open(&config.lock) {
        Ok(file) => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err(),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}
