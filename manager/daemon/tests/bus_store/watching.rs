//! Watches over everything that can happen to the stream behind them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use manager_daemon::store::{Bucket, Record, Store, WatchEvent};
use tokio::sync::mpsc;

use super::server::Server;
use super::values::record;

const LIMIT: Duration = Duration::from_secs(60);

async fn next(events: &mut mpsc::Receiver<WatchEvent>) -> WatchEvent {
    tokio::time::timeout(LIMIT, events.recv()).await.expect("an event in time").expect("the watch lives")
}

async fn until(
    events: &mut mpsc::Receiver<WatchEvent>,
    wanted: impl Fn(&WatchEvent) -> bool,
) -> Vec<WatchEvent> {
    let mut seen = Vec::new();
    loop {
        seen.push(next(events).await);
        if wanted(seen.last().unwrap()) {
            return seen;
        }
    }
}

fn is_value(event: &WatchEvent, key: &str, value: &str) -> bool {
    matches!(event, WatchEvent::Change(change)
        if change.key == key && change.value.as_deref() == Some(value.as_bytes()))
}

async fn put(store: &Store, key: &str, value: &str) {
    store.write_batch(vec![record(Bucket::Agents, key, value)]).await.unwrap();
}

#[tokio::test]
async fn a_watch_of_an_empty_bucket_is_synced_at_once_then_hears_changes_and_deletes() {
    let server = Server::start().await;
    let mut open = server.open().await;
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    assert_eq!(next(&mut events).await, WatchEvent::Synced);
    put(&open.store, "hub.h.a", "1").await;
    assert!(is_value(&next(&mut events).await, "hub.h.a", "1"));
    let gone = Record { bucket: Bucket::Agents, key: "hub.h.a".into(), value: None };
    open.store.write_batch(vec![gone]).await.unwrap();
    assert!(matches!(next(&mut events).await, WatchEvent::Change(change) if change.value.is_none()));
}

#[tokio::test]
async fn a_watch_tells_what_is_there_before_it_is_synced() {
    let server = Server::start().await;
    let mut open = server.open().await;
    for n in 0..5 {
        put(&open.store, &format!("hub.h.a{n}"), "x").await;
    }
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    let seen = until(&mut events, |event| *event == WatchEvent::Synced).await;
    assert_eq!(seen.len(), 6);
}

#[tokio::test]
async fn a_watch_goes_on_after_its_server_was_killed() {
    let mut server = Server::start().await;
    let mut open = server.open().await;
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    put(&open.store, "hub.h.a", "before").await;
    until(&mut events, |event| is_value(event, "hub.h.a", "before")).await;
    for round in 0..2 {
        server.kill();
        server.run().await;
        let value = format!("after {round}");
        put(&open.store, "hub.h.a", &value).await;
        let seen = until(&mut events, |event| is_value(event, "hub.h.a", &value)).await;
        assert!(!seen.contains(&WatchEvent::Recreated), "{seen:?}");
    }
}

#[tokio::test]
async fn a_stream_made_anew_is_said_and_read_again() {
    let server = Server::start().await;
    let mut open = server.open().await;
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    for n in 0..50 {
        put(&open.store, &format!("hub.h.a{n}"), "old").await;
    }
    until(&mut events, |event| is_value(event, "hub.h.a49", "old")).await;
    let jetstream = async_nats::jetstream::new(open.store.client().clone());
    jetstream.delete_stream(Bucket::Agents.stream()).await.unwrap();
    let again = server.open().await;
    // Far fewer writes than the old stream had: a plain watch hears none of them.
    put(&again.store, "hub.h.b", "new").await;
    let seen = until(&mut events, |event| is_value(event, "hub.h.b", "new")).await;
    assert!(seen.contains(&WatchEvent::Recreated), "{seen:?}");
    until(&mut events, |event| *event == WatchEvent::Synced).await;
    put(&again.store, "hub.h.b", "newer").await;
    until(&mut events, |event| is_value(event, "hub.h.b", "newer")).await;
}

#[tokio::test]
async fn a_lost_store_is_said_after_the_server_comes_back_empty() {
    let mut server = Server::start().await;
    let mut open = server.open().await;
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    put(&open.store, "hub.h.a", "old").await;
    until(&mut events, |event| is_value(event, "hub.h.a", "old")).await;
    server.kill();
    std::fs::remove_dir_all(server.layout.jetstream()).unwrap();
    server.run().await;
    let again = server.open().await;
    put(&again.store, "hub.h.a", "new").await;
    let seen = until(&mut events, |event| is_value(event, "hub.h.a", "new")).await;
    assert!(seen.contains(&WatchEvent::Recreated), "{seen:?}");
}

#[tokio::test]
async fn a_receiver_that_does_not_listen_during_an_outage_converges() {
    let mut server = Server::start().await;
    let mut open = server.open().await;
    let mut events = open.store.watch(Bucket::Agents, &mut open.tasks);
    let keys: Vec<String> = (0..1500).map(|n| format!("hub.h.a{n}")).collect();
    let all = |value: &str| {
        let value = Bytes::from(value.to_owned());
        let make =
            |key: &String| Record { bucket: Bucket::Agents, key: key.clone(), value: Some(value.clone()) };
        keys.iter().map(make).collect::<Vec<_>>()
    };
    // More than the channel holds: the watch is blocked while the server dies.
    open.store.write_batch(all("1")).await.unwrap();
    server.kill();
    server.run().await;
    open.store.write_batch(all("2")).await.unwrap();
    let mut view: BTreeMap<String, Bytes> = BTreeMap::new();
    while view.len() < keys.len() || view.values().any(|value| value != "2") {
        if let WatchEvent::Change(change) = next(&mut events).await {
            view.insert(change.key, change.value.unwrap());
        }
    }
}
