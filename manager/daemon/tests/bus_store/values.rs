//! Values by key, blobs and the lead.

use std::time::Duration;

use bytes::Bytes;
use manager_daemon::store::blobs::{PART_BYTES, name_of};
use manager_daemon::store::kv::Cas;
use manager_daemon::store::{Bucket, Record, WriteError};
use protocol::ids::Fencing;
use tokio::task::JoinSet;

use super::server::Server;

pub(crate) fn record(bucket: Bucket, key: impl Into<String>, value: impl Into<String>) -> Record {
    Record { bucket, key: key.into(), value: Some(Bytes::from(value.into())) }
}

#[tokio::test]
async fn an_empty_bucket_loads_at_once_and_a_full_one_whole() {
    let server = Server::start().await;
    let open = server.open().await;
    assert!(open.store.load(Bucket::Desired).await.unwrap().is_empty());
    let records = (0..100).map(|n| record(Bucket::Desired, format!("a{n}"), format!("v{n}"))).collect();
    open.store.write_batch(records).await.unwrap();
    open.store
        .write_batch(vec![
            record(Bucket::Desired, "a7", "new"),
            Record { bucket: Bucket::Desired, key: "a8".into(), value: None },
        ])
        .await
        .unwrap();
    let loaded = open.store.load(Bucket::Desired).await.unwrap();
    assert_eq!(loaded.len(), 99, "the deleted key is gone");
    assert_eq!(loaded.iter().find(|entry| entry.key == "a7").unwrap().value, "new");
    assert!(loaded.windows(2).all(|pair| pair[0].revision < pair[1].revision));
}

#[tokio::test]
async fn a_second_opening_finds_everything_as_it_was() {
    let mut server = Server::start().await;
    let open = server.open().await;
    open.store.write_batch(vec![record(Bucket::Runs, "r", "1")]).await.unwrap();
    drop(open);
    server.kill();
    server.run().await;
    let open = server.open().await;
    assert_eq!(open.store.load(Bucket::Runs).await.unwrap()[0].value, "1");
}

#[tokio::test]
async fn nothing_of_a_batch_is_lost_when_the_server_is_killed_in_the_middle() {
    let mut server = Server::start().await;
    let open = server.open().await;
    let store = open.store.clone();
    let records: Vec<Record> =
        (0..1000).map(|n| record(Bucket::Tasks, format!("t{n}"), format!("value {n}"))).collect();
    let mut writing = JoinSet::new();
    writing.spawn(async move { store.write_batch(records).await });
    let store = &open.store;
    super::server::within(Duration::from_secs(10), "some are written", async || {
        store.get(Bucket::Tasks, "t20").await.ok().flatten()
    })
    .await;
    assert!(writing.try_join_next().is_none(), "killed after the end proves nothing");
    server.kill();
    server.run().await;
    tokio::time::timeout(Duration::from_secs(30), writing.join_next())
        .await
        .unwrap()
        .unwrap()
        .unwrap()
        .unwrap();
    let loaded = open.store.load(Bucket::Tasks).await.unwrap();
    assert_eq!(loaded.len(), 1000);
    assert!(loaded.iter().all(|entry| entry.value == entry.key.replace('t', "value ")));
}

#[tokio::test]
async fn writes_to_one_key_keep_their_order_over_a_killed_server() {
    let mut server = Server::start().await;
    let open = server.open().await;
    let store = open.store.clone();
    let mut writing = JoinSet::new();
    writing.spawn(async move {
        for n in 0..300 {
            store.write_batch(vec![record(Bucket::Tasks, "t", n.to_string())]).await.unwrap();
        }
    });
    let store = &open.store;
    super::server::within(Duration::from_secs(10), "some are written", async || {
        store.get(Bucket::Tasks, "t").await.ok().flatten().filter(|(_, revision)| *revision > 20)
    })
    .await;
    server.kill();
    server.run().await;
    tokio::time::timeout(Duration::from_secs(30), writing.join_next()).await.unwrap().unwrap().unwrap();
    assert_eq!(open.store.load(Bucket::Tasks).await.unwrap()[0].value, "299");
}

