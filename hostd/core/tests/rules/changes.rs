//! The rules of changes: what is wanted comes into force step by step, what is refused is told, and an ended agent runs
//! again only when an order says so.

use crate::host::{
    Bench, agent_id, destroy, ensure, exit, facts, killed, kinds, plain_spec, report, spec, stop,
};
use hostd_core::{Effect, ExitSeen, Found, Input, LimitsRead, Stage, StartFacts, Wanted};
use protocol::agent::{AgentSpec, EndCause, Phase, ResourceLimits, StartStep};
use protocol::order::{Command, Discard};

fn frozen(spec: AgentSpec) -> AgentSpec {
    AgentSpec { frozen: true, ..spec }
}

fn limits(pids: u64) -> ResourceLimits {
    ResourceLimits { pids: Some(pids), ..ResourceLimits::default() }
}

fn limited(pids: u64) -> AgentSpec {
    AgentSpec { limits: limits(pids), ..spec() }
}

fn again(launch: u32) -> AgentSpec {
    AgentSpec { launch, ..spec() }
}

fn told_frozen(bench: &mut Bench, frozen: bool, failed: Option<&str>) -> Vec<Effect> {
    bench.give(Input::Frozen { agent: agent_id(1), frozen, failed: failed.map(str::to_owned) })
}

fn told_limits(bench: &mut Bench, limits: ResourceLimits, refused: Option<&str>) -> Vec<Effect> {
    let read = LimitsRead { enforced: vec!["pids".into()], degraded: Vec::new() };
    let refused = refused.map(str::to_owned);
    bench.give(Input::LimitsSet { agent: agent_id(1), limits, read, refused })
}

// Standing still

#[test]
fn a_freeze_is_saved_then_asked_for_and_told_when_the_kernel_says_so() {
    let mut bench = Bench::running();
    let effects = bench.order(ensure(1, 2, frozen(spec())));
    assert_eq!(kinds(&effects), ["save", "freeze", "report"]);
    assert_eq!((report(&effects).phase, report(&effects).spec.frozen), (Phase::Running, false));
    assert_eq!(kinds(&bench.order(ensure(1, 2, frozen(spec())))), ["report"], "one step at a time");
    let told = report(&told_frozen(&mut bench, true, None));
    assert_eq!((told.phase, told.spec.frozen, told.reason.as_str()), (Phase::Paused, true, "frozen"));
    let effects = bench.order(ensure(1, 3, spec()));
    assert_eq!(kinds(&effects), ["save", "thaw", "report"]);
    assert_eq!(report(&told_frozen(&mut bench, false, None)).phase, Phase::Running);
}

#[test]
fn a_freeze_that_fails_is_told_and_tried_again_at_a_pace() {
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, frozen(spec())));
    let told = report(&told_frozen(&mut bench, false, Some("a disk stands still")));
    assert_eq!((told.phase, told.unmet[0].what.as_str()), (Phase::Running, "frozen"));
    assert_eq!(told.unmet[0].why, "a disk stands still");
    assert!(!kinds(&bench.pass(4_900)).contains(&"freeze"));
    assert!(kinds(&bench.pass(200)).contains(&"freeze"));
    assert!(report(&told_frozen(&mut bench, true, None)).unmet.is_empty());
    // Another wish comes while it stands still.
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, frozen(spec())));
    assert!(!kinds(&bench.order(ensure(1, 3, spec()))).contains(&"thaw"), "the freeze is on its way");
    assert_eq!(kinds(&told_frozen(&mut bench, true, None)), ["thaw", "report", "event"]);
}

#[test]
fn a_frozen_agent_that_is_to_stop_is_thawed_so_that_it_can() {
    for command in [stop(1, 3), destroy(1, 3, Discard::Yes)] {
        let mut bench = Bench::running();
        bench.order(ensure(1, 2, frozen(spec())));
        told_frozen(&mut bench, true, None);
        assert_eq!(kinds(&bench.order(command)), ["save", "terminate", "thaw", "report"]);
        assert_eq!(report(&told_frozen(&mut bench, false, None)).phase, Phase::Running);
    }
}

#[test]
fn an_agent_that_is_frozen_before_it_is_started_stands_still_from_then_on() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    assert!(!kinds(&bench.order(ensure(1, 2, frozen(spec())))).contains(&"freeze"));
    assert!(kinds(&bench.started(1)).contains(&"freeze"));
}

