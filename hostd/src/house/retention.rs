//! What is kept of destroyed agents, bounded by number and age as configured: slowly, in the background. Never what
//! may be the only copy of outputs.

use std::time::Duration;

use hostd_core::{AgentRecord, Input};
use protocol::host_config::RetentionConfig;
use protocol::ids::AgentId;
use protocol::time::Timestamp;

use super::free::holds_outputs;
use super::written_at;
use crate::clock;
use crate::machine::Handle;

/// After the start, so that it does not stand in the way of adoption.
const FIRST: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(600);
/// Between two agents: nobody waits for it.
const PACE: Duration = Duration::from_millis(20);

/// Goes round for as long as hostd lives.
pub async fn keep(machine: Handle) {
    let retention = machine.config.retention.clone();
    let mut pause = FIRST;
    loop {
        tokio::time::sleep(pause).await;
        pause = EVERY;
        let folders = machine.folders.clone();
        let archived = tokio::task::spawn_blocking(move || {
            let records = folders.load_archived()?;
            let dated = records.into_iter().map(|record| dated(&folders.archived(record.agent), &record));
            Ok::<_, crate::state::StateError>(dated.collect::<Vec<_>>())
        });
        let archived = match archived.await {
            Ok(Ok(archived)) => archived,
            Ok(Err(error)) => {
                tracing::warn!(error = protocol::chain(&error), "the archive cannot be looked at");
                continue;
            }
            Err(_) => return,
        };
        let due = due(archived, &retention, clock::now());
        if !due.is_empty() {
            tracing::info!(agents = due.len(), "what was kept of destroyed agents goes, as configured");
        }
        for agent in due {
            machine.tell(Input::Forget { agent }).await;
            tokio::time::sleep(PACE).await;
        }
    }
}

/// A destroyed agent, when that was, and whether it may go at all.
struct Archived {
    agent: AgentId,
    at: Timestamp,
    holds: bool,
}

fn dated(folder: &std::path::Path, record: &AgentRecord) -> Archived {
    let at = written_at(&folder.join("agent.json"));
    Archived { agent: record.agent, at, holds: holds_outputs(folder).is_some() }
}

/// Those beyond the number or the age.
fn due(mut archived: Vec<Archived>, retention: &RetentionConfig, now: Timestamp) -> Vec<AgentId> {
    archived.sort_by_key(|found| std::cmp::Reverse((found.at, found.agent)));
    let most = retention.archived_most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let is_old = |at: Timestamp| retention.archived_ms.is_some_and(|age| at.after_ms(age) <= now);
    let beyond = archived.into_iter().enumerate().filter(|(place, found)| *place >= most || is_old(found.at));
    beyond.filter(|(_, found)| !found.holds).map(|(_, found)| found.agent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archived(n: u64) -> Archived {
        Archived { agent: AgentId::from_parts(n, 0), at: Timestamp(n), holds: n == 2 }
    }

    #[test]
    fn the_oldest_beyond_number_or_age_go_but_never_the_only_copy_of_outputs() {
        let due = |archived_most, archived_ms| {
            let all = (1..=6).map(archived).collect();
            let retention = RetentionConfig { archived_most, archived_ms };
            let mut due: Vec<u64> = due(all, &retention, Timestamp(10))
                .into_iter()
                .map(|agent| (1..=6).find(|n| AgentId::from_parts(*n, 0) == agent).unwrap())
                .collect();
            due.sort_unstable();
            due
        };
        assert!(due(None, None).is_empty());
        assert_eq!(due(Some(3), None), [1, 3]);
        assert_eq!(due(None, Some(6)), [1, 3, 4]);
        assert_eq!(due(Some(1), Some(9)), [1, 3, 4, 5]);
    }
}
