//! The rules of messages: taken once, typed in order when the program may be typed to, and never told as more than is
//! known. A small world of a shim and its program, fed with random sequences, judges the whole.

use std::collections::BTreeMap;

use crate::host::{Bench, agent_id, destroy, ensure, exit, facts, kinds, plain_spec, report, stop};
use hostd_core::{Activity, AgentRecord, Core, Effect, Evidence, Found, Input, TypedOutcome};
use proptest::prelude::*;
use protocol::agent::AgentSpec;
use protocol::ids::{Generation, MessageId};
use protocol::message::{MessageFact, MessageState, MessageText, Typing};
use protocol::order::{Command, Discard};
use protocol::signals::{Dialog, Sign, Signals};

fn message_id(n: u64) -> MessageId {
    MessageId::from_parts(1_000, u128::from(n))
}

pub(crate) fn send(number: u64) -> Command {
    let text = MessageText(format!("text {number}"));
    Command::Send {
        agent: agent_id(1),
        generation: Generation(1),
        message: message_id(number),
        number,
        sha256: "0".repeat(64),
        typing: Box::new(Typing { text, press_enter: true, at_once: false, each_line: false }),
    }
}

fn recall(number: u64) -> Command {
    let message = message_id(number);
    Command::Recall { agent: agent_id(1), generation: Generation(1), message, number }
}

pub(crate) fn typed(number: u64, outcome: TypedOutcome) -> Input {
    Input::Typed { agent: agent_id(1), message: message_id(number), outcome }
}

fn waits() -> TypedOutcome {
    TypedOutcome::Waits { reason: "a person is typing".into() }
}

fn fact(bench: &mut Bench, number: u64) -> MessageFact {
    let told = report(&bench.give(Input::ReportAgain { agent: agent_id(1) }));
    told.messages.of(message_id(number)).unwrap().clone()
}

fn state(bench: &mut Bench, number: u64) -> MessageState {
    fact(bench, number).state
}

fn running() -> Bench {
    Bench::running_as(plain_spec())
}

#[test]
fn a_text_and_that_it_may_be_typed_are_on_the_disk_before_the_shim_is_asked() {
    let mut bench = running();
    let effects = bench.order(send(1));
    assert_eq!(kinds(&effects), ["keep-text", "save", "type", "report"]);
    assert_eq!(bench.record(1).messages.entries[0].asked, Some(1));
    let effects = bench.give(typed(1, TypedOutcome::Delivered));
    assert_eq!(kinds(&effects), ["save", "forget-text", "report"]);
    assert_eq!(report(&effects).messages.list[0].state, MessageState::Delivered);
}

#[test]
fn a_number_that_was_taken_is_never_taken_again() {
    let mut bench = running();
    bench.order(send(1));
    assert_eq!(kinds(&bench.order(send(1))), ["report"], "a double is only answered");
    for n in 1..=60 {
        bench.order(send(n));
        bench.give(typed(n, TypedOutcome::Delivered));
    }
    assert!(bench.record(1).messages.entries.len() < 60, "the record is bounded");
    assert_eq!(kinds(&bench.order(send(1))), ["report"], "also when it is forgotten");
    let told = report(&bench.order(send(60)));
    assert!(told.messages.list.len() <= 16 && told.messages.last_number == 60);
}

#[test]
fn messages_are_typed_in_their_order_one_at_a_time() {
    let mut bench = running();
    bench.order(send(1));
    assert_eq!(kinds(&bench.order(send(2))), ["keep-text", "save", "report"]);
    assert_eq!(fact(&mut bench, 2).reason, "one other is typed before it");
    let effects = bench.give(typed(1, TypedOutcome::Delivered));
    assert!(effects.contains(&Effect::Type { agent: agent_id(1), message: message_id(2) }));
}

#[test]
fn nothing_is_typed_before_the_program_runs_and_is_ready() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, AgentSpec { ready_text: Some("> ".into()), ..plain_spec() }));
    assert_eq!(kinds(&bench.order(send(1))), ["keep-text", "save", "report"]);
    assert!(!kinds(&bench.started(1)).contains(&"type"));
    assert!(fact(&mut bench, 1).reason.contains("readiness"));
    assert!(kinds(&bench.give(Input::Ready { agent: agent_id(1) })).contains(&"type"));
}

#[test]
fn while_a_person_types_it_is_tried_again_at_a_pace_without_writing_to_the_disk() {
    let mut bench = running();
    bench.order(send(1));
    assert_eq!(kinds(&bench.give(typed(1, waits()))), ["report"]);
    assert_eq!(fact(&mut bench, 1).reason, "a person is typing");
    assert_eq!(kinds(&bench.pass(1_000)), ["type"]);
    assert_eq!(kinds(&bench.give(typed(1, waits()))), Vec::<&str>::new());
    assert_eq!(kinds(&bench.pass(1_000)), ["type"]);
    bench.give(typed(1, TypedOutcome::Delivered));
    assert_eq!(state(&mut bench, 1), MessageState::Delivered);
    assert_eq!(bench.core.deadline(), None);
}

