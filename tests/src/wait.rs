//! Waits for a level, with a limit, and shows the last state when it is not reached.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Generous: a machine that runs many tests at once is slow, and no test here measures speed with it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How much longer than usual a wait may last, from `PHALANX_TEST_SLOW`; `deploy/v2` sets it, since its machine is
/// emulated instruction by instruction. 1 where it is not set.
///
/// # Panics
/// When it is no number above 0.
#[must_use]
pub fn slowness() -> u32 {
    let Some(text) = std::env::var_os("PHALANX_TEST_SLOW") else { return 1 };
    let number = text.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    number.expect("PHALANX_TEST_SLOW is a whole number above 0")
}

const PAUSE: Duration = Duration::from_millis(20);

/// Looks until what is seen is right.
///
/// # Panics
/// When it is not within `limit`, times [`slowness`]; the last state is in the message.
#[track_caller]
pub fn until<T: Debug>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> T,
    mut right: impl FnMut(&T) -> bool,
) -> T {
    let limit = limit * slowness();
    let begun = Instant::now();
    loop {
        let seen = look();
        if right(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}; last seen: {seen:#?}");
        pause(PAUSE);
    }
}

/// Lets time go by where it is time itself that is tested: a random instant of a fault, the length of a sample.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that sleeps; the callers wait for a level or a time"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
