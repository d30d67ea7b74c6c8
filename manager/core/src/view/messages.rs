//! Messages as their senders see them; one that is not decided says why.

use protocol::api::{Reachability, Target};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, MessageId};
use protocol::message::MessageView;
use protocol::time::Timestamp;

use crate::Core;
use crate::fleet::agent::Standing;
use crate::record::{MessageRecord, Wanted};

impl Core {
    /// Those of these agents and with these ids, or all, in the order in which they were accepted.
    ///
    /// # Errors
    /// An agent or a message is not found.
    pub fn messages(
        &self,
        now: Timestamp,
        targets: &[Target],
        ids: &[MessageId],
    ) -> Result<Vec<MessageView>, WireError> {
        let mut ids = ids.to_vec();
        let mut agents = Vec::new();
        for target in targets {
            match target.parse::<MessageId>().ok().filter(|id| self.messages.get(*id).is_some()) {
                Some(id) => ids.push(id),
                None => agents.push(self.find_agent_of(target)?),
            }
        }
        if let Some(unknown) = ids.iter().find(|id| self.messages.get(**id).is_none()) {
            let message = format!("no message {unknown}; they are kept for a day after they were decided");
            return Err(WireError::new(ErrorCode::NotFound, message).hint("phalanx messages"));
        }
        let all = targets.is_empty() && ids.is_empty();
        let mut found: Vec<&MessageRecord> = self
            .messages
            .all()
            .filter(|record| all || agents.contains(&record.agent) || ids.contains(&record.id))
            .collect();
        found.sort_by_key(|record| record.place);
        Ok(found.into_iter().map(|record| self.view_of(now, record)).collect())
    }

    #[must_use]
    pub fn message(&self, now: Timestamp, id: MessageId) -> Option<MessageView> {
        self.messages.get(id).map(|record| self.view_of(now, record))
    }

    /// Those that wait to be delivered to this agent.
    #[must_use]
    pub fn waiting_messages(&self, now: Timestamp, agent: AgentId) -> Vec<MessageView> {
        self.messages.open_of(agent).map(|record| self.view_of(now, record)).collect()
    }

    fn view_of(&self, now: Timestamp, record: &MessageRecord) -> MessageView {
        let spec = self.fleet.agent(record.agent).and_then(|agent| agent.spec());
        MessageView {
            message: record.id,
            agent: record.agent,
            name: spec.map_or_else(|| record.agent.to_string(), |spec| spec.name.to_string()),
            state: record.state,
            reason: if record.state.is_final() { record.reason.clone() } else { self.waits(now, record) },
            preview: record.preview.clone(),
            bytes: record.bytes,
            press_enter: record.press_enter,
            at_once: record.at_once,
            accepted_at: record.accepted_at,
            decided_at: record.decided_at,
            turn_done_at: record.turn_done_at,
        }
    }

    fn waits(&self, now: Timestamp, record: &MessageRecord) -> String {
        let before = self.messages.open_of(record.agent).take_while(|other| other.place < record.place);
        match before.count() {
            0 => {}
            1 => return "another message to it goes before this one".to_owned(),
            count => return format!("{count} other messages to it go before this one"),
        }
        let report = self.fleet.report(record.agent);
        let fact = report.and_then(|report| report.messages.of(record.id));
        let desired = self.fleet.desired(record.agent);
        let host = desired.and_then(|desired| self.fleet.host(&desired.host));
        let is_lost = host.is_none_or(|host| host.reachability(now, &self.config) == Reachability::Lost);
        let words = if is_lost {
            "its host is not heard"
        } else if self.fleet.standing(record.agent) == Standing::Unheard {
            "its host has not reported the agent yet"
        } else if let Some(fact) = fact {
            if fact.reason.is_empty() { "it is being typed" } else { fact.reason.as_str() }
        } else if record.cancel {
            "it is being taken back"
        } else if desired.is_some_and(|desired| desired.wanted != Wanted::Running) {
            "the agent was asked to stop"
        } else {
            "it is on its way to the host"
        };
        words.to_owned()
    }
}
