//! Nothing is removed that holds the only copy of work; what is removed is gone whole, and its name is free.

use phalanx_tests::install::Install;
use phalanx_tests::json;
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::agent::Phase;

fn refused(install: &Install, name: &str, why: &str) {
    let ran = install.run(&["destroy", name, "-o", "json"]).ended_with(5);
    let outcomes: Vec<json::Outcome> = json::items(&ran.stdout);
    let fault = outcomes[0].error.as_ref().unwrap();
    assert_eq!(fault.code, "conflict");
    let said = format!("{} {}", fault.message, fault.hint);
    assert!(said.contains(why) && said.contains("--discard"), "{name}: {said}");
    assert!(install.agent(name).workspace().join("README").exists(), "its workspace is whole");
}

#[test]
fn an_agent_that_holds_the_only_copy_of_work_is_not_destroyed() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let gate = install.text_path("gate");
    install.create("plain", &[], &["write", "README", "all there is", "await", &gate, "exit", "0"]);
    install.create("nested", &["--repo", &path], &["await", &gate, "exit", "0"]);
    install.file("gate", "");
    for name in ["plain", "nested"] {
        install.agent_until(name, "ends", |agent| agent.ending() == "STOPPED exited code 0");
    }
    // A repository in the workspace: no commit of the user's repository can hold it.
    let _ = Repo::new(install.agent("nested").workspace().join("inner"));
    refused(&install, "plain", "1 file");
    refused(&install, "nested", "inner");
    let why: Vec<json::Reason> =
        json::items(&install.run(&["why", "plain", "-o", "json"]).succeeded().stdout);
    assert!(why.iter().any(|row| row.why.contains("only copy")), "{why:?}");

    for name in ["plain", "nested"] {
        let agent = install.agent(name);
        install.run(&["destroy", name, "--discard"]).succeeded();
        install.gone(agent.id);
        assert!(install.agents(&[]).iter().all(|left| left.id != agent.id));
        // The name can be used again at once.
        assert_ne!(install.create(name, &[], &["hang"]).id, agent.id);
    }
    assert_eq!(repo.refs().len(), 1, "{:?}", repo.refs());
}

/// A refusal finds the agent as it was: looked at first, stopped only where nothing would be lost.
#[test]
fn a_live_agent_that_holds_the_only_copy_of_work_goes_on() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let picture = repo.picture();
    install.create("plain", &[], &["write", "README", "all there is", "hang"]);
    install.create("nested", &["--repo", &path], &["write", "README", "changed", "hang"]);
    for name in ["plain", "nested"] {
        let file = install.agent(name).workspace().join("README");
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        wait::until(wait::LIMIT, "its file", read, |text| text == "all there is" || text == "changed");
    }
    let inner = Repo::new(install.agent("nested").workspace().join("inner"));
    let before = ["plain", "nested"].map(|name| install.agent(name).report().started_at);
    refused(&install, "plain", "1 file");
    refused(&install, "nested", "inner");
    // The next hostd does not come back to it.
    install.kill("hostd");
    install.settled();
    for (name, started_at) in ["plain", "nested"].into_iter().zip(before) {
        let agent = install.agent(name);
        assert_eq!((agent.phase, agent.wanted.as_str()), (Phase::Running, "running"), "{name}");
        assert_eq!(agent.report().started_at, started_at, "{name}");
        let read = || install.run(&["exec", name, "--", "cat", "README"]);
        wait::until(wait::LIMIT, "its host knows it again", read, |ran| {
            assert!(!ran.stderr.contains("no such agent"), "{}", ran.stderr);
            ["all there is", "changed"].contains(&ran.text().trim())
        });
    }
    assert!(picture == repo.picture(), "a look leaves nothing in the user's repository");
    // What is not committed is saved at its end: it does not stand in the way.
    std::fs::remove_dir_all(&inner.path).unwrap();
    let agent = install.agent("nested");
    install.run(&["destroy", "nested"]).succeeded();
    install.gone(agent.id);
    is_saved(&repo, "README", "changed");
}

