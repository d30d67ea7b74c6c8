//! Sizes of workspaces for whoever looks at figures: counted now and then, one at a time, and remembered between. A look
//! never waits long for them, and a host of large workspaces does not count all day.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::ids::AgentId;
use protocol::time::Timestamp;

use super::measure::workspace_bytes;

/// A size is as good as new for so long, and for so many times as it took to count it.
const FRESH: Duration = Duration::from_secs(30);
const FRESH_TIMES: u32 = 50;
/// One turn of counting begins no other workspace after so long.
const TURN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Counted {
    bytes: u64,
    as_of: Timestamp,
    at: Instant,
    took: Duration,
}

#[derive(Debug, Default)]
pub struct Sizes {
    counted: Mutex<BTreeMap<AgentId, Counted>>,
    /// Held by the one who counts.
    turn: Mutex<()>,
}

impl Sizes {
    /// What is known of these, and since when.
    #[must_use]
    pub fn known(&self, agent: AgentId) -> Option<(u64, Timestamp)> {
        lock(&self.counted).get(&agent).map(|counted| (counted.bytes, counted.as_of))
    }

    /// Counts those that are not known or not fresh, the oldest first, as many as a turn takes. Blocks. Nothing when
    /// somebody counts already.
    pub fn count(&self, agents: &[(AgentId, PathBuf)], now: impl Fn() -> Timestamp) {
        let Ok(_turn) = self.turn.try_lock() else { return };
        let begun = Instant::now();
        let mut due: Vec<(Option<Instant>, &(AgentId, PathBuf))> = {
            let counted = lock(&self.counted);
            let with_age = agents.iter().map(|wanted| (counted.get(&wanted.0).copied(), wanted));
            let is_due = |known: &Option<Counted>| known.is_none_or(|known| !known.is_fresh());
            with_age
                .filter(|(known, _)| is_due(known))
                .map(|(known, wanted)| (known.map(|known| known.at), wanted))
                .collect()
        };
        due.sort_by_key(|(at, _)| *at);
        for (_, (agent, folder)) in due {
            if begun.elapsed() > TURN {
                return;
            }
            let at = Instant::now();
            if folder.symlink_metadata().is_err() {
                lock(&self.counted).remove(agent);
                continue;
            }
            let bytes = workspace_bytes(folder);
            let counted = Counted { bytes, as_of: now(), at, took: at.elapsed() };
            lock(&self.counted).insert(*agent, counted);
        }
    }

    /// Forgets what was long not asked for: agents that are gone are never asked for again.
    pub fn sweep(&self) {
        let is_of_use = |counted: &Counted| counted.at.elapsed() < FRESH * FRESH_TIMES;
        lock(&self.counted).retain(|_, counted| is_of_use(counted));
    }
}

impl Counted {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < FRESH.max(self.took.saturating_mul(FRESH_TIMES))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What was counted stays right after a panic elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_counted_once_while_it_is_fresh_and_a_folder_that_is_gone_has_none() {
        let temp = tempfile::tempdir().unwrap();
        let work = temp.path().join("work");
        std::fs::create_dir(&work).unwrap();
        std::fs::write(work.join("file"), vec![1; 100_000]).unwrap();
        let agent = AgentId::from_parts(1, 1);
        let wanted = [(agent, temp.path().to_path_buf())];
        let sizes = Sizes::default();
        assert_eq!(sizes.known(agent), None);
        sizes.count(&wanted, || Timestamp(7));
        let (bytes, as_of) = sizes.known(agent).unwrap();
        assert!((100_000..200_000).contains(&bytes) && as_of == Timestamp(7), "{bytes}");
        std::fs::write(work.join("more"), vec![1; 100_000]).unwrap();
        sizes.count(&wanted, || Timestamp(8));
        assert_eq!(sizes.known(agent), Some((bytes, Timestamp(7))));
        let gone = [(agent, temp.path().join("nowhere"))];
        lock(&sizes.counted).get_mut(&agent).unwrap().at = Instant::now() - 2 * FRESH;
        sizes.count(&gone, || Timestamp(9));
        assert_eq!(sizes.known(agent), None);
        let turn = sizes.turn.lock().unwrap();
        sizes.count(&wanted, || Timestamp(10));
        assert_eq!(sizes.known(agent), None, "somebody counts already");
        drop(turn);
    }
}
