//! What a long list costs on its way from the manager to a person: no process, no socket, only the writing and reading.

use std::time::{Duration, Instant};

use protocol::agent::Phase;
use protocol::api::{AgentView, Reply};
use protocol::codec::{Frame, Joiner, from_bytes, read_frame, to_bytes, write_frame};
use protocol::row::AgentRow;

use super::samples::{self, AT, agents, clients};

/// Writing, the way through frames, reading: the best of some rounds, since the machine does other things too.
fn best_of_rounds(reply: &Reply) -> (usize, [Duration; 3]) {
    let mut best = [Duration::MAX; 3];
    let mut bytes = 0;
    for _ in 0..5 {
        let begun = Instant::now();
        let body = to_bytes(reply).unwrap();
        let written = begun.elapsed();
        let mut stream = Vec::new();
        write_frame(&mut stream, Frame::new("reply", "7", body)).unwrap();
        let (mut reader, mut joiner, mut whole) = (stream.as_slice(), Joiner::default(), None);
        while let Some(frame) = read_frame(&mut reader).unwrap() {
            whole = joiner.push(frame).unwrap();
        }
        let whole = whole.unwrap();
        let joined = begun.elapsed();
        let read: Reply = from_bytes(&whole.body).unwrap();
        let took = begun.elapsed();
        assert_eq!(read, *reply);
        bytes = whole.body.len();
        for (best, took) in best.iter_mut().zip([written, joined - written, took - joined]) {
            *best = took.min(*best);
        }
    }
    (bytes, best)
}

#[test]
fn a_list_of_a_thousand_agents_is_written_and_read_in_no_time() {
    let mut live = samples::agents::least_report();
    live.phase = Phase::Running;
    let plain = AgentView { spec: agents::least_spec(), report: Some(live), ..clients::agent_view() };
    let row = AgentRow::of(&plain);
    let lists = [
        ("rows of", Reply::Rows { rows: vec![row; 1_000], as_of: AT }),
        ("plain", Reply::Agents { agents: vec![plain; 1_000], as_of: AT }),
        ("full", Reply::Agents { agents: vec![clients::agent_view(); 1_000], as_of: AT }),
    ];
    let mut sizes = Vec::new();
    for (which, reply) in lists {
        let (bytes, [written, framed, read]) = best_of_rounds(&reply);
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let size = bytes >> 10;
        eprintln!(
            "1,000 {which} agents, {size} KiB, {build}: written {written:?}, framed {framed:?}, read {read:?}"
        );
        // Far above what it takes, for machines that do much else; a step that is not linear takes longer.
        assert!(written + framed + read < Duration::from_secs(5), "{which}");
        sizes.push(bytes);
    }
    // A list is made of rows since whole views cost several times as much.
    assert!(sizes[0] * 3 < sizes[1], "{sizes:?}");
}
