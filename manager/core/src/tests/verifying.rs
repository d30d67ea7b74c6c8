//! Verification of recorded commits.

use protocol::agent::{EndCause, Prepare, Role};
use protocol::api::Reply;
use protocol::ids::RunId;
use protocol::order::Answer;
use protocol::task::{FailureClass, TaskState};

use super::world::{BASE, WORK, World, collected, end, host_id, run_spec, verified};
use crate::Config;
use crate::fleet::agent::Standing;

/// A run whose task `a` has finished its work and is being verified.
fn verifying(world: &mut World) -> RunId {
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let attempt = world.at_work(run, "a");
    world.exit(attempt, 0);
    assert_eq!(world.state(run, "a"), TaskState::Verifying);
    run
}

#[test]
fn the_recorded_commit_is_verified_in_a_fresh_checkout_by_an_agent_of_its_own() {
    let mut world = World::new();
    let run = verifying(&mut world);
    let check = world.at_work(run, "a");
    let spec = world.program(check).spec.clone();
    assert_eq!((spec.role, spec.name.as_str()), (Role::Verify, "verify:a#1"));
    let checkout = spec.checkout.unwrap();
    assert_eq!((checkout.commit.as_str(), checkout.branch, checkout.result_ref), (WORK, None, None));
    assert!(spec.program[2].contains(r"(exec '/bin/check' 'it'\''s')"), "{}", spec.program[2]);
    world.exit(check, 0);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.unverified), (TaskState::Accepted, false));
    assert_eq!(world.standing(check), Standing::Gone);
}

#[test]
fn what_was_prepared_for_an_attempt_is_there_for_its_verification() {
    let mut world = World::new();
    let programs = vec![vec![String::from("npm"), String::from("ci")]];
    let prepare = Some(Box::new(Prepare { programs, timeout_ms: 60_000 }));
    let parent = verified("p");
    let mut child = verified("c");
    child.depends_on = vec![parent.name.clone()];
    child.base_from = Some(parent.name.clone());
    child.prepare.clone_from(&prepare);
    let run = world.submit(run_spec("r"), vec![parent, child]).unwrap();
    for _ in 0..2 {
        let agent = world.at_work(run, "p");
        world.exit(agent, 0);
    }
    let attempt = world.at_work(run, "c");
    let begun = world.program(attempt).spec.checkout.clone().unwrap();
    assert_eq!((begun.prepare.as_ref(), begun.commit.as_str()), (prepare.as_ref(), WORK));
    world.exit(attempt, 0);
    let check = world.at_work(run, "c");
    let checked = world.program(check).spec.checkout.clone().unwrap();
    assert_eq!(checked.prepare, prepare);
    assert_eq!(checked.near, Some(begun.commit), "the base that was prepared, not the first one of all");
}

#[test]
fn work_that_does_not_verify_fails_and_says_whether_the_base_fails_too() {
    for (code, passes, words) in [(1, false, "the base fails too"), (0, true, "the base passes")] {
        let mut world = World::new();
        let run = verifying(&mut world);
        let check = world.at_work(run, "a");
        world.exit(check, 1);
        let base = world.at_work(run, "a");
        assert_ne!(base, check);
        assert_eq!(world.program(base).spec.checkout.as_ref().unwrap().commit, BASE);
        world.exit(base, code);
        let task = world.task(run, "a");
        assert_eq!(task.state, TaskState::Failed);
        assert!(task.reason.contains(words), "{}", task.reason);
        let attempt = &task.attempts[0];
        assert_eq!(attempt.failure.as_ref().unwrap().class, FailureClass::Verify);
        assert_eq!(attempt.verification.as_ref().unwrap().base_passed, Some(passes));
    }
}

#[test]
fn work_that_changed_nothing_is_not_verified_a_second_time_at_the_base() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let attempt = world.at_work(run, "a");
    let done = end(EndCause::Exited, Some(0), world.now);
    world.finish(attempt, done, collected(Some(BASE)));
    let check = world.at_work(run, "a");
    world.exit(check, 1);
    assert_eq!(world.state(run, "a"), TaskState::Failed);
    assert!(world.task(run, "a").reason.contains("nothing was changed"));
}

#[test]
fn the_log_of_a_failed_verification_goes_to_the_next_attempt() {
    let mut world = World::new();
    let mut spec = verified("a");
    spec.retries.max = 1;
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let attempt = world.at_work(run, "a");
    world.exit(attempt, 0);
    let check = world.at_work(run, "a");
    world.exit(check, 1);
    let base = world.at_work(run, "a");
    world.exit(base, 0);
    assert_eq!(world.logs, [check]);
    assert_eq!(world.state(run, "a"), TaskState::Queued);
    world.pass(11_000);
    assert_eq!(world.task(run, "a").attempts.len(), 2);
}

