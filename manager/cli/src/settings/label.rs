//! The words of `label`: agents first, then `k=v` to set and `k-` to take away.

use std::collections::BTreeMap;

use protocol::api::Change;

use super::super::args::agent::Targets;
use super::super::args::settings::Label;
use super::super::error::Failure;

pub(super) fn read(args: &Label) -> Result<(Targets, Change), Failure> {
    let is_change = |word: &&String| word.contains('=') || (word.len() > 1 && word.ends_with('-'));
    // The changes come last: an agent's name may look like one.
    let agents = args.words.len() - args.words.iter().rev().take_while(is_change).count();
    let (targets, changes) = args.words.split_at_checked(agents).unwrap_or_default();
    let (mut set, mut remove) = (BTreeMap::new(), Vec::new());
    for word in changes {
        let twice = match word.split_once('=') {
            Some(("", _)) => {
                return Err(Failure::usage(format!("{word:?} has no key; write it as key=value")));
            }
            Some((key, value)) => set.insert(key.to_owned(), value.to_owned()).is_some(),
            None => {
                let key = word.strip_suffix('-').unwrap_or(word).to_owned();
                let twice = remove.contains(&key);
                remove.push(key);
                twice
            }
        };
        if twice {
            return Err(Failure::usage(format!("{word:?}: its key is there twice")));
        }
    }
    if set.is_empty() && remove.is_empty() {
        return Err(Failure::usage("no label is given").hint("phalanx label AGENT team=core old-"));
    }
    let targets = Targets { targets: targets.to_vec(), labels: args.labels.clone() };
    Ok((targets, Change::Label { set, remove }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Result<(Targets, Change), Failure> {
        let change = super::super::super::args::agent::Change { yes: true, no_wait: false, key: None };
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        read(&Label { words, labels: Vec::new(), change })
    }

    #[test]
    fn agents_come_first_and_changes_last() {
        let (agents, change) = words(&["a", "odd-", "b", "team=core", "old-", "url=x=y", "empty="]).unwrap();
        assert_eq!(agents.targets, ["a", "odd-", "b"]);
        let Change::Label { set, remove } = change else { panic!("{change:?}") };
        let set: Vec<_> = set.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(
            (set, remove),
            (vec![("empty", ""), ("team", "core"), ("url", "x=y")], vec!["old".to_owned()])
        );
    }

    #[test]
    fn nothing_to_change_a_key_twice_and_no_key_are_refused() {
        for wrong in [&["a"][..], &["a", "k=1", "k=2"], &["a", "k-", "k-"], &["a", "=v"]] {
            assert_eq!(words(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
    }
}
