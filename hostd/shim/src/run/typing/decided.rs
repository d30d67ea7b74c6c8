//! What became of the last messages, by their ids: whoever asks again gets the first outcome, and nothing is typed a
//! second time. Holds outcomes of texts of which something was typed; one that left no byte may be tried again.

use std::collections::VecDeque;

use protocol::shim::{TypeOutcome, Typed};

/// hostd has one message of an agent under way at a time and asks again about that one only.
const KEPT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Decided {
    last: VecDeque<(String, Typed)>,
}

impl Decided {
    pub(crate) fn note(&mut self, id: String, typed: Typed) {
        if typed.outcome == TypeOutcome::NotDelivered {
            return;
        }
        if let Some((_, known)) = self.last.iter_mut().rev().find(|(known, _)| *known == id) {
            // Enter was pressed once more: the outcome stays, what was shown before the last Enter is news.
            if known.outcome == typed.outcome {
                *known = typed;
            }
            return;
        }
        if self.last.len() >= KEPT {
            self.last.pop_front();
        }
        self.last.push_back((id, typed));
    }

    pub(crate) fn of(&self, id: &str) -> Option<Typed> {
        self.last.iter().rev().find(|(known, _)| known == id).map(|(_, typed)| *typed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(outcome: TypeOutcome) -> Typed {
        Typed { outcome, bracketed: false, draft_possible: 0, entered_at: None }
    }

    #[test]
    fn the_first_outcome_stays_and_the_memory_is_bounded() {
        let mut decided = Decided::default();
        decided.note("a".to_owned(), typed(TypeOutcome::Unknown));
        decided.note("a".to_owned(), typed(TypeOutcome::Delivered));
        decided.note("b".to_owned(), typed(TypeOutcome::NotDelivered));
        assert_eq!(decided.of("a").unwrap().outcome, TypeOutcome::Unknown);
        assert_eq!(decided.of("b"), None, "it may be tried again");
        for n in 0..KEPT {
            decided.note(n.to_string(), typed(TypeOutcome::Delivered));
        }
        assert_eq!((decided.of("a"), decided.last.len()), (None, KEPT));
    }
}
