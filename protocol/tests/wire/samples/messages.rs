//! Texts to agents: their orders, what reports and replies say of them, and the requests of their senders.

use protocol::api::{AgentView, Item, MessageUntil, Mutation, Query, Reply, Request};
use protocol::ids::{Fencing, Generation, Incarnation, MessageId, OrderId, RequestKey};
use protocol::message::{MessageFact, MessageFacts, MessageState, MessageText, MessageView, Sent, Typing};
use protocol::order::{Command, Order};
use protocol::report::Report;

use super::agents::least_report;
use super::clients::agent_view;
use super::hosts::error;
use super::{AT, agent_id, host, region, text, texts};
use crate::rules::Sample;

pub(crate) fn message_id() -> MessageId {
    MessageId::from_parts(AT.0, 0xf)
}

pub(crate) fn typing() -> Typing {
    Typing {
        text: MessageText(text("go on;\n\tné 名")), press_enter: true, at_once: true, each_line: false
    }
}

fn order(command: Command) -> Order {
    Order {
        id: OrderId::from_parts(AT.0, 0xd),
        region: region(),
        host: host(),
        incarnation: Incarnation(1_700_000_000_001),
        fencing: Fencing(7),
        expires: AT.after_ms(30_000),
        command,
    }
}

pub(crate) fn facts() -> MessageFacts {
    let delivered = MessageFact {
        message: message_id(),
        state: MessageState::Delivered,
        reason: String::new(),
        at: AT,
        turn_done_at: Some(AT.after_ms(9_000)),
    };
    let waiting = MessageFact {
        message: MessageId::from_parts(AT.0, 0x10),
        state: MessageState::Queued,
        reason: text("a person is typing"),
        turn_done_at: None,
        ..delivered.clone()
    };
    MessageFacts { last_number: 7, list: vec![delivered, waiting] }
}

fn view() -> MessageView {
    MessageView {
        message: message_id(),
        agent: agent_id(),
        name: text("naïve 名前"),
        state: MessageState::NotDelivered,
        reason: text("its program has ended"),
        preview: text("go on;"),
        bytes: 102_400,
        press_enter: true,
        at_once: true,
        accepted_at: AT,
        decided_at: Some(AT.after_ms(300)),
        turn_done_at: Some(AT.after_ms(9_000)),
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let (agent, generation, message) = (agent_id(), Generation(3), message_id());
    let send = Command::Send {
        agent,
        generation,
        message,
        number: 7,
        sha256: "d".repeat(64),
        typing: Box::new(typing()),
    };
    let key = || RequestKey(text("k-1"));
    let least = MessageView {
        state: MessageState::Queued,
        reason: String::new(),
        at_once: false,
        decided_at: None,
        turn_done_at: None,
        ..view()
    };
    let sent = vec![
        Sent { target: text("a"), agent: Some(agent), message: Some(message), error: None },
        Sent { target: text("x"), agent: None, message: None, error: Some(error()) },
    ];
    let with_messages = AgentView { messages: vec![least.clone()], ..agent_view() };
    vec![
        Sample::of("order-send", order(send)),
        Sample::of("order-recall", order(Command::Recall { agent, generation, message, number: 7 })),
        Sample::of("report-messages", Report { messages: facts(), ..least_report() }),
        Sample::of(
            "request-send-message",
            Request::from(Mutation::SendMessage {
                key: key(),
                targets: texts(&["a", "b@db-01"]),
                typing: typing(),
            }),
        ),
        Sample::of(
            "request-cancel-messages",
            Request::from(Mutation::CancelMessages { key: key(), messages: vec![message] }),
        ),
        Sample::of(
            "request-list-messages",
            Request::from(Query::ListMessages { targets: texts(&["a"]), messages: vec![message] }),
        ),
        Sample::of(
            "request-wait-messages",
            Request::from(Query::WaitMessages { messages: vec![message], until: MessageUntil::Decided }),
        ),
        Sample::of(
            "request-wait-messages-turn",
            Request::from(Query::WaitMessages { messages: vec![message], until: MessageUntil::TurnDone }),
        ),
        Sample::of("reply-sent", Reply::Sent(sent)),
        Sample::of("reply-messages", Reply::Messages { messages: vec![view(), least], as_of: AT }),
        Sample::of("reply-agents-messages", Reply::Agents { agents: vec![with_messages], as_of: AT }),
        Sample::of("item-message", Item::Message(Box::new(view()))),
    ]
}
