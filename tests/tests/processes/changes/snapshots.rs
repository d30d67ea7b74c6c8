//! Snapshots of a checkout and clones that begin with one: all that is there comes back, nothing of the agent's index,
//! HEAD or of what a snapshot never saw is touched.

use std::os::unix::fs::PermissionsExt;

use phalanx_tests::install::Install;
use phalanx_tests::scratch::Repo;
use protocol::agent::Phase;
use serde_json::Value;

fn items(install: &Install, args: &[&str]) -> Vec<Value> {
    let ran = install.run(args).succeeded();
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    document["items"].as_array().unwrap().clone()
}

/// Work of every kind that git's status tells apart.
fn change(work: &Repo) {
    work.write("staged.txt", "staged\n");
    work.git(&["add", "staged.txt"]);
    work.write("README", "changed\n");
    work.write("new/untracked.txt", "untracked\n");
    work.write("ignored.log", "ignored\n");
    work.write("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(work.path.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("README", work.path.join("link")).unwrap();
}

fn source(install: &Install) -> (Repo, Repo) {
    let repo = install.repo("repo");
    repo.write(".gitignore", "*.log\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "ignore logs"]);
    let agent = install.create("demo", &["--repo", repo.path.to_str().unwrap()], &["hang"]);
    let work = Repo { path: agent.workspace() };
    change(&work);
    (repo, work)
}

#[test]
fn what_a_snapshot_keeps_comes_back_and_what_it_never_saw_stays() {
    let install = Install::start();
    let (repo, work) = source(&install);
    let persons = repo.picture();
    let index = || std::fs::read(work.path.join(".git/index")).unwrap();
    let (head, before) = (work.git(&["rev-parse", "HEAD"]), index());
    let taken = items(&install, &["snapshot", "create", "demo", "-o", "json"]);
    assert_eq!((&taken[0]["number"], &taken[0]["ignored"]), (&1.into(), &false.into()));
    assert!(taken[0]["not_saved"].as_array().unwrap().contains(&"ignored.log".into()), "{taken:?}");
    assert_eq!((work.git(&["rev-parse", "HEAD"]), index()), (head, before), "the agent sees nothing of it");
    // Not under the hands of a program that runs.
    let refused = install.run(&["snapshot", "restore", "demo", "1"]).ended_with(5);
    assert!(
        refused.stderr.contains("phalanx pause") || refused.stderr.contains("stop"),
        "{}",
        refused.stderr
    );
    install.run(&["stop", "demo"]).succeeded();
    work.write("README", "spoilt\n");
    std::fs::remove_file(work.path.join("new/untracked.txt")).unwrap();
    work.write("later.txt", "made after the snapshot\n");
    let back = install.run(&["snapshot", "restore", "demo", "1"]).succeeded();
    assert!(back.text().contains("what was there is snapshot 2"), "{}", back.text());
    let read = |name: &str| std::fs::read_to_string(work.path.join(name)).unwrap();
    assert_eq!((read("README"), read("new/untracked.txt")), ("changed\n".into(), "untracked\n".into()));
    assert_eq!(read("later.txt"), "made after the snapshot\n", "it is in no snapshot that was restored");
    assert_eq!(read("ignored.log"), "ignored\n");
    // And back again: the one that was taken before the restore has what was there.
    install.run(&["snapshot", "restore", "demo", "2"]).succeeded();
    assert_eq!(read("README"), "spoilt\n");
    assert_eq!(items(&install, &["snapshot", "ls", "demo", "-o", "json"]).len(), 3);
    // They are refs of the repository, and outlive the agent; the person's files are as they were.
    install.run(&["destroy", "demo"]).succeeded();
    let kept = repo.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx/snapshots"]);
    assert_eq!(kept.lines().count(), 3, "{kept}");
    let mut now = repo.picture();
    now.retain(|path, _| persons.contains_key(path));
    assert!(now == persons, "the person's files, index and branches are as they were");
    let _ = install.run(&["snapshot", "restore", "nobody", "1"]).ended_with(3);
}

#[test]
fn a_clone_begins_with_all_that_the_other_has_and_neither_sees_the_other() {
    let install = Install::start();
    let (repo, work) = source(&install);
    install.run(&["clone", "demo", "second", "--label", "kind=copy"]).succeeded();
    let second = install.agent_until("second", "runs", |agent| agent.phase == Phase::Running);
    let copy = Repo { path: second.workspace() };
    let read = |at: &Repo, name: &str| std::fs::read_to_string(at.path.join(name)).unwrap();
    for name in ["staged.txt", "README", "new/untracked.txt", "run.sh"] {
        assert_eq!(read(&copy, name), read(&work, name), "{name}");
    }
    assert!(copy.path.join("run.sh").metadata().unwrap().permissions().mode() & 0o111 != 0);
    assert_eq!(std::fs::read_link(copy.path.join("link")).unwrap().to_str(), Some("README"));
    assert!(!copy.path.join("ignored.log").exists(), "only with --include-ignored");
    assert_eq!(copy.git(&["rev-parse", "HEAD"]), repo.head(), "uncommitted work is uncommitted there too");
    assert_ne!(copy.git(&["branch", "--show-current"]), work.git(&["branch", "--show-current"]));
    copy.write("README", "of the second\n");
    assert_eq!(read(&work, "README"), "changed\n");
    install.run(&["clone", "demo", "third", "--include-ignored"]).succeeded();
    let third = install.agent_until("third", "runs", |agent| agent.phase == Phase::Running);
    assert_eq!(read(&Repo { path: third.workspace() }, "ignored.log"), "ignored\n");
    // Bad input: nothing is started.
    let before = install.agents(&["-a"]).len();
    let _ = install.run(&["clone", "demo", "second"]).ended_with(5);
    let _ = install.run(&["clone", "nobody", "x"]).ended_with(3);
    install.create("plain", &[], &["hang"]);
    let _ = install.run(&["clone", "plain", "x"]).ended_with(5);
    assert_eq!(install.agents(&["-a"]).len(), before + 1);
}