#[test]
fn infrastructure_ends_of_a_verification_start_it_again_and_are_not_charged() {
    let mut world = World::new();
    let run = verifying(&mut world);
    for _ in 0..3 {
        let check = world.at_work(run, "a");
        let lost = end(EndCause::SupervisorLost, None, world.now);
        world.finish(check, lost, collected(None));
        assert_eq!(world.state(run, "a"), TaskState::Verifying);
    }
    let check = world.at_work(run, "a");
    world.exit(check, 0);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Accepted, 1));
    assert_eq!(task.attempts[0].verification.as_ref().unwrap().restarts, 3);
}

#[test]
fn a_verification_that_infrastructure_always_ends_gives_up_without_charge() {
    let mut world = World::with(Config { verification_restarts_max: 2, ..super::world::config() }, &["one"]);
    let run = verifying(&mut world);
    for _ in 0..3 {
        let check = world.at_work(run, "a");
        let lost = end(EndCause::Rebooted, None, world.now);
        world.finish(check, lost, collected(None));
    }
    let task = world.task(run, "a");
    assert_eq!(task.state, TaskState::Queued);
    assert!(!task.attempts[0].failure.as_ref().unwrap().charged);
    world.pass(2_000);
    assert_eq!(world.state(run, "a"), TaskState::Running);
}

#[test]
fn the_slot_of_an_attempt_passes_to_its_verification() {
    let mut world = World::with(Config { host_cap: Some(1), ..super::world::config() }, &["one"]);
    let run = world.submit(run_spec("r"), vec![verified("a"), verified("b")]).unwrap();
    for _ in 0..2 {
        for name in ["a", "b"] {
            if world.state(run, name).is_live() {
                let agent = world.at_work(run, name);
                // Ended, not collected yet: the slot is not free.
                let done = end(EndCause::Exited, Some(0), world.now);
                world.program(agent).end = Some(done);
                world.report(agent);
                assert!(world.hosts[&host_id("one")].live() <= 1);
                world.exit(agent, 0);
                assert!(world.hosts[&host_id("one")].live() <= 1);
            }
        }
    }
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn cancelling_ends_a_verification_first() {
    let mut world = World::new();
    let run = verifying(&mut world);
    let check = world.at_work(run, "a");
    assert_eq!(world.cancel(run, &[]), Reply::Done);
    assert!(world.program(check).end.is_some());
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
}

#[test]
fn a_verification_of_which_no_order_went_out_does_not_hold_a_cancelled_task_up() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let attempt = world.at_work(run, "a");
    let done = end(EndCause::Exited, Some(0), world.now);
    let program = world.program(attempt);
    program.end = Some(done);
    program.collected = Some(collected(Some(WORK)));
    let report = world.report_of(&host_id("one"), attempt);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(20_000);
    let mut report = report;
    report.seq = protocol::ids::Seq(100);
    world.input(crate::Input::Report(Box::new(report)));
    assert_eq!(world.state(run, "a"), TaskState::Verifying);
    world.cancel(run, &[]);
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
}

#[test]
fn an_accepted_task_is_cleared_away_when_its_branch_is_there() {
    let mut world = World::new();
    let run = verifying(&mut world);
    let attempt = world.task(run, "a").attempts[0].agent;
    let check = world.at_work(run, "a");
    world.exit(check, 0);
    assert_eq!(world.standing(attempt), Standing::Ended);
    let id = world.task(run, "a").id;
    world.land(id, Ok(Answer::Done));
    assert_eq!(world.standing(attempt), Standing::Gone);
}

#[test]
fn work_that_was_done_and_cannot_be_collected_is_not_done_again() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let agent = world.at_work(run, "a");
    let end = end(EndCause::Exited, Some(0), world.now);
    world.finish(
        agent,
        end,
        protocol::report::Collected { failed: Some(String::from("away")), ..collected(None) },
    );
    assert_eq!(world.state(run, "a"), TaskState::Failed);
    let task = world.task(run, "a");
    assert!(task.reason.contains("its work cannot be collected: away"), "{}", task.reason);
    assert_eq!((task.attempts.len(), task.attempts[0].failure.as_ref().unwrap().charged), (1, false));
}
