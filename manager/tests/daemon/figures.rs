//! How long a list of a thousand agents takes; printed, with a bound that only a mistake in kind breaks.

use std::time::{Duration, Instant};

use protocol::api::Until;

use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_agents_are_listed_at_once() {
    let world = World::start().await;
    let begun = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for worker in 0..10 {
        let mut client = world.client().await;
        clients.spawn(async move {
            for number in 0..100 {
                let name = format!("agent-{worker}-{number}");
                client.create(&name, &name).await.unwrap();
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let accepted = begun.elapsed();
    let mut client = world.client().await;
    client.wait("agent-9-99", Until::Started).await;
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..20 {
        let begun = Instant::now();
        let listed = client.list().await;
        times.push(begun.elapsed());
        assert_eq!(listed.len(), 1_000);
        bytes = protocol::codec::to_bytes(&listed).unwrap().len();
    }
    times.sort();
    let median = times[times.len() / 2];
    eprintln!("1000 creates in {accepted:?}; list of 1000 ({bytes} bytes), decoded: median {median:?}");
    // In a build without optimisation, beside other tests.
    assert!(median < Duration::from_secs(5), "{median:?}");
}
