//! What takes space is told, what nobody needs goes when asked, and nothing that holds work ever does.

use std::path::PathBuf;

use phalanx_tests::install::{Install, Process, Ran, kill_and_wait};
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::ids::AgentId;
use serde_json::Value;

fn items(ran: &Ran) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    document["items"].as_array().unwrap().clone()
}

fn gc(install: &Install, extra: &[&str]) -> Vec<Value> {
    let mut args = vec!["gc", "-o", "json"];
    args.extend(extra);
    items(&install.run(&args).succeeded())
}

/// What of a kind, by its outcome.
fn outcomes(items: &[Value], what: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_kind = items.iter().filter(|item| item["what"] == what);
    of_kind.map(|item| (text(&item["name"]), text(&item["outcome"]))).collect()
}

fn pair(name: &str, outcome: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), outcome.to_owned())]
}

fn commit(repo: &Repo, message: &str) {
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", message]);
}

fn workspace_kind(install: &Install, name: &str) -> String {
    install.agent(name).report().workspace.as_ref().unwrap().kind.to_string()
}

fn end(install: &Install, name: &str) -> AgentId {
    install.run(&["wait", name]).succeeded();
    install.agent(name).id
}

#[test]
fn what_an_agent_wrote_shows_in_du_and_the_base_below_it_does_not() {
    let install = Install::start();
    let repo = install.repo("repo");
    repo.write("large.bin", &"x".repeat(3 << 20));
    commit(&repo, "large");
    let path = phalanx_tests::programs::text(&repo.path);
    let script = "head -c 2000000 /dev/urandom > build.o; head -c 300000 /dev/zero; sleep 600";
    install.run(&["create", "big", "--repo", &path, "--", "sh", "-c", script]).succeeded();
    install.create("small", &[], &["hang"]);
    let of = |name: &str| {
        let rows = items(&install.run(&["du", name, "-o", "json"]).succeeded());
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0].clone()
    };
    let written = |row: &Value| row["workspace_bytes"].as_u64().unwrap() >= 2_000_000;
    let big = wait::until(
        wait::LIMIT,
        "its file and its output are there",
        || of("big"),
        |row| written(row) && row["transcript_bytes"].as_u64().unwrap() >= 300_000,
    );
    let is_overlay = workspace_kind(&install, "big") == "overlay";
    let most = if is_overlay { 2_500_000 } else { 6_500_000 };
    assert!(big["workspace_bytes"].as_u64().unwrap() < most, "{big}");
    assert!(of("small")["bytes"].as_u64().unwrap() < 100_000);

    let all = items(&install.run(&["du", "-o", "json"]).succeeded());
    let kinds: Vec<&str> = all.iter().map(|row| row["what"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "agent").count(), 2);
    assert!(kinds.contains(&"bus"), "{kinds:?}");
    install.run(&["du", "nobody"]).ended_with(3);
    assert!(items(&install.run(&["du", "-l", "no=such", "-o", "json"]).succeeded()).is_empty());
}

