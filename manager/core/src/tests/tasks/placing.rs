//! Who goes first, where, and why the others wait.

use std::collections::BTreeMap;

use protocol::agent::ResourceLimits;
use protocol::api::Mutation;
use protocol::error::ErrorCode;
use protocol::ids::{HostId, RunId, TaskId};
use protocol::task::{TaskState, Waiting};

use super::super::world::{World, capped, config, host_id, run_spec, task_spec};
use crate::{Caps, Config, Demand, Depth, Plan, Queue, Ready, Room, RunLoad, Strategy, plan};

fn room(host: &str, live: u32, cap: Option<u32>) -> Room {
    Room {
        host: host_id(host),
        live,
        cap,
        memory_unpromised: 1_000,
        cpu_unpromised: 4_000,
        disk_is_full: false,
        live_by_run: BTreeMap::new(),
    }
}

fn run(n: u64) -> RunId {
    RunId::from_parts(n, 0)
}

fn task(n: u32) -> TaskId {
    TaskId::from_parts(u64::from(n), 0)
}

fn ready(n: u32, of: u64, priority: i32, memory_bytes: u64) -> Ready {
    let demand = Demand { memory_bytes, cpu_millis: 0 };
    let caps = Default::default();
    Ready { priority: std::cmp::Reverse(priority), run: run(of), demand, caps, place: n, task: task(n) }
}

fn planned(rooms: Vec<Room>, tasks: &[Ready], loads: &[(u64, RunLoad)], strategy: Strategy) -> Plan {
    let mut queue = Queue::default();
    for ready in tasks {
        queue.insert(*ready);
    }
    let loads = loads.iter().map(|(of, load)| (run(*of), *load)).collect();
    plan(rooms, &queue, &loads, &Caps::default(), strategy, None, Depth::Reasons)
}

fn order(plan: &Plan) -> Vec<TaskId> {
    plan.placements.iter().map(|placement| placement.task).collect()
}

fn hosts(plan: &Plan) -> Vec<HostId> {
    plan.placements.iter().map(|placement| placement.host.clone()).collect()
}

#[test]
fn priority_goes_first_then_the_run_with_the_fewest_live_then_submission() {
    let tasks =
        [ready(1, 1, 0, 0), ready(2, 1, 0, 0), ready(3, 2, 0, 0), ready(4, 2, 5, 0), ready(5, 2, 0, 0)];
    let plan = planned(vec![room("a", 0, None)], &tasks, &[], Strategy::LeastLoaded);
    // 4 by priority; then run 1 has none live and run 2 one; equal runs go by age.
    assert_eq!(order(&plan), [4, 1, 2, 3, 5].map(task));
}

#[test]
fn a_capped_run_stops_itself_only_and_the_first_in_line_is_told_the_cap() {
    let tasks = [ready(1, 1, 0, 0), ready(2, 1, 0, 0), ready(3, 1, 0, 0), ready(4, 2, 0, 0)];
    let loads = [(1, RunLoad { live: 1, cap: Some(2) })];
    let plan = planned(vec![room("a", 0, None)], &tasks, &loads, Strategy::LeastLoaded);
    assert_eq!(order(&plan), [4, 1].map(task));
    assert_eq!(plan.waiting[&task(2)], Waiting::RunCap { cap: 2 });
    assert_eq!(plan.waiting[&task(3)], Waiting::Turn { ahead: 1 });
}

#[test]
fn what_does_not_fit_waits_for_memory_and_lets_smaller_ones_by() {
    let tasks = [ready(1, 1, 0, 2_000), ready(2, 1, 0, 600), ready(3, 1, 0, 600), ready(4, 1, 0, 0)];
    let plan = planned(vec![room("a", 0, None)], &tasks, &[], Strategy::LeastLoaded);
    assert_eq!(order(&plan), [2, 4].map(task));
    let lacks = Waiting::Memory { wanted_bytes: 600, largest_free_bytes: 400 };
    assert_eq!(plan.waiting[&task(3)], lacks);
    assert!(matches!(plan.waiting[&task(1)], Waiting::Memory { wanted_bytes: 2_000, .. }));
}

#[test]
fn every_waiting_task_has_a_reason() {
    let tasks = [ready(1, 1, 0, 0), ready(2, 1, 0, 0), ready(3, 2, 0, 0)];
    let none = planned(vec![], &tasks, &[], Strategy::LeastLoaded);
    assert!(none.waiting.values().all(|why| *why == Waiting::NoHost) && none.waiting.len() == 3);
    let mut full = room("a", 0, None);
    full.disk_is_full = true;
    let disk = planned(vec![full], &tasks, &[], Strategy::LeastLoaded);
    assert_eq!(disk.waiting[&task(1)], Waiting::DiskShare { host: host_id("a") });
    let cap = planned(vec![room("a", 1, Some(2))], &tasks, &[], Strategy::LeastLoaded);
    assert_eq!(order(&cap), [task(1)]);
    assert_eq!(cap.waiting[&task(2)], Waiting::HostCap { cap: 2 });
    assert_eq!(cap.waiting[&task(3)], Waiting::Turn { ahead: 1 });
}

