//! What agents can reach of hostd and of each other.

use std::os::unix::fs::PermissionsExt;

use phalanx_tests::install::Install;
use phalanx_tests::programs::is_root_for;
use phalanx_tests::wait;
use protocol::agent::Phase;
use protocol::report::Isolation;

/// A program that says when it is done, and stays.
fn looks(install: &Install, name: &str, options: &[&str], script: &str) -> String {
    let script = format!("{script}; echo looked; sleep 600");
    let words = [&["create", name][..], options, &["--", "sh", "-c", &script][..]].concat();
    install.run(&words).succeeded();
    let printed = || install.run(&["logs", name]).text();
    wait::until(wait::LIMIT, "it has looked", printed, |printed| printed.contains("looked"))
}

#[test]
fn an_agent_reaches_nothing_of_hostd_and_of_other_agents() {
    if !is_root_for("a mount namespace for each agent") {
        return;
    }
    let install = Install::start();
    let repo = install.repo("r");
    let repo = repo.path.display().to_string();
    let other = install.create("other", &["--repo", &repo], &["hang"]);
    let home = install.home().display().to_string();
    let script = format!(
        "ls {home}/host {home}/bus {home}/manager; cat {home}/host/agents/{0}/shim.json; \
         cat {home}/bus/keys/*; cat {home}/host/bases/*/*/base.json; echo x > {home}/host/agents/{0}/exit.json",
        other.id
    );
    for (name, options, isolation) in [
        ("ours", vec!["--repo", &*repo], Isolation::Namespace),
        ("theirs", vec!["--repo", &*repo, "--user", "nobody"], Isolation::User),
        ("cloned", vec!["--repo", &*repo, "--user", "nobody", "--workspace", "clone"], Isolation::User),
    ] {
        let printed =
            looks(&install, name, &options, &format!("{script}; echo git sees $(git log --oneline | wc -l)"));
        for of_hostd in ["boot_id", "BEGIN", "version", "agents.json", "hostd.json"] {
            assert!(!printed.contains(of_hostd), "{name}: {printed}");
        }
        assert!(printed.contains("git sees 1\n"), "{name}: {printed}");
        let agent = install.agent(name);
        assert_eq!(agent.report.as_ref().unwrap().isolation, Some(isolation), "{name}");
    }
    let folder = install.agent_folder(other.id);
    assert!(!folder.join("exit.json").exists());
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // What runs beside an agent sees what it sees.
    let ran =
        install.run(&["exec", "theirs", "--", "sh", "-c", &format!("id -u; ls {home}/host/agents | wc -l")]);
    assert_eq!(ran.succeeded().text(), "65534\n1");
    install.restart();
    for name in ["ours", "theirs"] {
        let agent = install.agent_until(name, "adopted", |agent| agent.phase == Phase::Running);
        assert!(agent.report.unwrap().isolation.is_some(), "{name}");
    }
    for name in ["ours", "theirs", "cloned", "other"] {
        install.run(&["destroy", name, "--discard"]).succeeded();
    }
}
