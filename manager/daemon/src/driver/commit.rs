//! Output commit: what a decision lets out waits until all that it and every earlier decision wrote is durable.
//!
//! Pure. Decisions come in as writes and outputs; batches of writes go out, one at a time, so that many decisions
//! share one (group commit); an acknowledged batch sets outputs free, in order.
//!
//! A batch is a few layers, each durable before the next is begun: a decision's own writes come in the order of the
//! layers ([`Layer`]), so a crash leaves of each decision what it says may be left. Decisions of one batch cannot stand
//! on each other through the outside, which has seen none of them. Of several values of a key a batch holds the last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use manager_core::{StoredRecord, record};

/// Writes that wait for the store beyond which no new wish is taken.
pub const WRITES_WAITING: usize = 20_000;
/// A batch ends with the decision that fills it: bounds how long its first output waits for its last write.
const BATCH_WRITES: usize = 1_024;
/// Bucket of sealed environments.
pub const SECRETS: &str = "secrets";

/// The order in which the writes of one decision become durable: the order in which the core gives them, with the
/// removal of secrets last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Sealed,
    Tasks,
    Runs,
    Desired,
    Messages,
    Requests,
    Forgotten,
}

impl Layer {
    fn of(record: &StoredRecord) -> Self {
        match record.bucket {
            SECRETS if record.value.is_some() => Self::Sealed,
            SECRETS => Self::Forgotten,
            record::TASKS => Self::Tasks,
            record::RUNS => Self::Runs,
            record::DESIRED => Self::Desired,
            record::OUTBOX => Self::Messages,
            _ => Self::Requests,
        }
    }
}

/// Buckets and keys.
pub type Keys = BTreeSet<(&'static str, String)>;

/// Writes for the store, layer by layer; no key twice in a layer.
pub type Batch = Vec<Vec<StoredRecord>>;

#[derive(Debug)]
struct Decision<O> {
    writes: Vec<StoredRecord>,
    outputs: Vec<O>,
}

/// Outputs that wait for writes.
#[derive(Debug)]
pub struct Commit<O> {
    waiting: VecDeque<Decision<O>>,
    writes_waiting: usize,
    /// What the batch under way sets free, and how many writes it stands for.
    under_way: Option<(Vec<O>, usize)>,
    /// The keys that it writes.
    writing: Keys,
}

impl<O> Default for Commit<O> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), writes_waiting: 0, under_way: None, writing: Keys::new() }
    }
}

impl<O> Commit<O> {
    /// Takes the writes and outputs of one decision; returns the outputs that wait for nothing.
    pub fn push(&mut self, writes: Vec<StoredRecord>, outputs: Vec<O>) -> Vec<O> {
        if writes.is_empty() && self.waiting.is_empty() && self.under_way.is_none() {
            return outputs;
        }
        self.writes_waiting += writes.len();
        self.waiting.push_back(Decision { writes, outputs });
        Vec::new()
    }

