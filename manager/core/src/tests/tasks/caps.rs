//! Caps per label: of a run and of the installation, at every instant, and of no hindrance to others.

use std::collections::BTreeMap;

use protocol::api::Mutation;
use protocol::ids::RunId;
use protocol::task::{RunSpec, TaskState, Waiting};

use super::super::world::{World, capped, config, labelled, run_spec, task_spec};
use crate::Config;

fn caps(caps: &[(&str, u32)]) -> BTreeMap<String, u32> {
    caps.iter().map(|(label, most)| (String::from(*label), *most)).collect()
}

fn live(world: &World, run: RunId) -> Vec<String> {
    let tasks = world.core.tasks(world.now, run);
    tasks.iter().filter(|task| task.state.is_live()).map(|task| task.spec.name.to_string()).collect()
}

#[test]
fn a_cap_of_a_run_binds_what_has_the_label_and_lets_the_others_by() {
    let mut world = World::new();
    let tasks = ["a", "b", "c"].map(|name| labelled(task_spec(name), &[("team", "infra")]));
    let others = [labelled(task_spec("d"), &[("team", "web")]), task_spec("e")];
    let spec = RunSpec { caps: caps(&[("team=infra", 2)]), ..run_spec("r") };
    let run = world.submit(spec, tasks.into_iter().chain(others).collect()).unwrap();
    assert_eq!(live(&world, run), ["a", "b", "d", "e"]);
    let full = Waiting::LabelCap { label: String::from("team=infra"), cap: 2, of_run: true };
    assert_eq!(world.task(run, "c").waiting, Some(full));
    let why = world.core.why(world.now, "r/c").unwrap();
    assert!(why[0].why.contains("2 live at once with the label team=infra"), "{why:?}");
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "c"), TaskState::Running);
}

#[test]
fn a_cap_of_the_installation_counts_all_runs_and_outlives_the_manager() {
    let label_caps = caps(&[("gpu", 2)]);
    let mut world = World::with(Config { label_caps, ..config() }, &["one"]);
    let task = |name: &str, gpu: &str| labelled(task_spec(name), &[("gpu", gpu)]);
    let first = world.submit(run_spec("first"), vec![task("a", "big"), task_spec("b")]).unwrap();
    // The labels of a run are those of its tasks.
    let labels = BTreeMap::from([(String::from("gpu"), String::from("small"))]);
    let second = RunSpec { labels, ..run_spec("second") };
    let second = world.submit(second, vec![task_spec("a"), task_spec("b")]).unwrap();
    assert_eq!((live(&world, first), live(&world, second)), (vec!["a".into(), "b".into()], vec!["a".into()]));
    let full = Waiting::LabelCap { label: String::from("gpu"), cap: 2, of_run: false };
    assert_eq!(world.task(second, "b").waiting, Some(full.clone()));
    world.restart_manager();
    assert_eq!(world.task(second, "b").waiting, Some(full));
    let third = world.submit(run_spec("third"), vec![task("a", "big")]).unwrap();
    assert_eq!(live(&world, third), [""; 0]);
    let agent = world.at_work(first, "a");
    world.exit(agent, 0);
    // One slot, and the older of equal runs has it.
    assert_eq!(
        (live(&world, second).len(), live(&world, third).len()),
        (1, 1),
        "the run with the fewest live"
    );
}

#[test]
fn a_run_at_the_cap_of_its_label_holds_up_no_other_run() {
    let label_caps = caps(&[("gpu", 1)]);
    let mut world = World::with(Config { label_caps, host_cap: Some(4), ..config() }, &["one"]);
    let tasks = (0..10).map(|n| labelled(task_spec(&format!("t{n}")), &[("gpu", "1")])).collect();
    let stuck = world.submit(run_spec("stuck"), tasks).unwrap();
    let free = world.submit(run_spec("free"), ["a", "b", "c", "d"].map(task_spec).to_vec()).unwrap();
    assert_eq!((live(&world, stuck).len(), live(&world, free).len()), (1, 3));
    // The slot that is given back goes to whoever may have it.
    let agent = world.at_work(free, "a");
    world.exit(agent, 0);
    assert_eq!((live(&world, stuck).len(), live(&world, free).len()), (1, 3));
}

#[test]
fn a_task_may_be_bound_by_several_caps_and_the_tightest_holds() {
    let label_caps = caps(&[("gpu", 3)]);
    let mut world = World::with(Config { label_caps, ..config() }, &["one"]);
    let both = |name: &str| labelled(task_spec(name), &[("gpu", "1"), ("team", "infra")]);
    let spec = RunSpec { caps: caps(&[("team", 1), ("gpu=1", 2)]), ..capped(9) };
    let gpu = |name: &str| labelled(task_spec(name), &[("gpu", "1")]);
    let run = world.submit(spec, vec![both("a"), both("b"), gpu("c"), gpu("d")]).unwrap();
    assert_eq!(live(&world, run), ["a", "c"]);
    let waits = |name: &str| match world.task(run, name).waiting {
        Some(Waiting::LabelCap { label, .. }) => label,
        other => panic!("{other:?}"),
    };
    assert_eq!(waits("d"), "gpu=1");
    assert!(["gpu=1", "team"].contains(&waits("b").as_str()));
}

#[test]
fn a_cap_that_binds_nothing_or_everything_is_refused_by_name() {
    let mut world = World::new();
    for (label, most, expected) in [("gpu", 0, "with 0 nothing"), ("=x", 1, "no label"), ("", 1, "no label")]
    {
        let spec = RunSpec { caps: caps(&[(label, most)]), ..run_spec("r") };
        let error = world.submit(spec, vec![task_spec("a")]).unwrap_err();
        assert!(error.message.contains(expected) && error.message.contains("caps"), "{error:?}");
    }
}

#[test]
fn the_caps_of_a_live_run_can_be_raised_added_and_taken_away() {
    let mut world = World::new();
    let tasks = ["a", "b", "c", "d"].map(|name| labelled(task_spec(name), &[("team", "infra")]));
    let spec = RunSpec { caps: caps(&[("team=infra", 1)]), ..run_spec("r") };
    let run = world.submit(spec, tasks.to_vec()).unwrap();
    let scale = |world: &mut World, label: &str, most: Option<u32>| {
        let (key, caps) = (world.key(), [(label.to_owned(), most)].into());
        let request =
            Mutation::ScaleRun { key, run: run.to_string(), max_parallel: None, keep_parallel: true, caps };
        world.ask(request)
    };
    assert_eq!(live(&world, run).len(), 1);
    scale(&mut world, "team=infra", Some(2)).unwrap();
    assert_eq!(live(&world, run).len(), 2);
    scale(&mut world, "team", Some(3)).unwrap();
    scale(&mut world, "team=infra", None).unwrap();
    assert_eq!(live(&world, run).len(), 3, "the new one counts what was live before");
    world.restart_manager();
    assert_eq!(live(&world, run).len(), 3);
    assert!(scale(&mut world, "team", Some(0)).is_err());
    scale(&mut world, "team", None).unwrap();
    assert_eq!(live(&world, run).len(), 4);
}
