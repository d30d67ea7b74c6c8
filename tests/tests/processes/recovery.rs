//! Each part may be killed at any moment: agents go on, nothing is lost, nothing runs twice.

use std::time::{Duration, Instant};

use phalanx_tests::bytes;
use phalanx_tests::install::{DAEMONS, Install, is_alive, kill_and_wait};
use phalanx_tests::wait;
use protocol::agent::{EndCause, Phase};

/// Within which everything answers again after a kill, on a machine that is busy with other tests.
const RECOVERY: Duration = Duration::from_secs(30);

/// Three agents that run: a quiet one, one that prints without end, one that ends when it is told to.
struct Fleet {
    install: Install,
    pids: Vec<u32>,
}

const NAMES: [&str; 3] = ["quiet", "loud", "told"];

impl Fleet {
    fn start() -> Self {
        let install = Install::start();
        let (starts, gate) = (install.text_path("starts"), install.text_path("gate"));
        install.create("quiet", &[], &["mark", &starts, "hang"]);
        install.create("loud", &[], &["mark", &starts, "raw", "lines", "1000000", "5"]);
        install.create("told", &[], &["mark", &starts, "await", &gate, "exit", "7"]);
        let pids = NAMES.map(|name| install.shim_and_child(install.agent(name).id).1).to_vec();
        Self { install, pids }
    }

    /// All run as before, in the same processes, and were started once.
    fn is_unhurt(&self) {
        for (name, pid) in NAMES.iter().zip(&self.pids) {
            let agent = self.install.agent(name);
            assert_eq!(agent.phase, Phase::Running, "{name}: {agent:?}");
            assert_eq!(self.install.shim_and_child(agent.id).1, *pid, "{name}");
            assert!(is_alive(*pid), "{name}");
        }
        let mut started = self.install.lines("starts");
        started.sort();
        let mut wanted: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        wanted.sort();
        assert_eq!(started, wanted, "each was started once");
    }

    /// What happens afterwards is seen: an end, and all that was printed.
    fn goes_on(&self) {
        self.install.file("gate", "");
        self.install.agent_until("told", "ends", |agent| agent.ending() == "CRASHED exited code 7");
        self.install.run(&["stop", "loud"]).succeeded();
        let printed = self.install.run(&["logs", "loud", "--raw"]).succeeded().stdout;
        let kept =
            std::fs::read(self.install.agent_folder(self.install.agent("loud").id).join("out.raw")).unwrap();
        assert!(printed == kept, "{} bytes of {}", printed.len(), kept.len());
        let text = String::from_utf8(printed).unwrap();
        for (number, line) in text.lines().enumerate() {
            let right = format!("line {:06}", number + 1);
            assert!(line == right || right.starts_with(line), "{line:?} is not {right:?}");
        }
    }
}

fn survives(what: &str, kill: impl Fn(&Install)) {
    let fleet = Fleet::start();
    kill(&fleet.install);
    let begun = Instant::now();
    fleet.install.settled();
    eprintln!("{what}: all answers again after {:?}", begun.elapsed());
    assert!(begun.elapsed() < RECOVERY, "{what}: {:?}", begun.elapsed());
    fleet.is_unhurt();
    // A second blow, in the middle of what the first one left.
    kill(&fleet.install);
    fleet.install.settled();
    fleet.is_unhurt();
    fleet.goes_on();
}

#[test]
fn agents_go_on_when_hostd_is_killed() {
    survives("hostd", |install| install.kill("hostd"));
}

#[test]
fn agents_go_on_when_the_manager_is_killed() {
    survives("manager", |install| install.kill("manager"));
}

#[test]
fn agents_go_on_when_the_bus_is_killed() {
    survives("nats-server", |install| install.kill("nats-server"));
}

#[test]
fn agents_go_on_when_the_supervisor_is_killed() {
    survives("supervisor", |install| install.kill("supervisor"));
}

#[test]
fn agents_go_on_when_everything_is_killed_at_once() {
    survives("all", |install| {
        for part in ["supervisor", "hostd", "manager", "nats-server"] {
            install.kill(part);
        }
        install.run(&["up"]).succeeded();
    });
}

