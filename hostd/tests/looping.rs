//! The loop with hands and ears that the test holds, on a paused clock: what waits for what, and for how long.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostd::asks::Asked;
use hostd::bus::{Heard, Replier};
use hostd::driver::{Done, Driver, Hands, Hearing};
use hostd::state::Life;
use hostd_core::{AgentRecord, Config, Core, Effect, ExitCause, ExitSeen, Found, Input, StartFacts, Wanted};
use protocol::agent::{AgentSpec, Phase};
use protocol::event::Fact;
use protocol::ids::{AgentId, Fencing, Generation, Incarnation, MessageId, OrderId};
use protocol::message::{MessageText, Typing};
use protocol::order::{Command, Order};
use protocol::report::{DigestRow, Report, Usage};
use protocol::time::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

const BEGIN: u64 = 1_000_000;

/// What the loop did, each with the time since the test began.
type Seen = (Duration, String);

#[derive(Clone)]
struct Held {
    begun: Instant,
    /// One permit for each save that may reach the disk.
    disk: Arc<Semaphore>,
    /// So many saves fail first.
    failing: Arc<AtomicU32>,
    /// Jobs of this agent never end.
    stuck: Option<AgentId>,
    inputs: mpsc::Sender<Input>,
    seen: Arc<Mutex<Vec<Seen>>>,
    reports: Arc<Mutex<Vec<Report>>>,
}

impl Held {
    fn saw(&self, what: String) {
        self.seen.lock().unwrap().push((self.begun.elapsed(), what));
    }
}

fn kind(effect: &Effect) -> &'static str {
    match effect {
        Effect::Create { .. } => "create",
        Effect::CallOff(_) => "call-off",
        Effect::Terminate(_) => "terminate",
        Effect::Kill(_) => "kill",
        Effect::Collect(_) => "collect",
        Effect::Remove { .. } => "remove",
        Effect::Type { .. } => "type",
        _ => "other",
    }
}

impl Hands for Held {
    fn now(&self) -> Timestamp {
        Timestamp(BEGIN + u64::try_from(self.begun.elapsed().as_millis()).unwrap())
    }

    async fn save(&self, _: &AgentRecord) -> Result<(), String> {
        if self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err("no space left".to_owned());
        }
        self.disk.acquire().await.unwrap().forget();
        self.saw("saved".to_owned());
        Ok(())
    }

    async fn keep_text(&self, _: AgentId, _: MessageId, text: &MessageText) -> Result<(), String> {
        self.saw(format!("kept {}", text.0));
        Ok(())
    }

    async fn tell(&self, input: Input) {
        self.inputs.send(input).await.unwrap();
    }

    async fn carry_out(&self, effect: Effect, record: AgentRecord) {
        self.saw(format!("{} {}", kind(&effect), record.spec.name));
        if self.stuck == Some(record.agent) {
            std::future::pending::<()>().await;
        }
    }

    async fn answer(&self, _: Asked, _: Replier) {}

    async fn measure(&self, rows: Vec<DigestRow>) -> Vec<DigestRow> {
        rows
    }

    fn report(&self, report: Box<Report>) {
        self.saw(format!("report {} {}", report.spec.name, report.phase));
        self.reports.lock().unwrap().push(*report);
    }

    fn note(&self, _: Timestamp, _: AgentId, _: String, _: Fact) {}
}

struct Ears(mpsc::Receiver<Heard>);

impl Hearing for Ears {
    async fn next(&mut self) -> Option<Heard> {
        self.0.recv().await
    }
}

/// A running loop.
struct Loop {
    hands: Held,
    orders: mpsc::Sender<Heard>,
    digests: mpsc::Sender<oneshot::Sender<Vec<DigestRow>>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
    _disk: watch::Sender<u64>,
}

