//! Runs that are over are forgotten beyond a number or an age, and never while anybody may come back to them.

use protocol::api::{Mutation, Reply, SubmitRun};
use protocol::ids::{RequestKey, RunId};
use protocol::order::{Answer, Discard};
use protocol::task::{Accept, TaskSpec, TaskState};

use super::world::{World, repo_spec, run_spec, task_spec};
use crate::effect::Effect;
use crate::{Core, Input, RunBounds, StoredRecord};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn due(world: &World, most: Option<u64>, older_ms: Option<u64>) -> Vec<RunId> {
    let due = world.core.runs_due(world.now, &RunBounds { most, older_ms });
    due.into_iter().map(|run| run.id).collect()
}

fn free(world: &mut World, runs: &[RunId]) -> Vec<Option<String>> {
    let key = world.key();
    let reply = world.ask(Mutation::FreeRuns { key, runs: runs.to_vec(), older_ms: 0 }).unwrap();
    let Reply::Freed(outcomes) = reply else { panic!("{reply:?}") };
    outcomes.into_iter().map(|outcome| outcome.kept).collect()
}

/// A run of one task that made nothing, over and cleared away.
fn done(world: &mut World, name: &str) -> RunId {
    let run = world.submit(run_spec(name), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
    world.pass(1_000);
    run
}

fn is_stored(world: &World, run: RunId) -> bool {
    world.stored.keys().any(|(_, key)| key.contains(&run.to_string()))
}

#[test]
fn the_oldest_runs_beyond_the_number_or_the_age_go_and_what_is_not_over_does_not_count() {
    let mut world = World::new();
    let [first, second] = ["r1", "r2"].map(|name| done(&mut world, name));
    let open = world.submit(run_spec("open"), vec![task_spec("a")]).unwrap();
    world.pass(DAY_MS);
    let third = done(&mut world, "r3");
    assert!(due(&world, None, None).is_empty());
    assert!(due(&world, Some(3), Some(2 * DAY_MS)).is_empty());
    assert_eq!(due(&world, Some(1), None), [first, second]);
    assert_eq!(due(&world, Some(2), None), [first]);
    assert_eq!(due(&world, None, Some(DAY_MS)), [first, second]);
    assert_eq!(due(&world, Some(0), None), [first, second, third]);

    assert_eq!(free(&mut world, &[first, open]), [None, Some(String::from("it is not over"))]);
    assert!(!is_stored(&world, first) && is_stored(&world, open) && is_stored(&world, second));
    assert!(world.core.find_run(&first.to_string()).is_err());
    assert_eq!(free(&mut world, &[first]), [None], "gone is done");
    world.check_store();
    world.restart_manager();
    assert!(world.core.find_run(&first.to_string()).is_err());
    assert_eq!(world.state(second, "a"), TaskState::Accepted);
    world.check_store();
}

#[test]
fn a_run_that_is_younger_than_asked_for_stays() {
    let mut world = World::new();
    let run = done(&mut world, "r");
    let key = world.key();
    let asked = Mutation::FreeRuns { key, runs: vec![run], older_ms: DAY_MS };
    let Reply::Freed(outcomes) = world.ask(asked).unwrap() else { panic!() };
    assert!(outcomes[0].kept.as_ref().unwrap().contains("younger"), "{outcomes:?}");
    assert!(is_stored(&world, run));
}

#[test]
fn work_that_waits_for_a_person_or_was_accepted_and_not_merged_keeps_its_run() {
    let mut world = World::new();
    let review = TaskSpec { accept: Accept::Review, ..repo_spec("a") };
    let waits = world.submit(run_spec("waits"), vec![review]).unwrap();
    let accepted = world.submit(run_spec("accepted"), vec![repo_spec("a")]).unwrap();
    for run in [waits, accepted] {
        let agent = world.at_work(run, "a");
        world.exit(agent, 0);
    }
    assert_eq!(world.state(waits, "a"), TaskState::Review);
    assert_eq!(world.state(accepted, "a"), TaskState::Accepted);
    assert!(free(&mut world, &[waits, accepted]).iter().all(Option::is_some), "its branch is not there yet");
    let task = world.task(accepted, "a");
    let (branch, commit) = (task.spec.name.to_string(), "2".repeat(40));
    world.land(task.id, Ok(Answer::Landed { branch, commit }));
    world.pass(2 * DAY_MS);
    assert!(due(&world, Some(0), Some(1)).is_empty());
    let kept = free(&mut world, &[waits, accepted]);
    assert_eq!(kept[0].as_deref(), Some("it is not over"));
    assert_eq!(kept[1].as_deref(), Some("the work of its task a is accepted and not merged"));
    assert!(is_stored(&world, waits) && is_stored(&world, accepted));
    world.check_store();
}

#[test]
fn an_agent_that_is_still_there_keeps_its_run() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.program(agent).work = vec![String::from("notes")];
    world.exit(agent, 1);
    world.cancel(run, &[]);
    assert!(world.state(run, "a").is_final());
    world.pass(2 * DAY_MS);
    assert!(due(&world, Some(0), Some(1)).is_empty());
    assert_eq!(free(&mut world, &[run]), [Some(String::from("an agent of its task a is still there"))]);
    world.destroy(&agent.to_string(), Discard::Yes);
    assert_eq!(due(&world, Some(0), None), [run]);
    assert_eq!(free(&mut world, &[run]), [None]);
    assert!(!is_stored(&world, run));
    world.input(Input::Forgotten(agent));
    world.check_store();
}

