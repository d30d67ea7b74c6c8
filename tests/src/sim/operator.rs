//! The people: what they ask for, again under the same key until they are answered, and what they were
//! promised.

use protocol::agent::{AgentSpec, Checkout, CheckoutKind, CommitMode, ResourceLimits};
use protocol::api::{Change, CreateAgent, LimitChange, Mutation, Reply, SubmitRun};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{Name, RequestKey};
use protocol::order::Discard;
use protocol::task::{Accept, FailureClass, Retries, RunSpec, SubmitTask, TaskSpec};

use super::machine::Plan;
use super::network::Mail;
use super::world::{Event, World};

/// One thing that a person wants.
pub struct Action {
    pub request: Mutation,
    /// The first answer that is not "try again".
    pub answer: Option<Result<Reply, WireError>>,
    /// The first grant that left the manager.
    granted: Option<Reply>,
    /// Sends left before it asks without haste.
    sends: u32,
}

#[derive(Default)]
pub struct Operator {
    pub actions: Vec<Action>,
}

impl World {
    pub fn plan_operator(&mut self) {
        let agents = self.dice.between(1, 5);
        for n in 0..agents {
            let at = self.dice.between(4_000, 40_000);
            let name = format!("agent-{n}");
            let create = self.creation(&name);
            self.plan(at, create);
            self.plan_messages(&name, at);
            // Also while the start is under way.
            let most = if self.dice.percent(40) { 1_500 } else { 40_000 };
            let later = at + self.dice.between(0, most);
            let key = self.key();
            if self.dice.percent(45) {
                let grace_ms = self.dice.percent(50).then_some(1_500);
                self.plan(later, Mutation::StopAgents { key, targets: vec![name.clone()], grace_ms });
            }
            self.plan_changes(later, &name);
            if self.dice.percent(45) {
                let key = self.key();
                let discard = if self.dice.percent(40) { Discard::Yes } else { Discard::Keep };
                let at = later + self.dice.between(0, 10_000);
                self.plan(at, Mutation::DestroyAgents { key, targets: vec![name], discard });
            }
        }
        for n in 0..self.dice.between(0, 2) {
            let at = self.dice.between(4_000, 30_000);
            let run = format!("run-{n}");
            let (submit, tasks) = self.submission(&run);
            self.plan(at, submit);
            let some = |world: &mut Self| match world.dice.index(tasks.len() + 1) {
                0 => Vec::new(),
                which => tasks.get(which - 1).map(ToString::to_string).into_iter().collect(),
            };
            if self.dice.percent(35) {
                let (key, named) = (self.key(), some(self));
                let at = at + self.dice.between(0, 40_000);
                self.plan(at, Mutation::CancelRun { key, run: run.clone(), tasks: named, grace_ms: None });
            }
            if self.dice.percent(35) {
                let (key, named) = (self.key(), some(self));
                let at = at + self.dice.between(20_000, 70_000);
                self.plan(at, Mutation::RetryTasks { key, run, tasks: named });
            }
        }
    }

    /// Starts after an end, agents that stand still for a while, labels and limits.
    fn plan_changes(&mut self, from: u64, name: &str) {
        for _ in 0..self.dice.below(5) {
            let at = from + self.dice.between(0, 40_000);
            let change = match self.dice.below(6) {
                0 => Change::Freeze,
                1 => Change::Thaw,
                2 => Change::Label { set: [("n".to_owned(), at.to_string())].into(), remove: Vec::new() },
                3 => Change::Limit(LimitChange { pids: Some(at), ..LimitChange::default() }),
                _ => Change::Start,
            };
            let targets = vec![name.to_owned()];
            let request = Mutation::ChangeAgents { key: self.key(), targets, change };
            self.plan(at, request);
        }
    }

    /// How many starts after the first people may have asked for, by now or later.
    #[must_use]
    pub fn starts_asked_for(&self, name: &str) -> usize {
        let asks = |action: &&Action| match &action.request {
            Mutation::ChangeAgents { targets, change: Change::Start, .. } => {
                targets.iter().any(|t| t == name)
            }
            _ => false,
        };
        self.operator.actions.iter().filter(asks).count()
    }

    pub fn plan(&mut self, at: u64, request: Mutation) {
        let action = self.operator.actions.len();
        self.operator.actions.push(Action { request, answer: None, granted: None, sends: 200 });
        self.after(at, Event::Client(action));
    }

    pub fn key(&mut self) -> RequestKey {
        RequestKey(format!("{:032x}", self.dice.bits()))
    }

    fn creation(&mut self, name: &str) -> Mutation {
        let host = self.dice.percent(40).then(|| {
            let m = self.dice.index(self.machines.len());
            self.machines[m].host.clone()
        });
        let work_ms = if self.dice.percent(50) { 0 } else { self.dice.between(100, 30_000) };
        let ok_from = 1 + self.dice.below(2);
        let leaves_ms = if self.dice.percent(15) { self.dice.between(100, 6_000) } else { 0 };
        let checkout = self.dice.percent(50).then(|| Checkout {
            repo: "/repo".to_owned(),
            commit: "0".repeat(40),
            branch: None,
            kind: CheckoutKind::Auto,
            result_ref: None,
            near: None,
            snapshot: None,
            copy: Vec::new(),
            prepare: None,
        });
        let program = Plan::program(work_ms, ok_from, 1, self.dice.percent(20), leaves_ms);
        let spec = AgentSpec {
            checkout,
            lease_ms: self.dice.percent(30).then(|| self.dice.between(15_000, 60_000)),
            ..AgentSpec::own(name.parse().unwrap(), program, 3_000)
        };
        let (key, environment) = (self.key(), Default::default());
        Mutation::CreateAgent(Box::new(CreateAgent { key, spec, host, environment }))
    }