impl Loop {
    /// With so many saves that may reach the disk, and so many that fail before.
    fn start(saves: usize, failing: u32, stuck: Option<AgentId>, adopting: &[AgentId]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (inputs_in, inputs) = mpsc::channel(64);
        let (orders, heard) = mpsc::channel(64);
        let (digests_in, digests) = mpsc::channel(1);
        let (disk_in, disk_used) = watch::channel(0);
        let hands = Held {
            begun: Instant::now(),
            disk: Arc::new(Semaphore::new(saves)),
            failing: Arc::new(AtomicU32::new(failing)),
            stuck,
            inputs: inputs_in,
            seen: Arc::default(),
            reports: Arc::default(),
        };
        let core = Core::new(Config {
            region: "hub".parse().unwrap(),
            host: "h1".parse().unwrap(),
            incarnation: Incarnation(7),
            fencing: Fencing(1),
            disk_share_max_percent: 85,
        });
        let mut driver = Driver {
            core,
            life: Life::begin(folder.path(), 7).unwrap(),
            hands: hands.clone(),
            ears: Ears(heard),
            inputs,
            digests,
            fencing: watch::channel(Fencing(1)).0,
            disk_used,
            adopting: adopting.iter().copied().collect::<BTreeSet<_>>(),
            jobs: JoinSet::<Done>::new(),
            lanes: BTreeMap::new(),
            texts: BTreeMap::new(),
            reported: BTreeMap::new(),
            asks_under_way: 0,
            unsaved_fencing: None,
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { driver.run(stopped).await });
        Self { hands, orders, digests: digests_in, stop, tasks, _folder: folder, _disk: disk_in }
    }

    async fn order(&self, command: Command) {
        let order = Order {
            id: OrderId::from_parts(1, 1),
            region: "hub".parse().unwrap(),
            host: "h1".parse().unwrap(),
            incarnation: Incarnation(7),
            fencing: Fencing(1),
            expires: self.hands.now().after_ms(60_000),
            command,
        };
        self.orders.send(Heard::Order(Box::new(order))).await.unwrap();
    }

    async fn tell(&self, input: Input) {
        self.hands.tell(input).await;
    }

    /// Everything that can happen by now has happened. The clock stands: the least sleep of a paused runtime ends
    /// only when nothing else can run.
    async fn settled(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.hands.seen.lock().unwrap().iter().map(|(_, what)| what.clone()).collect()
    }

    /// When each of these was done.
    fn times(&self, what: &str) -> Vec<u128> {
        let seen = self.hands.seen.lock().unwrap();
        seen.iter().filter(|(_, is)| is == what).map(|(at, _)| at.as_secs().into()).collect()
    }
}

fn agent(n: u64) -> AgentId {
    AgentId::from_parts(n, 1)
}

fn spec(name: &str) -> Box<AgentSpec> {
    Box::new(AgentSpec::own(name.parse().unwrap(), vec!["sh".to_owned()], 5_000))
}

fn ensure(n: u64, name: &str) -> Command {
    Command::Ensure { agent: agent(n), generation: Generation(1), spec: spec(name) }
}

fn started(n: u64) -> Input {
    let facts = StartFacts { started_at: Timestamp(BEGIN), ..StartFacts::default() };
    Input::Started { agent: agent(n), facts: Box::new(facts) }
}

