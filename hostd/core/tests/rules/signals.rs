//! What signals make of an agent's phase, and what they never do.

use hostd_core::{Activity, Effect, Evidence, Found, Input, Stage, TypedOutcome};
use protocol::agent::{AgentSpec, Phase};
use protocol::event::Fact;
use protocol::signals::{Dialog, PhaseReason, Sign, Signals};

use crate::host::{Bench, agent_id, ensure, exit, facts, kinds, plain_spec, report, stop};

fn signals() -> Signals {
    let sign = |pattern: &str| vec![Sign { screen: Some(pattern.into()), ..Sign::default() }];
    Signals { asking: sign("sure?"), idle: sign("> "), ..Signals::default() }
}

fn signalling() -> AgentSpec {
    AgentSpec { signals: Some(Box::new(signals())), ..plain_spec() }
}

fn running() -> Bench {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, signalling()));
    bench.started(1);
    bench
}

fn dialog() -> Dialog {
    Dialog { text: "are you sure?".into(), choices: vec!["1. Yes".into(), "2. No".into()] }
}

fn seen(bench: &mut Bench, activity: Activity) -> Vec<Effect> {
    bench.give(Input::Signalled { agent: agent_id(1), activity, evidence: Evidence::Screen })
}

#[test]
fn a_message_for_one_that_asks_before_it_is_ready_waits_for_the_answer() {
    let mut bench = running();
    seen(&mut bench, Activity::Asking(dialog()));
    let told = report(&bench.order(crate::messages::send(1)));
    let waits = &told.messages.list[0].reason;
    assert!(!told.ready && waits.contains("asks a person something"), "{waits}");
}

#[test]
fn a_phase_follows_what_is_seen_and_each_change_is_an_event() {
    let mut bench = running();
    let rows = [
        (Activity::Idle, Phase::Paused, Some(PhaseReason::TurnDone), "screen"),
        (Activity::Asking(dialog()), Phase::Blocked, Some(PhaseReason::Question), "screen"),
        (Activity::Busy, Phase::Running, None, "screen"),
        (Activity::Idle, Phase::Paused, Some(PhaseReason::TurnDone), "screen"),
        (Activity::Unknown, Phase::Running, None, "process"),
    ];
    for (activity, phase, reason, source) in rows {
        let effects = seen(&mut bench, activity.clone());
        let told = report(&effects);
        assert_eq!((told.phase, told.phase_reason, told.source.as_str()), (phase, reason, source));
        assert_eq!(told.dialog.is_some(), phase == Phase::Blocked);
        let event = effects.iter().find_map(|effect| match effect {
            Effect::Event { fact: Fact::AgentPhase { phase, reason, end: None, .. }, .. } => {
                Some((*phase, *reason))
            }
            _ => None,
        });
        assert_eq!(event, Some((phase, reason)));
        assert_eq!(kinds(&effects), ["report", "event"], "nothing is saved or done for it");
        assert_eq!(kinds(&seen(&mut bench, activity)), Vec::<&str>::new(), "the same again is no news");
    }
}

#[test]
fn another_question_is_reported_and_is_no_change_of_phase() {
    let mut bench = running();
    seen(&mut bench, Activity::Asking(dialog()));
    let effects = seen(&mut bench, Activity::Asking(Dialog { text: "and now?".into(), choices: Vec::new() }));
    assert_eq!(kinds(&effects), ["report"]);
    assert_eq!(report(&effects).reason, "it asks: and now?");
}

#[test]
fn what_processes_show_is_called_so() {
    let mut bench = running();
    let busy = Input::Signalled { agent: agent_id(1), activity: Activity::Busy, evidence: Evidence::Process };
    bench.give(busy);
    let again = bench.give(Input::ReportAgain { agent: agent_id(1) });
    assert_eq!((report(&again).phase, report(&again).source.as_str()), (Phase::Running, "process"));
}

