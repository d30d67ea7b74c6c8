//! A bus that dies under the manager: what was acknowledged is there, what was not is known as such.

use std::time::{Duration, Instant};

use protocol::api::{Query, Reply, Until};
use protocol::error::ErrorCode;

use super::server::within;
use super::world::World;

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
