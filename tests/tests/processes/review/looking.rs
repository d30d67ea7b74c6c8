//! `diff` and `patch`: what a person is shown is what was recorded, byte for byte, of any size.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use serde_json::Value;

fn submit(install: &Install, name: &str, tasks: &str, code: i32) {
    let yaml = format!("name: {name}\ntasks:\n{tasks}").replace("@FAKE@", &fake_agent());
    let file = install.file(&format!("{name}.yaml"), yaml);
    install.run(&["run", &file]).ended_with(code);
}

fn json(install: &Install, args: &[&str]) -> Value {
    serde_json::from_slice(&install.run(args).succeeded().stdout).unwrap()
}

#[test]
fn the_work_of_a_task_is_told_as_git_tells_it_and_applied_by_git_am() {
    let install = Install::start();
    let repo = install.repo("repo");
    repo.write("old name.txt", "a\nb\nc\nd\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "more"]);
    let at = repo.path.to_str().unwrap();
    // Two commits of its own and one that is made for it; CR LF, bytes, a rename, a hostile escape.
    let script = "export GIT_AUTHOR_NAME='Ä gent' GIT_AUTHOR_EMAIL=a@x; \
        printf 'one\\\\r\\\\n' > crlf; printf '\\\\000\\\\377' > bytes; git add -A; git commit -qm 'crlf: and bytes'; \
        git mv 'old name.txt' new.txt; git commit -qm 'renamed'; printf '\\\\033]52;c;eA==\\\\007' > escape";
    let tasks = format!(
        "  - {{name: works, repo: '{at}', command: [sh, -c, \"{script}\"]}}\n  \
           - {{name: idle, repo: '{at}', allow_no_change: true, command: ['true']}}\n  \
           - {{name: homeless, command: ['true']}}\n"
    );
    submit(&install, "looked", &tasks, 0);
    let task = install.task("looked", "works");
    let collected = task.attempts[0].collected.clone().unwrap();
    let (base, commit) = (collected.base_commit.unwrap(), collected.commit.unwrap());

    // A patch, exact in a pipe, however the task is named.
    let theirs = repo.git(&["diff", "--binary", "-M", "--full-index", &base, &commit]);
    for target in ["works", "looked/works", &task.id.to_string()] {
        let ran = install.run(&["diff", target]).succeeded();
        let ours = String::from_utf8_lossy(&ran.stdout).into_owned();
        let without_ids = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("index ")).map(str::to_owned).collect()
        };
        assert_eq!(without_ids(&ours), without_ids(&theirs), "{target}");
    }
    let stat = install.run(&["diff", "works", "--stat"]).succeeded().text();
    assert!(stat.contains("old name.txt => new.txt") && stat.contains("4 files changed"), "{stat}");
    assert_eq!(install.run(&["diff", "works", "--name-only"]).text(), "bytes\ncrlf\nescape\nnew.txt");
    let document = json(&install, &["diff", "works", "-o", "json"]);
    assert_eq!((&document["kind"], &document["schema_version"]), (&"Diff".into(), &1.into()));
    assert_eq!(
        (&document["sides"]["from"], &document["sides"]["to"]),
        (&base.into(), &commit.clone().into())
    );
    assert_eq!(document["items"][3]["old_path"], "old name.txt");
    assert_eq!(document["items"][0]["binary"], true);

    // Files for `git am`: the same tree, the same authors.
    let ran = install.run(&["patch", "works", "--out", "out"]).succeeded();
    assert!(ran.stderr.contains("git am --keep-cr"), "{}", ran.stderr);
    let files: Vec<String> = ran.text().lines().map(str::to_owned).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    repo.git(&["checkout", "-qb", "applied"]);
    for file in &files {
        let path = install.path("user").join(file);
        repo.git(&["am", "-q", "--keep-cr", path.to_str().unwrap()]);
    }
    assert_eq!(
        repo.git(&["rev-parse", "HEAD^{tree}"]),
        repo.git(&["rev-parse", &format!("{commit}^{{tree}}")])
    );
    assert_eq!(repo.git(&["log", "-1", "--skip=1", "--format=%an <%ae> %s"]), "Ä gent <a@x> renamed");
    // What is there is never written over unasked.
    let first = install.path("user").join(&files[0]);
    std::fs::write(&first, "mine").unwrap();
    let refused = install.run(&["patch", "works", "--out", "out"]).ended_with(5);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&first).unwrap(), b"mine");
    let _ = install.run(&["patch", "works", "--out", "out", "--force"]).succeeded();
    assert_ne!(std::fs::read(&first).unwrap(), b"mine");
    // A whole run: a folder for each task that has work.
    let ran = install.run(&["patch", "looked", "--out", "all"]).succeeded();
    assert_eq!(ran.text().lines().count(), 3, "{}", ran.text());
    assert!(ran.text().lines().all(|line| line.starts_with("all/works-")), "{}", ran.text());

    // What has nothing to show says so.
    let idle = install.run(&["diff", "idle"]).succeeded();
    assert_eq!((idle.text().as_str(), idle.stderr.contains("nothing was changed")), ("", true));
    let _ = install.run(&["diff", "homeless"]).ended_with(5);
    let _ = install.run(&["diff", "nobody"]).ended_with(3);
    let _ = install.run(&["diff", "looked/nobody"]).ended_with(3);
    let _ = install.run(&["diff", "works", "--attempt", "2"]).ended_with(3);
    let _ = install.run(&["diff", "works", "--attempt", "0"]).ended_with(2);
    let _ = install.run(&["patch", "nobody"]).ended_with(3);
}

