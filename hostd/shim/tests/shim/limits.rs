//! Wall time, lease, and a shim that is told to end.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use protocol::shim::{EndCause, Limit, RefusalReason, Reply, Request};

use crate::support::{Agent, alive, leaving, shell, wait_until};

const DEAF: &str =
    "trap '' TERM; setsid sh -c \"trap '' TERM; echo \\$\\$ >kid; while :; do sleep 60; done\" &
    while :; do sleep 60; done";

fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    u64::try_from(now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000).unwrap()
}

/// A program that heeds no SIGTERM, with a child of the same kind in another session: its number.
fn deaf() -> (Agent, i32) {
    let agent = Agent::started(&shell(DEAF));
    let read = || std::fs::read_to_string(agent.path("kid")).unwrap_or_default();
    wait_until("the child runs", || read().ends_with('\n'));
    let kid = read().trim().parse().unwrap();
    assert!(alive(kid));
    (agent, kid)
}

#[test]
fn wall_time_ends_a_deaf_program_and_its_children_in_other_sessions() {
    let (mut agent, kid) = deaf();
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.signal), (EndCause::WallTime, Some(9)));
    assert!(!alive(kid));
}

#[test]
fn a_wall_time_of_the_launch_is_kept_to() {
    let mut launch = shell("while :; do sleep 60; done");
    launch.wall_time_ms = Some(300);
    let start = Instant::now();
    let (_agent, record) = Agent::run(&launch);
    assert_eq!((record.cause, record.signal), (EndCause::WallTime, Some(15)));
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_limit_is_the_cause_even_when_the_program_then_exits_with_zero() {
    let mut launch = shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done");
    launch.grace_ms = 20_000;
    let mut agent = Agent::started(&launch);
    agent.wait_for_output("up");
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.code), (EndCause::WallTime, Some(0)));
}

#[test]
fn descendants_alone_are_ended_by_the_limit_too() {
    let mut agent = Agent::started(&leaving("trap \"\" TERM; while :; do sleep 60; done", 5));
    wait_until("the program has ended", || agent.exit().is_some());
    agent.reach_wall_time();
    let record = agent.ended();
    assert_eq!((record.cause, record.code), (EndCause::Exited, Some(5)));
    assert_eq!((record.descendants_left, record.descendants_ended_by), (true, Some(Limit::WallTime)));
}

#[test]
fn a_lease_is_renewed_forward_only_and_ends_the_program_when_it_is_not() {
    let mut launch = shell("while :; do sleep 60; done");
    let first = boottime_ms() + 60_000;
    launch.lease_deadline_boottime_ms = Some(first);
    let mut agent = Agent::started(&launch);
    let mut connection = agent.connect();
    let mut renew = |deadline| connection.ask(&Request::RenewLease { deadline_boottime_ms: deadline });
    assert_eq!(renew(first + 5), Reply::Done);
    assert_eq!(agent.record().lease_deadline_boottime_ms, Some(first + 5));
    let Reply::Refused(refusal) = renew(first) else { panic!("moved back") };
    assert_eq!(refusal.reason, RefusalReason::LeaseNotRenewable);
    assert_eq!(agent.record().lease_deadline_boottime_ms, Some(first + 5));
    agent.kill_shim();

    let start = Instant::now();
    launch.lease_deadline_boottime_ms = Some(boottime_ms() + 400);
    let (_agent, record) = Agent::run(&launch);
    assert_eq!((record.cause, record.signal), (EndCause::Lease, Some(15)));
    assert!(start.elapsed() >= Duration::from_millis(400));
}

#[test]
fn a_wall_time_can_be_given_and_taken_away_later() {
    let mut launch = shell("while :; do sleep 60; done");
    launch.wall_time_ms = Some(60_000);
    let mut agent = Agent::started(&launch);
    let mut connection = agent.connect();
    assert_eq!(connection.ask(&Request::SetWallTime { wall_time_ms: None }), Reply::Done);
    assert_eq!(agent.record().wall_time_ms, None);
    assert_eq!(connection.ask(&Request::SetWallTime { wall_time_ms: Some(1) }), Reply::Done);
    assert_eq!(agent.ended().cause, EndCause::WallTime);
}

#[test]
fn a_shim_told_to_end_ends_its_program_and_records_it() {
    let (mut agent, _) = deaf();
    kill(Pid::from_raw(agent.record().shim.pid), Signal::SIGTERM).unwrap();
    let record = agent.ended();
    assert_eq!((record.cause, record.signal), (EndCause::ShimTerminated, Some(9)));
}

#[test]
fn a_hang_up_or_interrupt_does_not_end_a_shim() {
    let mut agent = Agent::started(&shell("read line; exit 3"));
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGPIPE] {
        kill(Pid::from_raw(agent.record().shim.pid), signal).unwrap();
    }
    let mut connection = agent.connect();
    assert!(connection.status().child_alive);
    connection.attach(24, 80);
    connection.input(b"\r");
    assert_eq!(agent.ended().code, Some(3));
}
