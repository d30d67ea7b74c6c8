//! A host that follows a script: it verifies what it hears, reports at once, and prints what it is told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::{Client, Message};
use bytes::Bytes;
use futures::StreamExt;
use nkeys::KeyPair;
use protocol::agent::{AgentSpec, End, EndCause, Phase};
use protocol::codec::Frame;
use protocol::house::Freed;
use protocol::ids::{AgentId, Fencing, Generation, HostId, Incarnation, Region, Seq};
use protocol::order::{Answer, Ask, Command, Order, OutputStream, Question, ResolvedBase};
use protocol::report::{
    DigestRow, Heartbeat, HostFacts, HostReply, HostRequest, Life, Report, TranscriptFacts,
};
use protocol::subject;
use protocol::time::Timestamp;
use protocol::transcript::Chunk;
use serde::Serialize;
use tokio::task::JoinSet;

use super::server::{HOST, Server};

const INCARNATION: Incarnation = Incarnation(7);
/// A host whose clock is an hour ahead: what is meant for it must be in its time.
const AHEAD_MS: u64 = 3_600_000;

#[derive(Default)]
struct State {
    seq: u64,
    reports: BTreeMap<AgentId, Report>,
    printed: BTreeMap<AgentId, Vec<u8>>,
    /// Orders that were carried out, by verb.
    carried_out: Vec<(String, AgentId)>,
    fencing: Fencing,
    /// Answers no questions.
    deaf: bool,
    /// Its disk is full: it takes no agent.
    full: bool,
}

#[derive(Clone)]
struct Shared {
    client: Client,
    key: Arc<KeyPair>,
    state: Arc<Mutex<State>>,
}

pub(crate) struct Host {
    shared: Shared,
    _tasks: JoinSet<()>,
}

fn region() -> Region {
    "hub".parse().unwrap()
}

fn host() -> HostId {
    HOST.parse().unwrap()
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(now.as_millis()).unwrap() + AHEAD_MS)
}

impl Host {
    pub(crate) async fn start(server: &Server) -> Self {
        let client = server.host().await;
        let signing = manager_installation::nats::keys::read_order_signing(&server.layout).unwrap();
        let key = Arc::new(KeyPair::from_public_key(&signing.public_key()).unwrap());
        let shared = Shared { client, key, state: Arc::default() };
        let mut tasks = JoinSet::new();
        let orders = shared.client.subscribe(subject::commands(&region(), &host())).await.unwrap();
        tasks.spawn(shared.clone().obey(orders));
        tasks.spawn(shared.clone().beat());
        Self { shared, _tasks: tasks }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    pub(crate) fn carried_out(&self, verb: &str) -> Vec<AgentId> {
        self.state().carried_out.iter().filter(|(v, _)| v == verb).map(|(_, agent)| *agent).collect()
    }

    /// It has followed a manager with this number.
    pub(crate) fn has_followed(&self, fencing: Fencing) {
        self.state().fencing = fencing;
    }

    pub(crate) fn set_deaf(&self, deaf: bool) {
        self.state().deaf = deaf;
    }

    /// From the next heartbeat on.
    pub(crate) fn fill_disk(&self) {
        self.state().full = true;
    }

    /// The agent prints; with `ship` the bus gets it as a chunk.
    pub(crate) async fn print(&self, agent: AgentId, text: &[u8], ship: bool) {
        let chunk = {
            let mut state = self.state();
            let printed = state.printed.entry(agent).or_default();
            let offset = printed.len().try_into().unwrap();
            printed.extend_from_slice(text);
            Chunk { epoch: "e".repeat(32), offset, bytes: text.to_vec(), last: false }
        };
        if ship {
            self.ship(agent, chunk).await;
        }
    }

    pub(crate) async fn ship(&self, agent: AgentId, chunk: Chunk) {
        let to = subject::transcript(&region(), &host(), &agent);
        self.shared.put(to, Chunk::KIND, &chunk).await;
    }

    /// The program ends by itself.
    pub(crate) async fn end(&self, agent: AgentId) {
        self.shared.change(agent, |report| ended(report, EndCause::Exited)).await;
    }

    /// A request to the manager, as this host or, wrongly, under another's name.
    pub(crate) async fn request(&self, request: &HostRequest) -> HostReply {
        let to = subject::rpc(&region(), &host(), request.method());
        let body = Frame::of(HostRequest::KIND, "1", request).unwrap().encode().unwrap();
        let reply = self.shared.client.request(to, Bytes::from(body)).await.unwrap();
        Frame::decode(&reply.payload).unwrap().body().unwrap()
    }
}

fn ended(report: &mut Report, cause: EndCause) {
    if report.end.is_none() {
        let end = End { cause, code: Some(0), signal: None, step: None, detail: String::new(), at: now() };
        report.phase = end.phase();
        report.end = Some(end);
    }
}

impl Shared {
    async fn beat(self) {
        let mut every = tokio::time::interval(Duration::from_millis(200));
        loop {
            every.tick().await;
            let heartbeat = {
                let state = self.state.lock().unwrap();
                let row = |report: &Report| DigestRow {
                    agent: report.agent,
                    seq: report.seq,
                    incarnation: report.incarnation,
                    phase: report.phase,
                    last_output: None,
                    cpu_ms: 0,
                    memory_bytes: 0,
                    transcript_bytes: 0,
                };
                Heartbeat {
                    region: region(),
                    host: host(),
                    incarnation: INCARNATION,
                    fencing: state.fencing,
                    now: now(),
                    build: "test".to_owned(),
                    facts: HostFacts {
                        cpus: 64,
                        memory_total_bytes: 1 << 40,
                        memory_available_bytes: 1 << 40,
                        disk_total_bytes: 1 << 40,
                        disk_free_bytes: if state.full { 0 } else { 1 << 39 },
                        disk_share_max_percent: 85,
                        ..HostFacts::default()
                    },
                    digest: Some(state.reports.values().map(row).collect()),
                }
            };
            let frame = Frame::of(Heartbeat::KIND, "", &heartbeat).unwrap().encode().unwrap();
            let _ = self.client.publish(subject::heartbeat(&region(), &host()), Bytes::from(frame)).await;
        }
    }

