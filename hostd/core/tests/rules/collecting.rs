//! What an agent left is collected again where that failed, and its program is not run again for it.

use hostd_core::{Effect, Input, Obstacle, Stage, Wanted};
use protocol::order::Discard;

use super::host::{Bench, agent_id, destroy, exit, kinds, report};

fn failed(bench: &mut Bench, obstacle: Obstacle) -> Vec<Effect> {
    bench.give(Input::CollectFailed { agent: agent_id(1), obstacle, reason: "away".to_owned() })
}

fn collecting() -> Bench {
    let mut bench = Bench::running();
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    bench
}

#[test]
fn a_collection_that_failed_is_tried_again_and_said_meanwhile() {
    let mut bench = collecting();
    let told = report(&failed(&mut bench, Obstacle::Outside));
    assert_eq!(told.collected, None);
    assert!(told.reason.contains("could not be collected yet and is tried again: away"), "{}", told.reason);
    assert_eq!(told.degraded, ["collect-failed"]);
    assert_eq!(kinds(&bench.pass(600)), ["collect"]);
    assert_eq!(bench.pass(1_000_000), vec![], "not while it is under way");
    let told = report(&bench.collected(1));
    assert_eq!((told.collected.unwrap().failed, told.reason, told.degraded), (None, String::new(), vec![]));
}

#[test]
fn a_repository_that_stays_away_is_waited_for_and_what_is_unclear_not_for_long() {
    for (obstacle, at_least_ms, at_most_ms) in
        [(Obstacle::Outside, 23 * 3_600_000, 25 * 3_600_000), (Obstacle::Unclear, 60_000, 600_000)]
    {
        let mut bench = collecting();
        let from = bench.now;
        let told = loop {
            let effects = failed(&mut bench, obstacle);
            if bench.stage(1) == Stage::Ended {
                break report(&effects);
            }
            assert_eq!(kinds(&bench.pass(30_000)), ["collect"]);
        };
        let waited_ms = bench.now.ms_since(from);
        assert!((at_least_ms..at_most_ms).contains(&waited_ms), "{obstacle:?}: {waited_ms}");
        let collected = told.collected.unwrap();
        assert_eq!((collected.failed.as_deref(), collected.failed_by_content), (Some("away"), false));
    }
}

#[test]
fn a_removal_tries_again_at_once_and_names_what_cannot_be_collected() {
    let mut bench = collecting();
    failed(&mut bench, Obstacle::Outside);
    assert!(kinds(&bench.order(destroy(1, 2, Discard::Keep))).contains(&"collect"));
    let told = report(&failed(&mut bench, Obstacle::Outside));
    assert_eq!(told.holds, ["work that could not be collected: away"]);
    assert!(matches!(bench.record(1).wanted, Wanted::Stopped { .. }));
    assert!(kinds(&bench.order(destroy(1, 3, Discard::Yes))).contains(&"remove"));
}
