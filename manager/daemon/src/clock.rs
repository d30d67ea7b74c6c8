//! Time and randomness for the core. Time is the wall clock of the start plus what has passed since on a clock that
//! nobody can set and that counts while the machine sleeps: a wall clock that is set forward must not end a lease.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use protocol::time::Timestamp;

/// Cheap to clone; all clones agree.
#[derive(Clone)]
pub struct Clock {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Clock {
    #[must_use]
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let wall = u64::try_from(wall).unwrap_or(u64::MAX);
        let begun = boot_ms();
        Self::of(move || Timestamp(wall.saturating_add(boot_ms().saturating_sub(begun))))
    }

    /// A clock of the caller's: for tests.
    pub fn of(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { now: Arc::new(now) }
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// 128 bits of the system's randomness.
    #[must_use]
    pub fn random(&self) -> u128 {
        let mut bytes = [0_u8; 16];
        if let Err(error) = getrandom::fill(&mut bytes) {
            // Never seen on Linux ≥ 3.17 (getrandom(2)); ids made of the time alone are still distinct.
            tracing::error!(%error, "the system gives no random bytes");
            let mixed = u128::from(boot_ms()) << 64 | u128::from(std::process::id());
            return mixed ^ u128::from(self.now().0);
        }
        u128::from_ne_bytes(bytes)
    }
}

fn boot_ms() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds.saturating_mul(1_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0) / 1_000_000)
    })
}
