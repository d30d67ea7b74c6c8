//! The removal of an agent: what it would lose is looked for before a live one is stopped, and again before anything is
//! taken away.

use hostd_core::{Effect, Found, Input, Removal, Stage, Wanted};
use protocol::agent::{AgentSpec, Phase, Role};
use protocol::event::Fact;
use protocol::order::Discard;
use protocol::report::{Collected, Life};

use super::host::{Bench, agent_id, destroy, ensure, exit, facts, killed, kinds, report, spec, stop};

fn weighed(bench: &mut Bench, holds: &[&str]) -> Vec<Effect> {
    let holds = holds.iter().map(|what| (*what).to_owned()).collect();
    bench.give(Input::Weighed { agent: agent_id(1), holds })
}

/// A host that was told to destroy its live agent 1, and looks at it.
fn weighing() -> Bench {
    let mut bench = Bench::running();
    let shown = report(&bench.order(destroy(1, 2, Discard::Keep)));
    assert_eq!((shown.phase, shown.stopping), (Phase::Running, false), "nothing was done to it");
    bench
}

#[test]
fn a_live_agent_that_holds_the_only_copy_of_work_goes_on_as_it_was() {
    let mut bench = weighing();
    let effects = weighed(&mut bench, &["inner/"]);
    assert_eq!(kinds(&effects), ["save", "report"]);
    let told = report(&effects);
    assert_eq!((told.holds, told.stopping, told.phase), (vec!["inner/".to_owned()], false, Phase::Running));
    assert_eq!(bench.record(1).wanted, Wanted::Running, "no restart tries it again");
    assert_eq!(bench.pass(100_000), vec![]);
    // The same order once more is a question of its own, which the last answer does not decide.
    let told = report(&bench.order(destroy(1, 2, Discard::Keep)));
    assert!(told.holds.is_empty(), "{:?}", told.holds);
    assert!(kinds(&weighed(&mut bench, &[])).contains(&"terminate"));
}

#[test]
fn an_agent_is_looked_at_once_however_often_the_order_comes() {
    let mut bench = weighing();
    assert_eq!(kinds(&bench.order(destroy(1, 2, Discard::Keep))), ["report"]);
    assert_eq!(kinds(&bench.order(destroy(1, 3, Discard::Keep))), ["save", "report"]);
    assert_eq!(kinds(&weighed(&mut bench, &[])), ["save", "terminate", "report"]);
    assert_eq!(weighed(&mut bench, &["late"]), vec![], "it was asked to end");
    assert_eq!(kinds(&bench.order(destroy(1, 3, Discard::Keep))), ["report"], "and is not asked twice");
}

#[test]
fn who_discards_does_not_wait_for_a_look() {
    let mut bench = weighing();
    let effects = bench.order(destroy(1, 3, Discard::Yes));
    assert_eq!(kinds(&effects), ["save", "terminate", "report"]);
    assert_eq!(weighed(&mut bench, &["inner/"]), vec![]);
    assert_eq!(bench.record(1).wanted, Wanted::Destroyed { discard: Discard::Yes });
}

#[test]
fn an_agent_that_is_wanted_again_is_let_be_whatever_the_look_says() {
    // The refusal was told, and the order that was refused has come once more since.
    let mut bench = weighing();
    let effects = bench.order(ensure(1, 3, spec()));
    assert_eq!(kinds(&effects), ["save", "report"]);
    assert_eq!(weighed(&mut bench, &[]), vec![]);
    assert_eq!((bench.record(1).wanted, bench.stage(1)), (Wanted::Running, Stage::Running));
}

#[test]
fn a_look_that_no_hostd_lived_to_tell_of_is_taken_by_the_next() {
    let found = || Found::Alive { facts: Box::new(facts()), exited: None };
    let (mut next, effects) = weighing().adopted(1, found());
    assert!(effects.contains(&Effect::Weigh(agent_id(1))), "{:?}", kinds(&effects));
    assert!(!kinds(&effects).contains(&"terminate"));
    assert_eq!(kinds(&weighed(&mut next, &[])), ["save", "terminate", "report"]);
    let (_, effects) = next.adopted(1, found());
    assert!(kinds(&effects).contains(&"terminate"), "what was asked to end is");
}

#[test]
fn an_agent_that_ends_while_it_is_looked_at_is_decided_by_its_removal() {
    let mut bench = weighing();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert!(kinds(&bench.collected(1)).contains(&"remove"));
    assert_eq!(weighed(&mut bench, &["inner/"]), vec![]);
    assert_eq!(bench.stage(1), Stage::Removing);
}

#[test]
fn a_stop_under_way_is_not_held_up_by_a_look() {
    let mut bench = Bench::running();
    bench.order(stop(1, 2));
    assert_eq!(kinds(&bench.order(destroy(1, 3, Discard::Keep))), ["save", "report"]);
    assert!(kinds(&bench.pass(100_000)).contains(&"kill"));
}

#[test]
fn a_start_on_its_way_is_called_off_unless_there_was_one_before() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.order(destroy(1, 2, Discard::Keep));
    assert!(kinds(&bench.started(1)).contains(&"terminate"), "it has done nothing");

    let mut bench = Bench::ended();
    bench.order(ensure(1, 2, AgentSpec { launch: 2, ..spec() }));
    bench.order(destroy(1, 3, Discard::Keep));
    assert!(kinds(&bench.started(1)).contains(&"weigh"), "its workspace is that of the start before");
    assert!(!report(&weighed(&mut bench, &["inner/"])).stopping);
}