/// A text that waits while a destroy is decided holds up neither, and hostd lives.
#[test]
fn messages_under_way_and_a_destroy_come_through_each_other() {
    let install = Install::start();
    let hostd = install.pid("hostd");
    let names = ["a", "b", "c", "d"];
    for name in names {
        install.create(name, &[], &["write", "README", "all there is", "hang"]);
        let file = install.agent(name).workspace().join("README");
        wait::until(wait::LIMIT, "its file", || file.exists(), |there| *there);
    }
    let mut under_way = Vec::new();
    for name in names {
        for _ in 0..3 {
            under_way.push(install.spawn(&["send", name, "hello", "--timeout", "20s"]));
        }
        under_way.push(install.spawn(&["destroy", name]));
    }
    for ran in under_way {
        let ran = ran.end();
        assert!([0, 5].contains(&ran.code), "{} {}", ran.code, ran.stderr);
    }
    assert_eq!(install.pid("hostd"), hostd, "it was not started again");
    for name in names {
        assert_eq!(install.agent(name).phase, Phase::Running, "{name}");
    }
}

#[test]
fn work_that_cannot_be_saved_is_not_destroyed() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let agent = install.create("stray", &["--repo", &path], &["hang"]);
    install.run(&["stop", "stray"]).succeeded();
    install.agent_until("stray", "is collected", |agent| agent.report().collected.is_some());
    std::fs::write(agent.workspace().join("late.txt"), "late").unwrap();
    std::fs::rename(&repo.path, install.path("moved")).unwrap();
    install.run(&["destroy", "stray"]).ended_with(5);
    assert!(agent.workspace().join("late.txt").exists());
    std::fs::rename(install.path("moved"), &repo.path).unwrap();
    install.run(&["destroy", "stray"]).succeeded();
    install.gone(agent.id);
    is_saved(&repo, "late.txt", "late");
}

/// Some ref that was made for results holds the file.
fn is_saved(repo: &Repo, file: &str, content: &str) {
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx"]);
    let holds = |name: &str| {
        let spec = format!("{name}:{file}");
        let shown = std::process::Command::new("git").args(["show", &spec]).current_dir(&repo.path).output();
        String::from_utf8_lossy(&shown.unwrap().stdout).contains(content)
    };
    assert!(refs.lines().any(holds), "{file} is not in {refs}");
}

/// A person goes on where the agent ended: what he left is saved before the workspace goes.
#[test]
fn what_a_person_changed_after_the_end_is_saved_before_it_is_removed() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let picture = repo.picture();
    for name in ["dirty", "untracked", "committed"] {
        let agent = install.create(name, &["--repo", &path], &["hang"]);
        install.run(&["stop", name]).succeeded();
        let work = Repo { path: agent.workspace() };
        let file = if name == "dirty" { "src/lib.txt" } else { "new.txt" };
        let content = format!("canary of {name}\n");
        work.write(file, &content);
        if name == "committed" {
            work.git(&["add", "-A"]);
            work.git(&["-c", "user.name=a", "-c", "user.email=a@b.invalid", "commit", "-qm", "work"]);
        }
        install.run(&["destroy", name]).succeeded();
        install.gone(agent.id);
        is_saved(&repo, file, &content);
    }
    assert!(picture == repo.picture(), "the user's files and branches are as they were");
}

/// What an agent had not committed at its end was saved in the repository: what is destroyed is a second copy.
#[test]
fn what_an_agent_left_uncommitted_is_found_after_destroy() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let picture = repo.picture();
    for (name, steps) in [
        ("dirty", vec!["write", "src/lib.txt", "canary of dirty"]),
        ("untracked", vec!["write", "new.txt", "canary of untracked"]),
        ("committed", vec!["write", "done.txt", "canary of committed", "commit", "work"]),
    ] {
        let agent = install.create(name, &["--repo", &path], &[&steps[..], &["hang"]].concat());
        let file = agent.workspace().join(steps[1]);
        let read = || std::fs::read_to_string(&file).unwrap_or_default();
        wait::until(wait::LIMIT, "its file", read, |text| text.contains("canary"));
        if name == "committed" {
            let head = || Repo { path: agent.workspace() }.head();
            wait::until(wait::LIMIT, "its commit", head, |head| *head != repo.head());
        }
        install.run(&["stop", name]).succeeded();
        let ran = install.run(&["destroy", name]);
        if ran.code == 0 {
            install.gone(agent.id);
            is_saved(&repo, steps[1], "canary");
        } else {
            assert_eq!(ran.code, 5, "{}", ran.stderr);
            assert!(read().contains("canary"));
        }
    }
    assert!(picture == repo.picture(), "the user's files and branches are as they were");
}

