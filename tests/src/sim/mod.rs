//! A seeded simulation of a whole fleet: the real cores of manager and hostd, on a network that loses a
//! fifth, doubles a fifth and reorders all, on machines that reboot, with processes that die between any two
//! effects. After a minute and a half of virtual time, in some worlds a quarter of an hour, the faults end;
//! the fleet must then settle and stay settled.
//!
//! `world` owns time and programs, `network` the mail, `machine` disks and processes, `store` what the bus
//! keeps; `hostd` and `manager` are the shells around the cores; `operator` plans the requests, `messages` those of texts, `faults` the
//! storm; `oracle` judges. A seed is the whole story: the same seed gives the same world.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a simulation is test code: machines are numbered by it, and names it makes up parse"
)]

pub mod dice;
pub mod faults;
pub mod hostd;
pub mod log;
pub mod machine;
pub mod manager;
pub mod messages;
pub mod network;
pub mod operator;
pub mod oracle;
pub mod store;
pub mod world;

use log::Log;
use world::{EPOCH_MS, World};

/// … and then nothing changes for so long.
const QUIET_MS: u64 = 90_000;
const LOOK_EVERY_MS: u64 = 5_000;

/// What became of a seed.
#[derive(Debug)]
pub struct Outcome {
    pub steps: u64,
    /// When it settled, ms of virtual time.
    pub settled_ms: u64,
    /// The promise that was broken, if one was.
    pub failure: Option<String>,
    pub log: Vec<String>,
}

/// Lives one world to its end.
#[must_use]
pub fn run_seed(seed: u64, log: Log) -> Outcome {
    let mut world = World::new(seed, log);
    world.run_until(EPOCH_MS + world.storm_ms);
    let failure = settle(&mut world);
    let settled_ms = world.now - EPOCH_MS;
    let failure = failure.or_else(|| {
        world.run_until(world.now + QUIET_MS);
        let later = world.differences();
        let broken = world.oracle.verdict().map(str::to_owned);
        broken.or_else(|| (!later.is_empty()).then(|| format!("did not stay settled: {}", later.join("; "))))
    });
    Outcome { steps: world.steps, settled_ms, failure, log: world.log.into_lines() }
}

fn settle(world: &mut World) -> Option<String> {
    loop {
        if let Some(broken) = world.oracle.verdict() {
            return Some(broken.to_owned());
        }
        let differences = world.differences();
        if differences.is_empty() {
            return None;
        }
        if world.now > EPOCH_MS + world.storm_ms + world.settle_ms() {
            return Some(format!("did not settle: {}", differences.join("; ")));
        }
        world.run_until(world.now + LOOK_EVERY_MS);
    }
}
