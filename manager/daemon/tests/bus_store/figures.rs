//! Prints what the store costs here; fails only where something is far off.

use std::time::{Duration, Instant};

use manager_daemon::store::Bucket;

use super::server::Server;
use super::values::record;

#[tokio::test]
async fn writes_and_loads_are_as_fast_as_the_disk_and_the_server_allow() {
    let server = Server::start().await;
    let open = server.open().await;
    let store = &open.store;
    let mut puts = Vec::new();
    for n in 0..50 {
        let begun = Instant::now();
        store.write_batch(vec![record(Bucket::Runs, format!("r{n}"), "x".repeat(480))]).await.unwrap();
        puts.push(begun.elapsed());
    }
    puts.sort_unstable();
    eprintln!("one put: median {:?}, slowest {:?}", puts[25], puts[49]);
    let many = |from: usize, count: usize| {
        (from..from + count).map(|n| record(Bucket::Tasks, format!("t{n}"), "x".repeat(480))).collect()
    };
    let begun = Instant::now();
    store.write_batch(many(0, 1000)).await.unwrap();
    eprintln!("batch of 1,000: {:?}", begun.elapsed());
    store.write_batch(many(1000, 9000)).await.unwrap();
    let begun = Instant::now();
    let loaded = store.load(Bucket::Tasks).await.unwrap();
    let took = begun.elapsed();
    eprintln!("load of 10,000: {took:?}");
    assert_eq!(loaded.len(), 10_000);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
