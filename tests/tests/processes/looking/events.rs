//! Events with their places: gone on after exactly, over restarts of the manager and the bus.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_tests::install::{Install, Ran};
use phalanx_tests::wait;
use serde_json::Value;

fn lines(ran: &Ran) -> Vec<Value> {
    ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_go_on_after_a_cursor_over_restarts_of_manager_and_bus() {
    let install = Install::start();
    install.try_create("one", &[], &["exit", "3"]).ended_with(1);
    install.agent_until("one", "ends", |agent| agent.phase.is_ended());
    let all = || lines(&install.run(&["events", "-o", "jsonl"]).succeeded());
    let before = wait::until(wait::LIMIT, "its end is told", all, |lines| {
        lines.iter().any(|line| line["fact"]["end"]["code"] == 3)
    });
    let cursors: Vec<String> =
        before.iter().map(|line| line["cursor"].as_str().unwrap().to_owned()).collect();
    let after =
        |cursor: &str| lines(&install.run(&["events", "-o", "jsonl", "--cursor", cursor]).succeeded());
    for (place, cursor) in cursors.iter().enumerate() {
        assert_eq!(after(cursor), before[place + 1..], "after {cursor}");
    }

    // One follows all the while, from the middle on.
    let out = std::fs::File::create(install.path("followed")).unwrap();
    let mut command = install.command(&["events", "-f", "-o", "jsonl", "--cursor", &cursors[1]]);
    let mut following = command.stdout(out).spawn().unwrap();
    let followed = || -> Vec<Value> {
        install.lines("followed").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait::until(wait::LIMIT, "what was before", followed, |lines| lines.len() == before.len() - 2);
    for part in ["manager", "nats-server", "manager"] {
        install.kill(part);
        install.settled();
        install.create(&format!("after-{part}"), &[], &["exit", "0"]);
        install.agent_until(&format!("after-{part}"), "ends", |agent| agent.phase.is_ended());
        install.run(&["destroy", &format!("after-{part}")]).succeeded();
    }
    let destroyed =
        |lines: &[Value]| lines.iter().filter(|line| line["fact"]["kind"] == "agent-destroyed").count();
    let whole = wait::until(wait::LIMIT, "all are told", all, |lines| destroyed(lines) == 3);
    wait::until(wait::LIMIT, "all are followed", followed, |lines| destroyed(lines) == 3);
    assert_eq!(followed(), whole[2..], "each once, in order");
    assert_eq!(after(&cursors[1]), whole[2..]);
    kill(Pid::from_raw(following.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(following.wait().unwrap().code(), Some(130));

    // Of a stream that was made anew nothing is known of what followed.
    let (_, sequence) = cursors[1].split_once('-').unwrap();
    let other = after(&format!("1-{sequence}"));
    assert_eq!(other[0]["fact"]["kind"], "gap");
    assert_eq!(other[1..], whole);
    let wrong = install.run(&["events", "--cursor", "nonsense"]).ended_with(2);
    assert!(wrong.stderr.contains("nonsense"), "{}", wrong.stderr);
    install.run(&["events", "--cursor", &cursors[0], "--since", "1h"]).ended_with(2);
}
