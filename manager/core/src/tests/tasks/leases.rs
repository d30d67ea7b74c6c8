//! Attempts whose host is lost: moved under a lease, after its end, and never otherwise.

use protocol::agent::EndCause;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, Generation, HostId, RunId};
use protocol::order::Command;
use protocol::task::{FailureClass, TaskSpec, TaskState};
use protocol::time::Timestamp;

use super::super::world::{
    LEASE_MS, WORK, World, collected, config, end, host_id, movable, retried, run_spec, task_spec, verified,
};
use crate::Input;
use crate::fleet::agent::Standing;

impl World {
    /// As hostd and the supervisors do it: asked for at thirds, and ended at the deadline by those who hear nothing.
    pub(in crate::tests) fn watch_leases(&mut self) {
        let now = self.now;
        let mut ended = Vec::new();
        let mut asking = Vec::new();
        for (id, host) in &mut self.hosts {
            for (agent, program) in host.programs.iter_mut().filter(|(_, program)| program.end.is_none()) {
                let (Some(until), Some(length_ms)) = (program.lease_until, program.spec.lease_ms) else {
                    continue;
                };
                if until <= now {
                    program.end = Some(end(EndCause::Lease, None, now));
                    program.collected = Some(collected(None));
                    program.draining = false;
                    ended.push(*agent);
                } else if until.ms_since(now) < length_ms * 2 / 3 && !host.is_cut_off {
                    asking.push((id.clone(), *agent, program.generation));
                }
            }
        }
        for agent in ended {
            self.report(agent);
        }
        for (host, agent, generation) in asking {
            if let Ok(length_ms) = self.ask_lease(&host, agent, generation) {
                self.program(agent).lease_until = Some(now.after_ms(length_ms));
            }
        }
    }

    pub(in crate::tests) fn ask_lease(
        &mut self,
        host: &HostId,
        agent: AgentId,
        generation: Generation,
    ) -> Result<u64, WireError> {
        self.next += 1;
        let reply_to = self.next;
        self.input(Input::LeaseAsked { reply_to, host: host.clone(), agent, generation });
        self.leases[&reply_to].clone()
    }
}

/// A fleet of two, the task at work on one of them.
fn at_work(spec: TaskSpec) -> (World, RunId, AgentId) {
    let mut world = World::with(config(), &["one", "two"]);
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let agent = world.at_work(run, "a");
    (world, run, agent)
}

fn cut(world: &mut World, agent: AgentId, cut: bool) {
    let host = world.host_of(agent);
    world.hosts.get_mut(&host).unwrap().is_cut_off = cut;
}

fn until(world: &World, agent: AgentId) -> Timestamp {
    world.core.fleet.desired(agent).unwrap().lease_until.unwrap()
}

#[test]
fn the_first_lease_covers_an_order_that_is_taken_at_its_expiry() {
    let (world, _, agent) = at_work(movable(task_spec("a")));
    let length_ms = world.orders.iter().find_map(|order| match &order.command {
        Command::Ensure { spec, .. } => spec.lease_ms,
        Command::Stop { .. } | Command::Destroy { .. } | Command::Send { .. } | Command::Recall { .. } => {
            None
        }
    });
    assert_eq!(length_ms, Some(LEASE_MS));
    assert!(until(&world, agent) >= world.now.after_ms(30_000 + LEASE_MS + LEASE_MS / 10));
    world.check_store();
}

#[test]
fn an_attempt_on_a_lost_host_goes_on_elsewhere_after_its_lease_and_not_before() {
    let (mut world, run, first) = at_work(movable(task_spec("a")));
    world.pass(600_000);
    assert_eq!(world.program(first).end, None, "a host that is heard keeps its agent alive");
    cut(&mut world, first, true);
    let over = until(&world, first);
    world.pass(over.0 - world.now.0);
    assert_eq!(world.task(run, "a").attempts.len(), 1, "not a moment before");
    assert_eq!(world.program(first).end.as_ref().unwrap().cause, EndCause::Lease);
    world.pass(2_000);
    let second = world.at_work(run, "a");
    let task = world.task(run, "a");
    let lost = task.attempts[0].failure.clone().unwrap();
    assert_eq!((lost.class, lost.charged), (FailureClass::Infrastructure, false));
    assert_eq!(lost.reason, "host lost, lease over");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Running, 2));
    assert_ne!(world.host_of(first), world.host_of(second));
    world.exit(second, 0);
    assert_eq!(world.state(run, "a"), TaskState::Accepted, "no charged start was needed");
    cut(&mut world, first, false);
    world.report(first);
    world.pass(10_000);
    assert_eq!(world.standing(first), Standing::Gone, "cleared away when its host is back");
    world.check_store();
}

#[test]
fn results_of_a_lost_attempt_are_never_accepted() {
    let (mut world, run, first) = at_work(movable(retried("a", 0)));
    cut(&mut world, first, true);
    // It had succeeded before its lease was over; nobody heard of it.
    let success = end(EndCause::Exited, Some(0), world.now);
    world.finish(first, success, collected(Some(WORK)));
    world.pass(400_000);
    let second = world.at_work(run, "a");
    assert_ne!(first, second);
    cut(&mut world, first, false);
    world.pass(2_000);
    world.report(first);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts[0].end.clone()), (TaskState::Running, None));
    assert_eq!(world.core.agent_view(world.now, first).unwrap().wanted, "stopped");
    assert_eq!(world.program(second).end, None);
    world.exit(second, 0);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn a_host_that_lives_on_with_a_lost_attempt_is_told_to_stop_it() {
    let (mut world, run, first) = at_work(movable(task_spec("a")));
    cut(&mut world, first, true);
    world.program(first).lease_until = None; // a supervisor that does not keep its word
    world.pass(400_000);
    assert_ne!(world.at_work(run, "a"), first);
    cut(&mut world, first, false);
    world.pass(2_000);
    world.report(first);
    assert_eq!(world.program(first).end.as_ref().unwrap().cause, EndCause::Requested);
}

