//! One message or more of every type that crosses the wire. What is in them is fixed: it was released.

pub(crate) mod agents;
pub(crate) mod clients;
pub(crate) mod hosts;
pub(crate) mod looking;
pub(crate) mod merges;
pub(crate) mod messages;
pub(crate) mod screens;
pub(crate) mod tasks;

use protocol::codec::{Frame, Hello};
use protocol::ids::{AgentId, HostId, Region, RunId, TaskId};
use protocol::time::Timestamp;

use super::rules::Sample;

pub(crate) const AT: Timestamp = Timestamp(1_700_000_000_000);
pub(crate) const COMMIT: &str = "2222222222222222222222222222222222222222";
pub(crate) const BASE: &str = "1111111111111111111111111111111111111111";

pub(crate) fn text(word: &str) -> String {
    word.to_owned()
}

pub(crate) fn texts(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| text(word)).collect()
}

pub(crate) fn agent_id() -> AgentId {
    AgentId::from_parts(AT.0, 0xa)
}

pub(crate) fn run_id() -> RunId {
    RunId::from_parts(AT.0, 0xb)
}

pub(crate) fn task_id() -> TaskId {
    TaskId::from_parts(AT.0, 0xc)
}

pub(crate) fn host() -> HostId {
    "db-01".parse().unwrap()
}

pub(crate) fn region() -> Region {
    "hub".parse().unwrap()
}

pub(crate) fn all() -> Vec<Sample> {
    let frame = Frame {
        key_id: text("OA1"),
        sig: vec![0, 1, 0xff],
        ..Frame::new("order", "0123456789abcdefghijklmnop", vec![0x81, 0xa1, 0x61, 0x01])
    };
    let mut all = vec![
        Sample::of("frame", frame),
        Sample::of("frame-unsigned", Frame::new("report", "", vec![0xc0])),
        Sample::of("hello", Hello { versions: vec![1, 2], build: text("0.1.0+abc") }),
    ];
    all.extend(agents::all());
    all.extend(hosts::all());
    all.extend(tasks::all());
    all.extend(merges::all());
    all.extend(clients::all());
    all.extend(looking::all());
    all.extend(screens::all());
    all.extend(messages::all());
    all
}
