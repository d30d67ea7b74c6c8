//! Killing the parts.

use std::time::{Duration, Instant};

use super::fleet::{Home, PARTS, wait_for};

#[test]
fn each_killed_component_is_back_within_two_seconds_and_the_others_stay() {
    let home = Home::new();
    home.up().unwrap();
    for part in ["nats-server", "hostd", "manager"] {
        let before = home.pids();
        let index = PARTS.iter().position(|name| *name == part).unwrap();
        let begun = Instant::now();
        home.kill(part);
        wait_for(
            Duration::from_secs(2),
            part,
            || home.pid(part),
            |pid| pid.is_some() && *pid != before[index],
        );
        if part == "nats-server" {
            let port = home.port();
            let connect = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
            wait_for(Duration::from_secs(2), "the bus answers", connect, |up| *up);
        }
        eprintln!("{part} back after {:?}", begun.elapsed());
        let after = home.pids();
        for (other, name) in PARTS.iter().enumerate().filter(|(other, _)| *other != index) {
            assert_eq!(after[other], before[other], "{name} changed when {part} was killed");
        }
    }
}

#[test]
fn everything_killed_at_once_comes_back_with_up() {
    let home = Home::new();
    home.up().unwrap();
    let before = home.pids();
    for part in PARTS {
        home.kill(part);
    }
    home.up().unwrap();
    let after = home.pids();
    assert!(
        after.iter().zip(&before).all(|(now, then)| now.is_some() && now != then),
        "{before:?} {after:?}"
    );
}

#[test]
fn up_while_the_manager_is_being_restarted_waits_for_it() {
    let home = Home::new();
    home.up().unwrap();
    home.kill("manager");
    home.up().unwrap();
    assert!(manager_installation::start::is_up(&home.layout));
}