#[test]
fn whether_an_adopted_agent_stands_still_is_what_the_kernel_says() {
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, frozen(spec())));
    let still = |frozen| {
        let facts = Box::new(StartFacts { frozen, ..facts() });
        Found::Alive { facts, exited: None }
    };
    let (_, effects) = bench.adopted(1, still(true));
    assert_eq!((kinds(&effects), report(&effects).phase), (vec!["report", "event"], Phase::Paused));
    let (_, effects) = bench.adopted(1, still(false));
    assert_eq!(kinds(&effects), ["freeze", "report", "event"]);
    bench.order(ensure(1, 3, spec()));
    let (_, effects) = bench.adopted(1, still(true));
    assert!(kinds(&effects).contains(&"thaw"));
}

#[test]
fn what_has_ended_stands_still_no_more() {
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, frozen(spec())));
    told_frozen(&mut bench, true, None);
    let told = report(&bench.give(Input::Ended { agent: agent_id(1), exit: killed(9) }));
    assert_eq!((told.phase, told.spec.frozen), (Phase::Crashed, false));
    assert_eq!(told_frozen(&mut bench, true, None), vec![], "late");
}

// Name, labels, limits

#[test]
fn name_and_labels_are_in_force_once_they_are_saved() {
    let mut bench = Bench::running();
    let labels = [("team".to_owned(), "core".to_owned())].into();
    let changed = AgentSpec { name: "b".parse().unwrap(), labels, ..spec() };
    let effects = bench.order(ensure(1, 2, changed.clone()));
    assert_eq!(kinds(&effects), ["save", "rename", "report"]);
    let told = report(&effects);
    assert_eq!((told.spec.name, told.spec.labels), (changed.name.clone(), changed.labels.clone()));
    // An older order that was overtaken takes nothing back.
    assert_eq!(bench.order(ensure(1, 1, spec())), vec![]);
    assert_eq!(bench.record(1).spec.name, changed.name);
    // With a stop too, and of one that has ended.
    let mut bench = Bench::ended();
    let order = Command::Stop {
        agent: agent_id(1),
        generation: changed_generation(),
        grace_ms: 0,
        spec: Box::new(changed),
    };
    assert_eq!(report(&bench.order(order)).spec.name.as_str(), "b");
}

fn changed_generation() -> protocol::ids::Generation {
    protocol::ids::Generation(2)
}

#[test]
fn what_is_fixed_at_creation_stays_whatever_an_order_says() {
    let mut bench = Bench::running();
    let other =
        AgentSpec { program: vec!["false".into()], grace_ms: 1, user: Some("root".into()), ..plain_spec() };
    bench.order(ensure(1, 2, other));
    let record = bench.record(1);
    assert_eq!(
        (record.spec.program, record.spec.checkout, record.spec.user),
        (spec().program, spec().checkout, None)
    );
}

#[test]
fn limits_are_in_force_only_once_the_machine_has_taken_them() {
    let mut bench = Bench::running();
    let effects = bench.order(ensure(1, 2, limited(10)));
    assert_eq!(kinds(&effects), ["save", "set-limits", "report"]);
    assert_eq!(report(&effects).spec.limits, ResourceLimits::default());
    let effects = told_limits(&mut bench, limits(10), None);
    assert_eq!(kinds(&effects), ["save", "report"]);
    assert_eq!(
        (report(&effects).spec.limits, report(&effects).enforced),
        (limits(10), vec!["pids".to_owned()])
    );
}

#[test]
fn refused_limits_are_told_and_not_tried_again_by_themselves() {
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, limited(10)));
    let told = report(&told_limits(&mut bench, limits(10), Some("it holds more")));
    assert_eq!((told.spec.limits, told.unmet[0].why.as_str()), (ResourceLimits::default(), "it holds more"));
    assert!(bench.pass(60_000).is_empty());
    assert!(kinds(&bench.order(ensure(1, 3, limited(10)))).contains(&"set-limits"), "a newer order does");
    // A new hostd cannot know how far the last one came.
    let (_, effects) = bench.adopted(1, Found::Alive { facts: Box::new(facts()), exited: None });
    assert!(kinds(&effects).contains(&"set-limits"));
}

#[test]
fn limits_that_were_overtaken_are_followed_by_the_wanted_ones() {
    let mut bench = Bench::running();
    bench.order(ensure(1, 2, limited(10)));
    assert!(!kinds(&bench.order(ensure(1, 3, limited(20)))).contains(&"set-limits"), "one step at a time");
    let effects = told_limits(&mut bench, limits(10), None);
    assert!(kinds(&effects).contains(&"set-limits"));
    assert_eq!(report(&effects).spec.limits, limits(10));
    assert_eq!(report(&told_limits(&mut bench, limits(20), None)).spec.limits, limits(20));
}

