//! Acceptance is not the agent's word: the recorded commit is checked in a fresh checkout that it cannot reach.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::task::{FailureClass, TaskState, TaskView};

fn run(install: &Install, repo: &Repo, name: &str, tasks: &str, code: i32) -> Vec<TaskView> {
    let folder = install.text_path("");
    let yaml = format!("name: {name}\ntasks:\n{tasks}")
        .replace("@FAKE@", &fake_agent())
        .replace("@REPO@", repo.path.to_str().unwrap())
        .replace("@DIR@", folder.trim_end_matches('/'));
    let file = install.file(&format!("{name}.yaml"), yaml);
    install.run(&["run", &file]).ended_with(code);
    // The branch of an accepted task is made by its host.
    let landed = |tasks: &Vec<TaskView>| {
        tasks.iter().all(|task| task.state != TaskState::Accepted || task.branch.is_some())
    };
    wait::until(wait::LIMIT, "accepted tasks have branches", || install.tasks(name), landed)
}

fn task<'a>(tasks: &'a [TaskView], name: &str) -> &'a TaskView {
    tasks.iter().find(|task| task.spec.name.to_string() == name).unwrap()
}

#[test]
fn only_what_passes_in_a_fresh_checkout_is_accepted_on_a_branch_of_the_repository() {
    let install = Install::start();
    let repo = install.repo("repo");
    repo.write(".gitignore", "*.tmp\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "ignore"]);
    // The user's own unfinished work stays as it is.
    repo.write("README", "half done\n");
    repo.write("mine.txt", "untracked\n");
    repo.git(&["add", "README"]);
    let picture = repo.picture();
    let tasks = run(
        &install,
        &repo,
        "checked",
        "
  - {name: good, repo: '@REPO@', command: ['@FAKE@', write, answer.txt, '42'], verify: ['grep -q 42 answer.txt', 'pwd > @DIR@/checkout']}
  - {name: wrong, repo: '@REPO@', command: ['@FAKE@', write, answer.txt, '41'], verify: ['grep -q 42 answer.txt']}
  - {name: hidden, repo: '@REPO@', command: ['@FAKE@', write, answer.tmp, '42'], verify: ['grep -q 42 answer.tmp']}
  - {name: nothing, repo: '@REPO@', allow_no_change: true, command: ['@FAKE@', exit, '0'], verify: ['test -f answer.txt']}
  - {name: failing, repo: '@REPO@', command: ['@FAKE@', write, answer.txt, '42', exit, '1'], verify: ['grep -q 42 answer.txt']}
  - {name: committed, repo: '@REPO@', command: ['@FAKE@', write, answer.txt, '42', commit, mine], verify: ['grep -q 42 answer.txt', 'test \"$(git log -1 --format=%s)\" = mine']}
",
        7,
    );
    for (name, state) in [
        ("good", TaskState::Accepted),
        ("wrong", TaskState::Failed),
        ("hidden", TaskState::Failed),
        ("nothing", TaskState::Failed),
        ("failing", TaskState::Failed),
        ("committed", TaskState::Accepted),
    ] {
        let task = task(&tasks, name);
        assert_eq!(task.state, state, "{name}: {} {:?}", task.reason, task.attempts);
        assert!(!task.unverified, "{name}");
        assert_eq!(task.branch.is_some(), state == TaskState::Accepted, "{name}: {:?}", task.branch);
    }
    assert_eq!(task(&tasks, "wrong").attempts[0].failure.as_ref().unwrap().class, FailureClass::Verify);

    // The branch holds what was checked; the workspace was another folder.
    let good = task(&tasks, "good");
    let branch = good.branch.as_ref().unwrap();
    assert!(branch.starts_with("phalanx/checked-"), "{branch}");
    assert_eq!(repo.git(&["show", &format!("{branch}:answer.txt")]), "42");
    let verification = good.attempts[0].verification.as_ref().unwrap();
    assert_eq!(repo.git(&["rev-parse", branch]), verification.commit);
    let checkout = install.lines("checkout").concat();
    assert!(!checkout.contains(&good.attempts[0].agent.to_string()), "{checkout}");

    // Only new branches were added to what the user has.
    let mut after = repo.picture();
    after.retain(|path, _| {
        !path.starts_with(".git/refs/heads/phalanx") && !path.starts_with(".git/logs/refs/heads/phalanx")
    });
    assert!(picture == after, "the user's files, index and refs are as they were");
    assert_eq!(repo.refs().len(), 3);
}

#[test]
fn what_an_agent_leaves_behind_cannot_fool_the_check() {
    let install = Install::start();
    let repo = install.repo("repo");
    repo.write("check.sh", "test -f answer.txt\n");
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "check"]);
    let tasks = run(
        &install,
        &repo,
        "fooled",
        "
  # Settings and hooks of its own git folder do not reach the checkout.
  - name: hooks
    repo: '@REPO@'
    allow_no_change: true
    command: ['sh', '-c', 'git config core.hooksPath @DIR@/hooks; git config core.fsmonitor \"touch @DIR@/owned\"; mkdir -p .git/hooks; printf \"#!/bin/sh\\ntouch answer.txt @DIR@/owned\\n\" > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout']
    verify: ['test -f answer.txt']
  # Nor do files that are not part of the commit, its scratch folder or its cache.
  - name: scratch
    repo: '@REPO@'
    allow_no_change: true
    command: ['sh', '-c', 'touch \"$TMPDIR/answer.txt\" \"$XDG_CACHE_HOME/answer.txt\"']
    verify: ['test -f \"$TMPDIR/answer.txt\" || test -f \"$XDG_CACHE_HOME/answer.txt\"']
  # A program that is planted where the check looks for its own.
  - name: planted
    repo: '@REPO@'
    command: ['sh', '-c', 'printf \"#!/bin/sh\\nexit 0\\n\" > test; chmod +x test']
    verify: ['sh check.sh']
",
        8,
    );
    for task in &tasks {
        assert_eq!(task.state, TaskState::Failed, "{}: {}", task.spec.name, task.reason);
        let failure = task.attempts[0].failure.as_ref().unwrap();
        assert_eq!(failure.class, FailureClass::Verify, "{}: {}", task.spec.name, failure.reason);
    }
    assert!(!install.path("owned").exists(), "nothing of the agent's was run by us");
}

