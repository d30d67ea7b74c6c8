//! Broken and hostile bytes: bits that flipped, messages that were cut or joined wrongly, lengths that promise
//! gigabytes. Whatever comes, a decoder answers, with an error that says what is wrong, and takes no more memory than
//! a small multiple of what it was given.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use protocol::codec::{BODY_LIMIT, CodecError, Frame, Joiner, PART, read_frame, socket_bytes};

use super::rules::Sample;
use super::samples;

/// Headers of MessagePack that promise 4 GiB: bytes, text, a list, a map, an extension.
const HUGE: [[u8; 5]; 5] = [
    [0xc6, 0xff, 0xff, 0xff, 0xff],
    [0xdb, 0xff, 0xff, 0xff, 0xff],
    [0xdd, 0xff, 0xff, 0xff, 0xff],
    [0xdf, 0xff, 0xff, 0xff, 0xff],
    [0xc9, 0xff, 0xff, 0xff, 0xff],
];
/// A list whose length is only promised gets room for so much at first, whatever it promises.
const ROOM: usize = 2 << 20;

/// Remembers the largest piece of memory that this thread asked for.
struct Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    // A thread that ends has no more such cells, and is not looked at.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; this one hands every call on unchanged")]
// SAFETY: all calls go to the system's allocator with the caller's own arguments; `note` allocates nothing.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: `memory` came from `System` with this layout.
        unsafe { System.realloc(memory, layout, bytes) }
    }
}

#[global_allocator]
static WATCHING: Watching = Watching;

/// The largest piece of memory that `act` asked for, and what it gave.
fn watched<T>(act: impl FnOnce() -> T) -> (usize, T) {
    LARGEST.with(|largest| largest.set(0));
    let result = act();
    (LARGEST.with(Cell::get), result)
}

/// One sample of each type.
fn types() -> Vec<Sample> {
    let mut seen = BTreeSet::new();
    samples::all().into_iter().filter(|sample| seen.insert(sample.type_name)).collect()
}

/// Reads as every type. What reads is written again and reads again; what does not says why.
fn survive(types: &[Sample], bytes: &[u8]) {
    for sample in types {
        let (largest, read) = watched(|| (sample.decode)(bytes));
        let bound = ROOM + bytes.len() * 16;
        assert!(largest <= bound, "{}: {largest} bytes at once for {} bytes", sample.name, bytes.len());
        match read {
            Ok((_, again)) => assert!((sample.decode)(&again).is_ok(), "{}", sample.name),
            Err(error) => assert!(error.contains(": ") || error.len() > 20, "{}: {error:?}", sample.name),
        }
    }
    let (largest, _) = watched(|| Frame::decode(bytes));
    assert!(largest <= ROOM + bytes.len() * 16);
    let mut stream = bytes;
    let (largest, read) = watched(|| read_frame(&mut stream));
    assert!(largest <= ROOM, "{largest} bytes for a frame of {}", bytes.len());
    if let Err(error) = read {
        assert!(!error.to_string().is_empty());
    }
}

