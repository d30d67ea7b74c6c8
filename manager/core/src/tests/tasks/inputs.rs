//! What tasks get of those before them: a list of what each left, and a commit to start from.

use protocol::agent::{Blob, EndCause};
use protocol::report::Collected;
use protocol::task::{TaskSpec, TaskState, Waiting};

use super::super::world::{
    BASE, WORK, World, after, collected, end, repo_spec, run_spec, task_spec, verified,
};
use crate::Input;

fn over(name: &str, others: &[&str]) -> TaskSpec {
    TaskSpec { after: others.iter().map(|name| name.parse().unwrap()).collect(), ..task_spec(name) }
}

#[test]
fn a_task_that_waits_for_the_end_of_others_starts_whatever_became_of_them() {
    let mut world = World::new();
    let tasks =
        vec![task_spec("good"), task_spec("bad"), task_spec("gone"), over("sum", &["good", "bad", "gone"])];
    let run = world.submit(run_spec("r"), tasks).unwrap();
    let (good, bad) = (world.at_work(run, "good"), world.at_work(run, "bad"));
    world.exit(good, 0);
    world.exit(bad, 1);
    let waiting = world.task(run, "sum").waiting;
    assert!(matches!(waiting, Some(Waiting::Dependencies { on }) if on.len() == 1), "for the one that runs");
    world.cancel(run, &["gone"]);
    let gone = world.at_work(run, "gone");
    let now = world.now;
    world.finish(gone, end(EndCause::Requested, None, now), collected(None));
    assert_eq!(world.state(run, "sum"), TaskState::Running);
    let inputs = world.inputs.last().unwrap();
    let states: Vec<(&str, TaskState)> = inputs.iter().map(|row| (row.task.as_str(), row.state)).collect();
    let wanted = [("good", TaskState::Accepted), ("bad", TaskState::Failed), ("gone", TaskState::Cancelled)];
    assert_eq!(states, wanted);
    let agent = world.at_work(run, "sum");
    assert!(world.program(agent).spec.inputs.is_some());
    assert_eq!(world.program(good).spec.inputs, None, "who waits for nobody gets nothing");
    world.check_store();
}

#[test]
fn a_task_does_not_start_on_less_than_it_was_promised() {
    let mut world = World::new();
    world.loses_inputs = true;
    let run = world.submit(run_spec("r"), vec![task_spec("a"), after("b", &["a"])]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    let id = world.task(run, "b").id;
    world.input(Input::InputsKept { task: id, blob: None });
    assert_eq!((world.state(run, "b"), world.inputs.len()), (TaskState::Queued, 1));
    world.pass(6_000);
    assert_eq!(world.inputs.len(), 2, "asked again");
    world.restart_manager();
    assert_eq!(world.inputs.len(), 3, "and by the next manager");
    let blob = Blob { sha256: "c".repeat(64), bytes: 1 };
    world.input(Input::InputsKept { task: id, blob: Some(blob.clone()) });
    assert_eq!(world.state(run, "b"), TaskState::Running);
    // A late answer of the one before changes nothing.
    world.input(Input::InputsKept { task: id, blob: Some(Blob { sha256: "d".repeat(64), bytes: 1 }) });
    let agent = world.at_work(run, "b");
    assert_eq!(world.program(agent).spec.inputs, Some(blob));
}

#[test]
fn a_task_that_builds_on_another_starts_from_its_commit_and_is_held_against_it() {
    let mut world = World::new();
    let mut next = verified("next");
    next.depends_on = vec!["first".parse().unwrap()];
    next.base_from = Some("first".parse().unwrap());
    let run = world.submit(run_spec("r"), vec![repo_spec("first"), next]).unwrap();
    let first = world.at_work(run, "first");
    assert_eq!(world.program(first).spec.checkout.as_ref().unwrap().commit, BASE);
    world.exit(first, 0);
    let next = world.at_work(run, "next");
    assert_eq!(world.program(next).spec.checkout.as_ref().unwrap().commit, WORK);
    // It leaves the commit that it was given: nothing was changed, whatever the base of the run is.
    let left = Collected { base_commit: Some(WORK.to_owned()), ..collected(Some(WORK)) };
    let ended = end(EndCause::Exited, Some(0), world.now);
    world.finish(next, ended, left);
    let check = world.task(run, "next").attempts[0].verification.clone().unwrap();
    world.exit(check.agent, 1);
    let task = world.task(run, "next");
    assert_eq!(task.state, TaskState::Failed);
    assert!(task.reason.contains("it is the base itself"), "{}", task.reason);
}

#[test]
fn what_must_be_run_before_is_run_before() {
    let mut world = World::new();
    let mut spec = task_spec("a");
    spec.setup = vec![vec!["make".to_owned(), "it's".to_owned()]];
    spec.program = vec!["work".to_owned(), "hard".to_owned()];
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let agent = world.at_work(run, "a");
    let program = world.program(agent).spec.program.clone();
    assert_eq!((program[0].as_str(), program[1].as_str()), ("/bin/sh", "-c"));
    assert!(program[2].contains("(exec 'make' 'it'\\''s')") && program[2].ends_with("exec \"$@\"\n"));
    assert_eq!(program[3..], ["setup", "work", "hard"]);
}
