//! Texts for a program: taken once by their number, typed one after the other when the program may be typed to, and
//! told as delivered, not delivered or unknown. What types and what keeps the texts is the shell's.
//!
//! ```text
//!  Send ──> queued ──may be typed──> asked ──shim: all of it is typed──> delivered
//!             │  ▲                    │ │ └──shim: a part of it is, or the shim is gone──> unknown
//!             │  └─shim: not a byte───┘ └──shim: it never can be──> not delivered
//!             ├──recalled──> cancelled
//!             └──the program has ended, or is to──> not delivered
//! ```
//! *Asked* is on the disk before the shim is: whatever dies in between, the shim is asked first what became of it.

use std::collections::BTreeSet;

use protocol::agent::Phase;
use protocol::ids::MessageId;
use protocol::message::{MessageFact, MessageFacts, MessageState};
use protocol::time::Timestamp;

use super::{Agent, Stage};
use crate::effect::Effect;
use crate::input::TypedOutcome;
use crate::record::{MessageEntry, Wanted};

/// A text that could not be typed is tried again at this pace.
const AGAIN_MS: u64 = 1_000;
/// A prompt that is told within this time after a delivery was seen before it.
pub(super) const NOTICE_MS: u64 = 250;
/// Decided messages that the record keeps, and those of them that each report carries. A manager has one message of an
/// agent under way at a time, so the last one would do.
const KEPT: usize = 32;
const TOLD: usize = 16;

/// What this hostd knows beyond the record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Talk {
    job: Job,
    /// Why the first open message waits.
    waits: String,
    /// The shim has said that not a byte of the first open message was typed.
    untouched: bool,
    /// To be cancelled as soon as it is known that they were not typed.
    recalled: BTreeSet<MessageId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Job {
    #[default]
    None,
    /// The shell is at it; `Typed` follows.
    UnderWay,
    AgainAt(Timestamp),
}

impl Agent {
    /// Whether an order with this number is none that was taken before.
    pub(crate) fn takes_message(&self, number: u64) -> bool {
        number > self.record.messages.last_number
    }

    /// A message that was not taken before.
    pub(crate) fn send(&mut self, entry: MessageEntry) {
        self.record.messages.last_number = entry.number;
        self.record.messages.entries.push(entry);
        self.forget_old_messages();
    }

    /// A message shall not be typed any more; one that never came is not taken when it does.
    pub(crate) fn recall(&mut self, now: Timestamp, message: MessageId, number: u64) -> Vec<Effect> {
        if self.takes_message(number) {
            let mut entry = MessageEntry::new(message, number, now);
            entry.decide(MessageState::Cancelled, "it was taken back before it came", now);
            self.send(entry);
            return Vec::new();
        }
        let first = self.first_open().map(|entry| entry.message);
        let Some(entry) = self.record.messages.open_mut(message) else { return Vec::new() };
        let untouched = entry.asked.is_none() || (first == Some(message) && self.talk.untouched);
        if untouched && (first != Some(message) || self.talk.job != Job::UnderWay) {
            return self.decide(message, MessageState::Cancelled, "it was taken back", now);
        }
        self.talk.recalled.insert(message);
        Vec::new()
    }

    /// The shell's word on the message that it was given to type, or to ask about.
    pub(crate) fn typed(&mut self, now: Timestamp, message: MessageId, outcome: TypedOutcome) -> Vec<Effect> {
        let is_ours = self.first_open().is_some_and(|entry| entry.message == message);
        if !is_ours || self.talk.job != Job::UnderWay {
            return Vec::new(); // late: decided already, or asked about anew
        }
        self.talk.job = Job::None;
        let recalled = self.talk.recalled.contains(&message);
        match outcome {
            TypedOutcome::Delivered => {
                self.doubt_the_prompt(now);
                return self.decide(message, MessageState::Delivered, "", now);
            }
            TypedOutcome::NotDelivered { reason } => {
                return self.decide(message, MessageState::NotDelivered, &reason, now);
            }
            TypedOutcome::Unknown { reason } => {
                self.doubt_the_prompt(now);
                return self.decide(message, MessageState::Unknown, &reason, now);
            }
            TypedOutcome::NotTyped => self.talk.untouched = true,
            TypedOutcome::Waits { reason } => {
                self.talk.untouched = true;
                self.talk.waits = reason;
                self.talk.job = Job::AgainAt(now.after_ms(AGAIN_MS));
            }
            TypedOutcome::NotKnown => self.talk.job = Job::AgainAt(now.after_ms(AGAIN_MS)),
        }
        if recalled && self.talk.untouched {
            return self.decide(message, MessageState::Cancelled, "it was taken back", now);
        }
        Vec::new()
    }

