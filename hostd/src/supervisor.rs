//! Brings the supervisor back when it is gone: whoever looks after hostd is looked after by hostd.

use std::process::Stdio;
use std::time::Duration;

use protocol::host_config::SupervisorConfig;

use crate::state::is_held;

const LOOK: Duration = Duration::from_secs(3);

/// Looks until it is dropped. A supervisor that holds its lock lives.
pub async fn keep(config: SupervisorConfig) {
    let Some(command) = config.command.as_ref() else { return };
    loop {
        tokio::time::sleep(LOOK).await;
        // A lock that cannot be looked at counts as held: unknown starts nothing.
        if is_held(&config.lock).unwrap_or(true) {
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
