//! When everything is stopped, nothing stays on the machine that nobody needs, and all of it comes back when it is needed.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use phalanx_tests::install::{Install, is_alive, kill_and_wait};
use phalanx_tests::programs;
use phalanx_tests::wait;

/// Sockets below a folder. What goes while it is looked at is not there.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(sockets(&entry.path()));
        } else if kind.is_socket() {
            found.push(entry.path());
        }
    }
    found
}

/// An agent in a checkout that has ended and left `notes`.
fn worker(install: &Install, name: &str, repo: &str) -> PathBuf {
    install.run(&["create", name, "--repo", repo, "--", "sh", "-c", "echo unsaved > notes"]).succeeded();
    install.run(&["wait", name]).succeeded();
    let agent = install.agent_until(name, "is collected", |agent| agent.report().collected.is_some());
    agent.workspace()
}

#[test]
fn a_stop_of_everything_leaves_nothing_on_the_machine_and_workspaces_come_back() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = programs::text(&repo.path);
    let work = worker(&install, "worker", &path);
    let live = install.create("live", &["--repo", &path], &["write", "notes", "of the live one", "hang"]);
    install.create("lost", &[], &["hang"]);
    let lost = install.agent("lost").id;
    // A killed shim leaves its socket, a killed tmux server its own.
    kill_and_wait(install.shim_and_child(lost).0);
    install.agent_until("lost", "ends", |agent| agent.ending().starts_with("CRASHED"));
    let viewers = || install.tmux_servers();
    let server = wait::until(wait::LIMIT, "a server for people", viewers, |found| !found.is_empty())[0];
    kill_and_wait(server);

    install.run(&["down", "--stop-agents"]).succeeded();
    let left = install.traces();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(sockets(install.home()), Vec::<PathBuf>::new());

    install.run(&["up"]).succeeded();
    install.settled();
    // By its path, as a person goes on in it.
    let notes = || std::fs::read_to_string(work.join("notes")).unwrap_or_default();
    wait::until(wait::LIMIT, "the workspace is there again", notes, |notes| notes == "unsaved\n");
    let got = install.run(&["file", "get", "live:notes", "-"]).succeeded();
    assert_eq!(got.stdout, b"of the live one");
    assert!(install.run(&["diff", "worker"]).succeeded().text().contains("+unsaved"));
    install.run(&["start", "live"]).succeeded();
    install.agent_until("live", "runs again", |agent| agent.phase.as_str() == "RUNNING");
    assert_eq!(install.agent("live").id, live.id);
    install.run(&["destroy", "worker", "live", "lost", "--yes", "--discard"]).succeeded();
    install.gone(live.id);
    // A second stop finds nothing to do and what it made in between is gone too.
    install.run(&["down", "--stop-agents"]).succeeded();
    let left = install.traces();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_stop_right_after_hostd_died_leaves_no_mount() {
    let install = Install::start();
    let repo = install.repo("repo");
    let work = worker(&install, "worker", &programs::text(&repo.path));
    if install.agent("worker").report().workspace.as_ref().unwrap().kind != "overlay" {
        assert!(!phalanx_tests::programs::is_root_for("an overlay"), "root gets overlays");
        // Without overlays nothing is mounted
        return;
    }
    assert_eq!(install.traces().mounts, [work]);
    install.kill("hostd");
    install.run(&["down"]).succeeded();
    let left = install.traces();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_stop_without_the_agents_touches_no_live_one_and_nothing_that_a_process_uses() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = programs::text(&repo.path);
    let gate = install.text_path("gate");
    let [idle, used] = ["idle", "used"].map(|name| worker(&install, name, &path));
    let live = install.create("live", &["--repo", &path], &["await", &gate, "write", "late", "late", "hang"]);
    if live.report().workspace.as_ref().unwrap().kind != "overlay" {
        assert!(!phalanx_tests::programs::is_root_for("an overlay"), "root gets overlays");
        // Without overlays nothing is mounted
        return;
    }
    let child = install.shim_and_child(live.id).1;
    let viewers = || install.tmux_servers();
    wait::until(wait::LIMIT, "a server for people", viewers, |found| found.len() == 1);
    // A person's program in the workspace of an agent that has ended.
    let mut person =
        Command::new("sleep").arg("600").current_dir(&used).stdin(Stdio::null()).spawn().unwrap();

    install.run(&["down"]).succeeded();
    let left = install.traces();
    person.kill().unwrap();
    person.wait().unwrap();
    assert!(is_alive(child));
    let mut wanted = vec![used.clone(), live.workspace()];
    wanted.sort();
    let mut mounts = left.mounts;
    mounts.sort();
    assert_eq!(mounts, wanted);
    assert!(!idle.join("notes").exists());
    assert!(left.cgroups.iter().any(|group| group.ends_with(format!("{}/agent", live.id))));
    assert_eq!(viewers().len(), 1, "the live one is looked at on");
    let log = std::fs::read_to_string(install.layout().log_file("hostd")).unwrap();
    assert!(log.contains("stays mounted: a process uses it"), "{log}");

    // It goes on, in the same workspace.
    install.file("gate", "");
    let late = || live.workspace().join("late").exists();
    wait::until(wait::LIMIT, "it writes", late, |there| *there);
    install.run(&["up"]).succeeded();
    install.settled();
    assert_eq!(install.shim_and_child(live.id).1, child);
    let notes = || idle.join("notes").exists() && used.join("notes").exists();
    wait::until(wait::LIMIT, "the workspaces are there again", notes, |there| *there);
    let mounted = install.traces().mounts;
    assert_eq!(mounted.len(), 3, "each once: {mounted:?}");
}
