//! Ended agents are destroyed after the time that the settings say; by default never. A wish like any operator's, that
//! the hosts refuse where it would lose work; who was refused once is not asked again. Records of runs that are over go
//! beyond the number or the age that the settings say; by default never. Blobs that nothing names go after a time.

use std::sync::Arc;
use std::time::Duration;

use manager_core::{OverRun, RunBounds};
use protocol::api::{Mutation, Reply};
use protocol::house::HouseItem;
use protocol::ids::{AgentId, RequestKey};
use protocol::order::Discard;
use tokio::sync::watch;

use super::blobs::Blobs;
use super::clock::Clock;
use super::driver::Driver;
use super::raised;
use manager_plan::config::{Settings, key};

/// After the start, when the hosts have reported.
const FIRST: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);
/// Agents of one wish, and the pause after it.
const BATCH: usize = 10;
const PACE: Duration = Duration::from_secs(1);

/// What is kept, and for how long.
#[derive(Clone, Debug, Default)]
struct Bounds {
    agents_ms: Option<u64>,
    runs: RunBounds,
    blobs_ms: Option<u64>,
}

impl Bounds {
    fn of(settings: &Settings) -> Self {
        Self {
            agents_ms: settings.duration_ms(&key::RETAIN_AGENTS),
            runs: settings.run_bounds(),
            blobs_ms: settings.duration_ms(&key::RETAIN_BLOBS),
        }
    }
}

/// Goes round until `stop` is raised.
pub async fn keep(driver: Driver, blobs: Arc<Blobs>, clock: Clock, mut stop: watch::Receiver<bool>) {
    let settings = tokio::task::spawn_blocking(Settings::of_daemons).await;
    let bounds = match settings {
        Ok(Ok(settings)) => Bounds::of(&settings),
        Ok(Err(wrong)) => {
            tracing::error!(%wrong, "the settings are wrong: ended agents, runs and blobs are kept");
            Bounds::default()
        }
        Err(_) => Bounds::default(),
    };
    let mut pause = FIRST;
    loop {
        tokio::select! {
            () = raised(&mut stop) => return,
            () = tokio::time::sleep(pause) => pause = EVERY,
        }
        tokio::select! {
            () = raised(&mut stop) => return,
            () = round(&driver, &blobs, &clock, &bounds) => {}
        }
    }
}

async fn round(driver: &Driver, blobs: &Blobs, clock: &Clock, bounds: &Bounds) {
    if let Some(age_ms) = bounds.agents_ms {
        let due = driver.glance(move |glance| glance.core.ended_before(glance.now, age_ms)).await;
        for batch in due.unwrap_or_default().chunks(BATCH) {
            retire(driver, clock, batch).await;
            tokio::time::sleep(PACE).await;
        }
    }
    let runs = bounds.runs;
    let due = driver.glance(move |glance| glance.core.runs_due(glance.now, &runs)).await;
    for batch in due.unwrap_or_default().chunks(BATCH) {
        forget(driver, clock, batch).await;
        tokio::time::sleep(PACE).await;
    }
    blobs.clear_spool().await;
    if let Some(older_ms) = bounds.blobs_ms {
        sweep(driver, blobs, older_ms).await;
    }
}

/// Some at a time, so that who brings or names one waits for no more than that.
async fn sweep(driver: &Driver, blobs: &Blobs, older_ms: u64) {
    loop {
        match blobs.sweep(driver, older_ms).await {
            Ok(swept) => {
                if swept.things > 0 {
                    let (things, bytes) = (swept.things, swept.bytes);
                    tracing::info!(things, bytes, "prompts, logs and inputs that nothing names went");
                }
                if !swept.more {
                    return;
                }
            }
            Err(error) => {
                return tracing::warn!(%error, "blobs that nothing names are not taken away now; tried again");
            }
        }
        tokio::time::sleep(PACE).await;
    }
}

/// The core looks at each again.
async fn forget(driver: &Driver, clock: &Clock, runs: &[OverRun]) {
    let request = Mutation::FreeRuns {
        key: RequestKey(format!("retention-{:032x}", clock.random())),
        runs: runs.iter().map(|run| run.id).collect(),
        older_ms: 0,
    };
    let freed = match driver.change(request).await {
        Ok(Reply::Freed(freed)) => freed,
        Ok(other) => {
            return tracing::warn!(?other, "it is not known whether runs that are over were forgotten");
        }
        Err(error) => {
            return tracing::warn!(%error, "runs that are over are not forgotten now; tried again");
        }
    };
    for run in runs {
        let (id, name, tasks, ended_at) = (run.id, &run.name, run.tasks, run.ended_at);
        let outcome = freed.iter().find(|freed| freed.item == HouseItem::Run { run: id });
        match outcome.map(|freed| freed.kept.as_deref()) {
            Some(None) => {
                tracing::info!(%id, name, tasks, ended_at_ms = ended_at.0, "the records of a run that was over went, as configured");
            }
            Some(Some(why)) => tracing::info!(%id, name, why, "the records of a run stay"),
            None => tracing::warn!(%id, name, "what became of the records of a run is not known"),
        }
    }
}

async fn retire(driver: &Driver, clock: &Clock, agents: &[AgentId]) {
    tracing::info!(agents = agents.len(), "agents that ended long ago are destroyed, as configured");
    let request = Mutation::DestroyAgents {
        key: RequestKey(format!("retention-{:032x}", clock.random())),
        targets: agents.iter().map(ToString::to_string).collect(),
        discard: Discard::Keep,
    };
    if let Err(error) = driver.change(request).await {
        tracing::warn!(%error, "agents that ended long ago are not destroyed now; tried again");
    }
}
