//! The rules of a host, one test each: which orders count, and the rows of an agent's life.
//! Sequences that nobody thought of are in `crate::properties`.

use crate::host::{
    Bench, GRACE_MS, agent_id, destroy, ensure, exit, facts, killed, kinds, plain_spec, report, spec, stop,
    stop_within,
};
use hostd_core::{Effect, ExitCause, ExitSeen, Found, Input, Removal, Stage, Wanted};
use protocol::agent::{AgentSpec, EndCause, Phase, Role, StartStep};
use protocol::event::Fact;
use protocol::ids::{Fencing, Incarnation};
use protocol::order::Discard;
use protocol::time::Timestamp;

// Which orders count

#[test]
fn an_order_for_another_incarnation_region_or_host_changes_nothing() {
    let mut bench = Bench::new();
    let mut other_life = bench.envelope(ensure(1, 1, spec()));
    other_life.incarnation = Incarnation(6);
    let mut other_host = bench.envelope(ensure(1, 1, spec()));
    other_host.host = "h2".parse().unwrap();
    let mut other_region = bench.envelope(ensure(1, 1, spec()));
    other_region.region = "far".parse().unwrap();
    for mut order in [other_life, other_host, other_region] {
        // Not even its fencing counts.
        order.fencing = Fencing(99);
        assert_eq!(bench.send(order), vec![]);
    }
    assert_eq!(bench.core.fencing(), Fencing(3));
    assert!(bench.core.agents().is_empty());
}

#[test]
fn an_expired_order_changes_nothing() {
    let mut bench = Bench::new();
    let order = bench.envelope(ensure(1, 1, spec()));
    bench.now = order.expires.after_ms(1);
    assert_eq!(bench.send(order.clone()), vec![]);
    bench.now = order.expires;
    assert_eq!(kinds(&bench.send(order)), ["save", "event", "create", "report"]);
}

#[test]
fn an_order_of_an_older_leader_changes_nothing_and_a_newer_leader_is_remembered_first() {
    let mut bench = Bench::new();
    let mut order = bench.envelope(ensure(1, 1, spec()));
    order.fencing = Fencing(5);
    assert_eq!(kinds(&bench.send(order))[..2], ["save-fencing", "save"]);
    let mut older = bench.envelope(stop(1, 2));
    older.fencing = Fencing(4);
    assert_eq!(bench.send(older), vec![]);
    assert_eq!(bench.record(1).wanted, Wanted::Running);
    let again = bench.give(Input::ReportAgain { agent: agent_id(1) });
    assert_eq!(report(&again).fencing, Fencing(5));
}

#[test]
fn an_order_of_an_older_generation_changes_nothing() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 5, spec()));
    assert_eq!(bench.order(stop(1, 4)), vec![]);
    assert_eq!(bench.order(destroy(1, 4, Discard::Yes)), vec![]);
    assert_eq!(bench.record(1).wanted, Wanted::Running);
}

#[test]
fn a_repeated_ensure_reports_again_and_starts_nothing() {
    let mut bench = Bench::running();
    assert_eq!(kinds(&bench.order(ensure(1, 1, spec()))), ["report"]);
    let newer = bench.order(ensure(1, 2, spec()));
    assert_eq!(kinds(&newer), ["save", "report"]);
    assert_eq!(report(&newer).generation.0, 2);
}

#[test]
fn an_agent_is_saved_before_it_is_made_and_reported_after() {
    let mut bench = Bench::new();
    let effects = bench.order(ensure(1, 1, spec()));
    assert_eq!(kinds(&effects), ["save", "event", "create", "report"]);
    assert_eq!(report(&effects).phase, Phase::Creating);
    let effects = bench.started(1);
    assert_eq!(kinds(&effects), ["report", "event"]);
    assert_eq!(report(&effects).phase, Phase::Running);
    assert_eq!(report(&effects).started_at, Some(facts().started_at));
}

#[test]
fn no_agent_is_taken_over_the_disk_share() {
    let mut bench = Bench::new();
    bench.give(Input::Disk { used_percent: 86 });
    let effects = bench.order(ensure(1, 1, spec()));
    assert!(!kinds(&effects).contains(&"create"));
    let told = report(&effects);
    assert_eq!((told.phase, told.end.unwrap().step), (Phase::Failed, Some(StartStep::Host)));
    let phases: Vec<Phase> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Event { fact: Fact::AgentPhase { phase, .. }, .. } => Some(*phase),
            _ => None,
        })
        .collect();
    assert_eq!(phases, [Phase::Creating, Phase::Failed], "events tell it in its order");
    bench.give(Input::Disk { used_percent: 85 });
    assert!(kinds(&bench.order(ensure(2, 1, spec()))).contains(&"create"));
}

