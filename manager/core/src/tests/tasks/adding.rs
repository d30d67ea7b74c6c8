//! Runs to which tasks are added while they go on.

use protocol::api::{AddTasks, Mutation, Reply};
use protocol::error::ErrorCode;
use protocol::ids::{RequestKey, RunId};
use protocol::task::{RunSpec, SubmitTask, TaskSpec, TaskState};

use super::super::world::{World, after, run_spec, task_spec};

fn open(world: &mut World, tasks: Vec<TaskSpec>) -> RunId {
    world.submit(RunSpec { open: true, ..run_spec("r") }, tasks).unwrap()
}

fn request(key: RequestKey, run: RunId, specs: Vec<TaskSpec>) -> Mutation {
    let tasks = specs.into_iter().map(|spec| SubmitTask { spec, environment: Default::default() }).collect();
    Mutation::AddTasks(Box::new(AddTasks { key, run: run.to_string(), tasks }))
}

fn close(world: &mut World, run: RunId) {
    let key = world.key();
    world.ask(Mutation::CloseRun { key, run: run.to_string() }).unwrap();
}

fn ended(world: &World, run: RunId) -> bool {
    world.core.run_view(run).unwrap().ended_at.is_some()
}

#[test]
fn an_open_run_takes_tasks_and_ends_only_once_it_is_closed() {
    let mut world = World::new();
    let run = open(&mut world, Vec::new());
    assert!(!ended(&world, run), "empty and open");
    let key = world.key();
    world.ask(request(key, run, vec![task_spec("a"), after("b", &["a"])])).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    let agent = world.at_work(run, "b");
    world.exit(agent, 0);
    assert!(!ended(&world, run), "more may come");
    let key = world.key();
    // It may wait for what was there before.
    world.ask(request(key, run, vec![after("c", &["a"])])).unwrap();
    assert_eq!(world.state(run, "c"), TaskState::Running);
    close(&mut world, run);
    assert!(!ended(&world, run), "one is at work");
    let agent = world.at_work(run, "c");
    world.exit(agent, 0);
    assert!(ended(&world, run));
    let key = world.key();
    let refused = world.ask(request(key, run, vec![task_spec("d")])).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    world.check_store();
}

#[test]
fn tasks_are_added_once_per_key_and_all_or_none() {
    let mut world = World::new();
    let run = open(&mut world, vec![task_spec("a")]);
    let key = world.key();
    let first = world.ask(request(key.clone(), run, vec![task_spec("b"), task_spec("c")])).unwrap();
    let again = world.ask(request(key.clone(), run, vec![task_spec("b"), task_spec("c")])).unwrap();
    assert_eq!(first, again);
    world.restart_manager();
    let Reply::Submitted { run: same, .. } =
        world.ask(request(key, run, vec![task_spec("b"), task_spec("c")])).unwrap()
    else {
        panic!()
    };
    assert_eq!((same, world.core.run_view(run).unwrap().total), (run, 3));
    for (wrong, said) in [
        (vec![task_spec("d"), task_spec("a")], "another task of this run has it"),
        (vec![task_spec("d"), after("e", &["nobody"])], "there is no task \"nobody\""),
    ] {
        let key = world.key();
        let refused = world.ask(request(key, run, wrong)).unwrap_err();
        assert!(refused.message.contains(said), "{refused:?}");
    }
    assert_eq!(world.core.run_view(run).unwrap().total, 3, "nothing of a refused addition is there");
    world.check_store();
}

#[test]
fn cancelling_an_open_run_closes_it() {
    let mut world = World::new();
    let run = open(&mut world, Vec::new());
    world.cancel(run, &[]);
    assert!(ended(&world, run));
}
