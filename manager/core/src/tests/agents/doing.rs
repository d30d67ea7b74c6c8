//! What `why` says of work that goes on: what is known and since when, and which limit is near.

use protocol::agent::{Phase, ResourceLimits};
use protocol::api::Mutation;
use protocol::ids::{AgentId, Incarnation, Seq};
use protocol::report::DigestRow;
use protocol::task::TaskState;
use protocol::time::Timestamp;

use super::super::world::{World, create, host_id, run_spec, task_spec};

/// A live agent that may hold 1,000 bytes and live 100 s.
fn limited(world: &mut World) -> AgentId {
    let mut wish = create(world.key(), "a");
    wish.spec.limits =
        ResourceLimits { memory_bytes: Some(1_000), time_ms: Some(100_000), ..ResourceLimits::default() };
    world.ask(Mutation::CreateAgent(Box::new(wish))).unwrap();
    world.core.find_agent("a").unwrap()
}

fn digest(world: &mut World, agent: AgentId, memory_bytes: u64, last_output: Option<Timestamp>) {
    let row = DigestRow {
        agent,
        seq: Seq(0),
        incarnation: Incarnation(0),
        phase: Phase::Running,
        last_output,
        cpu_ms: 0,
        memory_bytes,
        transcript_bytes: 0,
    };
    let host = world.host_of(agent);
    assert_eq!(host, host_id("one"));
    world.beat_with("one", Some(vec![row]));
}

fn why(world: &World, target: &str) -> String {
    world.core.why(world.now, target).unwrap().remove(0).why
}

#[test]
fn a_live_agent_is_told_with_its_silence_and_the_limits_that_are_near() {
    let mut world = World::new();
    let agent = limited(&mut world);
    let said = why(&world, "a");
    assert!(said.contains("not known yet") && !said.contains("limit"), "{said}");
    let printed_at = world.now;
    digest(&mut world, agent, 799, Some(printed_at));
    let said = why(&world, "a");
    assert!(said.contains("it prints") && !said.contains("limit"), "{said}");
    digest(&mut world, agent, 800, Some(printed_at));
    assert!(why(&world, "a").contains("80% of its memory limit"), "{}", why(&world, "a"));
    world.pass(70_000);
    let said = why(&world, "a");
    assert!(said.contains("printed nothing for 70 s") && !said.contains("time limit"), "{said}");
    world.pass(15_000);
    assert!(why(&world, "a").contains("its time limit ends it in 15 s"), "{}", why(&world, "a"));
}

#[test]
fn a_task_at_work_is_told_by_its_attempt() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("t")]).unwrap();
    assert_eq!(world.state(run, "t"), TaskState::Running);
    world.pass(5_000);
    assert_eq!(why(&world, "t"), "attempt 1 is at work, begun 5 s ago");
}