#[derive(Clone, Debug)]
enum Change {
    Flip(Index, u8),
    Cut(Index),
    Remove(Index, u8),
    /// A piece of another message.
    Splice(Index, Index, Index, u8),
    Promise(Index, usize),
    Byte(Index, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<Index>;
    prop_oneof![
        4 => (at(), 0_u8..8).prop_map(|(at, bit)| Change::Flip(at, bit)),
        1 => at().prop_map(Change::Cut),
        2 => (at(), any::<u8>()).prop_map(|(at, count)| Change::Remove(at, count)),
        3 => (at(), at(), at(), any::<u8>()).prop_map(|(at, of, from, n)| Change::Splice(at, of, from, n)),
        2 => (at(), 0..HUGE.len()).prop_map(|(at, which)| Change::Promise(at, which)),
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
    ]
}

fn changed(samples: &[Sample], mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.is_empty() {
            break;
        }
        match change {
            Change::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Change::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Change::Remove(at, count) => {
                let at = at.index(bytes.len());
                let end = (at + usize::from(*count)).min(bytes.len());
                bytes.drain(at..end);
            }
            Change::Splice(at, of, from, count) => {
                let other = &of.get(samples).bytes;
                let from = from.index(other.len());
                let piece = &other[from..(from + usize::from(*count)).min(other.len())];
                let at = at.index(bytes.len());
                bytes.splice(at..at, piece.iter().copied());
            }
            Change::Promise(at, which) => {
                let at = at.index(bytes.len());
                bytes.splice(at..=at, HUGE[*which]);
            }
            Change::Byte(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_changed_message_is_read_or_refused_and_harms_nobody(
        which: Index, changes in prop::collection::vec(change(), 1..5)
    ) {
        let samples = samples::all();
        let bytes = changed(&samples, which.get(&samples).bytes.clone(), &changes);
        survive(&types(), &bytes);
    }

    #[test]
    fn a_changed_frame_is_read_or_refused_and_harms_nobody(
        which: Index, changes in prop::collection::vec(change(), 1..5)
    ) {
        let samples = samples::all();
        let frame = Frame::new("order", "7", which.get(&samples).bytes.clone());
        let bytes = changed(&samples, socket_bytes(&frame).unwrap(), &changes);
        let mut stream = bytes.as_slice();
        while let Ok(Some(frame)) = read_frame(&mut stream) {
            survive(&types(), &frame.body);
        }
    }

    #[test]
    fn parts_come_together_whole_or_not_at_all(
        parts in prop::collection::vec((0_u8..2, any::<bool>(), 0..40_usize), 0..40)
    ) {
        let mut joiner = Joiner::default();
        // What each id has sent since its last whole frame, as long as no other came between.
        let mut open: Option<(u8, Vec<u8>)> = None;
        for (id, last, length) in parts {
            let body = vec![id + b'a'; length];
            let kind = if last { "reply" } else { PART };
            let mut expected = match open.take() {
                Some((of, body)) if of == id => body,
                Some(_) | None => Vec::new(),
            };
            expected.extend_from_slice(&body);
            let joined = joiner.push(Frame::new(kind, &id.to_string(), body)).unwrap();
            if last {
                prop_assert_eq!(joined.map(|frame| frame.body), Some(expected));
            } else {
                prop_assert!(joined.is_none());
                open = Some((id, expected));
            }
        }
    }
}

#[test]
fn a_message_that_was_cut_is_an_error() {
    for sample in samples::all() {
        for end in 0..sample.bytes.len() {
            let read = (sample.decode)(&sample.bytes[..end]);
            assert!(read.is_err(), "{} cut at {end}", sample.name);
        }
    }
}

#[test]
fn a_promise_of_gigabytes_takes_no_memory_wherever_it_stands() {
    let types = types();
    for header in HUGE {
        survive(&types, &header);
        for sample in &types {
            for at in (0..sample.bytes.len()).step_by(5) {
                let mut bytes = sample.bytes.clone();
                bytes.splice(at..=at, header);
                let (largest, read) = watched(|| (sample.decode)(&bytes));
                assert!(largest <= ROOM + bytes.len() * 16, "{} at {at}: {largest} bytes", sample.name);
                drop(read);
            }
        }
    }
    let mut stream: &[u8] = &[0xff; 64];
    let (largest, read) = watched(|| read_frame(&mut stream));
    assert!(matches!(read, Err(CodecError::TooLarge { bytes: 0xffff_ffff, .. })), "{read:?}");
    assert!(largest < 4_096, "{largest} bytes");
}

#[test]
fn depth_without_end_is_an_error_and_not_a_full_stack() {
    let types = types();
    survive(&types, &vec![0x91; 200_000]);
    survive(&types, &[0x81, 0xa1, b'x'].repeat(100_000));
    for sample in &types {
        // Beneath a field that the reader skips.
        let mut bytes = [&[0x81, 0xa1, b'x'][..], &vec![0x91; 200_000]].concat();
        bytes.push(0xc0);
        assert!((sample.decode)(&bytes).is_err(), "{}", sample.name);
    }
}

/// The joiner keeps no more than a body may have, and after one that was too large nothing of it passes for a whole.
#[test]
fn a_body_over_the_limit_is_refused_to_its_end() {
    let mut joiner = Joiner::default();
    let piece = vec![0_u8; 16 << 20];
    for _ in 0..BODY_LIMIT / piece.len() {
        assert!(joiner.push(Frame::new(PART, "7", piece.clone())).unwrap().is_none());
    }
    let refused = |pushed: Result<Option<Frame>, CodecError>| {
        assert!(
            matches!(pushed, Err(CodecError::TooLarge { limit: BODY_LIMIT, .. })),
            "{:?}",
            pushed.is_ok()
        );
    };
    refused(joiner.push(Frame::new(PART, "7", vec![0])));
    refused(joiner.push(Frame::new(PART, "7", vec![0])));
    refused(joiner.push(Frame::new("reply", "7", vec![0])));
    // The next one has nothing to do with it, whatever its id.
    let next = joiner.push(Frame::new("reply", "7", vec![1])).unwrap();
    assert_eq!(next.map(|frame| frame.body), Some(vec![1]));
}
