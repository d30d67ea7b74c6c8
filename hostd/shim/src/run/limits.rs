//! When a program must end: wall time, lease, or the shim being told to end. Decides only; the loop carries out.
//!
//! ```text
//! Open ──limit reached──> Grace (SIGTERM sent) ──grace over──> Killing (SIGKILL, again each second)
//! ```
//! There is no way back: a lease renewed too late stays run out.

use protocol::shim::Limit;

/// Something new may be born between the look and the kill.
const KILL_AGAIN_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Grace { limit: Limit, kill_at: u64 },
    Killing { limit: Limit, again_at: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Terminate,
    Kill,
}

/// All times in milliseconds of `CLOCK_BOOTTIME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    started: u64,
    wall_time: Option<u64>,
    lease: Option<u64>,
    grace: u64,
    told_to_end: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotRenewable {
    #[error("a limit has been reached and the program is being ended")]
    Ending,
    #[error("the lease runs until {0} already")]
    NotForward(u64),
}

impl Limits {
    pub(crate) const fn new(started: u64, wall_time: Option<u64>, lease: Option<u64>, grace: u64) -> Self {
        Self { started, wall_time, lease, grace, told_to_end: false, state: State::Open }
    }

    /// What is to be done now; asked again after each action.
    pub(crate) fn tick(&mut self, now: u64) -> Option<Action> {
        match self.state {
            State::Open => {
                let (at, limit) = self.nearest()?;
                if at > now {
                    return None;
                }
                self.state = State::Grace { limit, kill_at: now.saturating_add(self.grace) };
                Some(Action::Terminate)
            }
            State::Grace { limit, kill_at: due } | State::Killing { limit, again_at: due } => {
                if due > now {
                    return None;
                }
                self.state = State::Killing { limit, again_at: now.saturating_add(KILL_AGAIN_MS) };
                Some(Action::Kill)
            }
        }
    }

    /// When [`Self::tick`] has something to say next.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Open => self.nearest().map(|(at, _)| at),
            State::Grace { kill_at: due, .. } | State::Killing { again_at: due, .. } => Some(due),
        }
    }

    fn nearest(&self) -> Option<(u64, Limit)> {
        let wall = self.wall_time.map(|ms| (self.started.saturating_add(ms), Limit::WallTime));
        let lease = self.lease.map(|at| (at, Limit::Lease));
        let told = self.told_to_end.then_some((0, Limit::ShimTerminated));
        [told, wall, lease].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The limit that ends the program.
    pub(crate) const fn reached(&self) -> Option<Limit> {
        match self.state {
            State::Open => None,
            State::Grace { limit, .. } | State::Killing { limit, .. } => Some(limit),
        }
    }

    pub(crate) const fn tell_to_end(&mut self) {
        self.told_to_end = true;
    }

    pub(crate) fn renew_lease(&mut self, now: u64, deadline: u64) -> Result<(), NotRenewable> {
        if self.state != State::Open || self.lease.is_some_and(|at| at <= now) {
            return Err(NotRenewable::Ending);
        }
        if let Some(at) = self.lease.filter(|&at| at > deadline) {
            return Err(NotRenewable::NotForward(at));
        }
        self.lease = Some(deadline);
        Ok(())
    }

    pub(crate) fn set_wall_time(&mut self, wall_time: Option<u64>) -> Result<(), NotRenewable> {
        if self.state != State::Open {
            return Err(NotRenewable::Ending);
        }
        self.wall_time = wall_time;
        Ok(())
    }

    pub(crate) const fn wall_time(&self) -> Option<u64> {
        self.wall_time
    }

    pub(crate) const fn lease(&self) -> Option<u64> {
        self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_limits_nothing_ends() {
        let mut limits = Limits::new(5, None, None, 100);
        assert_eq!((limits.tick(u64::MAX), limits.deadline(), limits.reached()), (None, None, None));
    }

    #[test]
    fn the_grace_lies_between_term_and_kill_and_kill_is_repeated() {
        let mut limits = Limits::new(1000, Some(500), None, 100);
        assert_eq!(limits.deadline(), Some(1500));
        assert_eq!(limits.tick(1499), None);
        assert_eq!(limits.tick(1500), Some(Action::Terminate));
        assert_eq!(limits.tick(1599), None);
        assert_eq!(limits.tick(1600), Some(Action::Kill));
        assert_eq!(limits.tick(1601), None);
        assert_eq!(limits.tick(2600), Some(Action::Kill));
        assert_eq!(limits.reached(), Some(Limit::WallTime));
    }

    #[test]
    fn the_limit_reached_first_is_the_cause() {
        let mut limits = Limits::new(0, Some(500), Some(400), 100);
        limits.tick(1000);
        assert_eq!(limits.reached(), Some(Limit::Lease));
    }

    #[test]
    fn a_lease_moves_forward_only_and_never_after_its_end() {
        let mut limits = Limits::new(0, None, Some(400), 100);
        assert_eq!(limits.renew_lease(100, 399), Err(NotRenewable::NotForward(400)));
        assert_eq!(limits.renew_lease(100, 400), Ok(()));
        assert_eq!(limits.renew_lease(100, 600), Ok(()));
        assert_eq!(limits.renew_lease(600, 900), Err(NotRenewable::Ending));
        limits.tick(600);
        assert_eq!(limits.renew_lease(601, 900), Err(NotRenewable::Ending));
    }

    #[test]
    fn a_shim_told_to_end_ends_its_program_at_once() {
        let mut limits = Limits::new(0, Some(500), None, 100);
        limits.tell_to_end();
        assert_eq!(limits.tick(3), Some(Action::Terminate));
        assert_eq!(limits.reached(), Some(Limit::ShimTerminated));
    }

    proptest! {
        #[test]
        fn a_deadline_told_is_the_moment_of_the_next_action(
            wall in prop::option::of(0_u64..5000), lease in prop::option::of(0_u64..5000), grace in 0_u64..3000,
            steps in prop::collection::vec((0_u64..2000, prop::option::of(0_u64..9000)), 0..30),
        ) {
            let mut limits = Limits::new(100, wall, lease, grace);
            let (mut now, mut killed) = (100, false);
            for (later, renewal) in steps {
                if let Some(deadline) = renewal {
                    let before = limits.clone();
                    if limits.renew_lease(now, deadline).is_err() {
                        prop_assert_eq!(&before, &limits);
                    }
                }
                now += later;
                let due = limits.deadline().is_some_and(|at| at <= now);
                let action = limits.tick(now);
                prop_assert_eq!(action.is_some(), due);
                prop_assert!(!(killed && action == Some(Action::Terminate)), "no way back");
                killed |= action == Some(Action::Kill);
            }
        }
    }
}
