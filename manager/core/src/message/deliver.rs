//! Sends what is due to hosts and takes in what reports say of it. By level: looked at whenever anything about an agent
//! changed, so a lost order, a restart of either side and a host that returns all come through here.

use protocol::api::Reachability;
use protocol::ids::{AgentId, MessageId};
use protocol::message::MessageState;
use protocol::order::Command;
use protocol::time::Timestamp;

use super::Sending;
use crate::Core;
use crate::effect::{Effect, OrderDraft, Subject};
use crate::fleet::agent::Standing;
use crate::record::{MessageRecord, Wanted};
use crate::timers::Timer;

/// What the state of the world says of a message that is not decided.
enum Due {
    Decided { state: MessageState, reason: String },
    Send,
    Recall,
    Nothing,
}

impl Core {
    /// Brings an agent's messages as far as they can come now.
    pub(crate) fn deliver(&mut self, now: Timestamp, agent: AgentId) {
        self.take_turns(agent);
        let open: Vec<MessageId> = self.messages.open_of(agent).map(|record| record.id).collect();
        for id in open {
            let Some(record) = self.messages.get(id) else { continue };
            match self.due_message(record) {
                Due::Decided { state, reason } => self.decide_message(now, id, state, &reason),
                Due::Nothing => return self.stop_sending(agent),
                Due::Send => return self.send_to_host(now, id, false),
                Due::Recall => return self.send_to_host(now, id, true),
            }
        }
        self.stop_sending(agent);
    }

    fn due_message(&self, record: &MessageRecord) -> Due {
        let report = self.fleet.report(record.agent);
        let fact = report.and_then(|report| report.messages.of(record.id));
        if let Some(fact) = fact.filter(|fact| fact.state.is_final()) {
            return Due::Decided { state: fact.state, reason: fact.reason.clone() };
        }
        let forgotten = record
            .number
            .zip(report)
            .is_some_and(|(number, report)| fact.is_none() && number <= report.messages.last_number);
        if forgotten {
            let reason = "its host took it and no longer says what became of it".to_owned();
            return Due::Decided { state: MessageState::Unknown, reason };
        }
        match self.fleet.standing(record.agent) {
            Standing::Unheard => Due::Nothing,
            // Its host has it and will say.
            Standing::Ended | Standing::Gone if fact.is_some() => Due::Nothing,
            Standing::Ended | Standing::Gone => {
                let end = report.and_then(|report| report.end.as_ref());
                let reason =
                    end.map_or_else(|| "it never ran".to_owned(), |end| format!("it has ended: {end}"));
                Due::Decided { state: MessageState::NotDelivered, reason }
            }
            Standing::Live if record.cancel => Due::Recall,
            Standing::Live if fact.is_some() => Due::Nothing,
            Standing::Live => match self.fleet.desired(record.agent).map(|desired| desired.wanted) {
                Some(Wanted::Running) => Due::Send,
                Some(Wanted::Stopped | Wanted::Destroyed) | None => Due::Nothing,
            },
        }
    }

    /// The first one of its agent: sent unless it went out a moment ago.
    fn send_to_host(&mut self, now: Timestamp, id: MessageId, is_recall: bool) {
        let Some(record) = self.messages.get(id) else { return };
        let agent = record.agent;
        let taken = self.fleet.report(agent).map_or(0, |report| report.messages.last_number);
        let number = record.number.unwrap_or_else(|| taken.saturating_add(1));
        let Some(desired) = self.fleet.desired(agent) else { return };
        let Some(host) = self.fleet.host(&desired.host) else { return };
        if host.reachability(now, &self.config) == Reachability::Lost {
            return; // looked at again when the host is heard
        }
        let before = self.messages.sending.get(&agent).filter(|sent| {
            sent.message == id && sent.is_recall == is_recall && sent.incarnation == host.incarnation
        });
        let wait_ms = match before {
            Some(sent) if sent.again_at > now => return,
            Some(sent) => sent.wait_ms.saturating_mul(2).min(self.config.resend_max_ms),
            None => self.config.resend_first_ms,
        };
        let generation = desired.generation;
        let command = if is_recall {
            Command::Recall { agent, generation, message: id, number }
        } else {
            let Some(typing) = record.typing.clone() else { return };
            let (sha256, typing) = (record.sha256.clone(), Box::new(typing));
            Command::Send { agent, generation, message: id, number, sha256, typing }
        };
        let again_at = now.after_ms(wait_ms);
        let sending = Sending { message: id, is_recall, incarnation: host.incarnation, wait_ms, again_at };
        let draft = OrderDraft {
            region: desired.region.clone(),
            host: desired.host.clone(),
            incarnation: host.incarnation,
            fencing: self.config.fencing,
            expires: host.in_its_time(now.after_ms(self.config.order_expires_ms)),
            command,
        };
        if record.number.is_none() {
            self.messages.change(id, |record| record.number = Some(number));
            self.out.message(id);
        }
        self.messages.sending.insert(agent, sending);
        self.timers.set(Timer::Message(agent), again_at);
        self.out.act(Effect::Order(draft));
    }

    fn stop_sending(&mut self, agent: AgentId) {
        if self.messages.sending.remove(&agent).is_some() {
            self.timers.cancel(&Timer::Message(agent));
        }
    }

    /// Programs that were at their prompt again after a message.
    fn take_turns(&mut self, agent: AgentId) {
        let Some(report) = self.fleet.report(agent) else { return };
        let news: Vec<(MessageId, Timestamp)> = report
            .messages
            .list
            .iter()
            .filter_map(|fact| Some((fact.message, fact.turn_done_at?)))
            .filter(|(id, _)| self.messages.get(*id).is_some_and(|record| record.turn_done_at.is_none()))
            .collect();
        for (id, at) in news {
            self.messages.change(id, |record| record.turn_done_at = Some(at));
            self.out.message(id);
            self.out.changed(Subject::Agent(agent));
        }
    }

    pub(super) fn decide_message(
        &mut self,
        now: Timestamp,
        id: MessageId,
        state: MessageState,
        reason: &str,
    ) {
        self.messages.decide(id, state, reason, now);
        self.out.message(id);
        if let Some(record) = self.messages.get(id) {
            self.out.changed(Subject::Agent(record.agent));
        }
        self.watch_messages();
    }

    pub(crate) fn watch_messages(&mut self) {
        let too_many = self.messages.decided.len() > self.config.messages_max;
        if let Some((at, _)) = self.messages.decided.first() {
            let at = if too_many { *at } else { at.after_ms(self.config.message_kept_ms) };
            self.timers.set(Timer::Messages, at);
        }
    }

    pub(crate) fn forget_old_messages(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.messages.decided.first().copied() {
            let too_many = self.messages.decided.len() > self.config.messages_max;
            if at.after_ms(self.config.message_kept_ms) > now && !too_many {
                break;
            }
            self.messages.remove(at, id);
            self.out.message(id);
        }
        self.watch_messages();
    }
}