// Stopping

#[test]
fn a_stop_is_saved_then_sent_then_reported() {
    let mut bench = Bench::running();
    let effects = bench.order(stop(1, 2));
    assert_eq!(kinds(&effects), ["save", "terminate", "report"]);
    assert!(report(&effects).stopping);
    assert_eq!(kinds(&bench.order(stop(1, 2))), ["report"], "a double is only answered");
}

#[test]
fn a_kill_follows_the_grace_and_is_repeated_until_the_agent_is_gone() {
    let mut bench = Bench::running();
    bench.order(stop(1, 2));
    assert_eq!(bench.pass(GRACE_MS - 1), vec![]);
    assert_eq!(kinds(&bench.pass(1)), ["kill"]);
    assert_eq!(kinds(&bench.pass(4_000)), ["kill", "kill"]);
    bench.give(Input::Ended { agent: agent_id(1), exit: killed(9) });
    assert_eq!(bench.pass(60_000), vec![]);
    assert_eq!(bench.core.deadline(), None);
}

#[test]
fn a_second_stop_can_only_shorten_the_grace() {
    let mut bench = Bench::running();
    bench.order(stop(1, 2));
    bench.order(stop_within(1, 3, 3_600_000));
    bench.order(stop_within(1, 4, 100));
    assert_eq!(kinds(&bench.pass(100)), ["kill"]);
}

#[test]
fn a_stop_while_creating_waits_for_the_start_and_then_ends_it() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    assert_eq!(kinds(&bench.order(stop(1, 2))), ["save", "report"]);
    assert_eq!(kinds(&bench.started(1))[0], "terminate");
    let effects = bench.give(Input::Ended { agent: agent_id(1), exit: exit(3) });
    assert_eq!(report(&effects).end.unwrap().cause, EndCause::Requested);
}

#[test]
fn a_start_that_fails_under_a_stop_ends_the_agent() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.order(stop(1, 2));
    let failed =
        Input::StartFailed { agent: agent_id(1), step: StartStep::ProgramMissing, detail: "x".into() };
    assert_eq!(report(&bench.give(failed)).phase, Phase::Failed);
    assert_eq!(bench.stage(1), Stage::Ended);
}

#[test]
fn a_stopped_agent_is_not_started_by_a_late_ensure() {
    let mut bench = Bench::new();
    let effects = bench.order(stop(1, 2));
    assert_eq!(kinds(&effects), ["save", "report", "event"], "a tombstone is kept and told");
    assert_eq!(report(&effects).phase, Phase::Stopped);
    assert_eq!(bench.order(ensure(1, 1, spec())), vec![]);
    assert_eq!(kinds(&bench.order(ensure(1, 3, spec()))), ["save", "report"]);
    assert_eq!(bench.stage(1), Stage::Ended);
}

#[test]
fn a_start_that_comes_after_the_end_is_killed() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.give(Input::SupervisorLost { agent: agent_id(1), launch: 1, detail: "gone".into() });
    assert_eq!(kinds(&bench.started(1)), ["kill"]);
}

#[test]
fn an_end_after_a_stop_request_is_requested_whatever_it_looks_like() {
    for last in [exit(0), exit(1), killed(9), ExitSeen { out_of_memory: true, ..killed(9) }] {
        let mut bench = Bench::running();
        bench.order(stop(1, 2));
        let effects = bench.give(Input::Ended { agent: agent_id(1), exit: last });
        assert_eq!(report(&effects).phase, Phase::Stopped);
    }
    let mut bench = Bench::running();
    bench.order(stop(1, 2));
    let effects = bench.give(Input::SupervisorLost { agent: agent_id(1), launch: 1, detail: "x".into() });
    assert_eq!(report(&effects).phase, Phase::Stopped);
    for found in [
        Found::Lost { detail: "x".into(), facts: Box::new(facts()) },
        Found::Rebooted { facts: Box::new(facts()) },
    ] {
        let mut bench = Bench::running();
        bench.order(stop(1, 2));
        assert_eq!(report(&bench.adopted(1, found).1).phase, Phase::Stopped);
    }
}

// Ends