#[test]
fn limits_that_come_during_the_start_are_set_after_it_and_those_after_the_end_wait() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.order(ensure(1, 2, limited(10)));
    assert!(kinds(&bench.started(1)).contains(&"set-limits"));
    let mut bench = Bench::ended();
    let effects = bench.order(ensure(1, 2, limited(10)));
    assert_eq!((kinds(&effects), report(&effects).spec.limits), (vec!["save", "report"], limits(10)));
}

// Starting again

#[test]
fn an_ended_agent_runs_again_when_an_order_names_a_higher_start() {
    let mut bench = Bench::ended();
    bench.order(stop(1, 2));
    let effects = bench.order(ensure(1, 3, again(2)));
    assert_eq!(kinds(&effects), ["save", "create", "report", "event"]);
    let told = report(&effects);
    assert_eq!((told.phase, told.spec.launch, told.end, told.collected), (Phase::Creating, 2, None, None));
    assert_eq!(told.earlier.len(), 1);
    assert_eq!((bench.record(1).launch, bench.record(1).wanted), (2, Wanted::Running));
    // Doubles of the order, the end before and older orders change nothing.
    assert_eq!(kinds(&bench.order(ensure(1, 3, again(2)))), ["report"]);
    assert_eq!(bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) }), vec![]);
    assert_eq!(bench.order(stop(1, 2)), vec![]);
    assert!(kinds(&bench.started(1)).contains(&"report"));
    let second = ExitSeen { launch: 2, ..exit(3) };
    assert_eq!(
        kinds(&bench.give(Input::Ended { agent: agent_id(1), exit: second })),
        ["save", "collect", "report", "event"]
    );
}

#[test]
fn a_start_comes_after_the_collection_and_only_if_it_is_still_wanted() {
    let mut bench = Bench::running();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert!(!kinds(&bench.order(ensure(1, 2, again(2)))).contains(&"create"));
    assert!(kinds(&bench.collected(1)).contains(&"create"));
    let mut bench = Bench::running();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    bench.order(ensure(1, 2, again(2)));
    bench.order(stop(1, 3));
    assert!(!kinds(&bench.collected(1)).contains(&"create"));
    assert_eq!(bench.stage(1), Stage::Ended);
}

#[test]
fn what_lives_or_is_being_removed_is_not_started_again() {
    let mut bench = Bench::running();
    let told = report(&bench.order(ensure(1, 2, again(2))));
    assert_eq!((told.spec.launch, told.unmet[0].what.as_str()), (1, "launch"));
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert!(!kinds(&bench.collected(1)).contains(&"create"), "not by itself, later");
    let mut bench = Bench::ended();
    bench.order(destroy(1, 2, Discard::Yes));
    assert!(!kinds(&bench.order(ensure(1, 3, again(2)))).contains(&"create"));
}

#[test]
fn a_stop_does_not_start_whatever_number_it_carries() {
    let mut bench = Bench::ended();
    let order = Command::Stop {
        agent: agent_id(1),
        generation: changed_generation(),
        grace_ms: 0,
        spec: Box::new(again(2)),
    };
    assert!(!kinds(&bench.order(order)).contains(&"create"));
    assert_eq!(bench.record(1).launch, 1);
}

#[test]
fn a_start_that_was_cut_off_is_tried_on_by_the_next_hostd() {
    let mut bench = Bench::ended();
    bench.order(ensure(1, 2, again(2)));
    let (_, effects) = bench.adopted(1, Found::NeverStarted);
    assert_eq!(kinds(&effects), ["create", "report"]);
    let (next, effects) = bench.adopted(1, Found::Alive { facts: Box::new(facts()), exited: None });
    assert!(!kinds(&effects).contains(&"create"));
    assert_eq!(next.stage(1), Stage::Running);
}

#[test]
fn no_agent_is_started_again_over_the_disk_share() {
    let mut bench = Bench::ended();
    bench.give(Input::Disk { used_percent: 99 });
    let told = report(&bench.order(ensure(1, 2, again(2))));
    let end = told.end.unwrap();
    assert_eq!((end.cause, end.step), (EndCause::StartFailed, Some(StartStep::Host)));
    bench.give(Input::Disk { used_percent: 10 });
    assert!(kinds(&bench.order(ensure(1, 3, again(3)))).contains(&"create"));
    assert_eq!(bench.record(1).earlier.len(), 2);
}

#[test]
fn a_lease_counts_from_the_start_that_it_is_for() {
    let leased = AgentSpec { lease_ms: Some(300_000), ..plain_spec() };
    let mut bench = Bench::running_as(leased.clone());
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    bench.now = bench.now.after_ms(3_600_000);
    bench.order(ensure(1, 2, AgentSpec { launch: 2, ..leased }));
    assert_eq!(bench.record(1).first_lease_until(), Some(bench.now.after_ms(300_000)));
}
