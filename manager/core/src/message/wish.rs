//! `send` and its taking back: what a text may be, and one record per agent under one key, however often it is asked.

use protocol::agent::Role;
use protocol::api::{Outcome, Reply, Target};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, MessageId};
use protocol::message::{MessageState, Sent, TEXT_LIMIT, Typing, has_controls};
use protocol::time::Timestamp;

use crate::Core;
use crate::client::{Caller, invalid};
use crate::effect::Subject;
use crate::names::{self, Ids};
use crate::record::{MessageRecord, Origin, RECORD_VERSION, RequestState};

/// What a list shows of a text, in characters.
const PREVIEW: usize = 60;

fn check(typing: &Typing, targets: &[Target]) -> Result<(), WireError> {
    let text = &typing.text.0;
    if targets.is_empty() {
        return Err(invalid("targets: no agent is named"));
    }
    if text.is_empty() {
        return Err(invalid("text: it is empty, and Enter is not pressed on what is not ours"));
    }
    if text.len() > TEXT_LIMIT {
        let message = format!("text: {} bytes are more than the limit of {TEXT_LIMIT}", text.len());
        return Err(invalid(message).hint("put it into a file in its workspace and send the file's name"));
    }
    if has_controls(text) {
        return Err(invalid("text: it holds control characters other than TAB and line ends"));
    }
    Ok(())
}

impl Core {
    /// Answered when each message is durable; delivering comes after.
    pub(crate) fn send_message(
        &mut self,
        now: Timestamp,
        caller: Caller,
        targets: Vec<Target>,
        typing: &Typing,
    ) {
        let checked = check(typing, &targets)
            .and_then(|()| self.has_room_for(typing, targets.len()))
            .and_then(|()| self.is_same_request(&caller));
        if let Err(error) = checked {
            return self.out.reply(caller.reply_to, Err(error));
        }
        let mut ids = Ids::new(now, caller.seed);
        let mut sent: Vec<Sent> = Vec::with_capacity(targets.len());
        for (place, target) in targets.into_iter().enumerate() {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            // A crash in the middle of the writes left some of them: they are these.
            let known = self.messages.by_origin.get(&(caller.key.clone(), place)).copied();
            let known = known.and_then(|id| self.messages.get(id)).map(|record| (record.agent, record.id));
            let made = match known {
                Some(known) => Ok(known),
                None => self.talkable(&target).map(|agent| {
                    // Named twice, it is still one text.
                    let twin =
                        sent.iter().find(|sent| sent.agent == Some(agent)).and_then(|sent| sent.message);
                    let origin = Origin { key: caller.key.clone(), digest: caller.digest.clone() };
                    let id = twin.unwrap_or_else(|| {
                        let id = ids.message();
                        self.accept_message(now, (id, agent), typing, origin, place);
                        id
                    });
                    (agent, id)
                }),
            };
            let (agent, message) = made.as_ref().copied().ok().unzip();
            sent.push(Sent { target, agent, message, error: made.err() });
        }
        let reply = Reply::Sent(sent);
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    /// A crash may have left messages of a request, and no answer to it.
    fn is_same_request(&self, caller: &Caller) -> Result<(), WireError> {
        let first = self.messages.by_origin.range((caller.key.clone(), 0)..).next();
        let made =
            first.filter(|((key, _), _)| *key == caller.key).and_then(|(_, id)| self.messages.get(*id));
        let other = made.and_then(|record| record.origin.as_ref()).is_some_and(|o| o.digest != caller.digest);
        if other {
            let error = WireError::new(ErrorCode::Conflict, "this request key was used for another request");
            return Err(error.hint("use a new key"));
        }
        Ok(())
    }

    fn has_room_for(&self, typing: &Typing, count: usize) -> Result<(), WireError> {
        let bytes = u64::try_from(typing.text.0.len().saturating_mul(count)).unwrap_or(u64::MAX);
        let full = if self.messages.open_bytes.saturating_add(bytes) > self.config.messages_bytes_max {
            format!("{} bytes of texts", self.messages.open_bytes)
        } else if self.messages.open_count.saturating_add(count) > self.config.messages_max {
            format!("{} messages", self.messages.open_count)
        } else {
            return Ok(());
        };
        let message =
            format!("{full} wait to be delivered already; there is no room for {count} of {bytes} bytes");
        Err(WireError::new(ErrorCode::Exhausted, message)
            .hint("phalanx messages; phalanx messages --cancel ID"))
    }

    fn talkable(&self, target: &str) -> Result<AgentId, WireError> {
        let agent = self.find_agent_of(target)?;
        let role = self.fleet.agent(agent).and_then(|agent| agent.spec()).map(|spec| spec.role);
        if role == Some(Role::Verify) {
            let message = format!("agent {target:?} verifies: nobody talks to it");
            return Err(WireError::new(ErrorCode::Conflict, message));
        }
        Ok(agent)
    }

    fn accept_message(
        &mut self,
        now: Timestamp,
        (id, agent): (MessageId, AgentId),
        typing: &Typing,
        origin: Origin,
        target: u32,
    ) {
        if self.fleet.desired(agent).is_none() {
            self.adopt(agent);
            self.out.desired(agent);
        }
        let text = &typing.text.0;
        let place = self.messages.last_place.saturating_add(1);
        self.messages.insert(MessageRecord {
            v: RECORD_VERSION,
            id,
            agent,
            place,
            number: None,
            sha256: names::digest(text.as_bytes()),
            bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
            preview: text.lines().next().unwrap_or_default().chars().take(PREVIEW).collect(),
            press_enter: typing.press_enter,
            at_once: typing.at_once,
            typing: Some(typing.clone()),
            accepted_at: now,
            state: MessageState::Queued,
            reason: String::new(),
            decided_at: None,
            turn_done_at: None,
            cancel: false,
            origin: Some(origin),
            target,
        });
        self.out.message(id);
        self.out.changed(Subject::Agent(agent));
        self.touch_agent(agent);
    }

    /// One that is at its host may have been typed already: the host decides.
    pub(crate) fn cancel_messages(&mut self, now: Timestamp, caller: Caller, messages: Vec<MessageId>) {
        let outcomes = messages.into_iter().map(|id| {
            let (agent, error) = match self.messages.get(id) {
                None => {
                    let error = WireError::new(ErrorCode::NotFound, format!("no message {id}"));
                    (None, Some(error.hint("phalanx messages")))
                }
                Some(record) => (Some(record.agent), self.cancel_message(now, id)),
            };
            Outcome { target: id.to_string(), agent, error, note: String::new() }
        });
        let reply = Reply::Outcomes(outcomes.collect());
        let state = RequestState::Answered { reply: reply.clone() };
        self.keep_request(now, (caller.key, caller.digest), state, true);
        self.out.reply(caller.reply_to, Ok(reply));
    }

    fn cancel_message(&mut self, now: Timestamp, id: MessageId) -> Option<WireError> {
        let record = self.messages.get(id)?;
        let (state, agent, is_sent) = (record.state, record.agent, record.number.is_some());
        match state {
            MessageState::Cancelled => None,
            MessageState::Queued if is_sent => {
                self.messages.change(id, |record| record.cancel = true);
                self.out.message(id);
                self.touch_agent(agent);
                None
            }
            MessageState::Queued => {
                self.decide_message(now, id, MessageState::Cancelled, "it was taken back");
                self.touch_agent(agent);
                None
            }
            MessageState::Delivered | MessageState::NotDelivered | MessageState::Unknown => {
                Some(WireError::new(ErrorCode::Conflict, format!("the message is {state} already")))
            }
        }
    }
}
