//! Blobs that nothing names go, and never one that a record names: whoever brings, names, forgets and sweeps in any order
//! and at the same time, on the real bus.

use std::collections::BTreeMap;

use manager_daemon::store::blobs::name_of;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use protocol::agent::Blob;
use protocol::api::{Action, Item, Mutation, Query, Reply, SubmitRun};
use protocol::error::ErrorCode;
use protocol::house::{Freed, Holding, HouseItem};
use protocol::ids::{RequestKey, RunId};
use protocol::report::{HostReply, HostRequest};
use protocol::task::{RunSpec, SubmitTask, TaskSpec};

use super::client::Client;
use super::world::World;

fn text(n: u8) -> Vec<u8> {
    format!("prompt {n}").into_bytes()
}

fn blob(n: u8) -> Blob {
    let text = text(n);
    Blob { sha256: name_of(&text), bytes: u64::try_from(text.len()).unwrap() }
}

fn bring(n: u8) -> Action {
    Action::PutBlob { sha256: blob(n).sha256, offset: 0, bytes: text(n), last: true }
}

/// A run of one task. As the only host's disk is full it waits, and is over as soon as it is cancelled.
fn submit(key: &str, n: u8) -> Mutation {
    let mut spec: TaskSpec = serde_json::from_value(serde_json::json!({
        "name": "t", "program": ["true"], "grace_ms": 1000, "profile": "p", "accept": "exit", "commit": "agent",
    }))
    .unwrap();
    spec.prompt = Some(blob(n));
    let run: RunSpec = serde_json::from_value(serde_json::json!({"name": format!("r-{key}")})).unwrap();
    let tasks = vec![SubmitTask { spec, environment: Default::default() }];
    Mutation::SubmitRun(Box::new(SubmitRun { key: RequestKey(key.to_owned()), run, tasks }))
}

async fn forget(client: &mut Client, key: &str, run: RunId) {
    let cancel = Mutation::CancelRun {
        key: RequestKey(format!("{key}-c")),
        run: run.to_string(),
        tasks: Vec::new(),
        grace_ms: None,
    };
    client.ask(cancel).await.unwrap();
    let free = Mutation::FreeRuns { key: RequestKey(format!("{key}-f")), runs: vec![run], older_ms: 0 };
    let Reply::Freed(freed) = client.ask(free).await.unwrap() else { panic!("outcomes") };
    assert_eq!(freed[0].kept, None, "it waits for nothing and nobody works on it");
}

async fn unnamed(client: &mut Client) -> Vec<Holding> {
    let request = Query::Survey { targets: Vec::new(), deep: false, added: false, blobs: true };
    let (items, end) = client.whole(&request).await;
    assert!(matches!(end, Ok(Reply::Surveyed { .. })), "{end:?}");
    let own = items.into_iter().filter_map(|item| match item {
        Item::OwnHoldings(holdings) => Some(holdings),
        _ => None,
    });
    own.flatten().collect()
}

async fn sweep(client: &mut Client) -> Vec<Freed> {
    let items: Vec<HouseItem> = unnamed(client).await.into_iter().map(|holding| holding.item).collect();
    let Reply::Freed(freed) = client.ask(Action::FreeBlobs { items, older_ms: 0 }).await.unwrap() else {
        panic!("outcomes")
    };
    freed
}

