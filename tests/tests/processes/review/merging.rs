//! `merge`: the accepted work of a run in one branch, verified on top of each other, whatever dies meanwhile.

use phalanx_tests::install::Install;
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::task::{TaskState, TaskView};

fn accepted(install: &Install, repo: &Repo, name: &str, tasks: &str) {
    let yaml = format!("name: {name}\ndefaults: {{repo: '{}'}}\ntasks:\n{tasks}", repo.path.display())
        .replace("@DIR@", install.text_path("").trim_end_matches('/'));
    let file = install.file(&format!("{name}.yaml"), yaml);
    install.run(&["run", &file]).succeeded();
}

fn state(tasks: &[TaskView], name: &str) -> TaskState {
    tasks.iter().find(|task| task.spec.name.as_str() == name).unwrap().state
}

#[test]
fn accepted_work_is_merged_verified_and_what_does_not_fit_is_left_out() {
    let install = Install::start();
    let repo = install.repo("repo");
    repo.write("list.txt", "one\ntwo\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "list"]);
    accepted(
        &install,
        &repo,
        "work",
        "  - {name: adds, command: 'echo a > a.txt', verify: 'test -f a.txt'}
  - {name: alone, command: 'echo b > b.txt', verify: 'test ! -f a.txt'}
  - {name: first, command: \"printf 'FIRST\\\\ntwo\\\\n' > list.txt\"}
  - {name: second, command: \"printf 'SECOND\\\\ntwo\\\\n' > list.txt\"}
  - {name: markers, command: \"printf '<<<<<<< x\\\\n=======\\\\n>>>>>>> y\\\\n' > doc.md\"}
",
    );
    repo.write("list.txt", "mine, staged\n");
    repo.git(&["add", "list.txt"]);
    repo.write("untracked.txt", "mine\n");
    let picture = || {
        let mut picture = repo.picture();
        picture.retain(|path, _| !path.starts_with(".git/refs") && !path.starts_with(".git/logs"));
        picture
    };
    let (before, head) = (picture(), repo.head());
    // Where a person works nothing is moved; and it is said before anything is done.
    let refused = install.run(&["merge", "work"]).ended_with(5);
    assert!(
        refused.stderr.contains("checked out") && refused.stderr.contains("--into"),
        "{}",
        refused.stderr
    );
    // First a look.
    let dry = install.run(&["merge", "work", "--into", "all", "--dry-run"]).ended_with(7);
    assert!(dry.stderr.contains("4 of 5 tasks would be merged"), "{}", dry.stderr);
    assert!(dry.text().contains("would-merge") && !dry.text().contains(" merged "), "{}", dry.text());
    assert!(repo.refs().iter().all(|name| !name.ends_with("heads/all")));
    let made = || repo.git(&["for-each-ref", "--format=%(refname)", "refs/phalanx/*/merge/*"]);
    assert_eq!(made(), "", "a look keeps nothing");
    let ran = install.run(&["merge", "work", "--into", "all", "-o", "json"]).ended_with(7);
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&document["kind"], &document["schema_version"]), (&"Merge".into(), &1.into()));
    let outcome = |name: &str| {
        let items = document["items"].as_array().unwrap();
        items.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    for (name, wanted) in [
        ("adds", "merged"),
        ("alone", "red"),
        ("first", "merged"),
        ("second", "conflict"),
        ("markers", "merged"),
    ] {
        assert_eq!(outcome(name)["outcome"], wanted, "{name}: {}", outcome(name));
    }
    assert_eq!(outcome("second")["files"][0]["path"], "list.txt");
    assert_eq!(repo.git(&["show", "all:list.txt"]), "FIRST\ntwo");
    assert_eq!(repo.git(&["show", "all:a.txt"]), "a");
    assert!(repo.git(&["show", "all:doc.md"]).contains("<<<<<<< x"));
    assert_eq!(repo.git(&["rev-parse", "all"]), document["to"].as_str().unwrap());
    assert_eq!(
        (picture() == before, repo.head()),
        (true, head),
        "the person's files and index are as they were"
    );
    let tasks = install.tasks("work");
    assert_eq!((state(&tasks, "adds"), state(&tasks, "second")), (TaskState::Merged, TaskState::Accepted));
    // What a person resolved by hand is known.
    let branch =
        tasks.iter().find(|task| task.spec.name.as_str() == "second").unwrap().branch.clone().unwrap();
    let side = install.text_path("side");
    repo.git(&["worktree", "add", "-q", &side, "all"]);
    repo.git(&["-C", &side, "merge", "-q", "-X", "theirs", "-m", "by hand", &branch]);
    repo.git(&["worktree", "remove", &side]);
    let again = install.run(&["merge", "work", "--into", "all", "--task", "second"]).succeeded();
    assert!(again.text().contains("already-there"), "{}", again.text());
    assert_eq!(state(&install.tasks("work"), "second"), TaskState::Merged);
    // What is merged is told as such, and can be brought into another branch too.
    let again = install.run(&["merge", "work", "--into", "all", "--task", "adds"]).succeeded();
    assert!(again.text().contains("already-there"), "{}", again.text());
    assert!(
        again.stderr.contains("1 of 1 tasks") && again.stderr.contains("were there already"),
        "{}",
        again.stderr
    );
    install.run(&["merge", "work", "--into", "other", "--task", "adds"]).succeeded();
    assert_eq!(repo.git(&["show", "other:a.txt"]), "a");
    // What it made on its way is nobody's only copy: it is in the branches.
    assert_ne!(made(), "");
    install.run(&["gc", "--what", "refs", "--older", "0", "--yes"]).succeeded();
    assert_eq!(made(), "");
    let _ = install.run(&["merge", "nobody"]).ended_with(3);
    let _ = install.run(&["merge", "work", "--into", "a..b"]).ended_with(5);
}

#[test]
fn work_that_breaks_what_was_merged_before_it_is_found_and_left_out() {
    let install = Install::start();
    let repo = install.repo("repo");
    accepted(
        &install,
        &repo,
        "work",
        "  - {name: careful, command: 'echo a > a.txt', verify: 'echo looking; test ! -e culprit.txt'}
  - {name: harmless, command: 'echo b > b.txt', verify: 'true'}
  - {name: culprit, command: 'echo c > culprit.txt', verify: 'test -f culprit.txt'}
  - {name: after, command: 'echo d > d.txt', verify: 'test -f d.txt'}
",
    );
    let ran = install.run(&["merge", "work", "--into", "all", "-o", "json"]).ended_with(7);
    assert!(
        ran.stderr.contains("verifying the whole: what verifies careful, once after is merged"),
        "{}",
        ran.stderr
    );
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let items = document["items"].as_array().unwrap();
    let outcomes: Vec<_> = items.iter().map(|row| row["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["merged", "merged", "red", "merged"]);
    let reason = items[2]["reason"].as_str().unwrap();
    assert!(reason.contains("the verification of careful fails: ") && reason.contains("exit 1"), "{reason}");
    let log = install.run(&["logs", items[2]["agent"].as_str().unwrap()]).succeeded();
    assert!(log.text().contains("looking"), "{}", log.text());
    assert_eq!(
        repo.git(&["ls-tree", "--name-only", "all", "a.txt", "b.txt", "culprit.txt", "d.txt"]),
        "a.txt\nb.txt\nd.txt"
    );
    assert_eq!(state(&install.tasks("work"), "culprit"), TaskState::Accepted);
}

#[test]
fn a_merge_goes_on_over_killed_parts_and_merges_nothing_twice() {
    let install = Install::start();
    let repo = install.repo("repo");
    let verify = "touch @DIR@/verifying; while test -e @DIR@/wanted -a ! -e @DIR@/go; do sleep 0.05; done; test -f README";
    accepted(
        &install,
        &repo,
        "work",
        &format!(
            "  - {{name: a, command: 'echo a > a.txt', verify: '{verify}'}}\n  - {{name: b, command: 'echo b > b.txt'}}\n"
        ),
    );
    install.file("wanted", "");
    std::fs::remove_file(install.path("verifying")).unwrap();
    let merging = install.spawn(&["merge", "work", "--into", "all"]);
    let there = || install.path("verifying").exists();
    wait::until(wait::LIMIT, "the merged commit is being verified", there, |there| *there);
    install.kill("manager");
    install.kill("hostd");
    install.file("go", "");
    let ran = merging.end().succeeded();
    assert!(ran.stderr.contains("2 of 2 tasks merged into all"), "{}", ran.stderr);
    let merges = repo.git(&["log", "--merges", "--format=%s", "all"]);
    assert_eq!(merges.lines().count(), 2, "{merges}");
}
