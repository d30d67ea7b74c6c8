//! Transcripts, programs beside agents, events.

use std::time::Duration;

use protocol::agent::Environment;
use protocol::api::{Action, Item, LogStart, Query, Reply, Until};
use protocol::error::ErrorCode;
use protocol::event::Fact;
use protocol::order::OutputStream;
use protocol::transcript::Chunk;

use super::server::within;
use super::world::World;

fn logs(from: LogStart, follow: bool) -> Query {
    Query::Logs { target: "one".to_owned(), from, follow, redact: false }
}

fn joined(items: &[Item]) -> (u64, Vec<u8>) {
    let mut start = None;
    let mut bytes = Vec::new();
    for item in items {
        let Item::Log { offset, bytes: piece } = item else { panic!("{item:?}") };
        let start = *start.get_or_insert(*offset);
        assert_eq!(start + u64::try_from(bytes.len()).unwrap(), *offset, "no hole and nothing twice");
        bytes.extend_from_slice(piece);
    }
    (start.unwrap_or(0), bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_is_read_from_its_host_whole_from_an_offset_and_by_its_last_lines() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    let text: Vec<u8> = (0..300_000).flat_map(|line| format!("{line}\n").into_bytes()).collect();
    world.host.print(agent, &text, false).await;
    let (items, end) = client.whole(&logs(LogStart::Offset(0), false)).await;
    assert_eq!(end, Ok(Reply::Done));
    assert!(joined(&items) == (0, text.clone()), "byte for byte, in more than one piece");
    let (items, _) = client.whole(&logs(LogStart::Offset(1_000_000), false)).await;
    assert!(joined(&items) == (1_000_000, text[1_000_000..].to_vec()));
    let (items, _) = client.whole(&logs(LogStart::Tail(20_000), false)).await;
    let tail = joined(&items).1;
    assert!(tail.starts_with(b"280000\n") && text.ends_with(&tail));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_is_read_from_the_bus_when_its_host_does_not_answer() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    let chunk = |offset: u64, bytes: &[u8]| Chunk {
        epoch: "e".repeat(32),
        offset,
        bytes: bytes.to_vec(),
        last: false,
    };
    // Cut anew after a crash: the second and third chunk repeat what the first one has; then a hole.
    for piece in [chunk(0, b"abcdef"), chunk(0, b"abc"), chunk(3, b"defghi"), chunk(12, b"mno\npq\n")] {
        world.host.ship(agent, piece).await;
    }
    world.host.set_deaf(true);
    let (items, end) = client.whole(&logs(LogStart::Offset(0), false)).await;
    assert_eq!(end, Ok(Reply::Done));
    let pieces: Vec<(u64, &[u8])> = items
        .iter()
        .map(|item| match item {
            Item::Log { offset, bytes } => (*offset, bytes.as_slice()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pieces, [(0, b"abcdefghi".as_slice()), (12, b"mno\npq\n".as_slice())]);
    let (items, _) = client.whole(&logs(LogStart::Offset(5), false)).await;
    assert!(matches!(&items[0], Item::Log { offset: 5, bytes } if bytes == b"fghi"));
    let (items, _) = client.whole(&logs(LogStart::Tail(1), false)).await;
    assert_eq!(joined(&items), (16, b"pq\n".to_vec()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_transcript_shows_each_byte_once_and_ends_with_its_agent() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    world.host.print(agent, b"before\n", false).await;
    client.send(&logs(LogStart::Offset(0), true)).await;
    let first = client.next().await.unwrap_err();
    assert!(matches!(&first, Item::Log { offset: 0, bytes } if bytes == b"before\n"));
    let mut items = vec![first];
    let mut expected = b"before\n".to_vec();
    for number in 0..50 {
        let line = format!("line {number}\n");
        expected.extend_from_slice(line.as_bytes());
        // Every third is lost on the way: it must be read once the next one shows the hole.
        world.host.print(agent, line.as_bytes(), number % 3 != 0).await;
    }
    world.host.end(agent).await;
    let end = loop {
        match client.next().await {
            Err(item) => items.push(item),
            Ok(end) => break end,
        }
    };
    assert_eq!(end, Ok(Reply::Done));
    assert_eq!(joined(&items), (0, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_slowly_gets_each_byte_once_too() {
    let world = World::start().await;
    let mut client = world.client().await;
    let agent = client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    client.send(&logs(LogStart::Offset(0), true)).await;
    // More than the frames and the socket's buffers hold, while nobody reads.
    let mut expected = Vec::new();
    for number in 0..200_u8 {
        let block = vec![number; 40_000];
        world.host.print(agent, &block, true).await;
        expected.extend_from_slice(&block);
    }
    world.host.end(agent).await;
    let mut items = Vec::new();
    let end = loop {
        match client.next().await {
            Err(item) => items.push(item),
            Ok(end) => break end,
        }
    };
    assert_eq!(end, Ok(Reply::Done));
    assert!(joined(&items) == (0, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_blotted_out_also_where_what_is_shown_begins_within_it() {
    let world = World::start().await;
    let mut client = world.client().await;
    let sealed = super::client::create("k1", "one", &[("KEY", "first-line\nsecond-line\n")]);
    let Ok(Reply::Accepted { agent }) = client.ask(sealed).await else { panic!("accepted") };
    client.wait("one", Until::Started).await;
    world.host.print(agent, b"before\r\nfirst-line\r\nsecond-line\r\nafter\r\n", false).await;
    for (from, wanted) in [
        (LogStart::Offset(0), (0, &b"before\r\n[redacted]***************after\r\n"[..])),
        (LogStart::Offset(22), (22, &b"***********after\r\n"[..])),
        (LogStart::Tail(2), (20, &b"*************after\r\n"[..])),
        (LogStart::Offset(33), (33, &b"after\r\n"[..])),
    ] {
        let request = Query::Logs { target: "one".to_owned(), from, follow: false, redact: true };
        let (items, end) = client.whole(&request).await;
        assert_eq!(end, Ok(Reply::Done));
        let (at, bytes) = joined(&items);
        assert_eq!((at, String::from_utf8(bytes).unwrap().as_bytes()), wanted, "{from:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_beside_an_agent_gives_all_of_its_output_then_its_code() {
    let world = World::start().await;
    let mut client = world.client().await;
    client.create("k1", "one").await.unwrap();
    client.wait("one", Until::Started).await;
    let exec = |target: &str| Action::Exec {
        target: target.to_owned(),
        program: vec!["git".to_owned(), "status".to_owned()],
        environment: Environment::default(),
        stdin: b"input".to_vec(),
    };
    let (items, end) = client.whole(&exec("one")).await;
    assert_eq!(end, Ok(Reply::Exited { code: Some(3), signal: None }));
    let output = |stream, bytes: &[u8]| Item::Output { stream, bytes: bytes.to_vec() };
    assert_eq!(
        items,
        [
            output(OutputStream::Stdout, b"git status"),
            output(OutputStream::Stderr, b"err"),
            output(OutputStream::Stdout, b"input"),
        ]
    );
    assert_eq!(client.ask(exec("nobody")).await.unwrap_err().code, ErrorCode::NotFound);
    let resolve = Query::ResolveRepo { repo: "/r".to_owned(), base: None };
    assert!(matches!(client.ask(resolve).await, Ok(Reply::Resolved(base)) if base.repo == "/r"));
    world.host.set_deaf(true);
    let resolve = Query::ResolveRepo { repo: "/r".to_owned(), base: None };
    let limit = tokio::time::timeout(Duration::from_millis(100), client.ask(resolve)).await;
    assert!(limit.is_err(), "a silent host is waited for, not taken for an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_shown_since_a_time_and_followed() {
    let world = World::start().await;
    let open = world.server.open().await;
    let mut client = world.client().await;
    let mut put = 0;
    let mut event = |at: u64| {
        put += 1;
        let event = protocol::event::Event {
            at: protocol::time::Timestamp(at),
            epoch: "a".repeat(32),
            seq: put,
            region: "hub".parse().unwrap(),
            host: None,
            name: "x".to_owned(),
            fact: Fact::HostStarted { incarnation: put },
            cursor: None,
        };
        let frame = protocol::codec::Frame::of(protocol::event::Event::KIND, "", &event).unwrap();
        (format!("id-{put}"), bytes::Bytes::from(frame.encode().unwrap()))
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = u64::try_from(now.as_millis()).unwrap();
    for at in [now - 1_000, now] {
        let (id, bytes) = event(at);
        open.store.append_event("ev.hub.h1.host", &id, bytes.clone()).await.unwrap();
        open.store.append_event("ev.hub.h1.host", &format!("again-{id}"), bytes).await.unwrap();
    }
    let ask = |since: Option<u64>, follow| Query::Events {
        since: since.map(protocol::time::Timestamp),
        follow,
        targets: Vec::new(),
        after: None,
    };
    let number = |item: &Item| match item {
        Item::Event(event) => event.seq,
        other => panic!("{other:?}"),
    };
    let (items, end) = client.whole(&ask(None, false)).await;
    assert_eq!((items.iter().map(number).collect::<Vec<_>>(), end), (vec![1, 2], Ok(Reply::Done)));
    let (items, _) = client.whole(&ask(Some(now), false)).await;
    assert_eq!(items.iter().map(number).collect::<Vec<_>>(), [2]);
    client.send(&ask(Some(now), true)).await;
    assert_eq!(number(&client.next().await.unwrap_err()), 2);
    let (id, bytes) = event(now + 1);
    open.store.append_event("ev.hub.h1.host", &id, bytes).await.unwrap();
    assert_eq!(number(&client.next().await.unwrap_err()), 3);
    within(Duration::from_secs(5), "status answers beside it", async || {
        let mut other = world.client().await;
        other.ask(Query::Status).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trimmed_range_of_events_reads_as_a_gap() {
    let world = World::start().await;
    let open = world.server.open().await;
    let mut client = world.client().await;
    let mut next = 0;
    let mut put = async || {
        next += 1;
        let event = protocol::event::Event {
            at: protocol::time::Timestamp(next),
            epoch: "a".repeat(32),
            seq: next,
            region: "hub".parse().unwrap(),
            host: None,
            name: String::new(),
            fact: Fact::HostStarted { incarnation: next },
            cursor: None,
        };
        let frame = protocol::codec::Frame::of(protocol::event::Event::KIND, "", &event).unwrap();
        let bytes = bytes::Bytes::from(frame.encode().unwrap());
        open.store.append_event("ev.hub.h1.host", &format!("id-{next}"), bytes).await.unwrap();
    };
    for _ in 0..6 {
        put().await;
    }
    let ask = |after: Option<&str>| Query::Events {
        since: None,
        follow: false,
        targets: Vec::new(),
        after: after.map(str::to_owned),
    };
    let told = |items: &[Item]| -> Vec<(String, String)> {
        let one = |item: &Item| match item {
            Item::Event(event) => (
                match event.fact {
                    Fact::Gap { missing } => format!("gap {missing:?}"),
                    _ => event.seq.to_string(),
                },
                event.cursor.clone().unwrap(),
            ),
            other => panic!("{other:?}"),
        };
        items.iter().map(one).collect()
    };
    let words = |told: &[(String, String)]| told.iter().map(|(word, _)| word.clone()).collect::<Vec<_>>();
    let whole = told(&client.whole(&ask(None)).await.0);
    assert_eq!(words(&whole), ["1", "2", "3", "4", "5", "6"]);
    let cursor = &whole[1].1;

    let jetstream = async_nats::jetstream::new(open.store.client().clone());
    let stream = jetstream.get_stream("EV").await.unwrap();
    stream.purge().sequence(5).await.unwrap();
    let rest = told(&client.whole(&ask(Some(cursor))).await.0);
    assert_eq!(words(&rest), ["gap Some(2)", "5", "6"]);
    let again = told(&client.whole(&ask(Some(&rest[0].1))).await.0);
    assert_eq!(words(&again), ["5", "6"], "a gap is told once");
    let kept = told(&client.whole(&ask(Some(&whole[3].1))).await.0);
    assert_eq!(words(&kept), ["5", "6"], "nothing is missing after what was read");

    stream.purge().await.unwrap();
    let rest = told(&client.whole(&ask(Some(cursor))).await.0);
    assert_eq!(words(&rest), ["gap Some(4)"], "also where nothing follows it");
    put().await;
    let rest = told(&client.whole(&ask(Some(&rest[0].1))).await.0);
    assert_eq!(words(&rest), ["7"]);
}