#[test]
fn the_key_that_made_a_forgotten_run_makes_no_other_one() {
    let mut world = World::new();
    let key = RequestKey(String::from("k"));
    let submit = |world: &mut World| {
        let task = protocol::task::SubmitTask { spec: task_spec("a"), environment: Default::default() };
        let submit = SubmitRun { key: key.clone(), run: run_spec("r"), tasks: vec![task] };
        world.ask(Mutation::SubmitRun(Box::new(submit))).unwrap()
    };
    let first = submit(&mut world);
    let Reply::Submitted { run, .. } = first else { panic!("{first:?}") };
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(free(&mut world, &[run]), [None]);
    assert_eq!(submit(&mut world), first);
    world.check_store();
    world.restart_manager();
    assert_eq!(submit(&mut world), first);
    assert!(world.core.find_run("r").is_err());
}

/// Whatever part of its writes a crash leaves, nothing is set aside and the rest goes the next time.
#[test]
fn a_crash_while_a_run_is_forgotten_leaves_one_that_can_be_forgotten() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a"), task_spec("b")]).unwrap();
    for name in ["a", "b"] {
        let agent = world.at_work(run, name);
        world.exit(agent, 0);
    }
    world.pass(1_000);
    let (key, seed) = (world.key(), 7);
    let request = Mutation::FreeRuns { key, runs: vec![run], older_ms: 0 };
    let input = Input::Client { reply_to: 1, request: Box::new(request), seed };
    let writes: Vec<StoredRecord> = (world.core.clone().handle(world.now, input).into_iter())
        .filter_map(|effect| if let Effect::Write(record) = effect { Some(record) } else { None })
        .collect();
    assert!(writes.len() >= 3, "{writes:?}");
    for count in 0..=writes.len() {
        let mut stored = world.stored.clone();
        for StoredRecord { bucket, key, value } in writes[..count].iter().cloned() {
            match value {
                Some(value) => stored.insert((bucket, key), value),
                None => stored.remove(&(bucket, key)),
            };
        }
        let records =
            stored.into_iter().map(|((bucket, key), value)| StoredRecord { bucket, key, value: Some(value) });
        let (core, aside) = Core::load(world.core.config.clone(), records.collect(), world.now);
        assert_eq!(aside, Vec::new(), "after {count} writes");
        let left = core.over_runs();
        let is_whole = count == writes.len();
        assert_eq!(left.is_empty(), is_whole, "after {count} writes: {left:?}");
    }
}
