//! Accepting and rejecting.

use protocol::agent::Blob;
use protocol::api::{DecideTasks, Mutation, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::RunId;
use protocol::order::{Answer, Question};
use protocol::task::{Accept, TaskSpec, TaskState, Verdict};

use super::super::world::{WORK, World, repo_spec, run_spec};

fn reviewed(name: &str) -> TaskSpec {
    TaskSpec { accept: Accept::Review, ..repo_spec(name) }
}

fn decide(world: &mut World, task: &str, verdict: Verdict, comment: &str) -> Result<(), WireError> {
    let feedback = (verdict == Verdict::Rejected && !comment.is_empty())
        .then(|| Blob { sha256: "f".repeat(64), bytes: 9 });
    let decide = DecideTasks {
        key: world.key(),
        tasks: vec![task.to_owned()],
        verdict,
        by: String::from("ann"),
        comment: comment.to_owned(),
        feedback,
    };
    let reply = world.ask(Mutation::DecideTasks(Box::new(decide)))?;
    let Reply::Outcomes(outcomes) = reply else { panic!("{reply:?}") };
    outcomes[0].error.clone().map_or(Ok(()), Err)
}

/// In review, after one attempt.
fn in_review(world: &mut World) -> RunId {
    let run = world.submit(run_spec("r"), vec![reviewed("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Review);
    run
}

#[test]
fn accepted_work_lands_and_says_who_accepted_it() {
    let mut world = World::new();
    let run = in_review(&mut world);
    decide(&mut world, "a", Verdict::Accepted, "well done\nindeed").unwrap();
    let task = world.task(run, "a");
    assert_eq!((task.state, task.unverified), (TaskState::Accepted, false));
    assert_eq!(task.reason, "accepted by ann: well done");
    assert_eq!((task.decisions[0].attempt, task.decisions[0].comment.as_str()), (1, "well done\nindeed"));
    assert!(matches!(world.asked[0].1, Question::Land { from: None, .. }));
    // Once.
    let again = decide(&mut world, "a", Verdict::Accepted, "").unwrap_err();
    assert_eq!((again.code, again.message.as_str()), (ErrorCode::Conflict, "the task is ACCEPTED"));
    world.check_store();
}

/// It would come in by what was made of it.
#[test]
fn accepted_work_that_another_task_began_with_is_not_taken_back_alone() {
    let mut world = World::new();
    let child = TaskSpec { depends_on: vec!["a".parse().unwrap()], ..reviewed("b") };
    let run = world.submit(run_spec("r"), vec![reviewed("a"), child]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    decide(&mut world, "a", Verdict::Accepted, "").unwrap();
    let child = world.at_work(run, "b");
    let refused = |world: &mut World, remedy: &str| {
        for verdict in [Verdict::Rejected, Verdict::RejectedForGood] {
            let error = decide(world, "a", verdict, "").unwrap_err();
            assert_eq!(error.code, ErrorCode::Conflict);
            assert!(error.message.ends_with("began with its work: b"), "{}", error.message);
            assert!(error.hint.ends_with(remedy), "{}", error.hint);
        }
        assert_eq!(world.state(run, "a"), TaskState::Accepted);
    };
    refused(&mut world, "phalanx cancel r/b");
    world.exit(child, 0);
    refused(&mut world, "phalanx reject --final r/b");
    decide(&mut world, "b", Verdict::Accepted, "").unwrap();
    refused(&mut world, "phalanx reject --final r/b");
    decide(&mut world, "b", Verdict::RejectedForGood, "").unwrap();
    decide(&mut world, "a", Verdict::RejectedForGood, "").unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Rejected);
}

#[test]
fn a_rejection_grants_exactly_one_start_which_gets_the_comment() {
    let mut world = World::new();
    let run = in_review(&mut world);
    decide(&mut world, "r/a", Verdict::Rejected, "test it").unwrap();
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Running, 2), "at once: {}", task.reason);
    let agent = world.at_work(run, "a");
    assert_eq!(world.program(agent).spec.feedback.as_ref().unwrap().sha256, "f".repeat(64));
    // Its failure is charged: there is no budget beyond what was granted.
    world.exit(agent, 1);
    assert_eq!(world.state(run, "a"), TaskState::Failed);
    world.restart_manager();
    world.pass(60_000);
    assert_eq!(world.task(run, "a").attempts.len(), 2);
    world.check_store();
}

#[test]
fn a_grant_holds_over_a_restart_and_a_key_grants_once() {
    let mut world = World::new();
    let run = in_review(&mut world);
    let decide = DecideTasks {
        key: world.key(),
        tasks: vec![String::from("a")],
        verdict: Verdict::Rejected,
        by: String::from("ann"),
        comment: String::new(),
        feedback: None,
    };
    let host = world.task(run, "a").attempts[0].host.clone();
    world.hosts.get_mut(&host).unwrap().is_cut_off = true;
    world.pass(30_000);
    let first = world.ask(Mutation::DecideTasks(Box::new(decide.clone()))).unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Queued, "no host is heard");
    world.restart_manager();
    assert_eq!(world.ask(Mutation::DecideTasks(Box::new(decide))).unwrap(), first);
    world.hosts.get_mut(&host).unwrap().is_cut_off = false;
    world.pass(5_000);
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len(), task.decisions.len()), (TaskState::Review, 2, 1));
}

