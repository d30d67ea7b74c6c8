//! One host core with everything that a rule needs to speak to it. Rules and properties assert; this only
//! speaks.

use hostd_core::{AgentRecord, Config, Core, Effect, ExitCause, ExitSeen, Found, Input, Stage, StartFacts};
use protocol::agent::{AgentSpec, Checkout, CheckoutKind};
use protocol::ids::{AgentId, Fencing, Generation, Incarnation, OrderId};
use protocol::order::{Command, Discard, Order};
use protocol::report::{Collected, Report, Usage};
use protocol::time::Timestamp;

pub(crate) const GRACE_MS: u64 = 10_000;
pub(crate) const INCARNATION: Incarnation = Incarnation(7);

pub(crate) struct Bench {
    pub(crate) core: Core,
    pub(crate) now: Timestamp,
}

pub(crate) fn agent_id(n: u64) -> AgentId {
    AgentId::from_parts(1_000 + n, u128::from(n))
}

pub(crate) fn config(incarnation: Incarnation) -> Config {
    Config {
        region: "hub".parse().unwrap(),
        host: "h1".parse().unwrap(),
        incarnation,
        fencing: Fencing(3),
        disk_share_max_percent: 85,
    }
}

/// An agent with a checkout, so that its end is followed by a collection.
pub(crate) fn spec() -> AgentSpec {
    AgentSpec {
        checkout: Some(Checkout {
            repo: "/repo".into(),
            commit: "c0".into(),
            branch: Some("b".into()),
            kind: CheckoutKind::Auto,
            result_ref: None,
            near: None,
            snapshot: None,
            copy: Vec::new(),
            prepare: None,
        }),
        ..plain_spec()
    }
}

/// An agent that leaves nothing to collect.
pub(crate) fn plain_spec() -> AgentSpec {
    AgentSpec {
        labels: Default::default(),
        ..AgentSpec::own("a".parse().unwrap(), vec!["true".into()], GRACE_MS)
    }
}

pub(crate) fn facts() -> StartFacts {
    StartFacts { started_at: Timestamp(50_000), user: "me".into(), ..StartFacts::default() }
}

pub(crate) fn exit(code: i32) -> ExitSeen {
    ExitSeen {
        launch: 1,
        cause: ExitCause::Program,
        code: Some(code),
        signal: None,
        out_of_memory: false,
        at: Timestamp(90_000),
        transcript_bytes: 42,
        usage: Usage::default(),
        detail: String::new(),
    }
}