#[test]
fn the_next_hostd_asks_what_became_of_it_before_it_types_anything() {
    let mut bench = running();
    bench.order(send(1));
    let (mut next, effects) = bench.adopted(1, Found::Alive { facts: Box::new(facts()), exited: None });
    assert!(kinds(&effects).contains(&"ask-typed") && !kinds(&effects).contains(&"type"));
    // No word: it is asked again, and nothing is typed.
    next.give(typed(1, TypedOutcome::NotKnown));
    assert_eq!(kinds(&next.pass(1_000)), ["ask-typed"]);
    let effects = next.give(typed(1, TypedOutcome::NotTyped));
    assert!(kinds(&effects).contains(&"type"), "now it is known that it was not");
}

#[test]
fn without_the_shims_word_it_is_unknown_and_with_it_not_delivered() {
    let ended = || Input::Ended { agent: agent_id(1), exit: exit(0) };
    let mut bench = running();
    bench.order(send(1));
    bench.order(send(2));
    // The word about the first one is still to come; the second was never begun.
    bench.give(ended());
    assert_eq!(state(&mut bench, 1), MessageState::Queued);
    assert_eq!(state(&mut bench, 2), MessageState::NotDelivered);
    let mut other = Bench { core: bench.core.clone(), now: bench.now };
    bench.give(typed(1, TypedOutcome::NotKnown));
    assert_eq!(state(&mut bench, 1), MessageState::Unknown);
    other.give(typed(1, TypedOutcome::Delivered));
    assert_eq!(state(&mut other, 1), MessageState::Delivered);

    let mut bench = running();
    bench.order(send(1));
    let lost = Found::Lost { detail: "x".into(), facts: Box::new(facts()) };
    let (mut next, _) = bench.adopted(1, lost);
    assert_eq!(state(&mut next, 1), MessageState::Unknown);

    let mut bench = running();
    bench.order(send(1));
    bench.give(typed(1, waits()));
    bench.give(ended());
    assert_eq!(state(&mut bench, 1), MessageState::NotDelivered);
}

#[test]
fn a_message_to_an_ended_agent_is_not_delivered_and_one_to_nobody_changes_nothing() {
    let mut bench = running();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    let effects = bench.order(send(1));
    assert_eq!(kinds(&effects), ["save", "forget-text", "report"]);
    assert_eq!(state(&mut bench, 1), MessageState::NotDelivered);
    assert_eq!(Bench::new().order(send(1)), vec![]);
    assert_eq!(Bench::new().order(recall(1)), vec![]);
}

#[test]
fn an_agent_that_is_to_stop_is_not_typed_to() {
    let mut bench = running();
    bench.order(send(1));
    bench.order(send(2));
    bench.order(stop(1, 2));
    assert_eq!(state(&mut bench, 2), MessageState::NotDelivered);
    assert_eq!(state(&mut bench, 1), MessageState::Queued, "its word comes");
    bench.give(typed(1, waits()));
    assert_eq!(state(&mut bench, 1), MessageState::NotDelivered);
}

#[test]
fn nothing_is_typed_while_it_is_decided_whether_the_agent_is_destroyed() {
    let mut bench = running();
    bench.order(send(1));
    bench.give(typed(1, waits()));
    bench.order(destroy(1, 2, Discard::Keep));
    assert!(!kinds(&bench.pass(60_000)).contains(&"type"));
    assert_eq!(state(&mut bench, 1), MessageState::Queued);
    let mut effects = bench.give(Input::Weighed { agent: agent_id(1), holds: vec!["inner/".into()] });
    effects.extend(bench.pass(60_000));
    assert!(kinds(&effects).contains(&"type"), "{:?}", kinds(&effects));
    // Asked to end after all: it is told so.
    let mut bench = running();
    bench.order(send(1));
    bench.give(typed(1, waits()));
    bench.order(destroy(1, 2, Discard::Keep));
    bench.give(Input::Weighed { agent: agent_id(1), holds: Vec::new() });
    assert_eq!(state(&mut bench, 1), MessageState::NotDelivered);
}

#[test]
fn a_send_of_an_older_generation_changes_nothing() {
    let mut bench = running();
    bench.order(ensure(1, 4, plain_spec()));
    assert_eq!(bench.order(send(1)), vec![]);
}