#[test]
fn a_workspace_that_changes_after_the_end_changes_no_verdict() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = "
  - name: late
    repo: '@REPO@'
    command: ['@FAKE@', tell-env, '@DIR@/where', PHALANX_WORKSPACE, write, answer.txt, '42']
    verify: ['touch @DIR@/verifying; while test ! -e @DIR@/edited; do sleep 0.05; done; grep -q 42 answer.txt']
";
    std::thread::scope(|scope| {
        let edit = scope.spawn(|| {
            wait::until(
                wait::LIMIT,
                "it is being verified",
                || install.path("verifying").exists(),
                |there| *there,
            );
            let workspace = install.lines("where").concat();
            std::fs::write(std::path::Path::new(&workspace).join("answer.txt"), "bad").unwrap();
            install.file("edited", "");
        });
        let tasks = run(&install, &repo, "late", tasks, 0);
        edit.join().unwrap();
        let branch = tasks[0].branch.as_ref().unwrap();
        assert_eq!(repo.git(&["show", &format!("{branch}:answer.txt")]), "42");
    });
}

#[test]
fn a_process_that_is_left_behind_delays_the_verdict_until_it_ends() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = "
  - name: early
    repo: '@REPO@'
    command: ['sh', '-c', 'trap \"\" HUP; (sleep 1; echo 42 > answer.txt) & exit 0']
    verify: ['grep -q 42 answer.txt']
";
    let tasks = run(&install, &repo, "early", tasks, 0);
    assert_eq!(tasks[0].state, TaskState::Accepted);
}

#[test]
fn a_failed_check_tells_the_next_attempt_why() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = "
  - name: learns
    repo: '@REPO@'
    command: ['sh', '-c', 'if test -n \"$PHALANX_FEEDBACK_FILE\"; then cp \"$PHALANX_FEEDBACK_FILE\" @DIR@/feedback; echo 42 > answer.txt; else echo 41 > answer.txt; fi']
    verify: ['grep 42 answer.txt || { echo the answer is wrong; exit 1; }']
    retries: {max: 2, backoff: 50ms}
";
    let tasks = run(&install, &repo, "learns", tasks, 0);
    assert_eq!((tasks[0].state, tasks[0].attempts.len()), (TaskState::Accepted, 2), "{:?}", tasks[0]);
    let feedback = install.lines("feedback").join("\n");
    assert!(feedback.contains("the answer is wrong"), "{feedback:?}");
}

#[test]
fn a_report_shows_no_sealed_value_and_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks = "
  - name: tells
    repo: '@REPO@'
    env: {TOKEN: s3cr3t-value-42}
    command: ['sh', '-c', 'echo mine $TOKEN; echo 42 > answer.txt']
    verify: ['env; exit 3']
    retries: 0
";
    run(&install, &repo, "tells", tasks, 8);
    let out = install.text_path("report");
    install.run(&["report", "tells", "--out", &out]).succeeded();
    for name in ["report.html", "report.json"] {
        let path = install.path("report").join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("s3cr3t-value-42") && text.contains("mine [redacted]"), "{name}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}