#[test]
fn every_way_to_end_is_told_apart() {
    let oom = ExitSeen { out_of_memory: true, ..killed(9) };
    let child_oom = ExitSeen { out_of_memory: true, ..exit(1) };
    let table = [
        (exit(0), EndCause::Exited, Phase::Stopped),
        (exit(7), EndCause::Exited, Phase::Crashed),
        (killed(15), EndCause::Signalled, Phase::Crashed),
        (oom, EndCause::OutOfMemory, Phase::Crashed),
        (child_oom, EndCause::Exited, Phase::Crashed),
        (ExitSeen { cause: ExitCause::TimeLimit, ..killed(9) }, EndCause::TimeLimit, Phase::Failed),
        (ExitSeen { cause: ExitCause::Lease, ..killed(9) }, EndCause::Lease, Phase::Failed),
        (ExitSeen { cause: ExitCause::Supervisor, ..killed(15) }, EndCause::SupervisorLost, Phase::Crashed),
        (
            ExitSeen { cause: ExitCause::Start(StartStep::Exec), ..exit(126) },
            EndCause::StartFailed,
            Phase::Failed,
        ),
    ];
    for (seen, cause, phase) in table {
        let told = report(&Bench::running().give(Input::Ended { agent: agent_id(1), exit: seen.clone() }));
        let end = told.end.unwrap();
        assert_eq!((end.cause, told.phase), (cause, phase), "{seen:?}");
        assert_eq!((end.code, end.signal), (seen.code, seen.signal));
    }
    let mut bench = Bench::running();
    let lost = bench.give(Input::SupervisorLost { agent: agent_id(1), launch: 1, detail: "x".into() });
    assert_eq!(report(&lost).end.unwrap().cause, EndCause::SupervisorLost);
}

#[test]
fn an_agent_whose_descendants_live_is_not_ended() {
    let mut bench = Bench::running();
    let effects = bench.give(Input::Exited { agent: agent_id(1), exit: exit(0) });
    assert_eq!(kinds(&effects), ["report"], "nothing kills what a program left unless it was asked to stop");
    let told = report(&effects);
    assert!(told.draining && told.end.is_none() && told.phase == Phase::Running);
    assert_eq!(kinds(&bench.order(stop(1, 2))), ["save", "terminate", "report"]);
    assert_eq!(kinds(&bench.pass(GRACE_MS)), ["kill"]);
}

#[test]
fn what_the_programs_of_a_verification_left_is_killed_after_a_while() {
    let checks = AgentSpec { role: Role::Verify, ..spec() };
    for (spec, wanted) in [(checks, vec!["kill"]), (spec(), vec![])] {
        let mut bench = Bench::running_as(spec);
        let effects = bench.give(Input::Exited { agent: agent_id(1), exit: exit(0) });
        assert!(report(&effects).draining);
        assert_eq!(kinds(&bench.pass(5_000)), wanted);
    }
}

#[test]
fn what_a_stopped_program_left_is_killed_at_once_and_until_it_is_gone() {
    let mut bench = Bench::running();
    bench.order(stop_within(1, 2, 3_600_000));
    let effects = bench.give(Input::Exited { agent: agent_id(1), exit: exit(0) });
    assert_eq!(kinds(&effects)[0], "kill");
    assert_eq!(kinds(&bench.pass(2_000)), ["kill"]);
}

#[test]
fn an_end_is_saved_before_its_work_is_collected_and_work_before_it_is_told() {
    let mut bench = Bench::running();
    let effects = bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert_eq!(kinds(&effects), ["save", "collect", "report", "event"]);
    assert_eq!(report(&effects).collected, None);
    let effects = bench.collected(1);
    assert_eq!(kinds(&effects), ["save", "report"]);
    assert_eq!(report(&effects).collected.unwrap().commit.as_deref(), Some("c1"));
}

#[test]
fn an_agent_that_leaves_nothing_is_collected_with_its_end() {
    let mut bench = Bench::running_as(plain_spec());
    let effects = bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert_eq!(kinds(&effects), ["save", "report", "event"]);
    assert!(report(&effects).collected.is_some());
    for asked in [
        AgentSpec { result: Some("r.json".into()), ..plain_spec() },
        AgentSpec { outputs: vec!["o".into()], ..plain_spec() },
    ] {
        let effects = Bench::running_as(asked).give(Input::Ended { agent: agent_id(1), exit: exit(0) });
        assert!(kinds(&effects).contains(&"collect"));
    }
}

