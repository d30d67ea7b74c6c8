//! Ended agents are destroyed after the time that the settings say; by default never. A wish like any operator's, that
//! the hosts refuse where it would lose work; who was refused once is not asked again.

use std::time::Duration;

use protocol::api::Request;
use protocol::ids::{AgentId, RequestKey};
use protocol::order::Discard;
use tokio::sync::watch;

use super::clock::Clock;
use super::driver::Driver;
use super::raised;
use crate::config::{Settings, key};

/// After the start, when the hosts have reported.
const FIRST: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);
/// Agents of one wish, and the pause after it.
const BATCH: usize = 10;
const PACE: Duration = Duration::from_secs(1);

/// Goes round until `stop` is raised.
pub async fn keep(driver: Driver, clock: Clock, mut stop: watch::Receiver<bool>) {
    let settings = tokio::task::spawn_blocking(Settings::of_daemons).await;
    let age_ms = match settings {
        Ok(Ok(settings)) => settings.duration_ms(&key::RETAIN_AGENTS),
        Ok(Err(wrong)) => {
            tracing::error!(%wrong, "the settings are wrong: ended agents are kept");
            None
        }
        Err(_) => None,
    };
    let Some(age_ms) = age_ms else {
        return raised(&mut stop).await;
    };
    let mut pause = FIRST;
    loop {
        tokio::select! {
            () = raised(&mut stop) => return,
            () = tokio::time::sleep(pause) => pause = EVERY,
        }
        let due = driver.glance(move |glance| glance.core.ended_before(glance.now, age_ms)).await;
        for batch in due.unwrap_or_default().chunks(BATCH) {
            retire(&driver, &clock, batch).await;
            tokio::select! {
                () = raised(&mut stop) => return,
                () = tokio::time::sleep(PACE) => {}
            }
        }
    }
}

async fn retire(driver: &Driver, clock: &Clock, agents: &[AgentId]) {
    tracing::info!(agents = agents.len(), "agents that ended long ago are destroyed, as configured");
    let request = Request::DestroyAgents {
        key: RequestKey(format!("retention-{:032x}", clock.random())),
        targets: agents.iter().map(ToString::to_string).collect(),
        discard: Discard::Keep,
    };
    if let Err(error) = driver.change(request).await {
        tracing::warn!(%error, "agents that ended long ago are not destroyed now; tried again");
    }
}
