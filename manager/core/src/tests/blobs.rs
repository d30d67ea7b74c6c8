//! A blob is named for as long as a task or an agent may need it, by the core as by the bytes of its records; what
//! nothing names goes when it is old enough.

use std::collections::BTreeSet;

use proptest::prelude::*;
use protocol::agent::Blob;
use protocol::api::Mutation;
use protocol::house::{Holding, HouseItem};
use protocol::ids::RunId;
use protocol::order::Discard;
use protocol::task::{TaskSpec, TaskState};
use protocol::time::Timestamp;

use super::world::{World, after, retried, run_spec};
use crate::record::DESIRED;
use crate::{Input, judge, names_in};

fn blob(letter: &str) -> Blob {
    Blob { sha256: letter.repeat(64), bytes: 1 }
}

fn names(letters: &str) -> BTreeSet<String> {
    letters.chars().map(|letter| letter.to_string().repeat(64)).collect()
}

/// What the core names, after a look that its records name no less.
pub(super) fn named(world: &World) -> BTreeSet<String> {
    let named = world.core.named_blobs();
    let spent = world.core.spent_records();
    let unspent = world.stored.iter().filter(|((bucket, key), _)| *bucket != DESIRED || !spent.contains(key));
    let stored = unspent.flat_map(|(_, bytes)| names_in(bytes));
    // Digests of requests look like names of blobs; the blobs of these tests are one letter many times.
    let stored: BTreeSet<String> =
        stored.filter(|name| name.bytes().all(|b| name.starts_with(char::from(b)))).collect();
    assert_eq!(named, stored, "by the records that are not spent");
    named
}

fn submit(world: &mut World) -> RunId {
    let first = TaskSpec { prompt: Some(blob("1")), ..retried("a", 1) };
    let next = TaskSpec { prompt: Some(blob("2")), ..after("b", &["a"]) };
    world.submit(run_spec("r"), vec![first, next]).unwrap()
}

#[test]
fn prompts_logs_and_inputs_are_named_until_neither_task_nor_agent_is_there() {
    let mut world = World::new();
    let run = submit(&mut world);
    assert_eq!(named(&world), names("12"));
    let first = world.at_work(run, "a");
    world.exit(first, 1);
    world.input(Input::LogKept { agent: first, blob: Some(blob("3")) });
    world.pass(2_000);
    assert_eq!(named(&world), names("123"), "the log of the first attempt is for the second");
    world.restart_manager();
    assert_eq!(named(&world), names("123"));
    let second = world.at_work(run, "a");
    world.exit(second, 0);
    // The world keeps the inputs of a task under a name of its own.
    let last = world.at_work(run, "b");
    let with_inputs = named(&world);
    assert!(
        with_inputs.is_superset(&names("12")) && with_inputs.contains(&"b".repeat(64)),
        "{with_inputs:?}"
    );
    world.exit(last, 0);
    assert_eq!(world.state(run, "b"), TaskState::Accepted);
    world.pass(1_000);
    let key = world.key();
    world.ask(Mutation::FreeRuns { key, runs: vec![run], older_ms: 0 }).unwrap();
    assert!(world.core.find_run(&run.to_string()).is_err());
    assert_eq!(named(&world), BTreeSet::new());
}

#[test]
fn an_agent_names_its_prompt_until_it_is_destroyed() {
    let mut world = World::new();
    let mut create = super::world::create(world.key(), "own");
    create.spec.prompt = Some(blob("4"));
    let key = create.key.clone();
    assert!(!world.core.has_answered(&key));
    world.ask(Mutation::CreateAgent(Box::new(create))).unwrap();
    assert!(world.core.has_answered(&key));
    assert_eq!(named(&world), names("4"));
    world.stop("own");
    assert_eq!(named(&world), names("4"), "it may be started again");
    world.destroy("own", Discard::Yes);
    world.pass(60_000);
    assert_eq!(named(&world), BTreeSet::new());
}

#[test]
fn records_that_cannot_be_read_name_what_they_name() {
    let unreadable = [&[0xd9, 0x40][..], "7".repeat(64).as_bytes(), &[0xff, 0x31]].concat();
    let longer = format!("8{}", "9".repeat(64));
    let found: BTreeSet<String> =
        [unreadable.as_slice(), longer.as_bytes(), b"abc"].iter().flat_map(|bytes| names_in(bytes)).collect();
    assert!(found.is_superset(&names("79")), "{found:?}");
    assert_eq!(names_in("A".repeat(64).as_bytes()).count() + names_in("a".repeat(63).as_bytes()).count(), 0);
}

fn lying(letter: char, since: u64) -> Holding {
    let name = letter.to_string().repeat(64);
    let item = HouseItem::Blob { name: name.clone() };
    Holding { item, label: name, bytes: 1, since: Timestamp(since), kept: None }
}

proptest! {
    /// By the rules alone, whatever lies where.
    #[test]
    fn nothing_that_is_named_or_fresh_goes_and_all_else_does(
        found in prop::collection::vec((0_u32..8, 0_u64..100), 0..20),
        known in prop::collection::btree_set(0_u32..8, 0..4),
        stored in prop::collection::btree_set(0_u32..8, 0..4),
        grace_ms in 0_u64..100,
    ) {
        let letter = |n: u32| char::from_digit(n, 16).unwrap();
        let set = |names: &BTreeSet<u32>| names.iter().map(|n| letter(*n).to_string().repeat(64)).collect::<BTreeSet<_>>();
        let things: Vec<Holding> = found.iter().map(|(n, since)| lying(letter(*n), *since)).collect();
        let judged = judge(things, &set(&known), &set(&stored), Timestamp(100), grace_ms);
        let wanted: Vec<(String, bool)> = found
            .iter()
            .filter(|(n, _)| !known.contains(n))
            .map(|(n, since)| (letter(*n).to_string().repeat(64), !stored.contains(n) && since + grace_ms <= 100))
            .collect();
        let goes: Vec<(String, bool)> = judged.into_iter().map(|one| (one.label, one.kept.is_none())).collect();
        prop_assert_eq!(goes, wanted);
    }
}