    async fn obey(self, mut orders: async_nats::Subscriber) {
        while let Some(message) = orders.next().await {
            let frame = Frame::decode(&message.payload).unwrap();
            assert_eq!(frame.key_id, self.key.public_key());
            self.key.verify(&frame.signed_bytes(), &frame.sig).expect("signed by the manager");
            match frame.kind.as_str() {
                Order::KIND => self.carry_out(frame.body().unwrap()).await,
                Ask::KIND => self.answer(frame.body().unwrap(), &message).await,
                other => panic!("a frame of kind {other}"),
            }
        }
    }

    async fn carry_out(&self, order: Order) {
        {
            let mut state = self.state.lock().unwrap();
            if order.incarnation != INCARNATION || order.fencing < state.fencing || order.expires < now() {
                return;
            }
            state.fencing = order.fencing;
            state.carried_out.push((order.command.verb().to_owned(), order.command.agent()));
        }
        let agent = order.command.agent();
        let (generation, fencing) = (order.command.generation(), order.fencing);
        match order.command {
            Command::Ensure { spec, .. } => self.ensure(agent, *spec, generation, fencing).await,
            Command::Stop { spec, .. } => {
                self.ensure(agent, *spec, generation, fencing).await;
                self.change(agent, |report| ended(report, EndCause::Requested)).await;
            }
            Command::Send { .. } | Command::Recall { .. } => {}
            Command::Destroy { spec, .. } => {
                self.ensure(agent, *spec, generation, fencing).await;
                self.change(agent, |report| {
                    ended(report, EndCause::Requested);
                    report.life = Life::Destroyed;
                })
                .await;
            }
        }
    }

    async fn ensure(&self, agent: AgentId, spec: AgentSpec, generation: Generation, fencing: Fencing) {
        self.state.lock().unwrap().reports.entry(agent).or_insert_with(|| Report {
            agent,
            region: region(),
            host: host(),
            incarnation: INCARNATION,
            seq: Seq(0),
            generation,
            fencing,
            as_of: now(),
            phase: Phase::Running,
            life: Life::Present,
            source: "process".to_owned(),
            phase_reason: None,
            dialog: None,
            reason: String::new(),
            stopping: false,
            draining: false,
            degraded: Vec::new(),
            spec,
            created_at: now(),
            started_at: Some(now()),
            ready: true,
            end: None,
            workspace: None,
            session: None,
            transcript: None,
            collected: None,
            holds: Vec::new(),
            enforced: Vec::new(),
            user: String::new(),
            isolation: None,
            usage: Default::default(),
            unmet: Vec::new(),
            earlier: Vec::new(),
            messages: Default::default(),
            gone: Vec::new(),
        });
        self.change(agent, |report| report.generation = report.generation.max(generation)).await;
    }

