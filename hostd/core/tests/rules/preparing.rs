//! Waiting for a base: it is shown, can be called off, and its failure is the request's.

use hostd_core::{Effect, Input, Stage};
use protocol::agent::{EndCause, Phase, StartStep};

use super::host::{Bench, agent_id, ensure, kinds, report, spec, stop};

fn preparing() -> Bench {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    let effects = bench.give(Input::Preparing { agent: agent_id(1) });
    assert_eq!(report(&effects).reason, "preparing its base");
    bench
}

fn failed(bench: &mut Bench) -> Vec<Effect> {
    let (step, detail) = (StartStep::Prepare, "npm ended with exit 1".to_owned());
    bench.give(Input::StartFailed { agent: agent_id(1), step, detail })
}

#[test]
fn an_agent_whose_base_is_prepared_says_so_until_it_runs() {
    let mut bench = preparing();
    let effects = bench.started(1);
    let shown = report(&effects);
    assert_eq!((shown.phase, shown.reason.as_str()), (Phase::Running, ""));
}

#[test]
fn a_base_that_cannot_be_prepared_is_the_fault_of_the_request() {
    let mut bench = preparing();
    let end = report(&failed(&mut bench)).end.unwrap();
    assert_eq!((end.cause, end.step), (EndCause::StartFailed, Some(StartStep::Prepare)));
    assert!(!StartStep::Prepare.is_infrastructure());
    assert!(end.detail.contains("npm"), "{}", end.detail);
}

#[test]
fn a_stop_calls_off_the_wait_for_a_base_whichever_comes_first() {
    let mut bench = preparing();
    assert!(kinds(&bench.order(stop(1, 2))).contains(&"call-off"));
    let end = report(&failed(&mut bench)).end.unwrap();
    assert_eq!((end.cause, end.step), (EndCause::Requested, None));
    assert_eq!(bench.stage(1), Stage::Ended);

    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    assert!(!kinds(&bench.order(stop(1, 2))).contains(&"call-off"), "it does not wait for one");
    assert!(kinds(&bench.give(Input::Preparing { agent: agent_id(1) })).contains(&"call-off"));
}

#[test]
fn what_is_said_of_its_base_too_late_changes_nothing() {
    let mut bench = Bench::running();
    assert_eq!(bench.give(Input::Preparing { agent: agent_id(1) }), vec![]);
    assert!(!kinds(&bench.order(stop(1, 2))).contains(&"call-off"));
}