#[test]
fn a_late_or_repeated_input_yields_nothing() {
    let mut bench = Bench::ended();
    let before = bench.core.clone();
    for input in [
        Input::Ended { agent: agent_id(1), exit: exit(1) },
        Input::Exited { agent: agent_id(1), exit: exit(1) },
        Input::StartFailed { agent: agent_id(1), step: StartStep::Exec, detail: String::new() },
        Input::SupervisorLost { agent: agent_id(1), launch: 1, detail: String::new() },
        Input::Removed { agent: agent_id(1), outcome: Removal::Done { collected: None, gone: Vec::new() } },
        Input::Collected { agent: agent_id(1), collected: Box::default() },
        Input::Ended { agent: agent_id(9), exit: exit(1) },
        Input::Tick,
    ] {
        assert_eq!(bench.give(input.clone()), vec![], "{input:?}");
    }
    assert_eq!(bench.core, before);
}

#[test]
fn an_agent_whose_record_cannot_be_saved_fails_to_start() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    let failed = Input::SaveFailed { agent: agent_id(1), reason: "no space".into() };
    let told = report(&bench.give(failed.clone()));
    assert_eq!(told.phase, Phase::Failed);
    assert_eq!(told.end.unwrap().step, Some(StartStep::Host));
    assert!(told.degraded.contains(&"unsaved".to_owned()));
    assert_eq!(bench.give(failed.clone()), vec![], "a record that stays unsaved is not saved in a circle");
    let mut bench = Bench::running();
    let effects = bench.give(failed);
    assert_eq!(report(&effects).phase, Phase::Running, "a running agent goes on");
}

#[test]
fn a_later_record_that_cannot_be_saved_does_not_deny_a_start_under_way() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, spec()));
    bench.order(stop(1, 2));
    let failed = Input::SaveFailed { agent: agent_id(1), reason: "no space".into() };
    assert_eq!(report(&bench.give(failed)).phase, Phase::Creating);
    assert_eq!(kinds(&bench.started(1))[0], "terminate");
    let effects = bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert_eq!(report(&effects).end.unwrap().cause, EndCause::Requested);
}

// Leases

fn leased() -> AgentSpec {
    AgentSpec { lease_ms: Some(300_000), ..spec() }
}

#[test]
fn a_lease_is_asked_for_at_thirds_of_its_length() {
    let mut bench = Bench::running_as(leased());
    assert_eq!(bench.pass(99_999), vec![]);
    assert_eq!(kinds(&bench.pass(1)), ["ask-lease"]);
    assert_eq!(kinds(&bench.pass(200_000)), ["ask-lease", "ask-lease"]);
    bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
    assert_eq!(bench.core.deadline(), None);
    let mut bench = Bench::running();
    assert_eq!(bench.pass(10_000_000), vec![], "no lease, no question");
}

#[test]
fn a_lease_counts_from_before_it_was_asked_for_and_never_moves_back() {
    let mut bench = Bench::running_as(leased());
    let answer = |generation: u64, asked: u64| Input::Lease {
        agent: agent_id(1),
        generation: protocol::ids::Generation(generation),
        asked_at: Timestamp(asked),
        length_ms: 300_000,
    };
    let set = |until: u64| vec![Effect::SetLease { agent: agent_id(1), until: Timestamp(until) }];
    assert_eq!(bench.give(answer(1, 250_000)), set(550_000));
    assert_eq!(bench.give(answer(1, 200_000)), vec![], "an overtaken answer");
    assert_eq!(bench.give(answer(2, 300_000)), vec![], "the answer for another generation");
    assert_eq!(bench.give(answer(1, 300_000)), set(600_000));
}

#[test]
fn a_restarted_host_asks_for_a_lease_at_once() {
    let bench = Bench::running_as(leased());
    let (next, _) = bench.adopted(1, Found::Alive { facts: Box::new(facts()), exited: None });
    assert_eq!(next.core.deadline(), Some(next.now));
}

#[test]
fn an_agent_whose_lease_ran_out_before_its_start_is_not_started() {
    let mut bench = Bench::new();
    bench.order(ensure(1, 1, leased()));
    bench.now = bench.now.after_ms(299_999);
    assert!(kinds(&bench.adopted(1, Found::NeverStarted).1).contains(&"create"));
    bench.now = bench.now.after_ms(1);
    let (_, effects) = bench.adopted(1, Found::NeverStarted);
    assert!(!kinds(&effects).contains(&"create"));
    assert_eq!(report(&effects).end.unwrap().step, Some(StartStep::Host));
}
