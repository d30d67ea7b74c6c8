//! Messages: durable before they are answered, one at a time to a host, sent until a report decides, and never twice.

use protocol::agent::EndCause;
use protocol::api::{Mutation, Reply};
use protocol::error::ErrorCode;
use protocol::ids::{AgentId, MessageId, RequestKey};
use protocol::message::{MessageFact, MessageState, MessageText, Sent, Typing};
use protocol::order::{Command, Discard};
use protocol::time::Timestamp;

use crate::record::OUTBOX;
use crate::tests::world::{Program, World, end, host_id};
use crate::{Config, Effect, Input};

impl Program {
    /// As hostd does it: a number is taken once, a recall of what never came is remembered.
    pub(super) fn take_message(&mut self, now: Timestamp, command: &Command) {
        let facts = &mut self.messages;
        let (message, number, state) = match command {
            Command::Send { message, number, .. } => {
                let ended = self.end.is_some();
                (message, number, if ended { MessageState::NotDelivered } else { self.types })
            }
            Command::Recall { message, number, .. } => {
                if let Some(fact) = facts.list.iter_mut().find(|fact| fact.message == *message)
                    && !fact.state.is_final()
                {
                    fact.state = MessageState::Cancelled;
                }
                (message, number, MessageState::Cancelled)
            }
            Command::Ensure { .. } | Command::Stop { .. } | Command::Destroy { .. } => return,
        };
        if *number > facts.last_number {
            facts.last_number = *number;
            let (message, reason) = (*message, String::new());
            facts.list.push(MessageFact { message, state, reason, at: now, turn_done_at: None });
        }
    }

    fn decide(&mut self, message: MessageId, state: MessageState) {
        let fact = self.messages.list.iter_mut().find(|fact| fact.message == message).unwrap();
        fact.state = state;
    }
}

fn typing(text: &str) -> Typing {
    Typing { text: MessageText(text.to_owned()), press_enter: true, at_once: false, each_line: false }
}

impl World {
    fn send_as(&mut self, key: &RequestKey, targets: &[&str], text: &str) -> Result<Vec<Sent>, ErrorCode> {
        let targets = targets.iter().map(|target| (*target).to_owned()).collect();
        let request = Mutation::SendMessage { key: key.clone(), targets, typing: typing(text) };
        match self.ask(request) {
            Ok(Reply::Sent(sent)) => Ok(sent),
            Ok(reply) => panic!("{reply:?}"),
            Err(error) => Err(error.code),
        }
    }

    fn send(&mut self, target: &str, text: &str) -> MessageId {
        let key = self.key();
        self.send_as(&key, &[target], text).unwrap()[0].message.unwrap()
    }

    fn take_back(&mut self, message: MessageId) -> Option<ErrorCode> {
        let key = self.key();
        let reply = self.ask(Mutation::CancelMessages { key, messages: vec![message] }).unwrap();
        let Reply::Outcomes(outcomes) = reply else { panic!("{reply:?}") };
        outcomes[0].error.as_ref().map(|error| error.code)
    }

    fn fate(&self, message: MessageId) -> MessageState {
        self.core.message(self.now, message).unwrap().state
    }

    fn why_queued(&self, message: MessageId) -> String {
        self.core.message(self.now, message).unwrap().reason
    }

    fn sends(&self) -> Vec<(MessageId, u64)> {
        let sends = self.orders.iter().filter_map(|draft| match &draft.command {
            Command::Send { message, number, .. } => Some((*message, *number)),
            Command::Ensure { .. }
            | Command::Stop { .. }
            | Command::Destroy { .. }
            | Command::Recall { .. } => None,
        });
        sends.collect()
    }

    fn slow(&mut self, agent: AgentId) {
        self.program(agent).types = MessageState::Queued;
    }
}

#[test]
fn a_message_and_its_number_are_written_before_it_is_answered_and_ordered() {
    let mut world = World::new();
    world.create("a").unwrap();
    let key = world.key();
    let targets = vec!["a".to_owned()];
    let request = Box::new(Mutation::SendMessage { key, targets, typing: typing("x") });
    let effects = world.core.handle(world.now, Input::Client { reply_to: 77, request, seed: 5 });
    let place = |is: fn(&Effect) -> bool| effects.iter().position(is).unwrap();
    let record = place(|e| matches!(e, Effect::Write(record) if record.bucket == OUTBOX));
    assert!(record < place(|e| matches!(e, Effect::Reply { .. })));
    assert!(record < place(|e| matches!(e, Effect::Order(_))));
    let Effect::Write(written) = &effects[record] else { panic!() };
    let written: crate::record::MessageRecord =
        protocol::codec::from_bytes(written.value.as_ref().unwrap()).unwrap();
    assert_eq!(written.number, Some(1));
}

