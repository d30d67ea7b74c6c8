//! What a long list costs on its way from the manager to a person: no process, no socket, only the writing and reading.

use std::time::{Duration, Instant};

use protocol::api::{AgentView, Reply};
use protocol::codec::{Frame, Joiner, from_bytes, read_frame, to_bytes, write_frame};

use super::samples::{self, AT};

#[test]
fn a_list_of_a_thousand_agents_is_written_and_read_in_no_time() {
    let agents: Vec<AgentView> = vec![samples::clients::agent_view(); 1_000];
    let reply = Reply::Agents { agents, as_of: AT };
    let begun = Instant::now();
    let body = to_bytes(&reply).unwrap();
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
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    eprintln!(
        "1,000 full agents, {} KiB, {build}: written in {written:?}, through a socket's frames in {:?}, read in {:?}",
        whole.body.len() >> 10,
        joined - written,
        took - joined,
    );
    assert_eq!(read, reply);
    // Far above what it takes, for machines that do much else; a step that is not linear takes longer.
    assert!(took < Duration::from_secs(5), "{took:?}");
}