#[test]
fn an_agent_with_signs_is_ready_once_one_was_seen_and_one_without_at_once() {
    let mut bench = running();
    assert!(!bench.core.agent(agent_id(1)).unwrap().ready);
    bench.give(Input::Ready { agent: agent_id(1) });
    assert!(bench.core.agent(agent_id(1)).unwrap().ready);

    let mut bench = Bench::new();
    let only_asks = Signals { idle: Vec::new(), ..signals() };
    bench.order(ensure(1, 1, AgentSpec { signals: Some(Box::new(only_asks)), ..plain_spec() }));
    bench.started(1);
    assert!(bench.core.agent(agent_id(1)).unwrap().ready, "no sign would ever say so");
}

#[test]
fn an_agent_without_signals_is_running_whatever_is_said_of_it() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, plain_spec()));
    bench.started(1);
    assert_eq!(kinds(&seen(&mut bench, Activity::Idle)), Vec::<&str>::new());
}

#[test]
fn what_comes_before_the_start_or_after_the_end_changes_nothing() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, signalling()));
    assert_eq!(seen(&mut bench, Activity::Idle), vec![]);
    bench.started(1);
    seen(&mut bench, Activity::Idle);
    let ended = bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    let told = report(&ended);
    assert_eq!((told.phase, told.phase_reason), (Phase::Stopped, None));
    assert_eq!(seen(&mut bench, Activity::Asking(dialog())), vec![]);
}

#[test]
fn a_program_that_is_gone_shows_nothing_while_others_of_it_live() {
    let mut bench = running();
    seen(&mut bench, Activity::Asking(dialog()));
    let left = bench.give(Input::Exited { agent: agent_id(1), exit: exit(0) });
    let told = report(&left);
    assert_eq!((told.phase, told.draining, told.dialog), (Phase::Running, true, None));
}

#[test]
fn one_that_is_asked_to_stop_keeps_its_phase_until_it_ends() {
    let mut bench = running();
    seen(&mut bench, Activity::Idle);
    let told = report(&bench.order(stop(1, 2)));
    assert_eq!((told.phase, told.stopping), (Phase::Paused, true));
}

#[test]
fn after_a_restart_the_phase_is_derived_anew() {
    let mut bench = running();
    seen(&mut bench, Activity::Idle);
    let record = bench.record(1).clone();
    let mut next = Bench::new();
    let found = Found::Alive { facts: Box::new(facts()), exited: None };
    let effects = next.give(Input::Found { record: Box::new(record), found });
    assert_eq!(next.core.agent(agent_id(1)).unwrap().stage, Stage::Running);
    assert_eq!((report(&effects).phase, report(&effects).ready), (Phase::Running, false));
    assert_eq!(report(&seen(&mut next, Activity::Idle)).phase, Phase::Paused);
}

#[test]
fn a_prompt_that_was_seen_before_a_text_was_typed_is_not_the_end_of_its_turn() {
    let mut bench = running();
    bench.give(Input::Ready { agent: agent_id(1) });
    seen(&mut bench, Activity::Idle);
    assert!(kinds(&bench.order(crate::messages::send(1))).contains(&"type"));
    let told = report(&bench.give(crate::messages::typed(1, TypedOutcome::Delivered)));
    assert_eq!((told.phase, told.phase_reason, told.source.as_str()), (Phase::Running, None, "process"));
    seen(&mut bench, Activity::Idle);
    assert!(
        !kinds(&bench.order(crate::messages::send(2))).contains(&"type"),
        "it was seen before the text was"
    );
    bench.pass(1_000);
    assert!(kinds(&seen(&mut bench, Activity::Idle)).contains(&"type"), "and this one after it");

    // A program that draws nothing for a text is at the same prompt still.
    bench.give(crate::messages::typed(2, TypedOutcome::Delivered));
    bench.order(crate::messages::send(3));
    assert!(bench.pass(2_900).is_empty());
    assert_eq!(kinds(&bench.pass(200)), ["save", "type", "report", "event"]);

    // What it is seen to do counts at once.
    bench.give(crate::messages::typed(3, TypedOutcome::Delivered));
    let told = report(&seen(&mut bench, Activity::Asking(dialog())));
    assert_eq!(told.phase, Phase::Blocked);
    assert!(bench.pass(5_000).is_empty());
}
