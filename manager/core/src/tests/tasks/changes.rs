//! What an attempt changed: in its workspace, and where it should not have.

use protocol::agent::EndCause;
use protocol::report::Collected;
use protocol::task::{Accept, TaskSpec, TaskState};

use super::super::specs::{BASE, collected, end};
use super::super::world::{World, repo_spec, run_spec};

fn ended(spec: TaskSpec, left: Collected) -> (TaskState, String) {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let agent = world.at_work(run, "a");
    let end = end(EndCause::Exited, Some(0), world.now);
    world.finish(agent, end, left);
    let task = world.task(run, "a");
    (task.state, task.reason)
}

#[test]
fn an_attempt_that_changed_nothing_fails_unless_the_task_allows_it() {
    let needs = || TaskSpec { needs_change: true, ..repo_spec("a") };
    let (state, reason) = ended(needs(), collected(Some(BASE)));
    assert_eq!(state, TaskState::Failed);
    assert!(reason.contains("changed nothing") && reason.contains("allow_no_change"), "{reason}");
    let (state, reason) = ended(repo_spec("a"), collected(Some(BASE)));
    assert_eq!((state, reason.as_str()), (TaskState::Accepted, "exit 0, unverified; no change"));
    // A person says for himself.
    let (state, reason) = ended(TaskSpec { accept: Accept::Review, ..needs() }, collected(Some(BASE)));
    assert_eq!((state, reason.as_str()), (TaskState::Review, "waits for a person; no change"));
    // What it leaves elsewhere is something.
    let result = Collected { result: Some(String::from("{}")), ..collected(Some(BASE)) };
    assert_eq!(ended(needs(), result).0, TaskState::Accepted);
}

#[test]
fn what_moved_in_the_source_repository_is_told_whatever_became_of_the_attempt() {
    let moved = || vec![String::from("branch main went from 111 to 222")];
    let spec = || TaskSpec { needs_change: true, ..repo_spec("a") };
    let left = |commit| Collected { source_moved: moved(), ..collected(Some(commit)) };
    let (state, reason) = ended(spec(), left(super::super::specs::WORK));
    assert_eq!(state, TaskState::Accepted);
    assert!(reason.contains("not by Phalanx: branch main went from 111 to 222"), "{reason}");
    let (state, reason) = ended(spec(), left(BASE));
    assert_eq!(state, TaskState::Failed);
    assert!(reason.contains("branch main went from 111 to 222"), "{reason}");
}