#[tokio::test(start_paused = true)]
async fn an_agent_is_made_and_reported_only_once_its_record_is_on_the_disk() {
    let held = Loop::start(0, 0, None, &[]);
    held.order(ensure(1, "one")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(held.settled().await, Vec::<String>::new(), "the disk has not answered");
    held.hands.disk.add_permits(1);
    let seen = held.settled().await;
    assert_eq!(seen.first().map(String::as_str), Some("saved"));
    assert!(seen.contains(&"create one".to_owned()) && seen.contains(&"report one CREATING".to_owned()));
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_saved_is_tried_each_second_and_its_agent_never_started() {
    let held = Loop::start(100, 3, None, &[]);
    held.order(ensure(1, "one")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let seen = held.settled().await;
    assert!(!seen.contains(&"create one".to_owned()), "{seen:?}");
    assert_eq!(held.times("saved").first(), Some(&3), "{seen:?}");
    let last = held.hands.reports.lock().unwrap().last().cloned().unwrap();
    assert_eq!(last.phase, Phase::Failed);
    assert!(last.end.unwrap().detail.contains("no space left"));
    assert!(last.degraded.is_empty(), "it is on the disk now: {:?}", last.degraded);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_hangs_holds_up_no_other_agent_and_no_digest() {
    let held = Loop::start(100, 0, Some(agent(1)), &[]);
    held.order(ensure(1, "stuck")).await;
    held.settled().await;
    held.order(ensure(2, "other")).await;
    assert!(held.settled().await.contains(&"create other".to_owned()));
    let (answer, answered) = oneshot::channel();
    held.digests.send(answer).await.unwrap();
    let begun = Instant::now();
    assert_eq!(answered.await.unwrap().len(), 2);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_kill_comes_when_the_grace_is_over_and_again_until_the_agent_is_gone() {
    let held = Loop::start(100, 0, None, &[]);
    held.order(ensure(1, "one")).await;
    held.settled().await;
    held.tell(started(1)).await;
    held.settled().await;
    held.order(Command::Stop {
        agent: agent(1),
        generation: Generation(2),
        grace_ms: 5_000,
        spec: spec("one"),
    })
    .await;
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    assert_eq!(held.times("terminate one"), [0]);
    assert_eq!(held.times("kill one"), [5, 7, 9]);
    let exit = ExitSeen {
        launch: 1,
        cause: ExitCause::Program,
        code: None,
        signal: Some(9),
        out_of_memory: false,
        at: Timestamp(BEGIN),
        transcript_bytes: 0,
        usage: Usage::default(),
        detail: String::new(),
    };
    held.tell(Input::Ended { agent: agent(1), exit }).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(held.times("kill one").len(), 3, "nobody is left");
    assert_eq!(held.hands.reports.lock().unwrap().last().unwrap().phase, Phase::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_text_is_on_the_disk_before_the_record_that_names_it_and_typed_after_both() {
    let held = Loop::start(2, 0, None, &[]);
    held.order(ensure(1, "one")).await;
    held.settled().await;
    held.tell(started(1)).await;
    held.settled().await;
    let typing =
        Typing { text: MessageText("hello".to_owned()), press_enter: true, at_once: false, each_line: false };
    held.order(Command::Send {
        agent: agent(1),
        generation: Generation(1),
        message: MessageId::from_parts(1, 1),
        number: 1,
        sha256: "0".repeat(64),
        typing: Box::new(typing),
    })
    .await;
    let seen = held.settled().await;
    let place = |what: &str| seen.iter().rposition(|is| is == what).unwrap();
    assert!(place("kept hello") < place("saved") && place("saved") < place("type one"), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_order_for_an_agent_that_is_still_looked_for_is_left_to_come_again() {
    let held = Loop::start(100, 0, None, &[agent(1)]);
    held.order(ensure(1, "one")).await;
    assert_eq!(held.settled().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_loop_ends_at_once_when_it_is_told_to_whatever_hangs() {
    let mut held = Loop::start(0, 0, Some(agent(1)), &[]);
    held.order(ensure(1, "one")).await;
    held.settled().await;
    let begun = Instant::now();
    held.stop.send(true).unwrap();
    held.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_became_of_the_agents_of_the_last_life_and_not_for_long() {
    let mut held = Loop::start(100, 0, None, &[agent(1)]);
    let begun = Instant::now();
    held.stop.send(true).unwrap();
    held.order(ensure(2, "two")).await;
    assert_eq!(held.settled().await, Vec::<String>::new(), "orders are for the next life");
    let record = AgentRecord {
        version: 1,
        agent: agent(1),
        generation: Generation(1),
        wanted: Wanted::Stopped { grace_ms: 1_000 },
        spec: *spec("one"),
        created_at: Timestamp(BEGIN),
        epoch: "e".repeat(32),
        stop_requested: true,
        end: None,
        collected: None,
        removed: false,
        launch: 1,
        launched_at: None,
        limits: None,
        earlier: Vec::new(),
        messages: Default::default(),
    };
    held.tell(Input::Found { record: Box::new(record), found: Found::NeverStarted }).await;
    held.tasks.join_next().await.unwrap().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    let mut held = Loop::start(100, 0, None, &[agent(1)]);
    let begun = Instant::now();
    held.stop.send(true).unwrap();
    held.tasks.join_next().await.unwrap().unwrap();
    assert!((1..10).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}