#[test]
fn what_was_taken_back_is_not_typed_and_what_was_typed_is_not_taken_back() {
    let mut bench = running();
    bench.order(send(1));
    bench.order(send(2));
    assert!(kinds(&bench.order(recall(2))).contains(&"forget-text"));
    assert_eq!(state(&mut bench, 2), MessageState::Cancelled);
    bench.order(recall(1));
    assert_eq!(state(&mut bench, 1), MessageState::Queued, "the shim is at it");
    let mut other = Bench { core: bench.core.clone(), now: bench.now };
    bench.give(typed(1, TypedOutcome::Delivered));
    assert_eq!(state(&mut bench, 1), MessageState::Delivered);
    other.give(typed(1, waits()));
    assert_eq!(state(&mut other, 1), MessageState::Cancelled);
    // One that overtook its message.
    bench.order(recall(3));
    assert_eq!(state(&mut bench, 3), MessageState::Cancelled);
    assert!(!kinds(&bench.order(send(3))).contains(&"type"));
}

/// What happens to a host with one agent, in any order.
#[derive(Clone, Debug)]
enum Step {
    Send,
    /// The message so many before the last one, again.
    Double(u64),
    Recall(u64),
    /// The shim takes the oldest job of the shell and does with it what `luck` says; its answer may get lost.
    Work {
        luck: u8,
        is_heard: bool,
    },
    Pass(u64),
    RestartHostd,
    Stop,
    End,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Send),
        2 => (0..4_u64).prop_map(Step::Double),
        1 => (0..4_u64).prop_map(Step::Recall),
        8 => (0..6_u8, prop::bool::weighted(0.8)).prop_map(|(luck, is_heard)| Step::Work { luck, is_heard }),
        4 => (0..3_000_u64).prop_map(Step::Pass),
        2 => Just(Step::RestartHostd),
        1 => Just(Step::Stop),
        1 => Just(Step::End),
    ]
}

/// A host's disk, its shell's jobs, and a shim that types.
struct Small {
    bench: Bench,
    disk: AgentRecord,
    jobs: Vec<Effect>,
    /// What the program got, in order.
    program: Vec<MessageId>,
    /// What the shim knows.
    shim: BTreeMap<MessageId, TypedOutcome>,
    halves: Vec<MessageId>,
    sent: u64,
    ended: bool,
    decided: BTreeMap<MessageId, MessageState>,
}

impl Small {
    fn new() -> Self {
        let bench = running();
        let disk = bench.record(1);
        Self {
            bench,
            disk,
            jobs: Vec::new(),
            program: Vec::new(),
            shim: BTreeMap::new(),
            halves: Vec::new(),
            sent: 0,
            ended: false,
            decided: BTreeMap::new(),
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Send => {
                self.sent += 1;
                let order = send(self.sent);
                self.order(order);
            }
            Step::Double(back) if *back < self.sent => self.order(send(self.sent - back)),
            Step::Recall(back) if *back < self.sent => self.order(recall(self.sent - back)),
            Step::Double(_) | Step::Recall(_) => {}
            Step::Work { luck, is_heard } => self.work(*luck, *is_heard),
            Step::Pass(ms) => {
                let effects = self.bench.pass(*ms);
                self.carry_out(effects);
            }
            Step::RestartHostd => self.restart(),
            Step::Stop => self.order(stop(1, 1)),
            Step::End => {
                self.ended = true;
                self.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
            }
        }
    }

    fn order(&mut self, command: Command) {
        let effects = self.bench.order(command);
        self.carry_out(effects);
    }

