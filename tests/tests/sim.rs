//! Lives many seeded worlds. `PHALANX_SIM_SEEDS=2000` sets how many, `PHALANX_SIM_SEED=n` replays one with its log.

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