#[test]
fn gc_takes_what_nobody_needs_and_never_the_only_copy_of_work() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = phalanx_tests::programs::text(&repo.path);
    install.create("live", &[], &["hang"]);
    install.create("idle", &[], &["say", "done"]);
    install.run(&["create", "worker", "--repo", &path, "--", "sh", "-c", "echo unsaved > notes"]).succeeded();
    install.run(&["create", "plain", "--", "sh", "-c", "echo unsaved > notes"]).succeeded();
    let [idle, worker, plain] = ["idle", "worker", "plain"].map(|name| end(&install, name));

    assert!(gc(&install, &["--dry-run"]).is_empty(), "nothing is a week old");
    let planned = gc(&install, &["--dry-run", "--older", "0", "--what", "agents"]);
    assert!(outcomes(&planned, "agent").contains(&("idle".to_owned(), "would-go".to_owned())), "{planned:?}");
    assert!(outcomes(&planned, "agent").contains(&("plain".to_owned(), "kept".to_owned())), "{planned:?}");
    assert!(!outcomes(&planned, "agent").iter().any(|(name, _)| name == "live"), "{planned:?}");
    assert!(install.agent_folder(idle).exists(), "a look changes nothing");
    install.run(&["gc", "--older", "0"]).ended_with(2); // needs a yes

    let done = gc(&install, &["--older", "0", "--what", "agents", "--yes"]);
    assert!(outcomes(&done, "agent").contains(&("idle".to_owned(), "gone".to_owned())), "{done:?}");
    install.gone(idle);
    assert!(install.agent_folder(plain).join("work/notes").exists(), "{done:?}");
    assert_eq!(install.agent("live").phase.as_str(), "RUNNING");
    // What it had not committed was brought home to a ref: its checkout is no only copy.
    assert!(outcomes(&done, "agent").contains(&("worker".to_owned(), "gone".to_owned())), "{done:?}");
    install.gone(worker);
    let kept = repo.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx/adhoc/*-uncommitted"]);
    assert_eq!(repo.git(&["show", &format!("{kept}:notes")]), "unsaved");

    // What is kept of the destroyed one: transcript and report. Its last order is void for the next hostd.
    assert_eq!(install.run(&["logs", &idle.to_string()]).succeeded().text(), "done");
    install.restart();
    install.settled();
    let archive = install.layout().host().join("archive").join(idle.to_string());
    assert!(archive.exists());
    let done = gc(&install, &["--older", "0", "--what", "transcripts", "--yes"]);
    assert!(outcomes(&done, "destroyed agent").contains(&("idle".to_owned(), "gone".to_owned())), "{done:?}");
    assert!(!archive.exists());
    let listed = || install.agents(&["-a"]).iter().any(|agent| agent.id == idle);
    wait::until(wait::LIMIT, "it is listed no more", listed, |listed| !listed);
    install.restart();
    install.settled();
    assert!(!listed(), "it does not come back");
    assert!(
        gc(&install, &["--older", "0", "--what", "transcripts", "--yes"])
            .iter()
            .all(|item| item["outcome"] == "gone")
    );
}

#[test]
fn refs_go_once_their_work_is_in_a_branch_also_when_it_was_squashed() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = phalanx_tests::programs::text(&repo.path);
    for name in ["open", "squashed", "spaced"] {
        let script = format!(
            "echo one > {name}; git add .; git commit -qm 1; printf '\\ttwo\\n' >> {name}; git commit -qam 2"
        );
        install.run(&["create", name, "--repo", &path, "--", "sh", "-c", &script]).succeeded();
        end(&install, name);
        install.run(&["destroy", name]).succeeded();
    }
    let refs = || repo.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx/adhoc"]);
    assert_eq!(refs().lines().count(), 3, "{}", refs());
    // As a person merges with a squash: another commit, on a branch that went on.
    repo.write("other", "x");
    commit(&repo, "other");
    // Other work, though it differs in white space only.
    repo.write("spaced", "one\n    two\n");
    commit(&repo, "spaced");
    let squashed = refs().lines().find(|line| line.contains("squashed")).unwrap().to_owned();
    repo.git(&["merge", "--squash", &squashed]);
    repo.git(&["commit", "-qm", "squashed"]);

    let planned = gc(&install, &["--dry-run", "--older", "0", "--what", "refs"]);
    assert_eq!(outcomes(&planned, "ref"), pair(&squashed, "would-go"));
    assert_eq!(
        outcomes(&gc(&install, &["--older", "0", "--what", "refs", "--yes"]), "ref"),
        pair(&squashed, "gone")
    );
    let left = refs();
    assert!(left.contains("open") && left.contains("spaced") && !left.contains("squashed"), "{left}");
}

#[test]
fn bases_go_when_no_workspace_lies_on_them() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = phalanx_tests::programs::text(&repo.path);
    let create = |name: &str| {
        install.run(&["create", name, "--repo", &path, "--", "sh", "-c", "sleep 600"]).succeeded();
    };
    create("one");
    if workspace_kind(&install, "one") != "overlay" {
        assert!(!phalanx_tests::programs::is_root_for("an overlay"), "root gets overlays");
        // Without overlays there are no bases
        return;
    }
    let look = || outcomes(&gc(&install, &["--dry-run", "--older", "0", "--what", "bases"]), "base").len();
    assert_eq!(look(), 0, "it is in use");
    install.run(&["stop", "one"]).succeeded();
    assert_eq!(look(), 0, "a stopped agent's workspace still lies on it");
    install.run(&["destroy", "one"]).succeeded();
    let done = gc(&install, &["--older", "0", "--what", "bases", "--yes"]);
    assert_eq!(done.iter().filter(|item| item["outcome"] == "gone").count(), 1, "{done:?}");
    assert_eq!(look(), 0);
    create("two");
    assert_eq!(workspace_kind(&install, "two"), "overlay");
}

#[test]
fn what_ended_agents_left_on_the_machine_goes_and_nothing_of_live_ones_or_of_others() {
    let (install, other) = (Install::start(), Install::start());
    other.create("theirs", &[], &["say", "done"]);
    end(&other, "theirs");
    install.create("live", &[], &["hang"]);
    install.create("quick", &[], &["say", "done"]);
    install.create("lost", &[], &["hang"]);
    let [live, quick, lost] = ["live", "quick", "lost"].map(|name| install.agent(name).id);
    for name in ["live", "lost"] {
        install.agent_until(name, "has a session", |agent| agent.report().session.is_some());
    }
    kill_and_wait(install.shim_and_child(lost).0);
    install.agent_until("lost", "ends", |agent| agent.ending().starts_with("CRASHED"));
    let socket = install.agent_folder(lost).join("shim.sock");
    assert!(socket.exists());
    // As an older hostd left them.
    let of_live = install.traces().cgroups.into_iter().filter(|group| group.ends_with(live.to_string()));
    let groups: Vec<PathBuf> = of_live.map(|group| group.with_file_name(quick.to_string())).collect();
    for group in &groups {
        std::fs::create_dir_all(group.join("agent")).unwrap();
        std::fs::create_dir_all(group.join("shim")).unwrap();
    }
    let theirs = other.traces();

    let leftovers =
        |extra: &[&str]| gc(&install, &[&["--older", "0", "--what", "leftovers"][..], extra].concat());
    assert!(gc(&install, &["--dry-run", "--what", "leftovers"]).is_empty(), "nothing is a week old");
    let planned = leftovers(&["--dry-run"]);
    let sessions = outcomes(&planned, "session");
    assert!(sessions.contains(&("lost".to_owned(), "would-go".to_owned())), "{planned:?}");
    assert!(!sessions.iter().any(|(name, _)| name == "live"), "{planned:?}");
    assert_eq!(outcomes(&planned, "socket"), pair(socket.to_str().unwrap(), "would-go"));
    let expected = if groups.is_empty() { Vec::new() } else { pair("quick", "would-go") };
    assert_eq!(outcomes(&planned, "cgroup"), expected);
    assert!(socket.exists() && groups.iter().all(|group| group.exists()), "a look changes nothing");

    let done = leftovers(&["--yes"]);
    assert!(done.iter().all(|item| item["outcome"] == "gone"), "{done:?}");
    assert!(leftovers(&["--dry-run"]).is_empty());
    assert!(!socket.exists() && !groups.iter().any(|group| group.exists()));
    assert!(install.agent_folder(lost).exists(), "it is no destroying");
    let alive = install.agent("live");
    assert_eq!(alive.phase.as_str(), "RUNNING");
    let at = alive.report().session.clone().unwrap();
    let socket = PathBuf::from(&at.folder).join(&at.socket);
    let listed = std::process::Command::new("tmux")
        .args(["-S", socket.to_str().unwrap(), "list-sessions", "-F", "#{session_id}"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), at.session, "people still look at it");
    let left = other.traces();
    assert_eq!((left.cgroups, left.mounts), (theirs.cgroups, theirs.mounts));
    let pids = |found: &[Process]| found.iter().map(|found| found.pid).collect::<Vec<_>>();
    assert_eq!(pids(&left.processes), pids(&theirs.processes), "nothing of the other one is touched");
}

#[test]
fn settings_bound_what_is_kept_of_ended_and_destroyed_agents() {
    let install = Install::start();
    for name in ["a", "b", "c"] {
        install.create(name, &[], &["say", name]);
        end(&install, name);
        install.run(&["destroy", name]).succeeded();
    }
    install.create("ended", &[], &["say", "bye"]);
    install.create("live", &[], &["hang"]);
    install.run(&["create", "holds", "--", "sh", "-c", "echo unsaved > notes"]).succeeded();
    let [ended, holds] = ["ended", "holds"].map(|name| end(&install, name));
    install.run(&["config", "set", "retention.archive", "2"]).succeeded();
    install.run(&["config", "set", "retention.agents", "1s"]).succeeded();
    install.restart();
    install.gone(ended);
    let archived = || std::fs::read_dir(install.layout().host().join("archive")).unwrap().count();
    // That of `ended` may have come later than the look at the archive: its turn is the next one.
    wait::until(wait::LIMIT, "two of a, b and c are left", archived, |count| *count <= 3);
    assert!(install.agent_folder(holds).join("work/notes").exists());
    assert_eq!(install.agent("live").phase.as_str(), "RUNNING");
}
