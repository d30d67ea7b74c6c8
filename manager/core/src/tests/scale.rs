//! Many tasks: what one report costs does not grow with the queue. The time is printed, and bounded far above what a
//! slow machine needs for a linear course and far below what a quadratic one takes.

use std::time::{Duration, Instant};

use protocol::task::TaskState;

use super::world::{World, capped, config, host_id, task_spec};
use crate::Config;

const TASKS: usize = 10_000;

#[test]
#[expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the test measures and tells; the core does not"
)]
fn ten_thousand_tasks_are_submitted_and_finished_fifty_at_a_time() {
    let mut world = World::with(Config { host_cap: Some(50), ..config() }, &["one"]);
    let begun = Instant::now();
    let tasks = (0..TASKS).map(|n| task_spec(&format!("t{n}"))).collect();
    let run = world.submit(capped(50), tasks).unwrap();
    let submitted = begun.elapsed();
    let mut finished = 0;
    while finished < TASKS {
        let live: Vec<_> = world.hosts[&host_id("one")]
            .programs
            .iter()
            .filter(|(_, program)| program.end.is_none())
            .map(|(id, _)| *id)
            .collect();
        assert!((1..=50).contains(&live.len()), "{} live", live.len());
        for agent in live {
            world.exit(agent, 0);
            finished += 1;
        }
        let host = world.hosts.get_mut(&host_id("one")).unwrap();
        host.programs.retain(|_, program| !program.destroyed);
    }
    let whole = begun.elapsed();
    println!("{TASKS} tasks: submitted in {submitted:?}, all accepted in {whole:?}");
    let view = world.core.run_view(run).unwrap();
    assert_eq!(view.counts[TaskState::Accepted.as_str()], u64::try_from(TASKS).unwrap());
    let begun = Instant::now();
    assert_eq!(world.core.tasks(world.now, run).len(), TASKS);
    println!("shown in {:?}", begun.elapsed());
    assert!(whole < Duration::from_secs(60), "{whole:?}");
}