#[test]
fn work_that_is_kept_elsewhere_does_not_stop_destroy() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let _ = install.try_create(
        "pusher",
        &["--repo", &path],
        &["write", "done.txt", "done", "commit", "work", "exit", "0"],
    );
    let agent = install.agent_until("pusher", "ends", |agent| agent.ending() == "STOPPED exited code 0");
    let work = agent.workspace();
    repo.git(&["fetch", "-q", work.to_str().unwrap(), "HEAD:refs/heads/kept"]);
    install.run(&["destroy", "pusher"]).succeeded();
    install.gone(agent.id);
    assert_eq!(repo.git(&["show", "kept:done.txt"]), "done");
}

#[test]
fn several_are_destroyed_only_with_a_yes() {
    let install = Install::start();
    for name in ["a", "b"] {
        install.create(name, &[], &["hang"]);
    }
    let ran = install.run(&["destroy", "a", "b", "--discard"]).ended_with(2);
    assert!(ran.stderr.contains("--yes"), "{}", ran.stderr);
    let ran = install.run_with(&["destroy", "a", "b", "--discard"], b"yes\nhello\n").ended_with(2);
    assert!(ran.stderr.contains("--yes"), "{}", ran.stderr);
    assert_eq!(install.agents(&[]).len(), 2, "nothing was done");
}

/// Where the work is has to be said by who takes the workspace away, and be found later.
#[test]
fn who_destroys_an_agent_hears_where_its_work_is() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = repo.path.to_str().unwrap().to_owned();
    let agent = install.create("left", &["--repo", &path], &["write", "notes.txt", "half done", "hang"]);
    let notes = agent.workspace().join("notes.txt");
    wait::until(wait::LIMIT, "its file", || notes.exists(), |there| *there);
    let said = install.run(&["destroy", "left"]).succeeded().text();
    let kept = said.split_whitespace().find(|word| word.ends_with("-uncommitted)")).unwrap_or(&said);
    let kept = kept.trim_end_matches(')');
    assert_eq!(repo.git(&["show", &format!("{kept}:notes.txt")]), "half done", "{said}");

    let shown = install.run(&["show", "left"]).succeeded().text();
    assert!(shown.contains(&format!("kept as {kept}")), "{shown}");
    assert!(!shown.contains("phalanx attach") && !shown.contains("workspace:"), "{shown}");

    let again = install.run(&["destroy", "left"]).succeeded().text();
    assert!(again.contains("before this") && again.contains(kept), "{again}");
    let stopped = install.run(&["stop", "left"]).succeeded().text();
    assert!(stopped.contains("it was destroyed before"), "{stopped}");
    let beside = install.run(&["exec", "left", "--", "true"]).ended_with(125).stderr;
    assert!(beside.contains("it is destroyed"), "{beside}");
}

#[test]
fn a_program_beside_an_agent_that_has_ended_is_refused_with_what_helps() {
    let install = Install::start();
    let agent = install.create("over", &[], &["exit", "0"]);
    install.agent_until("over", "ends", |agent| agent.ending() == "STOPPED exited code 0");
    let ran = install.run(&["exec", "over", "--", "true"]).ended_with(125);
    assert!(ran.stderr.contains("it has ended") && ran.stderr.contains("phalanx start"), "{}", ran.stderr);
    let stopped = install.run(&["stop", "over"]).succeeded().text();
    assert!(stopped.contains("it had ended before"), "{stopped}");
    assert_eq!(install.agent("over").id, agent.id);
}