#[test]
fn what_ends_while_nobody_looks_is_known_afterwards() {
    let fleet = Fleet::start();
    fleet.install.run(&["down"]).succeeded();
    fleet.install.file("gate", "");
    wait::until(wait::LIMIT, "it has ended", || is_alive(fleet.pids[2]), |alive| !alive);
    fleet.install.run(&["up"]).succeeded();
    fleet.install.agent_until("told", "ended", |agent| agent.ending() == "CRASHED exited code 7");
    assert!(is_alive(fleet.pids[0]) && is_alive(fleet.pids[1]));
    assert_eq!(fleet.install.lines("starts").len(), 3, "what ended is not started again");
}

#[test]
fn sessions_come_back_when_their_tmux_server_is_killed() {
    let fleet = Fleet::start();
    let session = |name: &str| fleet.install.agent(name).report().session.clone();
    for name in NAMES {
        let look = || session(name);
        wait::until(wait::LIMIT, &format!("a session for {name}"), look, Option::is_some);
    }
    let before = fleet.install.tmux_servers();
    assert!(!before.is_empty());
    for server in &before {
        kill_and_wait(*server);
    }
    let look = || {
        let viewers = fleet.install.traces().processes;
        let viewers = viewers.iter().filter(|found| found.command.contains(" attach ")).count();
        (fleet.install.tmux_servers(), viewers)
    };
    wait::until(wait::LIMIT, "a new server shows all three", look, |(servers, viewers)| {
        !servers.is_empty() && servers.iter().all(|server| !before.contains(server)) && *viewers == 3
    });
    fleet.is_unhurt();
    fleet.goes_on();
}

#[test]
fn a_killed_shim_costs_its_own_agent_only() {
    let fleet = Fleet::start();
    kill_and_wait(fleet.install.shim_and_child(fleet.install.agent("quiet").id).0);
    let quiet = fleet.install.agent_until("quiet", "is told as lost", |agent| agent.phase.is_ended());
    assert_eq!((quiet.phase, quiet.end.unwrap().cause), (Phase::Crashed, EndCause::SupervisorLost));
    assert!(!is_alive(fleet.pids[0]));
    assert!(is_alive(fleet.pids[1]) && is_alive(fleet.pids[2]));
    fleet.install.kill("hostd");
    fleet.install.settled();
    assert_eq!(fleet.install.agent("quiet").phase, Phase::Crashed);
    assert_eq!(fleet.install.lines("starts").len(), 3, "it is not started again");
    fleet.goes_on();
}

#[test]
fn a_shim_that_dies_while_hostd_is_dead_is_known_afterwards() {
    let fleet = Fleet::start();
    let (shim, child) = fleet.install.shim_and_child(fleet.install.agent("quiet").id);
    fleet.install.run(&["down"]).succeeded();
    kill_and_wait(shim);
    wait::until(wait::LIMIT, "the program dies with its shim", || is_alive(child), |alive| !alive);
    fleet.install.run(&["up"]).succeeded();
    fleet.install.agent_until("quiet", "lost", |agent| agent.ending() == "CRASHED supervisor-lost");
    fleet.goes_on();
}

/// A stopped agent never comes back by itself, whoever restarts.
#[test]
fn what_was_stopped_stays_stopped() {
    let fleet = Fleet::start();
    fleet.install.run(&["stop", "quiet"]).succeeded();
    for part in DAEMONS {
        fleet.install.kill(part);
        fleet.install.settled();
        assert_eq!(fleet.install.agent("quiet").ending(), "STOPPED requested signal 15", "after {part}");
    }
    assert!(!is_alive(fleet.pids[0]));
    assert_eq!(fleet.install.lines("starts").len(), 3);
}

