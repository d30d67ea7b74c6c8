//! The order in which bytes go into the program's terminal: what people type as it comes, and texts in one piece with
//! their Enter, with nothing of anyone else between. Decides what may be written next; the loop writes.
//!
//! ```text
//! Body ──all written──> Unread ──program has read it──> Pause ──delay over──> Enter ──> delivered
//!   └── (not bracketed: the Enter is part of the body) ──────────────────────────────> delivered
//! ```
//! The Enter of a bracketed paste waits until the program has read the paste: read in one piece with it, some
//! programs take the Enter for a line of the paste.

mod decided;
mod draft;

use std::collections::VecDeque;

use protocol::shim::{TypeHow, TypeOutcome, TypeText, Typed};

use decided::Decided;
use draft::Draft;

/// Over this, clients are no longer read.
const BACKLOG_LIMIT: usize = 64 * 1024;
/// How often it is looked whether the program has read a paste.
const UNREAD_AGAIN_MS: u64 = 20;
const ENTER: &[u8] = b"\r";
/// How often Enter is pressed for one message at most.
const ENTERS: u32 = 8;
/// The terminal has room for an Enter at once, or its program does not read.
const AGAIN_LIMIT_MS: u64 = 1_000;

/// Who gets the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) client: u64,
    pub(crate) frame_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Body { written: usize },
    Unread { look_at: u64 },
    Pause { until: u64 },
    Enter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    /// Brackets included.
    bytes: Vec<u8>,
    /// Apart from the body: only after a bracketed paste.
    enter_after: Option<u64>,
    phase: Phase,
    deadline: u64,
    bracketed: bool,
    presses_enter: bool,
    /// None once it has been answered: it ran out of time and only its rest is still to go.
    askers: Vec<Asker>,
    /// Of a text that is typed once, however often it is asked for.
    message: Option<String>,
    draft: u64,
    /// How much the program had printed when Enter was pressed.
    entered_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Person(Vec<u8>),
    Text(Text),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) askers: Vec<Asker>,
    pub(crate) typed: Typed,
}

#[derive(Debug, Default)]
pub(crate) struct Typist {
    items: VecDeque<Item>,
    draft: Draft,
    decided: Decided,
    /// The message whose Enter is the last thing that was typed, and how often it was pressed.
    entered: Option<(String, u32)>,
}