async fn is_there(world: &World, n: u8) -> bool {
    let request = HostRequest::BlobPart { sha256: blob(n).sha256, offset: 0, max: 100 };
    match world.host.request(&request).await {
        HostReply::BlobPart { bytes, .. } => {
            assert_eq!(bytes, text(n));
            true
        }
        HostReply::Refused(error) if error.code == ErrorCode::NotFound => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_goes_and_what_is_named_or_fresh_stays() {
    let mut world = World::start().await;
    world.fill_disk().await;
    let mut client = world.client().await;
    for n in [1, 2] {
        assert_eq!(client.ask(bring(n)).await, Ok(Reply::Stored));
    }
    let Ok(Reply::Submitted { run, .. }) = client.ask(submit("k1", 1)).await else { panic!("submitted") };
    // Within the grace nothing goes: the request that names it may be on its way.
    let fresh = sweep(&mut client).await;
    assert_eq!(
        fresh.iter().map(|freed| &freed.item).collect::<Vec<_>>(),
        [&HouseItem::Blob { name: blob(2).sha256 }]
    );
    assert!(fresh[0].kept.as_ref().unwrap().contains("brought just now"), "{fresh:?}");

    world.stop_manager().await.unwrap();
    world.blob_grace_ms = 0;
    world.start_manager().await;
    let mut client = world.client().await;
    let named = Action::FreeBlobs { items: vec![HouseItem::Blob { name: blob(1).sha256 }], older_ms: 0 };
    let Reply::Freed(kept) = client.ask(named.clone()).await.unwrap() else { panic!("outcomes") };
    assert!(kept[0].kept.as_ref().unwrap().contains("names it"), "{kept:?}");
    let young = Action::FreeBlobs { items: vec![fresh[0].item.clone()], older_ms: 3_600_000 };
    let Reply::Freed(young) = client.ask(young).await.unwrap() else { panic!("outcomes") };
    assert!(young[0].kept.as_ref().unwrap().contains("younger"), "{young:?}");

    assert_eq!(sweep(&mut client).await, [Freed { item: fresh[0].item.clone(), bytes: 8, kept: None }]);
    assert!(is_there(&world, 1).await && !is_there(&world, 2).await);
    // Who still names it is told so, and nothing of the request comes about.
    let refused = client.ask(submit("k2", 2)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    assert!(refused.message.contains(&blob(2).sha256) && refused.hint.contains("again"), "{refused:?}");
    assert_eq!(client.ask(bring(2)).await, Ok(Reply::Stored));
    assert!(
        matches!(client.ask(submit("k2", 2)).await, Ok(Reply::Submitted { .. })),
        "the same key, once it is there"
    );

    forget(&mut client, "k1", run).await;
    assert_eq!(sweep(&mut client).await.len(), 1);
    assert!(!is_there(&world, 1).await);
    let Reply::Freed(gone) = client.ask(named).await.unwrap() else { panic!("outcomes") };
    assert_eq!(gone[0].kept, None, "gone is done");
}

/// What one client does, one after another.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Or hears that it is there.
    Bring(u8),
    /// Who is told that it is not there brings it, and names it again.
    Name(u8),
    /// All runs of its own.
    Forget,
    Sweep,
}

async fn play(world: &World, who: usize, acts: Vec<Act>) -> BTreeMap<RunId, u8> {
    let mut client = world.client().await;
    let mut runs: BTreeMap<RunId, u8> = BTreeMap::new();
    for (place, act) in acts.into_iter().enumerate() {
        let key = format!("{who}-{place}");
        match act {
            Act::Bring(n) => assert_eq!(client.ask(bring(n)).await, Ok(Reply::Stored)),
            Act::Name(n) => {
                // With no grace at all it may go between the two, again and again.
                for round in 0.. {
                    assert!(round < 50, "refused for ever");
                    match client.ask(submit(&key, n)).await {
                        Ok(Reply::Submitted { run, .. }) => {
                            assert!(is_there(world, n).await, "prompt {n} of {key} is lost");
                            runs.insert(run, n);
                            break;
                        }
                        Err(error) if error.code == ErrorCode::NotFound => {
                            assert_eq!(client.ask(bring(n)).await, Ok(Reply::Stored));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            Act::Forget => {
                for (place, run) in std::mem::take(&mut runs).into_keys().enumerate() {
                    forget(&mut client, &format!("{key}-{place}"), run).await;
                }
            }
            Act::Sweep => drop(sweep(&mut client).await),
        }
    }
    runs
}

/// `PHALANX_SWEEP_SEED` replays what is done; who comes first differs each time.
#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "shown when it fails")]
async fn no_blob_that_a_record_names_is_ever_lost() {
    let mut world = World::start().await;
    world.fill_disk().await;
    world.stop_manager().await.unwrap();
    world.blob_grace_ms = 0;
    world.start_manager().await;
    let seed: u64 = match std::env::var("PHALANX_SWEEP_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from_ne_bytes(std::array::from_fn(|_| rand_byte())),
    };
    println!("PHALANX_SWEEP_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_ne_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    // So that most contents are named by nobody most of the time, and one's end meets another's beginning.
    let act = proptest::prop_oneof![
        2 => (0_u8..4).prop_map(Act::Bring),
        4 => (0_u8..4).prop_map(Act::Name),
        4 => proptest::strategy::Just(Act::Forget),
        4 => proptest::strategy::Just(Act::Sweep),
    ];
    let acts = proptest::collection::vec(act, 60);
    let acts = (0..6).map(|_| acts.new_tree(&mut runner).unwrap().current()).collect::<Vec<_>>();
    let players = acts.into_iter().enumerate().map(|(who, acts)| play(&world, who, acts));
    let named: BTreeMap<RunId, u8> = futures::future::join_all(players).await.into_iter().flatten().collect();
    // A new manager holds nothing in memory: it reads what is there.
    world.kill_manager().await;
    world.start_manager().await;
    for (run, n) in &named {
        assert!(is_there(&world, *n).await, "the prompt of run {run} is lost");
    }
    let mut client = world.client().await;
    sweep(&mut client).await;
    for n in 0..4 {
        assert_eq!(is_there(&world, n).await, named.values().any(|other| *other == n), "prompt {n}");
    }
}

fn rand_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).unwrap();
    byte[0]
}
