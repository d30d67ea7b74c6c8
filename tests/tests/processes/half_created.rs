//! `kill -9` of any part in the middle of `create`: the agent is there whole and the same key gives it again, or nothing
//! of it is there and the name is free.

use std::time::Duration;

use phalanx_tests::bytes;
use phalanx_tests::install::{DAEMONS, Install, is_alive, kill_and_wait};
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::agent::Phase;

const ROUNDS: u64 = 15;

/// The pauses before a restart grow: after so many kills the daemons are started anew.
const KILLS_IN_A_ROW: u64 = 3;

/// In the middle of a creation, which takes about 60 ms on a quiet machine and longer on this one.
const LATEST_MS: u64 = 120;

fn killed_in_the_middle(seed: u64, part: &str) {
    let install = Install::start();
    let repo = install.repo("repo");
    let picture = repo.picture();
    let (fake, path) = (fake_agent(), repo.path.to_str().unwrap().to_owned());
    let (mut whole, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        if round % KILLS_IN_A_ROW == 0 && round > 0 {
            install.restart();
        }
        let (name, key) = (format!("a-{round}"), format!("key-{round}"));
        let marks = install.text_path(&name);
        let args =
            ["create", &name, "--repo", &path, "--key", &key, "-q", "--", &fake, "mark", &marks, "hang"];
        let creating = install.spawn(&args);
        wait::pause(Duration::from_millis(bytes::number(seed, round, LATEST_MS)));
        if part == "client" {
            kill_and_wait(creating.pid());
        } else {
            install.kill(part);
        }
        let first = creating.end();
        if DAEMONS.contains(&part) {
            install.settled();
        }

        // The same key: what is there, or what was not.
        // A host that is not there yet is told as such: "try again" is an answer, and this is what it asks for.
        let again = wait::until(wait::LIMIT, "an answer", || install.run(&args), |ran| ran.code != 9);
        let again = again.succeeded().text();
        let same: Vec<_> = install.agents(&["-a"]).into_iter().filter(|agent| agent.name == name).collect();
        assert_eq!(same.len(), 1, "{part} in round {round}: {same:?}");
        assert_eq!(again, same[0].id.to_string());
        assert_eq!(same[0].phase, Phase::Running, "{same:?}");
        if first.code == 0 {
            assert_eq!(first.text(), again, "what was promised is what is there");
            whole += 1;
        } else {
            refused += 1;
        }
        let started = install.lines(&name);
        assert_eq!(started, [install.shim_and_child(same[0].id).1.to_string()], "it was started once");
    }
    eprintln!("{part}: {whole} answered at once, {refused} by the second call");

    // Nothing else was left: no folder, group, session, mount or branch of a try that came to nothing.
    let agents = install.agents(&["-a"]);
    assert_eq!(agents.len() as u64, ROUNDS);
    let folders = std::fs::read_dir(install.layout().host().join("agents")).unwrap().count();
    assert_eq!(folders, agents.len());
    let mut args = vec!["destroy".to_owned(), "--discard".to_owned(), "--yes".to_owned()];
    args.extend(agents.iter().map(|agent| agent.id.to_string()));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    for agent in &agents {
        install.run(&["stop", &agent.id.to_string(), "--no-wait"]).succeeded();
    }
    for agent in &agents {
        install.agent_until(&agent.id.to_string(), "stops", |agent| agent.phase.is_ended());
    }
    install.run(&args).succeeded();
    for agent in &agents {
        install.gone(agent.id);
    }
    assert_eq!(install.agents(&[]).len(), 0);
    assert!(picture == repo.picture(), "the user's repository is as it was");
    let left = install.traces();
    let fakes: Vec<_> = left.processes.iter().filter(|found| found.command.contains("fake-agent")).collect();
    assert!(fakes.is_empty() && left.mounts.is_empty(), "{fakes:?} {:?}", left.mounts);
    assert!(is_alive(install.pid("hostd").unwrap()));
}

#[test]
fn hostd_killed_in_the_middle_of_a_creation_leaves_all_or_nothing() {
    killed_in_the_middle(1, "hostd");
}

#[test]
fn the_manager_killed_in_the_middle_of_a_creation_leaves_all_or_nothing() {
    killed_in_the_middle(2, "manager");
}

#[test]
fn the_bus_killed_in_the_middle_of_a_creation_leaves_all_or_nothing() {
    killed_in_the_middle(3, "nats-server");
}

#[test]
fn the_supervisor_killed_in_the_middle_of_a_creation_leaves_all_or_nothing() {
    killed_in_the_middle(4, "supervisor");
}

#[test]
fn the_client_killed_in_the_middle_of_a_creation_leaves_all_or_nothing() {
    killed_in_the_middle(5, "client");
}

/// Without the key nobody asks for the first one again: the name is taken by a whole agent, or free.
#[test]
fn a_name_is_taken_by_a_whole_agent_or_free() {
    let install = Install::start();
    for round in 0..8_u64 {
        let part = DAEMONS[usize::try_from(round).unwrap() % 3];
        let name = format!("b-{round}");
        let marks = install.text_path(&name);
        let fake = fake_agent();
        let args = ["create", &name, "-q", "--", &fake, "mark", &marks, "hang"];
        let creating = install.spawn(&args);
        wait::pause(Duration::from_millis(bytes::number(9, round, LATEST_MS)));
        kill_and_wait(creating.pid());
        install.kill(part);
        let _ = creating.end();
        install.settled();
        let look =
            || install.agents(&["-a"]).into_iter().filter(|agent| agent.name == name).collect::<Vec<_>>();
        let there = wait::until(wait::LIMIT, "no half agent", look, |all| {
            all.is_empty() || (all.len() == 1 && all[0].phase == Phase::Running)
        });
        let second = install.run(&args);
        assert_eq!(second.code, if there.is_empty() { 0 } else { 5 }, "{there:?}: {}", second.stderr);
        install.agent_until(&name, "runs", |agent| agent.phase == Phase::Running);
        assert_eq!(install.lines(&name).len(), 1, "it was started once");
    }
}