#[test]
fn each_strategy_chooses_as_it_says() {
    let rooms = || vec![room("a", 2, Some(4)), room("b", 0, Some(4)), room("c", 1, Some(4))];
    let tasks = [ready(1, 1, 0, 0), ready(2, 1, 0, 0), ready(3, 1, 0, 0)];
    let on = |strategy| hosts(&planned(rooms(), &tasks, &[], strategy));
    assert_eq!(on(Strategy::LeastLoaded), ["b", "b", "c"].map(host_id));
    assert_eq!(on(Strategy::BinPack), ["a", "a", "c"].map(host_id));
    assert_eq!(on(Strategy::RoundRobin), ["a", "b", "c"].map(host_id));
    assert_eq!(on(Strategy::Spread), ["b", "c", "a"].map(host_id));
}

#[test]
fn promises_are_summed_and_given_back() {
    let mut world = World::new();
    let mut big = task_spec("big");
    big.limits = ResourceLimits { memory_bytes: Some(5 << 30), ..ResourceLimits::default() };
    let mut more = task_spec("more");
    more.limits = big.limits;
    let run = world.submit(run_spec("r"), vec![big, more]).unwrap();
    let waits = Waiting::Memory { wanted_bytes: 5 << 30, largest_free_bytes: 3 << 30 };
    assert_eq!(world.task(run, "more").waiting, Some(waits));
    let agent = world.at_work(run, "big");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "more"), TaskState::Running);
}

#[test]
fn a_queue_moves_on_when_a_host_comes_back_and_when_its_disk_is_freed() {
    let mut world = World::new();
    world.hosts.get_mut(&host_id("one")).unwrap().facts.disk_free_bytes = 1;
    world.beat("one");
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    assert_eq!(world.task(run, "a").waiting, Some(Waiting::DiskShare { host: host_id("one") }));
    world.hosts.get_mut(&host_id("one")).unwrap().facts.disk_free_bytes = 50;
    world.beat("one");
    assert_eq!(world.state(run, "a"), TaskState::Running);
}

#[test]
fn own_agents_count_against_the_cap_of_a_host() {
    let mut world = World::with(Config { host_cap: Some(2), ..config() }, &["one"]);
    world.create("mine").unwrap();
    let run = world.submit(capped(5), vec![task_spec("a"), task_spec("b")]).unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Running);
    assert_eq!(world.state(run, "b"), TaskState::Queued);
    world.stop("mine");
    assert_eq!(world.state(run, "b"), TaskState::Running);
}

#[test]
fn a_run_that_is_scaled_starts_more_at_once_and_never_ends_what_is_live() {
    let mut world = World::new();
    let tasks = ["a", "b", "c", "d"].map(task_spec).to_vec();
    let run = world.submit(capped(1), tasks).unwrap();
    let live = |world: &World| {
        let tasks = world.core.tasks(world.now, run);
        tasks.iter().filter(|task| task.state.is_live()).count()
    };
    let scale = |world: &mut World, max_parallel| {
        let key = world.key();
        world.ask(Mutation::ScaleRun {
            key,
            run: run.to_string(),
            max_parallel,
            keep_parallel: false,
            caps: Default::default(),
        })
    };
    assert_eq!(live(&world), 1);
    scale(&mut world, Some(3)).unwrap();
    assert_eq!(live(&world), 3);
    scale(&mut world, Some(1)).unwrap();
    assert_eq!(live(&world), 3, "they go on");
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(live(&world), 2, "and nothing follows them while they are too many");
    assert_eq!(scale(&mut world, Some(0)).unwrap_err().code, ErrorCode::Invalid);
    world.restart_manager();
    assert_eq!(live(&world), 2);
    scale(&mut world, None).unwrap();
    assert_eq!(live(&world), 3);
}

#[test]
fn a_task_larger_than_every_host_is_refused_at_once_with_the_largest_host() {
    let mut world = World::new();
    let mut large = task_spec("a");
    large.limits.memory_bytes = Some(900 << 30);
    let error = world.submit(run_spec("r"), vec![large]).unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(error.message.contains("largest host, one, has 8589934592"), "{error:?}");
}

#[test]
fn a_cancel_that_its_host_cannot_hear_says_so() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    world.at_work(run, "a");
    world.hosts.values_mut().for_each(|host| host.is_cut_off = true);
    world.pass(20_000);
    let protocol::api::Reply::Outcomes(outcomes) = world.cancel(run, &["a"]) else { panic!("no outcomes") };
    assert!(outcomes[0].note.contains("host one does not answer"), "{outcomes:?}");
    let task = world.task(run, "a");
    assert_eq!((task.state, task.reason.contains("cancel requested")), (TaskState::Running, true));
    world.hosts.values_mut().for_each(|host| host.is_cut_off = false);
    world.pass(20_000);
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
}
