//! A bus that dies under the manager: what was acknowledged is there, what was not is known as such.

use std::time::{Duration, Instant};

use manager_installation::losses;
use protocol::api::{Mutation, Query, Reply, SubmitRun, Until};
use protocol::error::ErrorCode;
use protocol::ids::{Fencing, RequestKey};
use protocol::task::{RunSpec, SubmitTask};

use super::client::Client;

use super::server::{Server, within};
use super::world::World;

/// kill -9, and everything that it stored is gone.
fn wipe(server: &mut Server) {
    server.kill();
    std::fs::remove_dir_all(server.layout.jetstream()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_request_is_lost_when_the_bus_is_killed_midway() {
    let mut world = World::start().await;
    let mut acknowledged = Vec::new();
    let mut clients = tokio::task::JoinSet::new();
    for worker in 0..4 {
        let mut client = world.client().await;
        clients.spawn(async move {
            let mut done = Vec::new();
            for number in 0..40 {
                let name = format!("a-{worker}-{number}");
                // As a client does: the same key until there is an answer.
                let agent = loop {
                    match client.create(&name, &name).await {
                        Ok(agent) => break agent,
                        Err(error) => assert_eq!(error.code, ErrorCode::Unavailable, "{error:?}"),
                    }
                };
                done.push((name, agent));
            }
            done
        });
    }
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(60)).await;
        world.server.kill();
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.server.run().await;
    }
    while let Some(done) = clients.join_next().await {
        acknowledged.extend(done.unwrap());
    }
    assert_eq!(acknowledged.len(), 160);
    // What a manager finds that knows only what is stored.
    world.kill_manager().await;
    world.start_manager().await;
    let mut client = world.client().await;
    let listed = client.list().await;
    assert_eq!(listed.len(), 160, "each once");
    for (name, agent) in acknowledged {
        assert!(listed.iter().any(|view| view.id == agent && view.name == name), "{name}");
        client.wait(&name, Until::Started).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_bus_is_away_queries_are_answered_and_a_change_is_not_acknowledged() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    world.server.kill();
    let begun = Instant::now();
    assert_eq!(client.list().await.len(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "a query waits for no write");
    within(Duration::from_secs(10), "the status says that the bus is away", async || {
        let mut other = world.client().await;
        match other.ask(Query::Status).await.unwrap() {
            Reply::Status(status) if !status.bus_connected => Some(()),
            _ => None,
        }
    })
    .await;
    let refused = client.create("k2", "two").await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.hint.contains("--key"), "{refused:?}");
    world.server.run().await;
    let agent = client.create("k2", "two").await.unwrap();
    client.wait(&agent.to_string(), Until::Started).await;
}

/// Within which a fleet works again after its bus was wiped.
const HEALED: Duration = Duration::from_secs(20);

async fn submit(client: &mut Client, name: &str) {
    let run = RunSpec {
        name: name.parse().unwrap(),
        max_parallel: None,
        labels: Default::default(),
        caps: Default::default(),
        notify: Vec::new(),
        open: false,
    };
    let task = serde_json::json!({
        "name": "t", "program": ["true"], "grace_ms": 1000, "accept": "exit", "commit": "agent",
    });
    let task = SubmitTask { spec: serde_json::from_value(task).unwrap(), environment: Default::default() };
    let key = RequestKey(format!("run-{name}"));
    let submit = SubmitRun { key, run, tasks: vec![task] };
    client.ask(Mutation::SubmitRun(Box::new(submit))).await.unwrap();
}

async fn runs(client: &mut Client) -> usize {
    match client.ask(Query::ListRuns).await.unwrap() {
        Reply::Runs(runs) => runs.len(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_knows_a_higher_number_takes_orders_within_seconds() {
    let world = World::start().await;
    world.host.has_followed(Fencing(40));
    let mut client = world.client().await;
    let begun = Instant::now();
    let agent = client.create("k", "a").await.unwrap();
    client.wait(&agent.to_string(), Until::Started).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_wiped_bus_has_lost_is_written_back_by_the_manager_that_lives() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    for number in 0..22 {
        submit(&mut client, &format!("r{number}")).await;
    }
    client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    wipe(&mut world.server);
    world.server.run().await;
    within(HEALED, "the loss is told", async || {
        let told = losses::read(&world.server.layout).unwrap();
        told.iter().any(|loss| loss.restored && loss.what.contains("22 runs")).then_some(())
    })
    .await;
    client.create("k2", "two").await.unwrap();
    client.wait("two", Until::Started).await;
    world.kill_manager().await;
    world.start_manager().await;
    let mut client = world.client().await;
    assert_eq!(runs(&mut client).await, 22);
    let listed = client.list().await;
    for name in ["one", "two"] {
        let view = listed.iter().find(|view| view.name == name).unwrap();
        assert_ne!(view.wanted, "unowned", "{name}");
    }
    assert_eq!(losses::read(&world.server.layout).unwrap().len(), 1, "told once, and nothing is missed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_was_wiped_while_no_manager_lived_is_told_and_its_hosts_take_orders_at_once() {
    let mut world = World::start().await;
    let mut client = world.client().await;
    submit(&mut client, "r").await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    world.host.has_followed(Fencing(40));
    client.create("k2", "two").await.unwrap();
    client.wait("two", Until::Started).await;
    world.kill_manager().await;
    wipe(&mut world.server);
    world.server.run().await;
    world.start_manager().await;
    let mut client = world.client().await;
    let begun = Instant::now();
    client.create("k3", "three").await.unwrap();
    client.wait("three", Until::Started).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    within(HEALED, "what lives is listed", async || {
        let mut client = world.client().await;
        let listed = client.list().await;
        listed.iter().any(|view| view.id == agent && view.wanted == "unowned").then_some(())
    })
    .await;
    let told = losses::read(&world.server.layout).unwrap();
    assert!(told.iter().any(|loss| !loss.restored), "{told:?}");
}