#[test]
fn the_same_key_gives_the_same_message_and_sends_nothing_again() {
    let mut world = World::new();
    world.create("a").unwrap();
    let key = world.key();
    let first = world.send_as(&key, &["a", "nobody"], "x").unwrap();
    assert!(first[0].message.is_some() && first[1].error.is_some());
    assert_eq!(world.send_as(&key, &["a", "nobody"], "x").unwrap(), first);
    world.restart_manager();
    assert_eq!(world.send_as(&key, &["a", "nobody"], "x").unwrap(), first);
    assert_eq!(world.send_as(&key, &["a"], "y"), Err(ErrorCode::Conflict));
    assert_eq!(world.sends().len(), 1);
    world.check_store();
}

/// A crash between the writes of one `send`: the messages are there, the answer is not.
#[test]
fn a_torn_send_is_completed_by_its_key_and_not_doubled() {
    let mut world = World::new();
    world.create("a").unwrap();
    world.create("b").unwrap();
    let key = world.key();
    let first = world.send_as(&key, &["a", "b"], "x").unwrap();
    world.stored.remove(&(crate::record::REQUESTS, crate::record::request_key(&key)));
    world.stored.remove(&(OUTBOX, first[1].message.unwrap().to_string()));
    world.restart_manager();
    assert_eq!(world.send_as(&key, &["a", "b"], "other"), Err(ErrorCode::Conflict));
    let again = world.send_as(&key, &["a", "b"], "x").unwrap();
    assert_eq!(again[0], first[0]);
    assert_ne!(again[1].message, first[1].message, "that one was never told of");
    world.check_store();
}

#[test]
fn messages_of_an_agent_go_out_one_at_a_time_in_their_order() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.slow(agent);
    let ids = ["one", "two", "three"].map(|text| world.send("a", text));
    world.pass(30_000);
    assert_eq!(world.sends(), [(ids[0], 1)], "the host has it: it is not sent again");
    assert_eq!(world.why_queued(ids[2]), "2 other messages to it go before this one");
    for (place, id) in ids.into_iter().enumerate() {
        world.program(agent).decide(id, MessageState::Delivered);
        world.report(agent);
        assert_eq!(world.fate(id), MessageState::Delivered);
        assert_eq!(world.sends().len(), (place + 2).min(3));
    }
    world.check_store();
}

#[test]
fn a_lost_message_is_sent_again_under_its_number_until_a_report_shows_it() {
    let mut world = World::new();
    world.create("a").unwrap();
    world.drops_orders = true;
    let id = world.send("a", "x");
    world.pass(20_000);
    world.restart_manager();
    world.pass(20_000);
    let sends = world.sends();
    assert!((5..=12).contains(&sends.len()), "{sends:?}");
    assert!(sends.iter().all(|sent| *sent == (id, 1)));
    world.drops_orders = false;
    world.pass(12_000);
    assert_eq!(world.fate(id), MessageState::Delivered);
    let count = world.sends().len();
    world.pass(60_000);
    assert_eq!(world.sends().len(), count);
}

#[test]
fn a_lost_host_leaves_a_message_queued_and_a_return_sends_it() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(20_000);
    let id = world.send("a", "x");
    world.pass(600_000);
    assert_eq!(world.fate(id), MessageState::Queued);
    assert_eq!(world.why_queued(id), "its host is not heard");
    assert_eq!(world.sends(), []);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(12_000);
    world.report(agent);
    assert_eq!(world.fate(id), MessageState::Delivered);
}

#[test]
fn an_ended_agent_makes_not_delivered_of_what_never_reached_its_host() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.drops_orders = true;
    let id = world.send("a", "x");
    world.exit(agent, 3);
    assert_eq!(world.fate(id), MessageState::NotDelivered);
    let late = world.send("a", "y");
    assert_eq!(world.fate(late), MessageState::NotDelivered);
    assert_eq!(world.core.message(world.now, late).unwrap().reason, "it has ended: exit 3");
}