#[test]
fn a_task_without_a_lease_is_never_moved() {
    let (mut world, run, first) = at_work(retried("a", 5));
    cut(&mut world, first, true);
    world.pass(7_200_000);
    world.restart_manager();
    world.pass(600_000);
    assert_eq!((world.state(run, "a"), world.at_work(run, "a")), (TaskState::Running, first));
}

#[test]
fn a_lease_is_given_only_to_the_current_attempt_at_its_generation_on_its_host() {
    let (mut world, run, agent) = at_work(movable(retried("a", 1)));
    let host = world.host_of(agent);
    let other = if host == host_id("one") { host_id("two") } else { host_id("one") };
    let generation = world.program(agent).generation;
    assert_eq!(world.ask_lease(&host, agent, generation), Ok(LEASE_MS));
    assert_eq!(until(&world, agent).0.max(world.now.0 + LEASE_MS * 11 / 10), until(&world, agent).0);
    let denied = |answer: Result<u64, WireError>| {
        assert_eq!(answer.unwrap_err().code, ErrorCode::Denied);
    };
    denied(world.ask_lease(&other, agent, generation));
    denied(world.ask_lease(&host, agent, generation.next()));
    denied(world.ask_lease(&host, agent, Generation(0)));
    denied(world.ask_lease(&host, AgentId::from_parts(1, 1), generation));
    let before = until(&world, agent);
    world.now = world.now.after_ms(1_000);
    world.drops_orders = true;
    world.stop(&agent.to_string());
    denied(world.ask_lease(&host, agent, generation));
    denied(world.ask_lease(&host, agent, generation.next()));
    assert_eq!(until(&world, agent), before, "a refusal gives nothing");
    world.drops_orders = false;
    // An agent without a lease gets none.
    let own = world.create("own").unwrap();
    let (own_host, own_generation) = (world.host_of(own), world.program(own).generation);
    denied(world.ask_lease(&own_host, own, own_generation));
    assert_eq!(world.state(run, "a"), TaskState::Running);
}

#[test]
fn an_ended_attempt_gets_no_lease() {
    let (mut world, _, agent) = at_work(movable(retried("a", 0)));
    let (host, generation) = (world.host_of(agent), world.program(agent).generation);
    world.exit(agent, 1);
    assert_eq!(world.ask_lease(&host, agent, generation).unwrap_err().code, ErrorCode::Denied);
}

#[test]
fn a_restarted_manager_keeps_to_the_leases_that_were_given_and_first_lets_hosts_be_heard() {
    let (mut world, run, agent) = at_work(movable(task_spec("a")));
    world.pass(200_000);
    let given = until(&world, agent);
    world.restart_manager();
    assert_eq!(until(&world, agent), given);
    // Away for an hour: the lease is over, but the work may be done; the host has its time to say so.
    let success = end(EndCause::Exited, Some(0), world.now);
    let program = world.program(agent);
    program.end = Some(success);
    program.collected = Some(collected(None));
    world.now = world.now.after_ms(3_600_000);
    for name in ["one", "two"] {
        world.hosts.get_mut(&host_id(name)).unwrap().is_cut_off = true;
    }
    let records = world.core.records();
    world.core = crate::Core::load(config(), records, world.now).0;
    world.pass(14_000);
    assert_eq!(world.task(run, "a").attempts.len(), 1);
    for name in ["one", "two"] {
        world.hosts.get_mut(&host_id(name)).unwrap().is_cut_off = false;
    }
    world.report(agent);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn work_whose_verification_is_lost_with_its_host_is_done_again_elsewhere() {
    let (mut world, run, first) = at_work(movable(verified("a")));
    world.exit(first, 0);
    assert_eq!(world.state(run, "a"), TaskState::Verifying);
    let check = world.at_work(run, "a");
    assert_eq!(world.program(check).spec.lease_ms, Some(LEASE_MS));
    cut(&mut world, check, true);
    world.pass(400_000);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Running, 2));
    assert!(task.attempts[0].failure.as_ref().is_some_and(|failure| !failure.charged));
    // Its verdict comes too late.
    world.exit(check, 0);
    cut(&mut world, check, false);
    world.report(check);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    world.check_store();
}

#[test]
fn a_cancelled_task_on_a_lost_host_is_cancelled_when_its_lease_is_over() {
    let (mut world, run, agent) = at_work(movable(task_spec("a")));
    cut(&mut world, agent, true);
    world.cancel(run, &[]);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    world.pass(400_000);
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
    assert!(world.core.run_view(run).unwrap().ended_at.is_some());
}

#[test]
fn a_lease_that_was_not_renewed_is_the_infrastructures_fault() {
    let (mut world, run, agent) = at_work(movable(retried("a", 0)));
    let over = end(EndCause::Lease, None, world.now);
    world.finish(agent, over, collected(None));
    let task = world.task(run, "a");
    let failure = task.attempts[0].failure.clone().unwrap();
    assert_eq!((failure.class, failure.charged), (FailureClass::Infrastructure, false));
    assert_eq!(task.state, TaskState::Queued);
    world.input(Input::Tick);
}
