//! The branch of an accepted task.

use protocol::error::{ErrorCode, WireError};
use protocol::ids::{RunId, TaskId};
use protocol::order::{Answer, Question};
use protocol::task::TaskState;

use super::world::{WORK, World, repo_spec, run_spec};
use crate::AskToken;

fn accepted(world: &mut World) -> (RunId, TaskId) {
    let run = world.submit(run_spec("My Run"), vec![repo_spec("Fix: it!")]).unwrap();
    let agent = world.at_work(run, "Fix: it!");
    world.exit(agent, 0);
    (run, world.task(run, "Fix: it!").id)
}

#[test]
fn the_branch_is_asked_for_until_it_is_answered_over_restarts() {
    let mut world = World::new();
    let (run, id) = accepted(&mut world);
    let (token, question) = world.asked[0].clone();
    let Question::Land { repo, branch, commit, from: None } = question else { panic!() };
    assert_eq!((token, repo.as_str(), commit.as_str()), (AskToken::Land(id), "/repo", WORK));
    let wanted = format!("phalanx/my-run-{}/fix-it-{}", run.tail(), id.tail());
    assert_eq!(branch, wanted);
    let unknown = WireError::new(ErrorCode::Unavailable, "no answer");
    world.land(id, Err(unknown));
    world.pass(1_500);
    assert_eq!(world.asked.len(), 2, "asked again after an answer that says nothing");
    world.pass(29_000);
    assert_eq!(world.asked.len(), 2);
    world.pass(2_000);
    assert_eq!(world.asked.len(), 3, "and after silence");
    world.restart_manager();
    assert_eq!(world.asked.len(), 4);
    assert_eq!(world.task(run, "Fix: it!").branch, None);
    assert_eq!(world.core.run_view(run).unwrap().ended_at, None, "a run ends when its last branch is there");
    world.land(id, Ok(Answer::Landed { branch, commit }));
    assert!(world.core.run_view(run).unwrap().ended_at.is_some());
    assert_eq!(world.task(run, "Fix: it!").branch, Some(wanted));
    world.pass(100_000);
    assert_eq!(world.asked.len(), 4);
    world.check_store();
}

#[test]
fn a_refused_branch_leaves_the_task_accepted_and_says_why() {
    let mut world = World::new();
    let (run, id) = accepted(&mut world);
    world.land(id, Ok(Answer::Refused(WireError::new(ErrorCode::Conflict, "the branch was moved"))));
    let task = world.task(run, "Fix: it!");
    assert_eq!((task.state, task.branch), (TaskState::Accepted, None));
    assert!(world.core.run_view(run).unwrap().ended_at.is_some(), "nor does a refused branch keep it open");
    assert!(task.reason.contains("the branch was moved"), "{}", task.reason);
    world.pass(100_000);
    assert_eq!(world.asked.len(), 1);
}