#[test]
fn every_byte_that_was_printed_is_read_once_over_killed_parts() {
    let install = Install::start();
    let gate = install.text_path("gate");
    let length = 3_000_000;
    let mut steps: Vec<String> = vec!["raw".into()];
    for part in 0..4 {
        steps.extend([
            "bytes".into(),
            part.to_string(),
            length.to_string(),
            "tell".into(),
            gate.clone(),
            "x".into(),
        ]);
        steps.extend(["await".into(), install.text_path(&format!("go-{part}"))]);
    }
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    let agent = install.create("printer", &[], &steps);
    let follower = install.spawn(&["logs", "printer", "--raw", "-f"]);
    for (part, daemon) in ["hostd", "nats-server", "manager", "hostd"].into_iter().enumerate() {
        install.kill(daemon);
        let printed = || install.lines("gate").len();
        wait::until(wait::LIMIT, "a part is printed", printed, |printed| *printed > part);
        install.file(&format!("go-{part}"), "");
    }
    install.settled();
    install.agent_until("printer", "ends", |agent| agent.phase.is_ended());
    let whole: Vec<u8> = (0..4).flat_map(|part| bytes::of_seed(part, length)).collect();
    let read = install.run(&["logs", "printer", "--raw"]).succeeded().stdout;
    assert!(read == whole, "{} bytes, {} wanted", read.len(), whole.len());
    // Whoever followed either has all of it too, or was told that he has not.
    let followed = follower.end();
    let is_prefix = whole.starts_with(&followed.stdout);
    assert!(
        is_prefix && (followed.code != 0 || followed.stdout.len() == whole.len()),
        "{} bytes, {}",
        followed.stdout.len(),
        followed.stderr
    );
    install.run(&["destroy", "printer"]).succeeded();
    install.gone(agent.id);
    let read = install.run(&["logs", &agent.id.to_string(), "--raw"]).succeeded().stdout;
    assert!(read == whole, "after destroy: {} bytes", read.len());
}

/// A disk or a repository that hangs is somebody's trouble, not everybody's.
#[test]
fn the_heartbeat_depends_on_nothing_slow() {
    use std::os::unix::fs::PermissionsExt;
    let install = Install::new();
    let (hang, real) = (install.text_path("hang"), install.text_path("real-git"));
    let git = std::process::Command::new("sh").args(["-c", "command -v git"]).output().unwrap();
    std::os::unix::fs::symlink(String::from_utf8(git.stdout).unwrap().trim(), &real).unwrap();
    std::fs::create_dir(install.path("bin")).unwrap();
    let script = format!("#!/bin/sh\n[ -e {hang} ] && exec sleep 600\nexec {real} \"$@\"\n");
    let wrapper = install.file("bin/git", script);
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", install.text_path("bin"), std::env::var("PATH").unwrap());
    assert!(install.command(&["up"]).env("PATH", path).output().unwrap().status.success());
    let repo = install.repo("repo");
    let from = repo.path.to_str().unwrap().to_owned();
    // More than hostd makes at once: all its turns are taken by what hangs.
    let tasks: String = (0..20)
        .map(|number| format!("{{\"name\": \"t{number}\", \"command\": \"true\", \"allow_no_change\": true, \"repo\": {from:?}}}\n"))
        .collect();
    let file = install.file("tasks.jsonl", tasks);
    install.run(&["run", &file, "--detach", "--name", "hung"]).succeeded();
    install.file("hang", "");
    let _ = install.run(&["create", "stuck", "--repo", &from, "--no-wait", "--", "true"]);

    let seen = || {
        let hosts: Vec<protocol::api::HostView> =
            phalanx_tests::json::items(&install.run(&["hosts", "-o", "json"]).succeeded().stdout);
        (hosts[0].last_seen.0, hosts[0].reachability)
    };
    let mut beats = vec![seen().0];
    let begun = Instant::now();
    while beats.len() < 5 {
        let (beat, reachability) = seen();
        assert_eq!(reachability, protocol::api::Reachability::Fresh);
        if *beats.last().unwrap() != beat {
            beats.push(beat);
        }
        assert!(begun.elapsed() < RECOVERY, "{beats:?}");
        wait::pause(Duration::from_millis(50));
    }
    let gaps: Vec<u64> = beats.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap < 4_000), "a beat every two seconds: {gaps:?}");
    std::fs::remove_file(install.path("hang")).unwrap();
}
