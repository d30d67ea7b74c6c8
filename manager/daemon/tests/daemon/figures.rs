//! How long a list of a thousand agents takes; printed, with a bound that only a mistake in kind breaks.

use std::time::{Duration, Instant};

use protocol::api::Until;
use protocol::row::RowFilter;

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
    let (views, views_took) = timed(async || client.list().await).await;
    let view_bytes = protocol::codec::to_bytes(&views).unwrap().len();
    let all = RowFilter { all: true, ..RowFilter::default() };
    let mut times = Vec::new();
    let mut rows = Vec::new();
    for _ in 0..20 {
        let (listed, took) = timed(async || client.rows(all.clone()).await).await;
        assert_eq!(listed.len(), 1_000);
        times.push(took);
        rows = listed;
    }
    times.sort();
    let median = times[times.len() / 2];
    let bytes = protocol::codec::to_bytes(&rows).unwrap().len();
    eprintln!(
        "1000 creates in {accepted:?}; whole views of 1000: {view_bytes} bytes, decoded {views_took:?}; \
         rows of 1000: {bytes} bytes, decoded: median {median:?}"
    );
    assert_eq!(rows.len(), views.len());
    assert!(bytes * 2 < view_bytes, "{bytes} of {view_bytes}");
    // In a build without optimisation, beside other tests.
    assert!(median < Duration::from_secs(5), "{median:?}");
}

async fn timed<T>(ask: impl AsyncFnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (ask().await, begun.elapsed())
}