pub(crate) fn killed(signal: i32) -> ExitSeen {
    ExitSeen { code: None, signal: Some(signal), ..exit(0) }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { core: Core::new(config(INCARNATION)), now: Timestamp(100_000) }
    }

    /// The next hostd on the same disk.
    pub(crate) fn restarted() -> Self {
        Self { core: Core::new(config(INCARNATION.next())), ..Self::new() }
    }

    /// A host on which agent 1 runs.
    pub(crate) fn running() -> Self {
        Self::running_as(spec())
    }

    pub(crate) fn running_as(spec: AgentSpec) -> Self {
        let mut bench = Self::new();
        bench.order(ensure(1, 1, spec));
        bench.started(1);
        bench
    }

    /// A host on which agent 1 has ended by itself and its work was collected.
    pub(crate) fn ended() -> Self {
        let mut bench = Self::running();
        bench.give(Input::Ended { agent: agent_id(1), exit: exit(0) });
        bench.collected(1);
        bench
    }

    pub(crate) fn give(&mut self, input: Input) -> Vec<Effect> {
        self.core.handle(self.now, input)
    }

    pub(crate) fn envelope(&self, command: Command) -> Order {
        let config = config(self.core.incarnation());
        Order {
            id: OrderId::from_parts(0, 0),
            region: config.region,
            host: config.host,
            incarnation: config.incarnation,
            fencing: Fencing(3),
            expires: self.now.after_ms(30_000),
            command,
        }
    }

    pub(crate) fn order(&mut self, command: Command) -> Vec<Effect> {
        let order = self.envelope(command);
        self.send(order)
    }

    pub(crate) fn send(&mut self, order: Order) -> Vec<Effect> {
        self.give(Input::Order { order: Box::new(order), epoch: "e".repeat(32) })
    }

    pub(crate) fn started(&mut self, n: u64) -> Vec<Effect> {
        self.give(Input::Started { agent: agent_id(n), facts: Box::new(facts()) })
    }

    pub(crate) fn collected(&mut self, n: u64) -> Vec<Effect> {
        let collected = Collected { commit: Some("c1".into()), ..Collected::default() };
        self.give(Input::Collected { agent: agent_id(n), collected: Box::new(collected) })
    }

    /// Lets time pass up to `ms`, ticking at each deadline as a shell does.
    pub(crate) fn pass(&mut self, ms: u64) -> Vec<Effect> {
        let until = self.now.after_ms(ms);
        let mut effects = Vec::new();
        while let Some(at) = self.core.deadline().filter(|at| *at <= until) {
            assert!(effects.len() < 10_000, "the core asks for ticks without end");
            self.now = self.now.max(at);
            effects.extend(self.give(Input::Tick));
        }
        self.now = until;
        effects
    }

    pub(crate) fn stage(&self, n: u64) -> Stage {
        self.core.agent(agent_id(n)).unwrap().stage
    }

    pub(crate) fn record(&self, n: u64) -> AgentRecord {
        self.core.agent(agent_id(n)).unwrap().record.clone()
    }

    /// What the next hostd makes of this agent's folder.
    pub(crate) fn adopted(&self, n: u64, found: Found) -> (Self, Vec<Effect>) {
        let mut next = Self { now: self.now, ..Self::restarted() };
        let effects = next.give(Input::Found { record: Box::new(self.record(n)), found });
        (next, effects)
    }
}

pub(crate) fn ensure(n: u64, generation: u64, spec: AgentSpec) -> Command {
    Command::Ensure { agent: agent_id(n), generation: Generation(generation), spec: Box::new(spec) }
}

pub(crate) fn stop(n: u64, generation: u64) -> Command {
    stop_within(n, generation, GRACE_MS)
}

pub(crate) fn stop_within(n: u64, generation: u64, grace_ms: u64) -> Command {
    Command::Stop { agent: agent_id(n), generation: Generation(generation), grace_ms, spec: Box::new(spec()) }
}

pub(crate) fn destroy(n: u64, generation: u64, discard: Discard) -> Command {
    Command::Destroy {
        agent: agent_id(n),
        generation: Generation(generation),
        discard,
        spec: Box::new(spec()),
    }
}

/// The kinds of effects in their order: what most rules are about.
pub(crate) fn kinds(effects: &[Effect]) -> Vec<&'static str> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::Save(_) => "save",
            Effect::SaveFencing(_) => "save-fencing",
            Effect::Create { .. } => "create",
            Effect::Freeze(_) => "freeze",
            Effect::Thaw(_) => "thaw",
            Effect::SetLimits(_) => "set-limits",
            Effect::Rename(_) => "rename",
            Effect::CallOff(_) => "call-off",
            Effect::Terminate(_) => "terminate",
            Effect::Kill(_) => "kill",
            Effect::Collect(_) => "collect",
            Effect::Weigh(_) => "weigh",
            Effect::Remove { .. } => "remove",
            Effect::AskLease { .. } => "ask-lease",
            Effect::SetLease { .. } => "set-lease",
            Effect::Forget(_) => "forget",
            Effect::KeepText { .. } => "keep-text",
            Effect::Type { .. } => "type",
            Effect::AskTyped { .. } => "ask-typed",
            Effect::ForgetText { .. } => "forget-text",
            Effect::Report(_) => "report",
            Effect::Event { .. } => "event",
        })
        .collect()
}

/// The last report among the effects.
pub(crate) fn report(effects: &[Effect]) -> Report {
    let found = effects.iter().rev().find_map(|effect| match effect {
        Effect::Report(report) => Some((**report).clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no report among {:?}", kinds(effects)))
}
