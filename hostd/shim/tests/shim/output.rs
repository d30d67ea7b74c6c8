//! `out.raw` holds every byte, in order, whatever the program, the viewers and the disk do.

use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use protocol::shim::{Event, Request};

use crate::support::{Agent, is_root, shell, wait_until};

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn sixty_four_mebibytes_come_through_byte_for_byte() {
    let bytes = random(64 << 20);
    let mut agent = Agent::new();
    std::fs::write(agent.path("data"), &bytes).unwrap();
    agent.start(&shell("stty raw -echo; exec cat data"));
    assert_eq!(agent.ended().code, Some(0));
    assert!(agent.output() == bytes);
}

#[test]
fn what_a_program_prints_before_an_immediate_exit_is_complete() {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < 200 {
                    let (agent, record) = Agent::run(&shell("stty -onlcr; seq 1 3000; exit 7"));
                    let expected: String = (1..=3000).map(|n| format!("{n}\n")).collect();
                    assert_eq!(record.code, Some(7));
                    assert!(agent.output() == expected.as_bytes());
                }
            });
        }
    });
}

#[test]
fn a_program_that_leaves_its_terminal_and_returns_is_heard() {
    let script = "exec </dev/null >/dev/null 2>&1; sleep 0.1; echo back >/dev/tty; exit 2";
    let (agent, record) = Agent::run(&shell(script));
    assert_eq!(record.code, Some(2));
    assert_eq!(agent.output(), b"back\r\n");
}

#[test]
fn earlier_output_is_appended_to() {
    let mut agent = Agent::new();
    std::fs::write(agent.path("out.raw"), "before\n").unwrap();
    agent.start(&shell("echo after"));
    assert_eq!(agent.ended().out_len, 14);
    assert_eq!(agent.output(), b"before\nafter\r\n");
}

/// A mounted folder of limited size.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        disk.mount(MsFlags::empty(), "size=1m");
        disk
    }

    fn mount(&self, flags: MsFlags, size: &str) {
        mount(Some("tmpfs"), self.0.path(), Some("tmpfs"), flags, Some(size)).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_makes_the_program_wait_and_loses_nothing() {
    if !is_root("a small disk") {
        return;
    }
    let bytes = random(3 << 20);
    let elsewhere = tempfile::tempdir().unwrap();
    let data = elsewhere.path().join("data");
    std::fs::write(&data, &bytes).unwrap();
    let disk = SmallDisk::new();
    let mut agent = Agent::within(disk.0.path());
    agent.start(&shell(&format!("stty raw -echo; cat {}; exit 6", data.display())));
    let mut connection = agent.connect();
    connection.ask(&Request::Watch);
    let Some(Event::Degraded { what }) = connection.event() else { panic!("no event") };
    assert!(what[0].contains("No space left"), "{what:?}");
    let status = connection.status();
    assert!(status.child_alive && status.out_len < 1 << 20, "{status:?}");
    disk.mount(MsFlags::MS_REMOUNT, "size=16m");
    wait_until("it is mended", || connection.status().degraded.is_empty());
    connection.read_to_end();
    assert_eq!(agent.ended().code, Some(6));
    assert!(agent.output() == bytes);
}

#[test]
fn every_byte_stays_at_its_place_when_the_file_is_cut_short_or_taken_away() {
    let wait = |name: &str| format!("while ! [ -e {name} ]; do sleep 0.02; done; echo {name}");
    let script = format!("stty -onlcr; seq 1000 1999; {}; {}; {}", wait("cut"), wait("gone"), wait("end"));
    let mut agent = Agent::started(&shell(&script));
    agent.wait_for_output("1999\n");
    let file = agent.path("out.raw");
    std::fs::File::options().write(true).open(&file).unwrap().set_len(1_000).unwrap();
    std::fs::write(agent.path("cut"), "").unwrap();
    wait_until("it goes on after the cut", || agent.output().ends_with(b"cut\n"));
    let after = agent.output();
    assert_eq!(after.len(), 5_004);
    let told = String::from_utf8_lossy(&after);
    assert!(
        told.starts_with("1000\n") && told.contains("[4000 bytes of this transcript were removed"),
        "{told}"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::write(agent.path("gone"), "").unwrap();
    wait_until("it is put back", || file.exists() && agent.output().ends_with(b"cut\ngone\n"));
    assert_eq!(agent.output().get(..5_004).unwrap(), after);
    let degraded = agent.connect().status().degraded.join("; ");
    assert!(degraded.contains("removed by someone") && degraded.contains("put back"), "{degraded}");
    std::fs::write(agent.path("end"), "").unwrap();
    assert_eq!(agent.ended().out_len, 5_004 + 9);
}
