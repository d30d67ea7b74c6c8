//! Caps per label: so many tasks with a label are live at once at most, in a run or in the whole installation. Counted
//! by the states of tasks, so that a restart changes nothing. Leaves to others: who is next.

use std::collections::BTreeMap;

use protocol::ids::RunId;

/// Which caps a task counts against. Tasks of one set are alike to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapSet(usize);

/// One cap, and what counts against it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// `None`: of the whole installation.
    pub run: Option<RunId>,
    pub label: String,
    pub most: u32,
    live: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Caps {
    installation: BTreeMap<String, u32>,
    caps: Vec<Cap>,
    places: BTreeMap<(Option<RunId>, String), usize>,
    /// The first is that of tasks without any.
    sets: Vec<Vec<usize>>,
    known: BTreeMap<Vec<usize>, CapSet>,
}

impl Default for Caps {
    fn default() -> Self {
        Self::new(BTreeMap::new())
    }
}

/// Whether `label`, which is `KEY=VALUE`, or `KEY` for any value, is among the labels.
fn selects(label: &str, labels: &BTreeMap<String, String>) -> bool {
    match label.split_once('=') {
        Some((key, value)) => labels.get(key).is_some_and(|found| found == value),
        None => labels.contains_key(label),
    }
}

/// Whether a cap can be written so.
///
/// # Errors
/// What is wrong with it.
pub fn check(label: &str, most: u32) -> Result<(), String> {
    let key = label.split_once('=').map_or(label, |(key, _)| key);
    if key.trim().is_empty() || key.trim() != key || label.chars().any(char::is_control) {
        return Err(format!("{label:?} is no label: write KEY=VALUE, or KEY for any value"));
    }
    if most == 0 {
        return Err(format!("{label}: with 0 nothing with this label would ever start"));
    }
    Ok(())
}

impl Caps {
    #[must_use]
    pub fn new(installation: BTreeMap<String, u32>) -> Self {
        let known = BTreeMap::from([(Vec::new(), CapSet(0))]);
        Self { installation, caps: Vec::new(), places: BTreeMap::new(), sets: vec![Vec::new()], known }
    }

    /// The caps that bind a task of these labels.
    pub fn set_of(
        &mut self,
        run: RunId,
        of_run: &BTreeMap<String, u32>,
        labels: &BTreeMap<String, String>,
    ) -> CapSet {
        let of_run = of_run.iter().map(|(label, most)| (Some(run), label, *most));
        let all = self.installation.iter().map(|(label, most)| (None, label, *most));
        let binding = of_run.chain(all).filter(|(_, label, _)| selects(label, labels));
        let binding: Vec<Cap> =
            binding.map(|(run, label, most)| Cap { run, label: label.clone(), most, live: 0 }).collect();
        let places: Vec<usize> = binding.into_iter().map(|cap| self.place_of(cap)).collect();
        let next = CapSet(self.sets.len());
        let set = *self.known.entry(places.clone()).or_insert(next);
        if set == next {
            self.sets.push(places);
        }
        set
    }

    fn place_of(&mut self, cap: Cap) -> usize {
        let next = self.caps.len();
        let place = *self.places.entry((cap.run, cap.label.clone())).or_insert(next);
        if place == next {
            self.caps.push(cap);
        }
        place
    }

    /// A cap of a run that tasks count against already is another from now on.
    pub fn set_most(&mut self, run: RunId, label: &str, most: u32) {
        let place = self.places.get(&(Some(run), label.to_owned()));
        if let Some(cap) = place.and_then(|place| self.caps.get_mut(*place)) {
            cap.most = most;
        }
    }

    fn places(&self, set: CapSet) -> &[usize] {
        self.sets.get(set.0).map_or(&[], Vec::as_slice)
    }

    pub fn take(&mut self, set: CapSet) {
        self.change(set, |live| live.saturating_add(1));
    }

    pub fn give_back(&mut self, set: CapSet) {
        self.change(set, |live| live.saturating_sub(1));
    }

    fn change(&mut self, set: CapSet, change: impl Fn(u32) -> u32) {
        let Some(places) = self.sets.get(set.0) else { return };
        for place in places {
            if let Some(cap) = self.caps.get_mut(*place) {
                cap.live = change(cap.live);
            }
        }
    }

    /// What may still be started while a plan is made.
    #[must_use]
    pub fn free(&self) -> Free<'_> {
        Free { caps: self, taken: BTreeMap::new() }
    }
}

/// The caps with what a plan has given away of them.
#[derive(Clone, Debug)]
pub struct Free<'a> {
    caps: &'a Caps,
    taken: BTreeMap<usize, u32>,
}

impl Free<'_> {
    /// The first cap of the set that lets nothing more start.
    #[must_use]
    pub fn full(&self, set: CapSet) -> Option<&Cap> {
        let full = |place: &&usize| {
            let taken = self.taken.get(place).copied().unwrap_or(0);
            self.caps.caps.get(**place).is_some_and(|cap| cap.live.saturating_add(taken) >= cap.most)
        };
        let place = self.caps.places(set).iter().find(full)?;
        self.caps.caps.get(*place)
    }

    pub fn take(&mut self, set: CapSet) {
        for place in self.caps.places(set) {
            *self.taken.entry(*place).or_insert(0) += 1;
        }
    }
}