impl Typist {
    pub(crate) fn person(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.items.push_back(Item::Person(bytes));
        }
    }

    /// What became of a message of which something was typed.
    pub(crate) fn decided(&self, message: &str) -> Option<Typed> {
        self.decided.of(message)
    }

    /// Joins those who wait for a message that is being typed; false when there is none.
    pub(crate) fn join(&mut self, message: &str, asker: Asker) -> bool {
        let same = |item: &&mut Item| matches!(item, Item::Text(text) if text.message.as_deref() == Some(message) && !text.askers.is_empty());
        let Some(Item::Text(text)) = self.items.iter_mut().find(same) else { return false };
        text.askers.push(asker);
        true
    }

    pub(crate) fn text(
        &mut self,
        now: u64,
        asker: Asker,
        message: Option<String>,
        text: TypeText,
        paste_on: bool,
    ) {
        let bracketed = paste_on && text.how == TypeHow::Auto;
        let mut bytes = text.bytes;
        match text.how {
            TypeHow::Auto if bracketed => bytes = [b"\x1b[200~".as_slice(), &bytes, b"\x1b[201~"].concat(),
            TypeHow::Auto | TypeHow::Plain => line_ends_as_keys(&mut bytes),
            TypeHow::Keys => {}
        }
        if text.enter_after_ms.is_some() && !bracketed {
            bytes.extend_from_slice(ENTER);
        }
        let enter_after = text.enter_after_ms.filter(|_| bracketed);
        let deadline = now.saturating_add(text.timeout_ms).saturating_add(enter_after.unwrap_or(0));
        self.items.push_back(Item::Text(Text {
            bytes,
            enter_after,
            phase: Phase::Body { written: 0 },
            deadline,
            bracketed,
            presses_enter: text.enter_after_ms.is_some(),
            askers: vec![asker],
            message,
            draft: 0,
            entered_at: None,
        }));
    }

    /// Presses Enter again on a message, unless anything else was typed since, waits to be typed, or it was pressed
    /// too often.
    pub(crate) fn again(&mut self, now: u64, asker: Asker, message: &str) -> bool {
        let may_be = self.items.is_empty()
            && self.entered.as_ref().is_some_and(|(last, count)| last == message && *count < ENTERS);
        if may_be {
            self.items.push_back(Item::Text(Text {
                bytes: Vec::new(),
                enter_after: None,
                phase: Phase::Enter,
                deadline: now.saturating_add(AGAIN_LIMIT_MS),
                bracketed: true,
                presses_enter: true,
                askers: vec![asker],
                message: Some(message.to_owned()),
                draft: 0,
                entered_at: None,
            }));
        }
        may_be
    }

    /// Bytes attached people may have typed without sending, those still waiting here included.
    pub(crate) fn draft(&self) -> u64 {
        let mut draft = self.draft.clone();
        for item in &self.items {
            if let Item::Person(bytes) = item {
                draft.feed(bytes);
            }
        }
        draft.bytes()
    }

    pub(crate) fn has_room(&self) -> bool {
        let waiting = |item: &Item| match item {
            Item::Person(bytes) => bytes.len(),
            Item::Text(text) => text.bytes.len(),
        };
        self.items.iter().map(waiting).sum::<usize>() < BACKLOG_LIMIT
    }

    /// What may go to the terminal now.
    pub(crate) fn next_bytes(&self) -> Option<&[u8]> {
        match self.items.front()? {
            Item::Person(bytes) => Some(bytes),
            Item::Text(text) => match text.phase {
                Phase::Body { written } => text.bytes.get(written..),
                Phase::Enter => Some(ENTER),
                Phase::Unread { .. } | Phase::Pause { .. } => None,
            },
        }
    }

    /// The terminal has taken `count` of [`Self::next_bytes`]; the program has printed `out_len` so far.
    pub(crate) fn wrote(&mut self, now: u64, count: usize, out_len: u64) -> Option<Answer> {
        let entered = self.entered.take();
        match self.items.front_mut()? {
            Item::Person(bytes) => {
                let taken: Vec<u8> = bytes.drain(..count.min(bytes.len())).collect();
                let done = bytes.is_empty();
                self.draft.feed(&taken);
                if done {
                    self.items.pop_front();
                }
                None
            }
            Item::Text(text) => {
                match &mut text.phase {
                    Phase::Body { written } => {
                        if *written == 0 {
                            text.draft = self.draft.bytes();
                        }
                        *written += count;
                        if *written < text.bytes.len() {
                            return None;
                        }
                        if text.enter_after.is_some() {
                            text.phase = Phase::Unread { look_at: now };
                            return None;
                        }
                    }
                    Phase::Unread { .. } | Phase::Pause { .. } => return None,
                    Phase::Enter => {
                        text.entered_at = Some(out_len);
                        self.entered = text.message.clone().map(|message| {
                            let before = entered.filter(|(last, _)| *last == message);
                            (message, before.map_or(1, |(_, count)| count + 1))
                        });
                    }
                }
                self.finish(TypeOutcome::Delivered)
            }
        }
    }

    /// Time has passed. `unread` says whether the program has left input unread.
    pub(crate) fn tick(&mut self, now: u64, unread: impl Fn() -> bool) -> Option<Answer> {
        if let Some(Item::Text(text)) = self.items.front_mut() {
            match text.phase {
                Phase::Unread { look_at } if look_at <= now => {
                    text.phase = if unread() {
                        Phase::Unread { look_at: now + UNREAD_AGAIN_MS }
                    } else {
                        Phase::Pause { until: now.saturating_add(text.enter_after.unwrap_or(0)) }
                    };
                }
                Phase::Pause { until } if until <= now => text.phase = Phase::Enter,
                _ => {}
            }
        }
        self.expire(now)
    }

    fn expire(&mut self, now: u64) -> Option<Answer> {
        let late = |item: &Item| matches!(item, Item::Text(t) if !t.askers.is_empty() && t.deadline <= now);
        let index = self.items.iter().position(late)?;
        if index == 0
            && let Some(Item::Text(text)) = self.items.front_mut()
            && text.phase != (Phase::Body { written: 0 })
        {
            // Its closing bracket still has to follow, or all later keys would be part of the paste.
            text.enter_after = None;
            text.presses_enter = false;
            if let Phase::Body { written } = text.phase {
                // An Enter inside an unbracketed body goes as well: it is not pressed later on other text.
                if !text.bracketed {
                    text.bytes.truncate(written);
                }
                let (bracketed, draft) = (text.bracketed, text.draft);
                let (askers, message) = (std::mem::take(&mut text.askers), text.message.clone());
                if written >= text.bytes.len() {
                    self.items.pop_front();
                }
                let outcome = TypeOutcome::Unknown;
                let typed = Typed { outcome, bracketed, draft_possible: draft, entered_at: None };
                return Some(self.answer(askers, message, typed));
            }
            return self.finish(TypeOutcome::Unknown);
        }
        let Some(Item::Text(text)) = self.items.remove(index) else { return None };
        let typed = Typed {
            outcome: TypeOutcome::NotDelivered,
            bracketed: text.bracketed,
            draft_possible: self.draft(),
            entered_at: None,
        };
        Some(self.answer(text.askers, text.message, typed))
    }

    fn finish(&mut self, outcome: TypeOutcome) -> Option<Answer> {
        let Some(Item::Text(text)) = self.items.pop_front() else { return None };
        if text.presses_enter {
            self.draft.sent();
        }
        if text.askers.is_empty() {
            return None;
        }
        let Text { bracketed, draft, entered_at, .. } = text;
        let typed = Typed { outcome, bracketed, draft_possible: draft, entered_at };
        Some(self.answer(text.askers, text.message, typed))
    }

    fn answer(&mut self, askers: Vec<Asker>, message: Option<String>, typed: Typed) -> Answer {
        if let Some(message) = message {
            self.decided.note(message, typed);
        }
        Answer { askers, typed }
    }

    /// The program has ended: nothing more is typed.
    pub(crate) fn close(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for item in std::mem::take(&mut self.items) {
            if let Item::Text(Text { askers, message, phase, bracketed, draft, .. }) = item
                && !askers.is_empty()
            {
                let untouched = phase == (Phase::Body { written: 0 });
                let outcome = if untouched { TypeOutcome::NotDelivered } else { TypeOutcome::Unknown };
                let typed = Typed { outcome, bracketed, draft_possible: draft, entered_at: None };
                answers.push(self.answer(askers, message, typed));
            }
        }
        answers
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let texts = self.items.iter().filter_map(|item| match item {
            Item::Text(text) if !text.askers.is_empty() => Some(text.deadline),
            _ => None,
        });
        let step = match self.items.front() {
            Some(Item::Text(Text {
                phase: Phase::Unread { look_at: at } | Phase::Pause { until: at },
                ..
            })) => Some(*at),
            _ => None,
        };
        texts.chain(step).min()
    }
}

/// Enter sends CR; LF is another key.
fn line_ends_as_keys(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b'\r');
}

/// As [`protocol::message::has_controls`], of bytes that may be no text.
pub(crate) fn has_controls(bytes: &[u8]) -> bool {
    protocol::message::has_controls(&String::from_utf8_lossy(bytes))
}

/// The longest line of a text, in bytes.
pub(crate) fn longest_line(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
