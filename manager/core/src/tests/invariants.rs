//! Random input sequences against the invariants: whatever comes in which order, they hold after every input.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use protocol::agent::{Blob, EndCause};
use protocol::api::Mutation;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{AgentId, HostId, RunId};
use protocol::order::{Answer, Discard};
use protocol::task::{RunSpec, TaskState};

use super::world::{
    WORK, World, after, capped, collected, config, end, host_id, labelled, movable, retried, verified,
};
use crate::{Config, Input};

const HOST_CAP: u32 = 4;
const RUN_CAP: u32 = 3;
/// Of all runs together.
const GPU_CAP: u32 = 2;
const INFRA_CAP: u32 = 1;
const RETRIES: u32 = 2;
const HOSTS: [&str; 2] = ["one", "two"];

#[derive(Clone, Debug)]
enum Act {
    Submit,
    Create(u8),
    Stop(u8),
    Destroy(u8, bool),
    Cancel(u8, bool),
    Retry(u8),
    Exit(u8, i32),
    End(u8, EndCause),
    Drain(u8),
    Hold(u8),
    ReportAgain(u8),
    OldOrder(u8),
    Land(u8, bool),
    Log(u8),
    Cut(u8, bool),
    Drop(bool),
    RestartHost(u8),
    RestartManager,
    Pass(u16),
    /// Long enough for leases to end.
    PassLong,
}

fn act() -> impl Strategy<Value = Act> {
    let infrastructure = prop_oneof![Just(EndCause::Rebooted), Just(EndCause::SupervisorLost)];
    let cause = prop_oneof![infrastructure, Just(EndCause::TimeLimit), Just(EndCause::Signalled)];
    prop_oneof![
        2 => Just(Act::Submit),
        1 => any::<u8>().prop_map(Act::Create),
        2 => any::<u8>().prop_map(Act::Stop),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(a, b)| Act::Destroy(a, b)),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(a, b)| Act::Cancel(a, b)),
        2 => any::<u8>().prop_map(Act::Retry),
        12 => (any::<u8>(), prop_oneof![3 => Just(0), 2 => Just(1)]).prop_map(|(a, b)| Act::Exit(a, b)),
        4 => (any::<u8>(), cause).prop_map(|(a, b)| Act::End(a, b)),
        2 => any::<u8>().prop_map(Act::Drain),
        1 => any::<u8>().prop_map(Act::Hold),
        2 => any::<u8>().prop_map(Act::ReportAgain),
        3 => any::<u8>().prop_map(Act::OldOrder),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(a, b)| Act::Land(a, b)),
        3 => any::<u8>().prop_map(Act::Log),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(a, b)| Act::Cut(a, b)),
        1 => any::<bool>().prop_map(Act::Drop),
        1 => any::<u8>().prop_map(Act::RestartHost),
        1 => Just(Act::RestartManager),
        6 => (0_u16..20_000).prop_map(Act::Pass),
        1 => Just(Act::PassLong),
    ]
}

struct Trial {
    world: World,
    runs: Vec<RunId>,
    asked: BTreeSet<u64>,
    /// Where each run's starts began to count anew.
    retried: bool,
}

fn pick<T: Clone>(from: &[T], n: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(n) % from.len()].clone())
}

impl Trial {
    fn new() -> Self {
        let world = {
            let label_caps = BTreeMap::from([(String::from("gpu"), GPU_CAP)]);
            World::with(Config { host_cap: Some(HOST_CAP), label_caps, ..config() }, &HOSTS)
        };
        Self { world, runs: Vec::new(), asked: BTreeSet::new(), retried: false }
    }

    fn programs(&self, wanted: impl Fn(&super::world::Program) -> bool) -> Vec<AgentId> {
        let all = self.world.hosts.values().filter(|host| !host.is_cut_off).flat_map(|host| &host.programs);
        all.filter(|(_, program)| wanted(program)).map(|(id, _)| *id).collect()
    }

    fn running(&self) -> Vec<AgentId> {
        self.programs(|program| program.starts > 0 && program.end.is_none())
    }

    fn request(&mut self, request: Mutation) {
        let id = self.world.request(request);
        self.asked.insert(id);
    }

