//! Starting and stopping the whole.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use manager_installation::nats::port;
use manager_installation::start::{UpOutcome, is_up};
use manager_installation::status::{self, PartState};
use manager_installation::stop::{self, How};
use manager_installation::supervisor::board::{ComponentState, State, Status};
use manager_installation::supervisor::{self, Alive};
use manager_installation::{host_setup, lock};

use super::fleet::{Home, PARTS, wait_for};

#[test]
fn up_starts_everything_from_nothing_and_again_does_nothing() {
    let home = Home::new();
    let first = home.up().unwrap();
    assert_eq!(first.outcome, UpOutcome::Started);
    eprintln!("up from nothing: {:?}", first.took);
    let pids = home.pids();
    assert!(pids.iter().all(Option::is_some), "{pids:?}");
    let again = home.up().unwrap();
    assert_eq!(again.outcome, UpOutcome::AlreadyUp);
    eprintln!("up again: {:?}", again.took);
    assert_eq!(home.pids(), pids);
    let status = Status::read(&home.layout.status_file()).unwrap();
    assert_eq!(status.state, State::Up);
    assert!(status.components.iter().all(|part| part.state == ComponentState::Running), "{status:?}");
    let config = host_setup::read_config(&home.layout.host_config()).unwrap();
    assert_eq!(config.bus.url, port::url(home.port()));
    assert!(config.bus.credentials.is_file());
    assert_eq!(config.supervisor.lock, home.layout.lock("supervisor"));
    let parent = std::fs::read_to_string(format!("/proc/{}/stat", pids[0].unwrap())).unwrap();
    let ppid: u32 = parent.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_ne!(ppid, std::process::id(), "the supervisor is nobody's child");
}

#[test]
fn twenty_callers_at_once_start_one_of_each() {
    let home = Home::new();
    let outcomes: Vec<UpOutcome> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..20).map(|_| scope.spawn(|| home.up().unwrap().outcome)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == UpOutcome::Started).count(), 1, "{outcomes:?}");
    let started = home.log("supervisor").matches("component started").count();
    assert_eq!(started, 3, "{}", home.log("supervisor"));
    assert_eq!(home.pids().into_iter().flatten().collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn down_ends_all_and_nothing_brings_it_back_until_up() {
    let home = Home::new();
    home.up().unwrap();
    let report = stop::down(&home.layout).unwrap();
    assert_eq!(report.ended.len(), 4, "{report:?}");
    assert!(report.ended.iter().all(|ended| ended.how == How::Asked), "{report:?}");
    assert_eq!(home.pids(), [None; 4]);
    assert!(!is_up(&home.layout));
    let command = home.options().supervise;
    assert_eq!(supervisor::ensure_alive(&home.layout, &command).unwrap(), Alive::StoppedOnPurpose);
    assert!(status::facts(&home.layout).stopped_on_purpose);
    assert!(stop::down(&home.layout).unwrap().ended.is_empty(), "stopping twice is no error");
    home.up().unwrap();
    assert!(home.pids().iter().all(Option::is_some));
}

#[test]
fn down_without_a_home_makes_none() {
    let home = Home::new();
    assert!(stop::down(&home.layout).unwrap().ended.is_empty());
    assert!(!home.layout.home().exists());
    assert!(status::facts(&home.layout).parts.iter().all(|part| part.state == PartState::NotRunning));
}

#[test]
fn a_second_start_keeps_keys_port_and_configuration() {
    let home = Home::new();
    home.up().unwrap();
    let files = ["bus/nats-server.conf", "bus/port", "bus/max_file", "bus/jwt/fleet.jwt", "host/hostd.creds"];
    let read = || files.map(|file| std::fs::read(home.layout.home().join(file)).unwrap());
    let inode = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(home.layout.nats_conf()).unwrap().ino()
    };
    let (before, written) = (read(), inode());
    stop::down(&home.layout).unwrap();
    home.up().unwrap();
    assert_eq!(read(), before);
    assert_eq!(inode(), written, "an equal configuration is not rewritten");
}

#[test]
fn a_port_that_another_took_is_changed_for_all() {
    let home = Home::new();
    home.up().unwrap();
    let old = home.port();
    stop::down(&home.layout).unwrap();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", old)).unwrap();
    home.up().unwrap();
    assert_ne!(home.port(), old);
    let config = host_setup::read_config(&home.layout.host_config()).unwrap();
    assert_eq!(config.bus.url, port::url(home.port()));
}

#[test]
fn the_fast_path_takes_less_than_a_millisecond() {
    let home = Home::new();
    home.up().unwrap();
    // The least of some: another process may have taken the machine for a moment.
    let least = (0..200)
        .map(|_| {
            let begun = Instant::now();
            assert!(is_up(&home.layout));
            begun.elapsed()
        })
        .min()
        .unwrap();
    eprintln!("fast path: {least:?}");
    assert!(least < Duration::from_millis(1), "{least:?}");
}

#[test]
fn a_home_with_a_very_long_path_works() {
    let mut home = Home::new();
    home.layout =
        manager_installation::Layout::at(home.layout.home().join("d".repeat(120)).join("e".repeat(60)))
            .unwrap();
    home.up().unwrap();
    assert!(is_up(&home.layout));
}

#[test]
fn a_killed_supervisor_is_brought_back_by_whoever_looks_and_adopts_all() {
    let home = Home::new();
    home.up().unwrap();
    let before = home.pids();
    home.kill("supervisor");
    assert_eq!(home.pids()[1..], before[1..], "its components do not notice");
    let command = home.options().supervise;
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| supervisor::ensure_alive(&home.layout, &command).unwrap());
        }
    });
    let running = |status: &Option<Status>| {
        status
            .as_ref()
            .is_some_and(|status| status.state == State::Up && Some(status.supervisor) != before[0])
    };
    let look = || Status::read(&home.layout.status_file());
    let status = wait_for(Duration::from_secs(5), "the new supervisor", look, running).unwrap();
    assert!(status.components.iter().all(|part| part.adopted), "{status:?}");
    assert_eq!(home.pids()[1..], before[1..]);
    assert_eq!(PARTS.len(), 4);
    // What was adopted is kept alive too.
    home.kill("hostd");
    wait_for(
        Duration::from_secs(2),
        "hostd",
        || home.pid("hostd"),
        |pid| pid.is_some_and(|pid| Some(pid) != before[2]),
    );
    assert!(lock::is_held(&home.layout.lock("nats-server")).unwrap());
}
