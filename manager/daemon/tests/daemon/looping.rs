//! The loop on ports that the test holds, on a paused clock: nothing leaves before its writes are acknowledged.

use std::time::Duration;

use manager_core::{Config, Core, Input, OrderDraft};
use manager_daemon::driver::commit::{Batch, WRITES_WAITING};
use manager_daemon::driver::{self, Driver, Outlets, Surroundings, WriterEnds};
use protocol::agent::Environment;
use protocol::api::Reply;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::Fencing;
use protocol::report::{Heartbeat, HostFacts};
use protocol::time::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::client::create;

struct Paused(tokio::time::Instant);

impl Surroundings for Paused {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }

    fn seed(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).unwrap();
        u128::from_ne_bytes(bytes)
    }

    fn seal(&self, key: &str, _: &Environment) -> Option<Vec<u8>> {
        // One name stands for a key that is lost.
        (!key.is_empty()).then(|| b"sealed".to_vec())
    }
}

struct Ports {
    driver: Driver,
    batches: mpsc::Receiver<Batch>,
    acknowledge: mpsc::Sender<()>,
    orders: mpsc::Receiver<OrderDraft>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<u64>,
}

/// The loop, with one host heard.
async fn ports() -> Ports {
    let (batches, batches_in) = mpsc::channel(1);
    let (acknowledge, acknowledged) = mpsc::channel(1);
    let (orders, orders_in) = mpsc::channel(64);
    let (asks, _) = mpsc::channel(64);
    let (facts, _) = mpsc::channel(64);
    let (core, aside) = Core::load(Config::new(Fencing(1)), Vec::new(), Timestamp(1_000_000));
    assert!(aside.is_empty());
    let heartbeat = Heartbeat {
        region: "hub".parse().unwrap(),
        host: "h1".parse().unwrap(),
        incarnation: Default::default(),
        fencing: Fencing(1),
        now: Timestamp(1_000_000),
        build: "test".to_owned(),
        facts: HostFacts {
            cpus: 8,
            memory_total_bytes: 1 << 40,
            memory_available_bytes: 1 << 40,
            disk_total_bytes: 100,
            disk_free_bytes: 90,
            disk_share_max_percent: 85,
            ..HostFacts::default()
        },
        digest: None,
    };
    let early = [Input::Heartbeat(Box::new(heartbeat))].into();
    let surroundings = Paused(tokio::time::Instant::now());
    let outlets = Outlets { orders, asks, facts };
    let ends = WriterEnds { batches, acknowledged };
    let (driver, turning) = driver::new(core, surroundings, ends, outlets, early);
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(turning.run(stopped, Duration::from_secs(3)));
    Ports { driver, batches: batches_in, acknowledge, orders: orders_in, stop, tasks }
}

type Answers = JoinSet<Result<Reply, WireError>>;

fn ask(driver: &Driver, answers: &mut Answers, name: &str) {
    let (driver, request) = (driver.clone(), create(name, name, &[]));
    answers.spawn(async move { driver.change(request).await });
}

#[tokio::test(start_paused = true)]
async fn neither_reply_nor_order_leaves_before_its_write_is_acknowledged() {
    let mut ports = ports().await;
    let mut answers = JoinSet::new();
    ask(&ports.driver, &mut answers, "one");
    let batch = ports.batches.recv().await.unwrap();
    assert!(!batch.is_empty());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(answers.try_join_next().is_none(), "no reply");
    assert!(ports.orders.try_recv().is_err(), "no order");
    let unwritten = ports.driver.glance(|glance| glance.unwritten).await.unwrap();
    assert!(unwritten > 0, "a query is answered meanwhile and tells of it");
    ports.acknowledge.send(()).await.unwrap();
    let reply = answers.join_next().await.unwrap().unwrap().unwrap();
    let Reply::Accepted { agent } = reply else { panic!("{reply:?}") };
    assert_eq!(ports.orders.recv().await.unwrap().command.agent(), agent);
}

#[tokio::test(start_paused = true)]
async fn many_requests_share_a_batch_and_are_answered_together() {
    let mut ports = ports().await;
    let mut answers = JoinSet::new();
    ask(&ports.driver, &mut answers, "first");
    ports.batches.recv().await.unwrap();
    for number in 0..20 {
        ask(&ports.driver, &mut answers, &format!("a{number}"));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(ports.batches.try_recv().is_err(), "one batch at a time");
    ports.acknowledge.send(()).await.unwrap();
    answers.join_next().await.unwrap().unwrap().unwrap();
    let batch = ports.batches.recv().await.unwrap();
    assert!(batch.concat().len() >= 20);
    assert!(answers.try_join_next().is_none());
    ports.acknowledge.send(()).await.unwrap();
    for _ in 0..20 {
        answers.join_next().await.unwrap().unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_a_bound_of_waiting_writes_a_change_is_refused_at_once() {
    let mut ports = ports().await;
    let mut answers = JoinSet::new();
    ask(&ports.driver, &mut answers, "first");
    ports.batches.recv().await.unwrap();
    let mut asked = 0;
    let refused = loop {
        for _ in 0..500 {
            ask(&ports.driver, &mut answers, &format!("a{asked}"));
            asked += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(answer) = answers.try_join_next() {
            break answer.unwrap().unwrap_err();
        }
        assert!(asked <= WRITES_WAITING * 2, "the bound holds");
    };
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.hint.contains("--key"), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_what_was_decided_is_written_and_answered_and_a_bus_that_is_away_is_not_waited_for() {
    let mut ports = ports().await;
    let mut answers = JoinSet::new();
    ask(&ports.driver, &mut answers, "one");
    ports.batches.recv().await.unwrap();
    ports.stop.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    ports.acknowledge.send(()).await.unwrap();
    answers.join_next().await.unwrap().unwrap().expect("answered at the last moment");
    assert_eq!(ports.tasks.join_next().await.unwrap().unwrap(), 0);

    let mut ports = self::ports().await;
    ask(&ports.driver, &mut answers, "two");
    ports.batches.recv().await.unwrap();
    ports.stop.send(true).unwrap();
    let begun = tokio::time::Instant::now();
    let error = answers.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(ports.tasks.join_next().await.unwrap().unwrap() > 0, "told as not written");
    assert!(begun.elapsed() <= Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_asks_for_a_lease_of_what_is_not_its_own_is_answered_with_a_refusal() {
    let ports = ports().await;
    let stranger = protocol::ids::AgentId::from_parts(1, 1);
    let refused = ports.driver.lease("h1".parse().unwrap(), stranger, Default::default()).await;
    assert!(refused.is_err_and(|error| error.code != ErrorCode::Unavailable));
}
