//! From records to a core and back.

use protocol::api::{Mutation, Reply};
use protocol::ids::{Fencing, RequestKey};
use protocol::order::Discard;
use protocol::task::TaskState;
use protocol::time::Timestamp;

use super::world::{World, config, run_spec, task_spec, verified};
use crate::{Config, Core, StoredRecord};

fn load(world: &World) -> (Core, Vec<crate::Quarantined>) {
    let stored = world
        .stored
        .iter()
        .map(|((bucket, key), value)| StoredRecord { bucket, key: key.clone(), value: Some(value.clone()) })
        .collect();
    Core::load(Config::new(Fencing(8)), stored, world.now)
}

#[test]
fn one_bad_record_is_named_and_never_stops_the_rest() {
    let mut world = World::new();
    let good = world.create("good").unwrap();
    let bad = world.create("bad").unwrap();
    world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    world.stored.insert(("desired", bad.to_string()), vec![0xc1, 0xff]);
    world.stored.insert(("desired", String::from("no id")), vec![0x80]);
    world.stored.insert(("tasks", String::from("a.b")), vec![]);
    let (core, aside) = load(&world);
    let keys: Vec<&str> = aside.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(keys, [&bad.to_string(), "no id", "a.b"]);
    assert!(core.agent_view(world.now, good).is_some());
    assert_eq!(core.runs().len(), 1);
}

#[test]
fn a_record_of_a_newer_build_is_left_alone() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let mut record = world.core.fleet.desired(agent).unwrap().clone();
    record.v = 2;
    let bytes = protocol::codec::to_bytes(&record).unwrap();
    world.stored.insert(("desired", agent.to_string()), bytes);
    let (_, aside) = load(&world);
    assert!(aside[0].reason.contains("version 2"), "{}", aside[0].reason);
}

#[test]
fn an_unreadable_attempt_is_neither_made_again_nor_started_a_second_time() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.stored.insert(("desired", agent.to_string()), vec![0xc1]);
    let (core, _) = load(&world);
    world.core = core;
    let sent = world.orders.len();
    world.pass(60_000);
    assert_eq!(world.orders.len(), sent);
    assert_eq!(world.task(run, "a").attempts.len(), 1);
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Accepted, "its report is enough");
}

#[test]
fn a_submission_that_was_not_written_whole_is_not_there() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    world.stored.remove(&("runs", run.to_string()));
    let (core, aside) = load(&world);
    assert!(core.runs().is_empty());
    assert_eq!(aside.len(), 1, "its task is named");
}

#[test]
fn an_attempt_whose_agent_was_not_written_is_made_again_as_it_was() {
    let mut world = World::new();
    world.drops_orders = true;
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.stored.remove(&("desired", agent.to_string()));
    let (core, aside) = load(&world);
    assert!(aside.is_empty());
    world.core = core;
    world.drops_orders = false;
    world.pass(3_000);
    assert_eq!(world.at_work(run, "a"), agent);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    assert_eq!(world.task(run, "a").attempts.len(), 1);
}

#[test]
fn answers_live_on_in_the_records_of_what_they_made() {
    let mut world = World::new();
    let key = RequestKey(String::from("k"));
    let submit = Mutation::SubmitRun(Box::new(protocol::api::SubmitRun {
        key,
        run: run_spec("r"),
        tasks: vec![protocol::task::SubmitTask {
            spec: task_spec("a"),
            environment: protocol::agent::Environment::default(),
        }],
    }));
    let first = world.ask(submit.clone()).unwrap();
    world.restart_manager();
    assert_eq!(world.ask(submit), Ok(first));
    assert_eq!(world.core.runs().len(), 1);
}

#[test]
fn records_give_an_equal_core_up_to_what_only_hosts_can_say() {
    let mut world = World::new();
    world.create("a").unwrap();
    world.create("b").unwrap();
    world.stop("a");
    let reply = world.destroy("b", Discard::Keep);
    assert!(matches!(world.answer(reply), Some(Ok(Reply::Outcomes(_)))));
    world.submit(run_spec("r"), vec![verified("a"), task_spec("b")]).unwrap();
    world.check_store();
    let (core, aside) = load(&world);
    assert!(aside.is_empty());
    assert_eq!(core.records(), world.core.records());
    let again = Core::load(config(), core.records(), world.now).0;
    assert_eq!(again, Core::load(config(), core.records(), world.now).0, "loading is a function");
}

#[test]
fn what_was_loaded_is_looked_at_without_waiting_for_an_input() {
    let world = World::new();
    let (core, _) = Core::load(config(), Vec::new(), Timestamp(5));
    assert_eq!(core.deadline(), Some(Timestamp(5)));
    assert!(world.core.deadline().is_some_and(|at| at > world.now));
}

#[test]
fn a_run_that_has_lost_a_record_ends_and_says_which() {
    let mut world = World::new();
    let after = protocol::task::TaskSpec { depends_on: vec!["a".parse().unwrap()], ..task_spec("b") };
    let run = world.submit(run_spec("r"), vec![task_spec("a"), after]).unwrap();
    let lost = world.task(run, "a").id;
    let agent = world.at_work(run, "a");
    world.stored.remove(&("tasks", crate::record::task_key(run, lost)));
    world.restart_manager();
    assert_eq!(world.state(run, "b"), TaskState::Cancelled);
    assert!(world.task(run, "b").reason.contains("lost"), "{:?}", world.task(run, "b"));
    let tasks = world.core.tasks(world.now, run);
    let stand_in = tasks.iter().find(|task| task.id == lost).unwrap();
    assert_eq!((stand_in.state, stand_in.reason.contains("lost its record")), (TaskState::Failed, true));
    assert!(world.core.run_view(run).unwrap().ended_at.is_some(), "who waits for it hears");
    assert_eq!(world.standing(agent), crate::fleet::agent::Standing::Live, "its agent goes on");
    let Reply::Outcomes(outcomes) = world.retry(run, &[&lost.to_string()]) else { panic!("no outcomes") };
    assert!(outcomes[0].error.is_some(), "nobody knows what it was");
    world.check_store();
    world.restart_manager();
    assert_eq!(world.core.tasks(world.now, run).len(), 2);
}
