//! What a new hostd makes of each state in which it can find an agent's folder.

use crate::host::{
    Bench, GRACE_MS, INCARNATION, agent_id, destroy, ensure, exit, facts, killed, kinds, report, spec, stop,
};
use hostd_core::{Effect, Found, Input, Removal, Stage, Wanted};
use protocol::agent::{EndCause, Phase};
use protocol::ids::Seq;
use protocol::order::Discard;
use protocol::report::Life;

fn alive() -> Found {
    Found::Alive { facts: Box::new(facts()), exited: None }
}

#[test]
fn a_running_agent_goes_on_and_is_told_in_the_new_incarnation() {
    let bench = Bench::running();
    let (next, effects) = bench.adopted(1, alive());
    assert_eq!(kinds(&effects)[0], "report", "nothing is done to it");
    let told = report(&effects);
    assert_eq!((told.phase, told.incarnation, told.seq), (Phase::Running, INCARNATION.next(), Seq(1)));
    assert_eq!(next.stage(1), Stage::Running);
}

#[test]
fn an_agent_that_never_started_is_created_once() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    let (mut next, effects) = bench.adopted(1, Found::NeverStarted);
    assert_eq!(kinds(&effects), ["create", "report"]);
    let again = Input::Found { record: Box::new(bench.record(1)), found: Found::NeverStarted };
    assert_eq!(next.give(again), vec![], "a folder is adopted once");
}

#[test]
fn an_agent_that_was_stopped_before_it_started_is_never_created() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.order(stop(1, 2));
    let (next, effects) = bench.adopted(1, Found::NeverStarted);
    assert_eq!(kinds(&effects), ["save", "report", "event"]);
    assert_eq!(report(&effects).end.unwrap().cause, EndCause::Requested);
    assert_eq!(next.stage(1), Stage::Ended);
}

#[test]
fn a_stop_goes_on_where_the_last_hostd_left_it() {
    let mut bench = Bench::running();
    bench.order(stop(1, 2));
    let (mut next, effects) = bench.adopted(1, alive());
    assert_eq!(kinds(&effects)[0], "terminate");
    assert_eq!(kinds(&next.pass(GRACE_MS)), ["kill"]);
    let exited = Found::Alive { facts: Box::new(facts()), exited: Some(exit(0)) };
    assert_eq!(kinds(&bench.adopted(1, exited).1)[..2], ["terminate", "kill"]);
}

#[test]
fn each_found_end_has_its_cause() {
    let table = [
        (Found::Ended { exit: exit(0), facts: Box::new(facts()) }, EndCause::Exited, Phase::Stopped),
        (Found::Ended { exit: killed(11), facts: Box::new(facts()) }, EndCause::Signalled, Phase::Crashed),
        (
            Found::Lost { detail: "x".into(), facts: Box::new(facts()) },
            EndCause::SupervisorLost,
            Phase::Crashed,
        ),
        (Found::Rebooted { facts: Box::new(facts()) }, EndCause::Rebooted, Phase::Crashed),
    ];
    for (found, cause, phase) in table {
        let (next, effects) = Bench::running().adopted(1, found);
        assert_eq!(kinds(&effects), ["save", "collect", "report", "event"]);
        let told = report(&effects);
        assert_eq!((told.end.unwrap().cause, told.phase), (cause, phase));
        assert_eq!(told.started_at, Some(facts().started_at));
        assert_eq!(next.stage(1), Stage::Collecting);
    }
}

#[test]
fn a_program_that_left_others_behind_is_found_draining() {
    let exited = Found::Alive { facts: Box::new(facts()), exited: Some(exit(0)) };
    let (next, effects) = Bench::running().adopted(1, exited);
    assert!(report(&effects).draining);
    assert!(!kinds(&effects).contains(&"kill"));
    assert_eq!(next.stage(1), Stage::Draining);
}

#[test]
fn a_recorded_end_is_final_whatever_is_found() {
    for found in [
        alive(),
        Found::NeverStarted,
        Found::Rebooted { facts: Box::new(facts()) },
        Found::Ended { exit: exit(9), facts: Box::new(facts()) },
    ] {
        let bench = Bench::ended();
        let (next, effects) = bench.adopted(1, found);
        assert_eq!(kinds(&effects), ["report"], "no event either: it was told when it happened");
        assert_eq!(report(&effects).end, bench.record(1).end);
        assert_eq!(next.stage(1), Stage::Ended);
    }
}

#[test]
fn work_that_was_not_collected_is_collected_after_a_restart() {
    let mut bench = Bench::running();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    let (_, effects) = bench.adopted(1, Found::Ended { exit: exit(0), facts: Box::new(facts()) });
    assert_eq!(kinds(&effects), ["collect", "report"]);
}

#[test]
fn a_removal_goes_on_after_a_restart() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Yes));
    let (_, effects) = bench.adopted(1, Found::Ended { exit: exit(0), facts: Box::new(facts()) });
    assert!(effects.contains(&Effect::Remove { agent: agent_id(1), discard: Discard::Yes }));
}

#[test]
fn an_archived_agent_stays_destroyed_and_is_told_as_an_event_once() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    // The daemon died between the removal and its record.
    let (next, effects) = bench.adopted(1, Found::Archived);
    assert_eq!(kinds(&effects), ["save", "report", "event"]);
    assert_eq!(report(&effects).life, Life::Destroyed);
    let (mut last, effects) = next.adopted(1, Found::Archived);
    assert_eq!(kinds(&effects), ["report"]);
    assert_eq!(kinds(&last.order(ensure(1, 5, spec()))), ["save", "report"]);
    assert_eq!(last.stage(1), Stage::Destroyed);
}

#[test]
fn a_refused_removal_is_not_tried_again_by_a_restart() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    let refused = Removal::Refused { holds: vec!["x".into()] };
    bench.give(Input::Removed { agent: agent_id(1), outcome: refused });
    let (next, effects) = bench.adopted(1, Found::Ended { exit: exit(0), facts: Box::new(facts()) });
    assert_eq!(kinds(&effects), ["report"]);
    assert!(matches!(next.record(1).wanted, Wanted::Stopped { .. }));
}

#[test]
fn only_a_destroyed_agent_is_forgotten_and_not_while_an_order_of_it_may_be_on_its_way() {
    let forget = || Input::Forget { agent: agent_id(1) };
    let forgotten = || Input::Forgotten { agent: agent_id(1) };
    let mut bench = Bench::ended();
    assert_eq!(bench.give(forget()), vec![], "it is there");
    assert_eq!(bench.give(forgotten()), vec![]);
    bench.order(destroy(1, 2, Discard::Keep));
    bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    });
    assert_eq!(bench.give(forget()), vec![], "an order that makes it may come late");
    bench.pass(60_000);
    assert_eq!(bench.give(forget()), vec![Effect::Forget(agent_id(1))]);
    assert_eq!(bench.give(forget()), vec![Effect::Forget(agent_id(1))], "repeatable until it is done");
    bench.give(forgotten());
    assert!(bench.core.agent(agent_id(1)).is_none());
    assert_eq!(bench.give(forget()), vec![]);
}

#[test]
fn an_archive_of_an_earlier_life_is_forgotten_at_once() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    });
    let mut record = bench.record(1);
    record.created_at = protocol::time::Timestamp(INCARNATION.0.saturating_sub(1));
    let mut next = Bench::restarted();
    next.give(Input::Found { record: Box::new(record), found: Found::Archived });
    assert_eq!(next.give(Input::Forget { agent: agent_id(1) }), vec![Effect::Forget(agent_id(1))]);
}
