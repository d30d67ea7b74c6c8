//! Who waits for a change of which subject. A waiter looks at the state first and again after each notice, so that
//! notices may be joined but a change after the look is never missed.

use std::collections::{BTreeMap, BTreeSet};

use manager_core::Subject;
use tokio::sync::watch;

/// The subjects of one waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Any change at all: for those whose subjects are not fixed.
    All,
    Subjects(BTreeSet<Subject>),
}

/// One notice channel per waiter, listed under each of its subjects. A waiter that is gone is forgotten at the next
/// notice.
#[derive(Debug, Default)]
pub struct Changes {
    next_waiter: u64,
    waiters: BTreeMap<u64, watch::Sender<u64>>,
    by_subject: BTreeMap<Subject, BTreeSet<u64>>,
    all: BTreeSet<u64>,
    count: u64,
}

impl Changes {
    /// A receiver that sees every change from now on.
    pub fn subscribe(&mut self, interest: Interest) -> watch::Receiver<u64> {
        let id = self.next_waiter;
        self.next_waiter += 1;
        let (sender, receiver) = watch::channel(self.count);
        self.waiters.insert(id, sender);
        match interest {
            Interest::All => {
                self.all.insert(id);
            }
            Interest::Subjects(subjects) => {
                for subject in subjects {
                    self.by_subject.entry(subject).or_default().insert(id);
                }
            }
        }
        receiver
    }

    pub fn notify(&mut self, subject: &Subject) {
        self.count += 1;
        let count = self.count;
        let waiters = &mut self.waiters;
        let mut tell = |id: &u64| {
            let here = waiters.get(id).is_some_and(|sender| sender.send(count).is_ok());
            if !here {
                waiters.remove(id);
            }
            here
        };
        self.all.retain(&mut tell);
        if let Some(ids) = self.by_subject.get_mut(subject) {
            ids.retain(&mut tell);
            if ids.is_empty() {
                self.by_subject.remove(subject);
            }
        }
    }

    /// Forgets waiters that are gone, also those whose subjects never change again.
    pub fn sweep(&mut self) {
        self.waiters.retain(|_, sender| !sender.is_closed());
        let waiters = &self.waiters;
        self.all.retain(|id| waiters.contains_key(id));
        self.by_subject.retain(|_, ids| {
            ids.retain(|id| waiters.contains_key(id));
            !ids.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use protocol::ids::AgentId;

    use super::*;

    fn agent(n: u128) -> Subject {
        Subject::Agent(AgentId::from_parts(1, n))
    }

    #[test]
    fn a_waiter_hears_of_its_subjects_and_of_no_others() {
        let mut changes = Changes::default();
        let mut one = changes.subscribe(Interest::Subjects([agent(1), agent(2)].into()));
        let mut all = changes.subscribe(Interest::All);
        changes.notify(&agent(3));
        assert!(!one.has_changed().unwrap());
        assert!(all.has_changed().unwrap());
        all.mark_unchanged();
        changes.notify(&agent(2));
        assert!(one.has_changed().unwrap());
        assert!(all.has_changed().unwrap());
        one.mark_unchanged();
        assert!(!one.has_changed().unwrap());
    }

    #[test]
    fn waiters_that_are_gone_are_forgotten() {
        let mut changes = Changes::default();
        drop(changes.subscribe(Interest::Subjects([agent(1)].into())));
        drop(changes.subscribe(Interest::All));
        changes.notify(&agent(1));
        assert!(changes.waiters.is_empty() && changes.by_subject.is_empty() && changes.all.is_empty());
        drop(changes.subscribe(Interest::Subjects([agent(1)].into())));
        changes.sweep();
        assert!(changes.waiters.is_empty() && changes.by_subject.is_empty());
    }
}
