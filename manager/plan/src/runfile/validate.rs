//! What only all tasks together show: doubles, dependencies that are missing, cycles. Pure.

use std::collections::BTreeMap;

use super::problem::{Collector, suggestion};
use super::task::PlannedTask;

/// Names that are shown of a long cycle.
const CYCLE_SHOWN: usize = 10;

pub fn check(tasks: &[PlannedTask], problems: &mut Collector) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, task) in tasks.iter().enumerate() {
        let name = task.spec.name.as_str();
        if let Some(first) = places.get(name).and_then(|first| tasks.get(*first)) {
            let message = format!("the name is already taken in {}", problems.shown(first.at));
            problems.add_to_task(task.at, name, message);
        } else {
            places.insert(name, index);
        }
    }
    let mut parents: Vec<Vec<usize>> = Vec::with_capacity(tasks.len());
    for task in tasks {
        let mut found = Vec::new();
        let waits_for = [("depends_on", &task.spec.depends_on), ("after", &task.spec.after)];
        let waits_for =
            waits_for.into_iter().flat_map(|(key, names)| names.iter().map(move |name| (key, name)));
        for (key, parent) in waits_for {
            match places.get(parent.as_str()) {
                Some(index) => found.push(*index),
                None => {
                    let hint = if tasks.len() > 1000 {
                        String::new()
                    } else {
                        suggestion(parent.as_str(), places.keys().copied())
                    };
                    let message = format!("{key} names {:?}, which is no task{hint}", parent.as_str());
                    problems.add_to_task(task.at, task.spec.name.as_str(), message);
                }
            }
        }
        parents.push(found);
    }
    if let Some(cycle) = find_cycle(&parents) {
        let names: Vec<&str> =
            cycle.iter().filter_map(|index| tasks.get(*index)).map(|task| task.spec.name.as_str()).collect();
        let at = cycle.first().and_then(|index| tasks.get(*index)).map(|task| task.at).unwrap_or_default();
        problems.add(at, format!("the tasks depend on each other in a circle: {}", shown(&names)));
    }
}

/// `a → b → a`, the middle of a long one left out.
fn shown(names: &[&str]) -> String {
    let mut words: Vec<String> = names.iter().take(CYCLE_SHOWN).map(|name| (*name).to_owned()).collect();
    if names.len() > CYCLE_SHOWN {
        words.push(format!("… {} more …", names.len() - CYCLE_SHOWN));
    }
    words.extend(names.first().map(|name| (*name).to_owned()));
    words.join(" → ")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    Open,
    Done,
}

/// The first cycle, as the indices on it. Iterative: a chain may be as long as the file.
fn find_cycle(parents: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut marks = vec![Mark::New; parents.len()];
    for root in 0..parents.len() {
        if marks.get(root) != Some(&Mark::New) {
            continue;
        }
        let mut path: Vec<(usize, usize)> = vec![(root, 0)];
        while let Some((node, next)) = path.last_mut() {
            if let Some(mark) = marks.get_mut(*node) {
                *mark = Mark::Open;
            }
            let Some(parent) = parents.get(*node).and_then(|list| list.get(*next)).copied() else {
                if let Some(mark) = marks.get_mut(*node) {
                    *mark = Mark::Done;
                }
                path.pop();
                continue;
            };
            *next += 1;
            match marks.get(parent) {
                Some(Mark::Open) => {
                    let on_path = path.iter().map(|(node, _)| *node);
                    return Some(on_path.skip_while(|node| *node != parent).collect());
                }
                Some(Mark::New) => path.push((parent, 0)),
                Some(Mark::Done) | None => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found_and_a_diamond_is_none() {
        assert_eq!(find_cycle(&[vec![1], vec![2], vec![1]]), Some(vec![1, 2]));
        assert_eq!(find_cycle(&[vec![0]]), Some(vec![0]));
        assert_eq!(find_cycle(&[vec![1, 2], vec![3], vec![3], vec![]]), None);
    }

    #[test]
    fn a_chain_of_100_000_needs_no_stack() {
        let mut parents: Vec<Vec<usize>> = (0..100_000).map(|index| vec![index + 1]).collect();
        parents.push(Vec::new());
        assert_eq!(find_cycle(&parents), None);
        parents[100_000].push(0);
        assert_eq!(find_cycle(&parents).map(|cycle| cycle.len()), Some(100_001));
    }
}