    fn act(&mut self, act: Act) {
        let world = &mut self.world;
        match act {
            Act::Submit => {
                let tasks = vec![
                    labelled(retried("a", RETRIES), &[("gpu", "big"), ("team", "infra")]),
                    labelled(movable(verified("v")), &[("gpu", "small")]),
                    after("c", &["a", "v"]),
                    labelled(movable(retried("d", 0)), &[("team", "infra")]),
                ];
                let caps = BTreeMap::from([(String::from("team=infra"), INFRA_CAP)]);
                self.runs.extend(world.submit(RunSpec { caps, ..capped(RUN_CAP) }, tasks));
            }
            Act::Create(n) => {
                let key = world.key();
                let create = super::world::create(key, &format!("own{}", n % 4));
                self.request(Mutation::CreateAgent(Box::new(create)));
            }
            Act::Stop(n) => {
                if let Some(agent) = pick(&self.running(), n) {
                    self.world.stop(&agent.to_string());
                }
            }
            Act::Destroy(n, discard) => {
                if let Some(agent) = pick(&self.programs(|_| true), n) {
                    let key = self.world.key();
                    let discard = if discard { Discard::Yes } else { Discard::Keep };
                    let targets = vec![agent.to_string(), format!("own{}", n % 4)];
                    self.request(Mutation::DestroyAgents { key, targets, discard });
                }
            }
            Act::Cancel(n, whole) => {
                if let Some(run) = pick(&self.runs, n) {
                    self.world.cancel(run, if whole { &[] } else { &["a"] });
                }
            }
            Act::Retry(n) => {
                if let Some(run) = pick(&self.runs, n) {
                    self.world.retry(run, &[]);
                    self.retried = true;
                }
            }
            Act::Exit(n, code) => {
                if let Some(agent) = pick(&self.running(), n) {
                    self.world.exit(agent, code);
                }
            }
            Act::End(n, cause) => {
                if let Some(agent) = pick(&self.running(), n) {
                    let end = end(cause, None, self.world.now);
                    self.world.finish(agent, end, collected(Some(WORK)));
                }
            }
            Act::Drain(n) => {
                if let Some(agent) = pick(&self.running(), n) {
                    let program = self.world.program(agent);
                    program.draining = !program.draining;
                    self.world.report(agent);
                }
            }
            Act::Hold(n) => {
                if let Some(agent) = pick(&self.running(), n) {
                    self.world.program(agent).work = vec![String::from("notes")];
                }
            }
            Act::ReportAgain(n) => {
                if let Some(agent) = pick(&self.programs(|_| true), n) {
                    let host = self.world.host_of(agent);
                    let report = self.world.report_of(&host, agent);
                    self.world.input(Input::Report(Box::new(report)));
                }
            }
            Act::OldOrder(n) => {
                if let Some(order) = pick(&world.orders, n) {
                    world.obey(order);
                }
            }
            Act::Land(n, done) => {
                if let Some((crate::AskToken::Land(task), _)) = pick(&world.asked, n) {
                    let unknown = WireError::new(ErrorCode::Unavailable, "");
                    world.land(task, if done { Ok(Answer::Done) } else { Err(unknown) });
                }
            }
            Act::Log(n) => {
                if let Some(agent) = pick(&world.logs, n) {
                    let blob = Some(Blob { sha256: "a".repeat(64), bytes: 1 });
                    world.input(Input::LogKept { agent, blob });
                }
            }
            Act::Cut(n, cut) => {
                let id = host_id(HOSTS[usize::from(n) % HOSTS.len()]);
                world.hosts.get_mut(&id).unwrap().is_cut_off = cut;
            }
            Act::Drop(drops) => world.drops_orders = drops,
            Act::RestartHost(n) => {
                let name = HOSTS[usize::from(n) % HOSTS.len()];
                if !world.hosts[&host_id(name)].is_cut_off {
                    world.restart_host(name);
                }
            }
            Act::RestartManager => {
                // Clients that waited have lost their connection.
                let answered = &world.replies;
                self.asked.retain(|id| answered.contains_key(id));
                world.restart_manager();
            }
            Act::Pass(ms) => world.pass(u64::from(ms)),
            Act::PassLong => world.pass(400_000),
        }
        self.check();
    }

