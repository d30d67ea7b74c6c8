//! Lives many seeded worlds. `PHALANX_SIM_SEEDS=2000` sets how many, `PHALANX_SIM_SEED=n` replays one with
//! its log.
//!
//! Faults that were put into the cores by hand, one at a time, with 300 to 800 worlds, and who noticed:
//!
//! | fault | this simulation | rules of the cores |
//! | --- | --- | --- |
//! | hostd: orders of another incarnation count | no: tombstones are on the disk | yes |
//! | hostd: orders of an older generation count | no | yes |
//! | hostd: orders of an older leader count | no | yes |
//! | hostd: no tombstone for what it never saw | a request without an answer | yes |
//! | hostd: an ensure starts a known agent | started a second time | yes |
//! | hostd: a stop while creating is forgotten | no: too rare | yes |
//! | hostd: no kill after the grace | a request without an answer | yes |
//! | hostd: what is found unstarted is created though stopped | started without a record | yes |
//! | hostd: an end found at the start is not taken | the record differs from the processes | yes |
//! | hostd: a removal always discards | the only copy is removed | yes |
//! | hostd: effects before the record is saved | no | yes |
//! | hostd: adoption is not reported | no: the digest makes up for it | yes |
//! | hostd: a refused removal is forgotten | no | yes |
//! | hostd: a program's end is taken for the agent's | removed while it lives | yes |
//! | hostd: a lease lasts twice as long | outlives its lease | yes |
//! | manager: reports are ordered by number only | does not stay settled | yes, a rule made for it |
//! | manager: agents never heard of hold no slot | over the host's cap | |
//! | manager: agents never heard of have ended | over the run's cap | |
//! | manager: stop is never sent | stopped and lives | |
//! | manager: orders are not sent again | a request without an answer | |
//! | manager: outputs before writes | written after outputs | |
//! | manager: starts are not counted | over its budget | yes |
//! | manager: a failed verification accepts | never verified | |
//! | manager: dependencies do not wait | starts before its dependency | |
//! | manager: the key of a create dies with it | one key, two answers | |
//! | manager: a torn write is not mended | did not settle | |
//! | manager: a late report brings back the destroyed | no | yes |
//! | manager: the digest asks for nothing | the view differs from the host | |
//! | manager: no cap of runs, of hosts | over its cap, each | |
//! | manager: cancel leaves the attempt alone | no: programs end by themselves | yes |
//! | manager: tidying discards | the only copy is removed | |
//! | manager: a task moves before its lease is over | two live attempts | |
//!
//! An empty cell was not tried: the simulation had seen it.

use std::sync::atomic::{AtomicU64, Ordering};

use phalanx_tests::sim::{self, Outcome, log::Log};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn a_fleet_keeps_its_promises_through_a_storm_and_settles_after_it() {
    if let Some(seed) = number("PHALANX_SIM_SEED") {
        let outcome = sim::run_seed(seed, Log::kept());
        eprintln!("{}", outcome.log.join("\n"));
        assert_eq!(outcome.failure, None, "seed {seed}");
        return;
    }
    let seeds = number("PHALANX_SIM_SEEDS").unwrap_or(300);
    let next = AtomicU64::new(1);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut all: Vec<(u64, Outcome)> = std::thread::scope(|scope| {
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed > seeds {
                    return mine;
                }
                mine.push((seed, sim::run_seed(seed, Log::default())));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    let steps: u64 = all.iter().map(|(_, outcome)| outcome.steps).sum();
    let slowest = all.iter().max_by_key(|(_, outcome)| outcome.settled_ms);
    let slowest = slowest.map(|(seed, outcome)| (*seed, outcome.settled_ms));
    eprintln!("{seeds} worlds, {steps} steps, slowest to settle (seed, ms): {slowest:?}");
    let failed: Vec<String> = all
        .iter()
        .filter_map(|(seed, outcome)| Some(format!("  seed {seed}: {}", outcome.failure.as_ref()?)))
        .collect();
    let shown: Vec<&str> = failed.iter().take(10).map(String::as_str).collect();
    assert!(
        failed.is_empty(),
        "{} of {seeds} worlds broke a promise; replay one with PHALANX_SIM_SEED=n\n{}",
        failed.len(),
        shown.join("\n")
    );
}

#[test]
fn a_seed_is_the_whole_story() {
    let first = sim::run_seed(7, Log::kept());
    let second = sim::run_seed(7, Log::kept());
    assert!(first.log.len() > 50, "the replay says what happened");
    assert_eq!(first.log, second.log);
}