#[tokio::test]
async fn a_value_that_is_too_large_is_refused_and_the_rest_of_its_batch_is_written() {
    let server = Server::start().await;
    let open = server.open().await;
    let large = "x".repeat(2 << 20);
    let batch = vec![record(Bucket::Runs, "big", large), record(Bucket::Runs, "small", "1")];
    let refused = tokio::time::timeout(Duration::from_secs(5), open.store.write_batch(batch)).await.unwrap();
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })), "{refused:?}");
    let loaded = open.store.load(Bucket::Runs).await.unwrap();
    assert_eq!(loaded.iter().map(|entry| entry.key.as_str()).collect::<Vec<_>>(), ["small"]);
}

#[tokio::test]
async fn compare_and_set_has_one_winner() {
    let server = Server::start().await;
    let open = server.open().await;
    let store = &open.store;
    let race = (0..20).map(|n| store.cas(Bucket::Tasks, "t", Bytes::from(n.to_string()), 0));
    let results = futures::future::join_all(race).await;
    let won: Vec<u64> = results
        .into_iter()
        .filter_map(|result| match result.unwrap() {
            Cas::Written { revision } => Some(revision),
            Cas::Conflict => None,
        })
        .collect();
    assert_eq!(won.len(), 1);
    assert!(matches!(
        store.cas(Bucket::Tasks, "t", Bytes::from("n"), won[0]).await.unwrap(),
        Cas::Written { .. }
    ));
    assert_eq!(store.cas(Bucket::Tasks, "t", Bytes::from("o"), won[0]).await.unwrap(), Cas::Conflict);
}

#[tokio::test]
async fn marks_of_deleted_keys_are_forgotten_but_newer_values_stay() {
    let server = Server::start().await;
    let open = server.open().await;
    let store = &open.store;
    let gone = |key: &str| Record { bucket: Bucket::Desired, key: key.into(), value: None };
    store.write_batch(vec![gone("a"), gone("b")]).await.unwrap();
    let (_, a) = store.get(Bucket::Desired, "a").await.unwrap().unwrap();
    let (_, b) = store.get(Bucket::Desired, "b").await.unwrap().unwrap();
    store.write_batch(vec![record(Bucket::Desired, "b", "back")]).await.unwrap();
    let forgotten = store.forget_deleted(Bucket::Desired, &[("a".into(), a), ("b".into(), b)]).await.unwrap();
    assert_eq!(forgotten, 1);
    assert_eq!(store.get(Bucket::Desired, "a").await.unwrap(), None);
    assert_eq!(store.load(Bucket::Desired).await.unwrap()[0].value, "back");
}

#[tokio::test]
async fn each_lead_has_a_higher_number_than_any_before_and_any_host_saw() {
    let server = Server::start().await;
    let open = server.open().await;
    assert_eq!(open.store.acquire_lead(Fencing(0)).await.unwrap(), Fencing(1));
    assert_eq!(open.store.acquire_lead(Fencing(0)).await.unwrap(), Fencing(2));
    assert_eq!(open.store.acquire_lead(Fencing(40)).await.unwrap(), Fencing(41));
    let store = &open.store;
    let both = futures::future::join_all((0..4).map(|_| store.acquire_lead(Fencing(0)))).await;
    let mut numbers: Vec<u64> = both.into_iter().map(|fencing| fencing.unwrap().0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [42, 43, 44, 45]);
}

#[tokio::test]
async fn blobs_come_back_whole_and_in_ranges() {
    let server = Server::start().await;
    let blobs = server.open().await.store.blobs();
    assert_eq!(blobs.get(&name_of(b"never put")).await.unwrap(), None);
    for size in [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 12_345] {
        let content: Bytes = (0..size).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let name = blobs.put(content.clone()).await.unwrap();
        assert_eq!(name, name_of(&content));
        assert_eq!(blobs.put(content.clone()).await.unwrap(), name, "putting twice is putting once");
        assert!(blobs.exists(&name).await.unwrap());
        assert_eq!(blobs.size(&name).await.unwrap(), Some(size));
        assert_eq!(blobs.get(&name).await.unwrap().unwrap(), content, "{size}");
        for (offset, len) in [(0, 10), (size / 2, 100_000), (PART_BYTES - 5, 10), (size, 10), (size + 10, 10)]
        {
            let wanted =
                content.slice(offset.min(size)..offset.saturating_add(len).min(size).max(offset.min(size)));
            let read = blobs.get_range(&name, offset as u64, len).await.unwrap().unwrap();
            assert_eq!(read, wanted, "{size}: {len} from {offset}");
        }
    }
}