    /// The next writes for the store; none while a batch is under way. A batch may be empty where decisions without
    /// writes waited for the one before.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return None;
        }
        let mut layers: BTreeMap<Layer, BTreeMap<(&'static str, String), StoredRecord>> = BTreeMap::new();
        let (mut free, mut count) = (Vec::new(), 0);
        while count < BATCH_WRITES
            && let Some(decision) = self.waiting.pop_front()
        {
            count += decision.writes.len();
            free.extend(decision.outputs);
            for write in decision.writes {
                let key = (write.bucket, write.key.clone());
                layers.entry(Layer::of(&write)).or_default().insert(key, write);
            }
        }
        self.writes_waiting -= count;
        self.under_way = Some((free, count));
        self.writing = layers.values().flat_map(|layer| layer.keys().cloned()).collect();
        Some(layers.into_values().map(|layer| layer.into_values().collect()).collect())
    }

    /// The batch under way is durable; returns the outputs that this sets free.
    pub fn acknowledged(&mut self) -> Vec<O> {
        let (mut free, _) = self.under_way.take().unwrap_or_default();
        self.writing.clear();
        while let Some(decision) = self.waiting.pop_front_if(|decision| decision.writes.is_empty()) {
            free.extend(decision.outputs);
        }
        free
    }

    /// Writes that are not durable yet.
    #[must_use]
    pub fn unwritten(&self) -> u64 {
        let under_way = self.under_way.as_ref().map_or(0, |(_, count)| *count);
        u64::try_from(self.writes_waiting + under_way).unwrap_or(u64::MAX)
    }

    /// The keys of which the store may not have the last value yet.
    #[must_use]
    pub fn open_keys(&self) -> Keys {
        let waiting = self.waiting.iter().flat_map(|decision| &decision.writes);
        let waiting = waiting.map(|write| (write.bucket, write.key.clone()));
        self.writing.iter().cloned().chain(waiting).collect()
    }

    /// Whether so much waits that new wishes must be refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.writes_waiting >= WRITES_WAITING
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(bucket: &'static str, key: u8, value: u8) -> StoredRecord {
        StoredRecord { bucket, key: key.to_string(), value: Some(vec![value]) }
    }

    fn task(key: u8, value: u8) -> StoredRecord {
        write(record::TASKS, key, value)
    }

    #[test]
    fn outputs_without_writes_leave_at_once_unless_earlier_ones_wait() {
        let mut commit = Commit::default();
        assert_eq!(commit.push(vec![], vec![1]), [1]);
        assert!(commit.push(vec![task(1, 1)], vec![2]).is_empty());
        assert!(commit.push(vec![], vec![3]).is_empty());
        assert_eq!(commit.next_batch().unwrap().concat().len(), 1);
        assert!(commit.push(vec![], vec![4]).is_empty());
        assert_eq!(commit.acknowledged(), [2, 3, 4]);
        assert_eq!(commit.push(vec![], vec![5]), [5]);
    }

    #[test]
    fn a_decision_that_comes_while_a_batch_is_under_way_waits_for_the_next_one() {
        let mut commit = Commit::default();
        commit.push(vec![task(1, 1)], vec!["a"]);
        commit.next_batch().unwrap();
        commit.push(vec![task(2, 1)], vec!["b"]);
        commit.push(vec![task(3, 1)], vec!["c"]);
        assert!(commit.next_batch().is_none(), "one at a time");
        assert_eq!(commit.unwritten(), 3);
        assert_eq!(commit.acknowledged(), ["a"]);
        assert_eq!(commit.next_batch().unwrap().concat().len(), 2, "the two share a batch");
        assert_eq!(commit.unwritten(), 2);
        assert_eq!(commit.acknowledged(), ["b", "c"]);
        assert_eq!(commit.unwritten(), 0);
    }

    #[test]
    fn what_makes_a_thing_whole_is_written_after_its_parts_and_the_answer_last() {
        let mut commit = Commit::default();
        let forgotten = StoredRecord { bucket: SECRETS, key: "x".to_owned(), value: None };
        commit.push(
            vec![write(SECRETS, 1, 1), task(1, 1), write(record::RUNS, 1, 1), write(record::REQUESTS, 1, 1)],
            vec![()],
        );
        commit.push(vec![task(1, 2), write(record::DESIRED, 1, 1), forgotten.clone()], vec![()]);
        let batch = commit.next_batch().unwrap();
        assert_eq!(
            batch,
            [
                vec![write(SECRETS, 1, 1)],
                vec![task(1, 2)],
                vec![write(record::RUNS, 1, 1)],
                vec![write(record::DESIRED, 1, 1)],
                vec![write(record::REQUESTS, 1, 1)],
                vec![forgotten],
            ]
        );
    }

    proptest! {
        /// Against the plain reading of the rule: when an output leaves, what its decision and those before it wrote
        /// is in the store, or a later value of the key is.
        #[test]
        fn no_output_leaves_before_the_writes_that_it_stands_on(
            steps in prop::collection::vec(
                (0_u8..4, prop::collection::vec((0_u8..3, 0_u8..3), 0..4)), 1..200)
        ) {
            const BUCKETS: [&str; 3] = [record::TASKS, record::DESIRED, record::REQUESTS];
            let mut commit = Commit::default();
            // Values count up, so that a later one is a larger one.
            let mut count = 0_u32;
            let mut wanted: Vec<BTreeMap<(&str, String), u32>> = Vec::new();
            let mut stored: BTreeMap<(&str, String), u32> = BTreeMap::new();
            let mut under_way: Option<Batch> = None;
            let mut next_out = 0;
            for (step, writes) in steps {
                let mut out = Vec::new();
                match step {
                    0 | 1 => {
                        let mut after = wanted.last().cloned().unwrap_or_default();
                        let mut records = Vec::new();
                        for (bucket, key) in writes {
                            count += 1;
                            let bucket = BUCKETS[usize::from(bucket)];
                            let value = Some(count.to_be_bytes().to_vec());
                            after.insert((bucket, key.to_string()), count);
                            records.push(StoredRecord { bucket, key: key.to_string(), value });
                        }
                        wanted.push(after);
                        out = commit.push(records, vec![wanted.len() - 1]);
                    }
                    2 => if let Some(batch) = commit.next_batch() {
                        prop_assert!(under_way.is_none());
                        under_way = Some(batch);
                    },
                    _ => if let Some(batch) = under_way.take() {
                        for record in batch.concat() {
                            let value = record.value.unwrap().try_into().unwrap();
                            stored.insert((record.bucket, record.key), u32::from_be_bytes(value));
                        }
                        out = commit.acknowledged();
                    },
                }
                for index in out {
                    prop_assert_eq!(index, next_out, "outputs keep their order");
                    next_out += 1;
                    for (key, value) in &wanted[index] {
                        prop_assert!(stored.get(key).is_some_and(|held| held >= value));
                    }
                }
            }
        }
    }
}
