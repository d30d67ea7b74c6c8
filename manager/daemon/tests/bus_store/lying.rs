//! What lies in the object store is found whole, in pieces or as the rest of a cut put, and goes without a trace.

use async_nats::jetstream;
use bytes::Bytes;
use manager_daemon::store::blobs::{PART_BYTES, name_of};
use manager_daemon::store::inventory::Lies;
use protocol::house::StreamUse;

use super::server::{Open, Server};

async fn used(open: &Open) -> StreamUse {
    let used = open.store.usage().await.unwrap();
    used.into_iter().find(|stream| stream.name == "blobs").unwrap()
}

#[tokio::test]
async fn everything_in_the_object_store_is_found_and_goes_without_a_trace() {
    let server = Server::start().await;
    let open = server.open().await;
    let blobs = open.store.blobs();
    assert_eq!(blobs.inventory().await.unwrap(), [], "an empty store is looked at at once");

    let small = blobs.put(Bytes::from_static(b"small")).await.unwrap();
    let large: Bytes = (0..2 * PART_BYTES + 12_345).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let size = u64::try_from(large.len()).unwrap();
    let large = blobs.put(large).await.unwrap();
    // A put that was cut: two of its parts; and one that was cut in the middle of an object.
    let context = jetstream::new(open.store.client().clone());
    let objects = context.get_object_store("blobs").await.unwrap();
    let torn = name_of(b"torn");
    for part in 0..2 {
        objects.put(format!("{torn}.{part}").as_str(), &mut &b"part"[..]).await.unwrap();
    }
    context.publish("$O.blobs.C.cutcutcut", "chunk".into()).await.unwrap().await.unwrap();
    objects.put("bundle", &mut &b"of a later build"[..]).await.unwrap();

    let found = blobs.inventory().await.unwrap();
    let mut shown: Vec<(Lies, u64)> = found.iter().map(|thing| (thing.what.clone(), thing.bytes)).collect();
    shown.sort();
    let mut wanted = vec![
        (Lies::Blob(small.clone()), 5),
        (Lies::Blob(large.clone()), size),
        (Lies::Cut(torn), 8),
        (Lies::Cut("cutcutcut".to_owned()), 5),
        (Lies::Unknown("bundle".to_owned()), 16),
    ];
    wanted.sort();
    assert_eq!(shown, wanted);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let ages = found.iter().map(|thing| u64::try_from(now).unwrap().abs_diff(thing.at.0));
    assert!(ages.clone().all(|age_ms| age_ms < 60_000), "{:?}", ages.collect::<Vec<_>>());

    for thing in found.iter().filter(|thing| thing.what != Lies::Blob(small.clone())) {
        blobs.remove(thing).await.unwrap();
        blobs.remove(thing).await.unwrap();
    }
    assert_eq!(blobs.get(&large).await.unwrap(), None);
    assert_eq!(blobs.get(&small).await.unwrap().unwrap(), "small");
    assert_eq!(used(&open).await.messages, 2, "the description and the chunk of the one that is left");
    assert_eq!(blobs.put(Bytes::from_static(b"torn")).await.unwrap(), name_of(b"torn"), "and again");
    assert_eq!(blobs.get(&name_of(b"torn")).await.unwrap().unwrap(), "torn");
}

#[tokio::test]
async fn what_was_cut_while_it_went_is_found_again() {
    let server = Server::start().await;
    let open = server.open().await;
    let blobs = open.store.blobs();
    let content: Bytes = (0..PART_BYTES + 1).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let name = blobs.put(content.clone()).await.unwrap();
    // What comes first in a removal, and nothing more: the word that it is whole.
    let context = jetstream::new(open.store.client().clone());
    let whole = data_encoding::BASE64URL.encode(name.as_bytes());
    let stream = context.get_stream("OBJ_blobs").await.unwrap();
    stream.purge().filter(format!("$O.blobs.M.{whole}")).await.unwrap();
    assert_eq!(blobs.get(&name).await.unwrap(), None);
    let found = blobs.inventory().await.unwrap();
    assert!(found.iter().any(|thing| thing.what == Lies::Cut(name.clone())), "{found:?}");
    for thing in &found {
        blobs.remove(thing).await.unwrap();
    }
    assert_eq!(used(&open).await.messages, 0);
    assert_eq!(blobs.put(content.clone()).await.unwrap(), name);
    assert_eq!(blobs.get(&name).await.unwrap().unwrap(), content);
}