    fn give(&mut self, input: Input) {
        let effects = self.bench.give(input);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Save(record) => self.disk = *record,
                Effect::Type { message, .. } => {
                    assert!(
                        self.disk.messages.entries.iter().any(|e| e.message == message && e.asked.is_some())
                    );
                    self.jobs.push(effect);
                }
                Effect::AskTyped { .. } => self.jobs.push(effect),
                _ => {}
            }
        }
    }

    fn work(&mut self, luck: u8, is_heard: bool) {
        if self.jobs.is_empty() {
            return;
        }
        let (message, types) = match self.jobs.remove(0) {
            Effect::Type { message, .. } => (message, true),
            Effect::AskTyped { message, .. } => (message, false),
            other => unreachable!("{other:?}"),
        };
        let known = self.shim.get(&message).cloned();
        let answer = match (known, types, luck) {
            _ if self.ended => TypedOutcome::NotKnown,
            (Some(known), ..) => known,
            (None, false, _) => TypedOutcome::NotTyped,
            (None, true, 0) => waits(),
            (None, true, 1) => TypedOutcome::NotDelivered { reason: "a line is too long".into() },
            (None, true, 2) => {
                self.halves.push(message);
                let unknown = TypedOutcome::Unknown { reason: "half".into() };
                self.shim.insert(message, unknown.clone());
                unknown
            }
            (None, true, _) => {
                self.program.push(message);
                self.shim.insert(message, TypedOutcome::Delivered);
                TypedOutcome::Delivered
            }
        };
        let outcome = if is_heard { answer } else { TypedOutcome::NotKnown };
        self.give(Input::Typed { agent: agent_id(1), message, outcome });
    }

    /// A kill -9: what the shell was at is cut off, before or after the shim had done it.
    fn restart(&mut self) {
        self.jobs.clear();
        let facts = Box::new(facts());
        let found = if self.ended {
            Found::Ended { exit: exit(0), facts }
        } else {
            Found::Alive { facts, exited: None }
        };
        let now = self.bench.now;
        self.bench =
            Bench { core: Core::new(crate::host::config(self.bench.core.incarnation().next())), now };
        self.give(Input::Found { record: Box::new(self.disk.clone()), found });
    }

    fn judge(&mut self) {
        let mut order = self.program.clone();
        order.sort();
        order.dedup();
        assert_eq!(order, self.program, "typed once, in order");
        for entry in &self.disk.messages.entries {
            let (message, state) = (entry.message, entry.state);
            let typed = self.program.contains(&message);
            match state {
                MessageState::Delivered => assert!(typed, "{message} was told as delivered"),
                MessageState::NotDelivered | MessageState::Cancelled => {
                    assert!(!typed && !self.halves.contains(&message), "{message} was told as {state}");
                }
                MessageState::Queued | MessageState::Unknown => {}
            }
            if state.is_final() {
                let first = *self.decided.entry(message).or_insert(state);
                assert_eq!(first, state, "a final state changed");
            }
        }
    }

    /// All that is under way comes to its end.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.work(5, true);
            self.take(&Step::Pass(1_000));
        }
        self.judge();
        let open = self.disk.messages.entries.iter().filter(|entry| !entry.state.is_final()).count();
        assert_eq!(open, 0, "nothing is left undecided: {:?}", self.disk.messages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_a_message_is_typed_at_most_once_and_told_as_it_is(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut small = Small::new();
        for step in &steps {
            small.take(step);
            small.judge();
        }
        small.settle();
    }
}

fn seen(bench: &mut Bench, activity: Activity) {
    bench.give(Input::Signalled { agent: agent_id(1), activity, evidence: Evidence::Screen });
}

/// Ready, and its screen tells what it does.
fn signalling() -> Bench {
    let signals = Signals { idle: vec![Sign::default()], ..Signals::default() };
    let mut bench = Bench::running_as(AgentSpec { signals: Some(Box::new(signals)), ..plain_spec() });
    bench.give(Input::Ready { agent: agent_id(1) });
    bench
}

#[test]
fn a_program_with_signals_is_typed_to_at_its_prompt_and_at_work_only_where_that_is_said() {
    let mut bench = signalling();
    seen(&mut bench, Activity::Busy);
    assert!(!kinds(&bench.order(send(1))).contains(&"type"), "it is at work");
    assert!(fact(&mut bench, 1).reason.contains("at work"));
    let idle = Input::Signalled { agent: agent_id(1), activity: Activity::Idle, evidence: Evidence::Screen };
    assert!(kinds(&bench.give(idle)).contains(&"type"), "at its prompt");
    bench.give(typed(1, TypedOutcome::Delivered));

    seen(&mut bench, Activity::Asking(Dialog { text: "go on?".into(), choices: Vec::new() }));
    let mut at_once = send(2);
    if let Command::Send { typing, .. } = &mut at_once {
        typing.at_once = true;
    }
    assert!(!kinds(&bench.order(at_once)).contains(&"type"), "a dialog is never answered");
    let busy = Input::Signalled { agent: agent_id(1), activity: Activity::Busy, evidence: Evidence::Screen };
    assert!(kinds(&bench.give(busy)).contains(&"type"), "at work, as was said");
}

#[test]
fn a_turn_is_over_at_the_first_prompt_that_was_seen_after_the_delivery() {
    let mut bench = signalling();
    seen(&mut bench, Activity::Idle);
    bench.order(send(1));
    bench.give(typed(1, TypedOutcome::Delivered));
    seen(&mut bench, Activity::Idle);
    assert_eq!(fact(&mut bench, 1).turn_done_at, None, "seen before it could take notice");
    seen(&mut bench, Activity::Busy);
    bench.pass(5_000);
    assert_eq!(fact(&mut bench, 1).turn_done_at, None);
    seen(&mut bench, Activity::Idle);
    let done = fact(&mut bench, 1).turn_done_at;
    assert_eq!(done, Some(bench.now));
    bench.pass(5_000);
    seen(&mut bench, Activity::Idle);
    assert_eq!(fact(&mut bench, 1).turn_done_at, done, "once");
}