#[test]
fn a_verification_is_never_looked_at() {
    let mut bench = Bench::running_as(AgentSpec { role: Role::Verify, ..spec() });
    assert_eq!(kinds(&bench.order(destroy(1, 2, Discard::Keep))), ["save", "terminate", "report"]);
}

#[test]
fn what_a_look_saw_is_not_said_of_the_ended_agent() {
    let mut bench = weighing();
    weighed(&mut bench, &["inner/"]);
    let ended = report(&bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) }));
    assert!(ended.holds.is_empty(), "it was collected since");
}

/// Of an operator's own agent the report names what was brought home last; an attempt was judged by what it had at
/// its end.
#[test]
fn what_a_removal_brought_home_is_reported_of_an_own_agent_only() {
    for (role, named) in [(Role::Own, "late"), (Role::Attempt, "c1")] {
        let mut bench = Bench::new();
        bench.order(ensure(1, 1, AgentSpec { role, ..spec() }));
        bench.started(1);
        bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
        bench.collected(1);
        bench.order(destroy(1, 2, Discard::Keep));
        let late = Collected { commit: Some("late".into()), ..Collected::default() };
        let outcome = Removal::Done { collected: Some(Box::new(late)), gone: vec![".env".to_owned()] };
        let told = report(&bench.give(Input::Removed { agent: agent_id(1), outcome }));
        assert_eq!(told.collected.unwrap().commit.as_deref(), Some(named), "{role}");
        assert_eq!(told.gone, [".env"]);
    }
}

#[test]
fn destroy_stops_collects_removes_and_leaves_a_tombstone() {
    let mut bench = Bench::running();
    assert_eq!(kinds(&bench.order(destroy(1, 2, Discard::Keep))), ["save", "weigh", "report"]);
    assert_eq!(kinds(&weighed(&mut bench, &[])), ["save", "terminate", "report"]);
    let effects = bench.give(Input::Ended { agent: agent_id(1), exit: killed(15) });
    assert!(kinds(&effects).contains(&"collect"));
    assert_eq!(kinds(&bench.collected(1)), ["save", "remove", "report"]);
    let effects = bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    });
    assert_eq!(kinds(&effects), ["save", "report", "event"]);
    assert_eq!(report(&effects).life, Life::Destroyed);
    assert_eq!(report(&effects).phase, Phase::Stopped);
    assert_eq!(kinds(&bench.order(ensure(1, 9, spec()))), ["save", "report"], "it does not come back");
}

#[test]
fn destroy_of_an_unknown_agent_leaves_a_tombstone() {
    let mut bench = Bench::new();
    let effects = bench.order(destroy(1, 2, Discard::Keep));
    assert_eq!(kinds(&effects), ["save", "remove", "report", "event"]);
    bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    });
    assert_eq!(bench.order(ensure(1, 1, spec())), vec![]);
    assert_eq!(bench.stage(1), Stage::Destroyed);
}

#[test]
fn destroy_is_refused_for_work_that_exists_nowhere_else_until_the_operator_discards_it() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    let refused = Removal::Refused { holds: vec!["2 uncommitted files".into()] };
    let effects = bench.give(Input::Removed { agent: agent_id(1), outcome: refused });
    assert_eq!(kinds(&effects), ["save", "report"]);
    assert_eq!(report(&effects).holds, ["2 uncommitted files"]);
    assert_eq!((report(&effects).life, bench.stage(1)), (Life::Present, Stage::Ended));
    assert!(matches!(bench.record(1).wanted, Wanted::Stopped { .. }), "no restart tries it again");
    let effects = bench.order(destroy(1, 3, Discard::Yes));
    assert!(effects.contains(&Effect::Remove { agent: agent_id(1), discard: Discard::Yes }));
    let effects = bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    });
    assert!(report(&effects).holds.is_empty());
    let told = effects
        .iter()
        .any(|e| matches!(e, Effect::Event { fact: Fact::AgentDestroyed { discarded: true, .. }, .. }));
    assert!(told);
}

#[test]
fn a_discard_that_comes_during_a_refused_removal_wins() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    bench.order(destroy(1, 3, Discard::Yes));
    let refused = Removal::Refused { holds: vec!["x".into()] };
    let effects = bench.give(Input::Removed { agent: agent_id(1), outcome: refused });
    assert!(effects.contains(&Effect::Remove { agent: agent_id(1), discard: Discard::Yes }));
}

#[test]
fn a_removal_that_failed_is_tried_again_and_shown() {
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Keep));
    let failed = Removal::Failed { reason: "busy".into() };
    let told = report(&bench.give(Input::Removed { agent: agent_id(1), outcome: failed }));
    assert_eq!((told.reason.as_str(), told.degraded), ("busy", vec!["remove-failed".to_owned()]));
    assert_eq!(kinds(&bench.pass(10_000)), ["remove"]);
    let told = report(&bench.give(Input::Removed {
        agent: agent_id(1),
        outcome: Removal::Done { collected: None, gone: Vec::new() },
    }));
    assert_eq!((told.life, told.degraded), (Life::Destroyed, vec![]));
    assert_eq!(bench.core.deadline(), None);
}