    fn submission(&mut self, run: &str) -> (Mutation, Vec<Name>) {
        let count = self.dice.between(1, 5);
        let names: Vec<Name> = (0..count).map(|n| format!("task-{n}").parse().unwrap()).collect();
        let mut tasks = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let depends_on = names.iter().take(n).filter(|_| self.dice.percent(25)).cloned().collect();
            let spec = self.task(name.clone(), depends_on);
            tasks.push(SubmitTask { spec, environment: Default::default() });
        }
        let spec = RunSpec {
            name: run.parse().unwrap(),
            max_parallel: self.dice.percent(60).then(|| u32::try_from(self.dice.between(1, 3)).unwrap()),
            labels: Default::default(),
            caps: Default::default(),
            notify: Vec::new(),
            open: false,
        };
        (Mutation::SubmitRun(Box::new(SubmitRun { key: self.key(), run: spec, tasks })), names)
    }

    fn task(&mut self, name: Name, depends_on: Vec<Name>) -> TaskSpec {
        let verified = self.dice.percent(55);
        let most_ms = if self.is_long() { 500_000 } else { 12_000 };
        let work_ms = self.dice.between(50, most_ms);
        let (mut ok_from, good_from) = (self.dice.between(0, 3), self.dice.between(0, 3));
        if self.dice.percent(15) {
            ok_from = u64::MAX; // no number of tries is enough
        }
        let leaves_ms = if self.dice.percent(15) { self.dice.between(100, 4_000) } else { 0 };
        TaskSpec {
            name,
            program: Plan::program(work_ms, ok_from, good_from, self.dice.percent(15), leaves_ms),
            prompt: None,
            profile: None,
            repo: verified.then(|| "/repo".to_owned()),
            base_commit: verified.then(|| "0".repeat(40)),
            depends_on,
            after: Vec::new(),
            base_from: None,
            setup: Vec::new(),
            prepare: None,
            copy: Vec::new(),
            priority: 0,
            labels: Default::default(),
            limits: ResourceLimits::default(),
            grace_ms: 2_000,
            retries: Retries {
                max: u32::try_from(self.dice.below(3)).unwrap(),
                backoff_ms: self.dice.between(0, 2_000),
                backoff_max_ms: 8_000,
                jitter_percent: 20,
                on: vec![FailureClass::Agent, FailureClass::Verify, FailureClass::Limit],
            },
            verify: if verified { vec![vec!["check".to_owned()]] } else { Vec::new() },
            verify_timeout_ms: Some(60_000),
            accept: if verified { Accept::Verify } else { Accept::Exit },
            result: None,
            outputs: Vec::new(),
            commit: CommitMode::Auto,
            user: None,
            has_environment: false,
            ready_text: None,
            signals: None,
            move_after_ms: self.is_long().then_some(300_000),
            needs_change: false,
        }
    }

    pub fn client_sends(&mut self, action: usize) {
        let Some(wish) = self.operator.actions.get_mut(action).filter(|wish| wish.answer.is_none()) else {
            return;
        };
        wish.sends = wish.sends.saturating_sub(1);
        let again_ms = if wish.sends == 0 { 60_000 } else { 3_000 };
        self.send(Mail::Request { action });
        self.after(again_ms, Event::Client(action));
    }

    pub fn client_hears(&mut self, action: usize, result: Result<Reply, WireError>) {
        let Some(wish) = self.operator.actions.get_mut(action) else { return };
        if is_for_now(&result) {
            return; // asks again with the same key
        }
        if wish.answer.is_none() {
            self.log.say(self.now, || format!("client {action} hears {result:?}"));
            wish.answer = Some(result);
        }
    }

    /// A reply leaves the manager. What was refused left nothing behind and may be answered otherwise later;
    /// what was granted is granted for good.
    pub fn manager_answers(&mut self, action: usize, result: &Result<Reply, WireError>) {
        let Some(wish) = self.operator.actions.get_mut(action) else { return };
        match (&wish.granted, result) {
            (Some(first), Ok(reply)) if reply == first => {}
            (Some(first), _) => {
                let what = format!("one key, two answers: {first:?} and {result:?}");
                self.oracle.broken(what);
            }
            (None, Ok(reply)) if !is_for_now(result) => wish.granted = Some(reply.clone()),
            (None, _) => {}
        }
    }
}

fn is_for_now(result: &Result<Reply, WireError>) -> bool {
    match result {
        Err(error) => error.code == ErrorCode::Unavailable,
        Ok(Reply::Outcomes(outcomes)) => outcomes
            .iter()
            .any(|outcome| outcome.error.as_ref().is_some_and(|e| e.code == ErrorCode::Unavailable)),
        Ok(_) => false,
    }
}