    /// The program is seen at its prompt: the turns of what was delivered are over. What was seen of it before it could
    /// take notice of a text is no end of that text's turn.
    pub(super) fn turn_is_done(&mut self, now: Timestamp) {
        for entry in &mut self.record.messages.entries {
            let noticed = entry.at.after_ms(NOTICE_MS) <= now;
            if entry.state == MessageState::Delivered && entry.turn_done_at.is_none() && noticed {
                entry.turn_done_at = Some(now);
            }
        }
    }

    /// What is due for the messages now, by level: called after every input.
    pub(crate) fn talk(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = self.give_up_messages(now);
        if !self.stage.is_live() {
            return effects;
        }
        let (agent, launch) = (self.record.agent, self.record.launch);
        let Some(entry) = self.first_open() else { return effects };
        let (message, asked) = (entry.message, entry.asked.is_some());
        match self.talk.job {
            Job::UnderWay => return effects,
            Job::AgainAt(at) if at > now => return effects,
            Job::AgainAt(_) | Job::None => {}
        }
        if asked && !self.talk.untouched {
            self.talk.job = Job::UnderWay;
            effects.push(Effect::AskTyped { agent, message });
            return effects;
        }
        match self.cannot_type(message) {
            Some(why) => {
                why.clone_into(&mut self.talk.waits);
                self.talk.job = Job::None;
            }
            None => {
                if !self.talk.untouched {
                    self.talk.waits.clear();
                }
                self.talk.untouched = false;
                self.talk.job = Job::UnderWay;
                if let Some(entry) = self.record.messages.open_mut(message) {
                    entry.asked = Some(launch);
                }
                effects.push(Effect::Type { agent, message });
            }
        }
        effects
    }

    /// Whether this message may be typed at this very moment: looked at again by the shell before it asks the shim.
    #[must_use]
    pub fn may_type(&self, message: MessageId) -> bool {
        self.talk.job == Job::UnderWay
            && self.first_open().is_some_and(|entry| entry.message == message)
            && self.cannot_type(message).is_none()
    }

    fn is_at_once(&self, message: MessageId) -> bool {
        self.record.messages.open().any(|entry| entry.message == message && entry.at_once)
    }

