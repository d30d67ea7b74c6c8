//! Many at once: fifty agents with checkouts, twenty creations of different names, five of the same name.

use std::collections::BTreeSet;
use std::time::Instant;

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use protocol::agent::Phase;

#[test]
fn fifty_agents_with_checkouts_run_at_once_and_leave_nothing() {
    let install = Install::start();
    let repo = install.repo("repo");
    let picture = repo.picture();
    let (fake, path) = (fake_agent(), repo.path.to_str().unwrap().to_owned());
    let before = Instant::now();
    let names: Vec<String> = (0..50).map(|n| format!("w{n}")).collect();
    let running: Vec<_> = names
        .iter()
        .map(|name| install.spawn(&["create", name, "--repo", &path, "--label", "k=v", "--", &fake, "hang"]))
        .collect();
    for creating in running {
        creating.end().succeeded();
    }
    eprintln!("50 agents with checkouts: {:?}", before.elapsed());
    let agents = install.agents(&["-l", "k=v"]);
    assert_eq!(agents.len(), 50);
    assert!(agents.iter().all(|agent| agent.phase == Phase::Running), "{agents:?}");
    // Rows of a list are slim: the reports are in what `show` says.
    let agents: Vec<_> = agents.iter().map(|agent| install.agent(&agent.id.to_string())).collect();
    let folders: BTreeSet<_> = agents.iter().map(|agent| agent.workspace()).collect();
    assert_eq!(folders.len(), 50);
    let branches: BTreeSet<_> = agents
        .iter()
        .map(|agent| agent.report().workspace.as_ref().unwrap().branch.clone().unwrap())
        .collect();
    assert_eq!(branches.len(), 50);
    for agent in &agents {
        let workspace = agent.workspace();
        let facts = agent.report().workspace.as_ref().unwrap();
        assert_eq!(facts.base_commit.as_deref(), Some(repo.head().as_str()));
        assert_eq!(std::fs::read_to_string(workspace.join("README")).unwrap(), "read me\n");
        // One's own: nobody else sees it.
        std::fs::write(workspace.join("README"), format!("{}\n", agent.name)).unwrap();
    }
    for agent in &agents {
        let text = std::fs::read_to_string(agent.workspace().join("README")).unwrap();
        assert_eq!(text, format!("{}\n", agent.name));
    }

    install.run(&["stop", "-l", "k=v", "--yes"]).succeeded();
    assert!(install.agents(&[]).iter().all(|agent| agent.phase == Phase::Stopped));
    // Each holds a repository of its own, which no commit of the user's repository can hold.
    let other = install.repo("other");
    for agent in &agents {
        other.git(&["clone", "-q", ".", agent.workspace().join("inner").to_str().unwrap()]);
    }
    install.run(&["destroy", "-l", "k=v", "--yes"]).ended_with(5);
    assert_eq!(install.agents(&[]).len(), 50);
    assert!(agents.iter().all(|agent| agent.workspace().join("inner/README").exists()));
    install.run(&["destroy", "-l", "k=v", "--yes", "--discard"]).succeeded();
    assert_eq!(install.agents(&[]).len(), 0);
    for agent in &agents {
        install.gone(agent.id);
    }
    let left = install.traces();
    assert!(left.mounts.is_empty(), "{:?}", left.mounts);
    assert!(left.processes.iter().all(|found| !found.command.contains("fake-agent")), "{:?}", left.processes);
    assert!(picture == repo.picture(), "the user's repository is as it was");
    assert_eq!(repo.git(&["fsck", "--no-progress", "--no-dangling"]), "");
}

#[test]
fn twenty_creations_at_once_give_twenty_agents_and_five_of_one_name_give_one() {
    let install = Install::start();
    let fake = fake_agent();
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    let running: Vec<_> =
        names.iter().map(|name| install.spawn(&["create", name, "-q", "--", &fake, "hang"])).collect();
    let ids: BTreeSet<String> = running.into_iter().map(|one| one.end().succeeded().text()).collect();
    assert_eq!(ids.len(), 20);

    let running: Vec<_> =
        (0..5).map(|_| install.spawn(&["create", "same", "-q", "--", &fake, "hang"])).collect();
    let mut codes: Vec<i32> = running.into_iter().map(|one| one.end().code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 5, 5, 5, 5]);
    assert_eq!(install.agents(&["-a"]).iter().filter(|agent| agent.name == "same").count(), 1);

    // And of one key: all are told of the same agent.
    let args = ["create", "keyed", "--key", "k", "-q", "--", &fake, "hang"];
    let running: Vec<_> = (0..5).map(|_| install.spawn(&args)).collect();
    let ids: BTreeSet<String> = running.into_iter().map(|one| one.end().succeeded().text()).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(install.agents(&[]).len(), 22);
}