#[test]
fn rejected_for_good_is_final_and_takes_those_that_wait_for_it_along() {
    let mut world = World::new();
    let child = TaskSpec { depends_on: vec!["a".parse().unwrap()], ..reviewed("b") };
    let run = world.submit(run_spec("r"), vec![reviewed("a"), child]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    decide(&mut world, "a", Verdict::RejectedForGood, "never").unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Rejected);
    assert_eq!(world.task(run, "a").reason, "rejected by ann: never");
    assert_eq!(world.state(run, "b"), TaskState::Cancelled);
    assert!(world.core.run_view(run).unwrap().ended_at.is_some());
    assert_eq!(decide(&mut world, "a", Verdict::Accepted, "").unwrap_err().code, ErrorCode::Conflict);
}

#[test]
fn accepted_work_that_is_rejected_leaves_its_branch_until_the_next_acceptance_moves_it() {
    let mut world = World::new();
    let run = in_review(&mut world);
    decide(&mut world, "a", Verdict::Accepted, "").unwrap();
    let Question::Land { branch, commit, .. } = world.asked[0].1.clone() else { panic!() };
    let id = world.task(run, "a").id;
    world.land(id, Ok(Answer::Landed { branch: branch.clone(), commit }));
    assert!(world.core.run_view(run).unwrap().ended_at.is_some());
    decide(&mut world, "a", Verdict::Rejected, "after all not").unwrap();
    assert!(world.core.run_view(run).unwrap().ended_at.is_none(), "the run goes on");
    assert_eq!(world.task(run, "a").branch, Some(branch), "told of");
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    decide(&mut world, "a", Verdict::Accepted, "").unwrap();
    let Question::Land { from, .. } = world.asked.last().unwrap().1.clone() else { panic!() };
    assert_eq!(from.as_deref(), Some(WORK));
    world.check_store();
}

#[test]
fn a_branch_that_comes_after_its_task_was_rejected_changes_nothing() {
    let mut world = World::new();
    let run = in_review(&mut world);
    decide(&mut world, "a", Verdict::Accepted, "").unwrap();
    let Question::Land { branch, commit, .. } = world.asked[0].1.clone() else { panic!() };
    decide(&mut world, "a", Verdict::RejectedForGood, "").unwrap();
    let id = world.task(run, "a").id;
    world.land(id, Ok(Answer::Landed { branch, commit }));
    assert_eq!(world.state(run, "a"), TaskState::Rejected);
    world.pass(100_000);
    assert_eq!(world.asked.len(), 1, "nor is it asked for again");
}

#[test]
fn work_is_verified_before_a_person_looks_at_it() {
    let mut world = World::new();
    let spec = TaskSpec { verify: vec![vec![String::from("/bin/true")]], ..reviewed("a") };
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Verifying);
    assert_eq!(decide(&mut world, "a", Verdict::Accepted, "").unwrap_err().code, ErrorCode::Conflict);
    let check = world.at_work(run, "a");
    world.exit(check, 0);
    assert_eq!(world.state(run, "a"), TaskState::Review);
    decide(&mut world, "a", Verdict::Accepted, "").unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn a_decision_that_makes_no_sense_changes_nothing() {
    let mut world = World::new();
    let run = in_review(&mut world);
    let comment = "x".repeat(protocol::api::COMMENT_LIMIT + 1);
    assert_eq!(decide(&mut world, "a", Verdict::Rejected, &comment).unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(decide(&mut world, "a", Verdict::Unknown, "").unwrap_err().code, ErrorCode::Invalid);
    assert_eq!(decide(&mut world, "b", Verdict::Accepted, "").unwrap_err().code, ErrorCode::NotFound);
    assert_eq!((world.state(run, "a"), world.task(run, "a").decisions.len()), (TaskState::Review, 0));
}