    fn check(&self) {
        let world = &self.world;
        world.check_store();
        super::blobs::named(world);
        let mut live_attempts: BTreeMap<_, usize> = BTreeMap::new();
        let mut live_in_run: BTreeMap<RunId, u32> = BTreeMap::new();
        let mut live_infra: BTreeMap<RunId, u32> = BTreeMap::new();
        let mut live_gpu = 0;
        for (id, host) in &world.hosts {
            assert!(host.live() <= usize::try_from(HOST_CAP).unwrap(), "the cap of {id} holds");
            for program in host.programs.values().filter(|program| program.starts > 0) {
                assert_eq!(program.starts, 1, "an agent is started once");
                if let Some(link) = program.spec.task.as_ref().filter(|_| program.end.is_none()) {
                    *live_attempts.entry(link.task).or_default() += 1;
                    *live_in_run.entry(link.run).or_default() += 1;
                    let labels = &program.spec.labels;
                    live_gpu += u32::from(labels.contains_key("gpu"));
                    *live_infra.entry(link.run).or_default() +=
                        u32::from(labels.get("team").is_some_and(|team| team == "infra"));
                }
            }
        }
        assert!(live_attempts.values().all(|live| *live <= 1), "no task has two live agents");
        assert!(live_in_run.values().all(|live| *live <= RUN_CAP), "the cap of a run holds");
        assert!(live_infra.values().all(|live| *live <= INFRA_CAP), "the cap of a label of a run holds");
        assert!(live_gpu <= GPU_CAP, "the cap of a label of the installation holds");
        for run in &self.runs {
            let open = world.core.run_view(*run).unwrap();
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for task in world.core.tasks(world.now, *run) {
                *counts.entry(task.state.to_string()).or_default() += 1;
                let record = &world.core.work.task(task.id).unwrap().record;
                let charged = record.starts - record.uncharged;
                assert!(
                    charged <= 1 + record.spec.retries.max && record.uncharged <= 10,
                    "starts are bounded"
                );
                if !self.retried {
                    assert_eq!(usize::try_from(record.starts).unwrap(), task.attempts.len());
                }
                assert_eq!(task.waiting.is_some(), task.state == TaskState::Queued, "who waits has a reason");
                let accepted =
                    |name: &str| matches!(world.state(*run, name), TaskState::Accepted | TaskState::Merged);
                let released = task.state.is_live() || task.state == TaskState::Accepted;
                for parent in task.spec.depends_on.iter().filter(|_| released) {
                    assert!(accepted(parent.as_str()), "a child runs only after its parents");
                }
            }
            assert_eq!(counts, open.counts);
            assert_eq!(open.ended_at.is_some(), world.core.work.run(*run).unwrap().is_over());
        }
        for replies in world.replies.values() {
            assert_eq!(replies.len(), 1, "a request gets one reply");
        }
        assert!(world.core.deadline().is_none_or(|at| at > world.now), "no deadline is left behind");
    }

    /// Faults end; the fleet must settle and every client must have its answer.
    fn settle(&mut self) {
        for host in self.world.hosts.values_mut() {
            host.is_cut_off = false;
        }
        self.world.drops_orders = false;
        let hosts: Vec<HostId> = self.world.hosts.keys().cloned().collect();
        for round in 0..400 {
            self.world.pass(5_000);
            for host in &hosts {
                for agent in self.world.hosts[host].programs.keys().copied().collect::<Vec<_>>() {
                    self.world.program(agent).draining = false;
                    self.world.report(agent);
                }
            }
            // The hosts are all there now, and answer what they are asked.
            for (token, _) in std::mem::take(&mut self.world.asked) {
                let crate::AskToken::Land(task) = token else { continue };
                self.world.land(task, Ok(Answer::Done));
            }
            for agent in self.running() {
                self.world.exit(agent, i32::from(round % 3 == 0));
            }
            self.check();
            if self.runs.iter().all(|run| self.world.core.run_view(*run).unwrap().ended_at.is_some()) {
                break;
            }
        }
        self.world.pass(40_000);
        for run in &self.runs {
            let view = self.world.core.run_view(*run).unwrap();
            assert!(view.ended_at.is_some(), "every run ends: {:?}", view.counts);
        }
        for id in &self.asked {
            assert!(self.world.replies.contains_key(id), "request {id} was answered");
        }
        for (id, agent) in self.world.core.fleet.agents() {
            assert_eq!(agent.due(id), None, "nothing is due when all is quiet");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_after_every_input_and_the_fleet_settles(acts in prop::collection::vec(act(), 1..120)) {
        let mut trial = Trial::new();
        for act in acts {
            trial.act(act);
        }
        trial.settle();
    }

    #[test]
    fn equal_inputs_give_equal_cores(acts in prop::collection::vec(act(), 1..40)) {
        let (mut one, mut other) = (Trial::new(), Trial::new());
        for act in acts {
            one.act(act.clone());
            other.act(act);
        }
        prop_assert!(one.world.core == other.world.core);
    }
}