#[test]
fn the_unfinished_work_of_a_live_agent_is_told_and_left_as_it_is() {
    let install = Install::start();
    let repo = install.repo("repo");
    let agent = install.create(
        "live",
        &["--repo", repo.path.to_str().unwrap()],
        &["write", "new.txt", "untracked", "hang"],
    );
    let work = install
        .agent_until("live", "it has written", |agent| agent.workspace().join("new.txt").exists())
        .workspace();
    // Staged, unstaged, committed elsewhere, and HEAD moved by hand.
    let git = |args: &[&str]| {
        let mut words = vec!["exec", "live", "--", "git"];
        words.extend(args);
        install.run(&words).succeeded().text()
    };
    let _ = git(&["switch", "-qc", "elsewhere"]);
    std::fs::write(work.join("README"), "changed\n").unwrap();
    let _ = git(&["add", "README"]);
    std::fs::write(work.join("README"), "changed again\n").unwrap();
    let index = std::fs::read(work.join(".git/index")).unwrap();
    let told = install.run(&["diff", "live"]).succeeded();
    let text = told.text();
    assert!(text.contains("+changed again") && text.contains("+untracked"), "{text}");
    assert!(told.stderr.contains("HEAD is on refs/heads/elsewhere"), "{}", told.stderr);
    assert_eq!(install.run(&["diff", &agent.id.to_string(), "--name-only"]).text(), "README\nnew.txt");
    assert_eq!(std::fs::read(work.join(".git/index")).unwrap(), index, "the agent's index is its own");
    let refused = install.run(&["patch", "live"]).ended_with(5);
    assert!(refused.stderr.contains("phalanx diff"), "{}", refused.stderr);
    // Without its git folder nothing of the surrounding repositories is shown in its place.
    std::fs::rename(work.join(".git"), work.join("moved")).unwrap();
    let failed = install.run(&["diff", "live"]).ended_with(1);
    assert!(failed.stderr.contains(".git"), "{}", failed.stderr);
}

#[test]
fn a_difference_larger_than_any_message_comes_whole() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = format!(
        "  - {{name: large, repo: '{}', command: [sh, -c, 'seq 1 4000000 > large.txt']}}\n",
        repo.path.display()
    );
    submit(&install, "big", &tasks, 0);
    let told = install.run(&["diff", "large"]).succeeded();
    assert!(told.stdout.len() > 30_000_000, "{}", told.stdout.len());
    std::fs::write(install.path("large.patch"), &told.stdout).unwrap();
    repo.git(&["apply", install.text_path("large.patch").as_str()]);
    let last = std::fs::read(repo.path.join("large.txt")).unwrap();
    assert!(last.ends_with(b"\n4000000\n"));
}