    /// Why the program may not be typed to.
    fn cannot_type(&self, message: MessageId) -> Option<&'static str> {
        match self.stage {
            Stage::Creating => return Some("it is not started yet"),
            Stage::Running => {}
            Stage::Draining | Stage::Collecting | Stage::Ended | Stage::Removing | Stage::Destroyed => {
                return Some("it has ended");
            }
        }
        if self.record.wanted != Wanted::Running {
            return Some("it is being decided whether it is destroyed");
        }
        // Before its readiness: a program that asks whether it may begin shows no sign of that before it is answered.
        if self.phase() == Phase::Blocked {
            return Some("it asks a person something, which a message must not answer");
        }
        if !self.ready {
            return Some("it has not shown its sign of readiness yet");
        }
        match self.phase() {
            Phase::Blocked => Some("it asks a person something, which a message must not answer"),
            Phase::Paused if self.facts.frozen => Some("it is frozen"),
            Phase::Paused => None,
            Phase::Running if self.record.spec.frozen || self.is_freezing => {
                Some("it is being frozen or thawed")
            }
            Phase::Running if self.record.spec.signals.is_some() && !self.is_at_once(message) => {
                Some("its program is at work: it is delivered at the next prompt")
            }
            Phase::Running => None,
            Phase::Creating | Phase::Stopped | Phase::Crashed | Phase::Failed | Phase::Unknown => {
                Some("its phase does not allow it")
            }
        }
    }

    /// What can never be typed any more is decided. One that the shell is at is decided by its word, which comes.
    fn give_up_messages(&mut self, now: Timestamp) -> Vec<Effect> {
        let ended = !self.stage.is_live();
        let why = if ended || self.stage == Stage::Draining {
            Some("its program has ended")
        } else if self.is_stopping() {
            Some("it was asked to stop")
        } else {
            None
        };
        let launch = self.record.launch;
        let first = self.first_open().map(|entry| entry.message);
        let open: Vec<(MessageId, Option<u32>)> =
            self.record.messages.open().map(|entry| (entry.message, entry.asked)).collect();
        let mut effects = Vec::new();
        for (message, asked) in open {
            let is_first = first == Some(message);
            if is_first && self.talk.job == Job::UnderWay {
                continue;
            }
            let untouched = asked.is_none() || (is_first && self.talk.untouched);
            if untouched {
                if let Some(why) = why {
                    effects.extend(self.decide(message, MessageState::NotDelivered, why, now));
                }
            } else if ended || asked != Some(launch) {
                let why = "its supervisor was gone before it had said whether the text was typed";
                effects.extend(self.decide(message, MessageState::Unknown, why, now));
            }
        }
        effects
    }

    fn decide(
        &mut self,
        message: MessageId,
        state: MessageState,
        reason: &str,
        now: Timestamp,
    ) -> Vec<Effect> {
        if self.first_open().is_some_and(|entry| entry.message == message) {
            (self.talk.job, self.talk.untouched) = (Job::None, false);
            self.talk.waits.clear();
        }
        self.talk.recalled.remove(&message);
        if let Some(entry) = self.record.messages.open_mut(message) {
            entry.decide(state, reason, now);
        }
        self.forget_old_messages();
        vec![Effect::ForgetText { agent: self.record.agent, message }]
    }

    fn first_open(&self) -> Option<&MessageEntry> {
        self.record.messages.open().next()
    }

    fn forget_old_messages(&mut self) {
        let entries = &mut self.record.messages.entries;
        let mut surplus = entries.iter().filter(|entry| entry.state.is_final()).count().saturating_sub(KEPT);
        entries.retain(|entry| {
            let goes = surplus > 0 && entry.state.is_final();
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// When [`Agent::talk`] has work again, if nothing happens until then.
    pub(super) fn talk_deadline(&self) -> Option<Timestamp> {
        match self.talk.job {
            Job::AgainAt(at) if self.stage.is_live() && self.first_open().is_some() => Some(at),
            Job::AgainAt(_) | Job::None | Job::UnderWay => None,
        }
    }

    /// As every report tells them.
    pub(crate) fn message_facts(&self) -> MessageFacts {
        let messages = &self.record.messages;
        let decided = messages.entries.iter().filter(|entry| entry.state.is_final()).count();
        let mut untold = decided.saturating_sub(TOLD);
        let mut before = 0_usize;
        let mut list = Vec::new();
        for entry in &messages.entries {
            let reason = if entry.state.is_final() {
                if untold > 0 {
                    untold -= 1;
                    continue;
                }
                entry.reason.clone()
            } else {
                before += 1;
                match before {
                    1 => self.talk.waits.clone(),
                    2 => "one other is typed before it".to_owned(),
                    _ => format!("{} others are typed before it", before - 1),
                }
            };
            let MessageEntry { message, state, at, turn_done_at, .. } = *entry;
            list.push(MessageFact { message, state, reason, at, turn_done_at });
        }
        MessageFacts { last_number: messages.last_number, list }
    }
}
