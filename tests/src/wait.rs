//! Waits for a level, with a limit, and shows the last state when it is not reached.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Generous: a machine that runs many tests at once is slow, and no test here measures speed with it.
pub const LIMIT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// Looks until what is seen is right.
///
/// # Panics
/// When it is not within `limit`; the last state is in the message.
#[track_caller]
pub fn until<T: Debug>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> T,
    mut right: impl FnMut(&T) -> bool,
) -> T {
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