    /// Changes a report and puts it, whole, with the next number.
    async fn change(&self, agent: AgentId, change: impl FnOnce(&mut Report)) {
        let report = {
            let mut state = self.state.lock().unwrap();
            state.seq += 1;
            let seq = Seq(state.seq);
            let bytes = state.printed.get(&agent).map_or(0, Vec::len).try_into().unwrap();
            let report = state.reports.get_mut(&agent).expect("a known agent");
            change(report);
            report.seq = seq;
            report.as_of = now();
            report.transcript = Some(TranscriptFacts { epoch: "e".repeat(32), bytes });
            report.clone()
        };
        self.put(subject::agent_report(&region(), &host(), &agent), Report::KIND, &report).await;
    }

    /// Again until it is acknowledged, as hostd does.
    async fn put<T: Serialize>(&self, to: String, kind: &str, body: &T) {
        let bytes = Bytes::from(Frame::of(kind, "", body).unwrap().encode().unwrap());
        loop {
            match self.client.request(to.clone(), bytes.clone()).await {
                Ok(reply) if !String::from_utf8_lossy(&reply.payload).contains("\"error\"") => return,
                Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn answer(&self, ask: Ask, message: &Message) {
        let to = message.reply.clone().expect("a question has somewhere to answer to");
        assert!(ask.expires > now(), "asked in the host's time");
        if self.state.lock().unwrap().deaf {
            return;
        }
        let answers = match ask.question {
            Question::Read { agent, offset, max } => vec![self.read(agent, offset, max)],
            Question::Report { agents } => {
                for agent in agents {
                    self.change(agent, |_| {}).await;
                }
                vec![Answer::Done]
            }
            Question::Exec { program, stdin, .. } => {
                let output = |stream, bytes: &[u8]| Answer::Output { stream, bytes: bytes.to_vec() };
                vec![
                    output(OutputStream::Stdout, program.join(" ").as_bytes()),
                    output(OutputStream::Stderr, b"err"),
                    output(OutputStream::Stdout, &stdin),
                    Answer::Exited { code: Some(3), signal: None },
                ]
            }
            Question::Resolve { repo, .. } => {
                vec![Answer::Resolved(ResolvedBase { repo, commit: "c".repeat(40), dirty: false })]
            }
            Question::Free { items, .. } => {
                let freed = items.into_iter().map(|item| Freed { item, bytes: 1, kept: None });
                vec![Answer::Freed(freed.collect())]
            }
            Question::Follow { .. }
            | Question::Land { .. }
            | Question::Diff { .. }
            | Question::Survey { .. }
            | Question::Screen { .. }
            | Question::Compare { .. }
            | Question::Snapshot { .. }
            | Question::ListFiles { .. }
            | Question::ReadFile { .. }
            | Question::WriteFile { .. }
            | Question::MakeNode { .. }
            | Question::MergeLook { .. }
            | Question::Merge(_)
            | Question::Advance { .. }
            | Question::Figures { .. }
            | Question::ExecOpen { .. }
            | Question::ExecInput { .. }
            | Question::ExecEnd { .. }
            | Question::More { .. } => vec![Answer::Done],
        };
        for answer in answers {
            let frame = Frame::of(Answer::KIND, "", &answer).unwrap().encode().unwrap();
            self.client.publish(to.clone(), Bytes::from(frame)).await.unwrap();
        }
    }

    fn read(&self, agent: AgentId, offset: u64, max: u64) -> Answer {
        let state = self.state.lock().unwrap();
        let printed = state.printed.get(&agent).cloned().unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(printed.len());
        let to = from.saturating_add(usize::try_from(max).unwrap()).min(printed.len());
        Answer::Bytes {
            offset: from.try_into().unwrap(),
            length: printed.len().try_into().unwrap(),
            bytes: printed[from..to].to_vec(),
            ended: state.reports.get(&agent).is_some_and(|report| report.end.is_some()),
        }
    }
}
