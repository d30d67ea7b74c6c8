//! Servers that do not answer. One viewer can make a server do nothing else for ever, so one that has been silent for
//! long enough is ended: nothing is lost but views, which are made again on a new server. Until then whoever needs it is
//! told at once; only one at a time waits for its answer.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use super::server::{Shard, ShardState};
use super::{Tmux, TmuxError, lock, silence};

/// A server that has not answered for so long is ended. A machine under load makes one slow, by less than this.
const SILENT_LIMIT: Duration = Duration::from_secs(15);
/// How often a server that nothing is asked of is looked at.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// What is known of the silence of servers.
#[derive(Debug, Default)]
pub(super) struct Silence {
    since: Mutex<BTreeMap<Shard, Instant>>,
    probed: Mutex<BTreeMap<Shard, Instant>>,
}

impl Tmux {
    /// How a server is; one that has been silent for too long is ended, and absent then. The caller has its turn.
    pub(super) async fn look(&self, shard: Shard) -> ShardState {
        let begun = Instant::now();
        let state = self.servers.look(shard).await;
        if state != ShardState::Silent {
            lock(&self.silence.since).remove(&shard);
            return state;
        }
        let since = *lock(&self.silence.since).entry(shard).or_insert(begun);
        lock(&self.unwell).insert(shard);
        if since.elapsed() < SILENT_LIMIT {
            return state;
        }
        let server = match self.servers.running().await {
            Ok(servers) => servers.get(&shard).copied(),
            Err(_) => return state,
        };
        if let Some(server) = server {
            tracing::warn!(shard, pid = server.pid, "a tmux server that did not answer is replaced");
            if self.servers.end(server).await.is_err() {
                return state;
            }
        }
        lock(&self.silence.since).remove(&shard);
        lock(&self.unwell).remove(&shard);
        ShardState::Absent
    }

    /// Looks at a server that was not looked at for a while; at one that is silent again and again. For whoever keeps a
    /// session on it: one of them does it for all.
    pub(super) async fn probe_if_due(&self, shard: Shard) {
        {
            let mut probed = lock(&self.silence.probed);
            let is_silent = lock(&self.silence.since).contains_key(&shard);
            let is_due = probed.get(&shard).is_none_or(|at| is_silent || at.elapsed() >= PROBE_EVERY);
            if !is_due {
                return;
            }
            probed.insert(shard, Instant::now());
        }
        let guard = self.guard(shard);
        // Whoever has its turn looks at it.
        let Ok(_changing) = guard.try_lock() else { return };
        self.look(shard).await;
    }

    /// Nobody waits in line for a server that is known not to answer.
    pub(super) fn refuse_silent(&self, shard: Shard) -> Result<(), TmuxError> {
        let is_silent = lock(&self.silence.since).contains_key(&shard);
        // The one that has a session there probes it until it answers or is replaced.
        let is_probed = lock(&self.silence.probed).get(&shard).is_some_and(|at| at.elapsed() < PROBE_EVERY);
        if is_silent && is_probed { Err(silence(shard)) } else { Ok(()) }
    }
}