#[test]
fn what_the_host_says_at_the_end_is_believed_and_a_word_that_is_to_come_is_waited_for() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.slow(agent);
    let (first, second) = (world.send("a", "x"), world.send("a", "y"));
    let ended = end(EndCause::Exited, Some(0), world.now);
    world.program(agent).end = Some(ended);
    world.report(agent);
    assert_eq!(world.fate(first), MessageState::Queued, "the host has not decided yet");
    world.program(agent).decide(first, MessageState::Unknown);
    world.report(agent);
    assert_eq!(world.fate(first), MessageState::Unknown);
    assert_eq!(world.fate(second), MessageState::NotDelivered);
}

#[test]
fn a_host_that_forgot_what_it_took_makes_unknown() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.slow(agent);
    let id = world.send("a", "x");
    world.program(agent).messages.list.clear();
    world.report(agent);
    assert_eq!(world.fate(id), MessageState::Unknown);
}

#[test]
fn a_number_is_never_used_twice_also_when_everything_was_forgotten() {
    let mut world = World::new();
    world.create("a").unwrap();
    let first = world.send("a", "x");
    world.pass(25 * 3_600_000);
    assert_eq!(world.core.message(world.now, first), None, "kept for a day");
    assert!(!world.stored.keys().any(|(bucket, _)| *bucket == OUTBOX));
    world.restart_manager();
    world.send("a", "y");
    assert_eq!(world.sends().last().unwrap().1, 2);
}

#[test]
fn a_message_that_was_not_sent_is_cancelled_at_once_and_one_at_its_host_by_the_host() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.slow(agent);
    let (first, second) = (world.send("a", "x"), world.send("a", "y"));
    assert_eq!(world.take_back(second), None);
    assert_eq!(world.fate(second), MessageState::Cancelled);
    world.drops_orders = true;
    assert_eq!(world.take_back(first), None);
    assert_eq!(world.fate(first), MessageState::Queued, "the host decides");
    world.drops_orders = false;
    world.pass(12_000);
    assert_eq!(world.fate(first), MessageState::Cancelled);
    assert_eq!(world.take_back(first), None);
    assert_eq!(world.sends().len(), 1);
    let third = world.send("a", "z");
    world.program(agent).decide(third, MessageState::Delivered);
    world.report(agent);
    assert_eq!(world.take_back(third), Some(ErrorCode::Conflict));
}

#[test]
fn an_agent_that_is_to_end_gets_no_text_and_says_so() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.slow(agent);
    world.drops_orders = true;
    world.stop("a");
    let id = world.send("a", "x");
    assert_eq!(world.why_queued(id), "the agent was asked to stop");
    world.drops_orders = false;
    world.pass(12_000);
    assert_eq!(world.sends(), []);
    assert_eq!(world.fate(id), MessageState::NotDelivered);
    world.destroy("a", Discard::Keep);
    assert_eq!(world.fate(id), MessageState::NotDelivered);
}

#[test]
fn texts_that_could_be_commands_or_find_no_room_are_refused_before_anything_is_done() {
    let mut world = World::with(Config { messages_bytes_max: 10, ..crate::tests::world::config() }, &["one"]);
    world.create("a").unwrap();
    let before = world.stored.clone();
    for (text, code) in [
        ("", ErrorCode::Invalid),
        ("\u{1b}[201~", ErrorCode::Invalid),
        ("a\rb", ErrorCode::Invalid),
        ("\0", ErrorCode::Invalid),
        ("\u{9b}", ErrorCode::Invalid),
        (&"x".repeat(513 * 1024), ErrorCode::Invalid),
        ("eleven byte", ErrorCode::Exhausted),
    ] {
        let key = world.key();
        assert_eq!(world.send_as(&key, &["a"], text), Err(code), "{text:?}");
    }
    assert_eq!(world.stored, before);
    let key = world.key();
    assert!(world.send_as(&key, &["a", "a"], "tab\tü").is_err(), "two of six bytes are too many");
    let sent = world.send_as(&key, &["a"], "tab\tü").unwrap();
    assert_eq!(world.fate(sent[0].message.unwrap()), MessageState::Delivered);
}
