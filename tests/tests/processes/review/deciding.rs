//! `accept` and `reject`: a person has the last word, it is kept, and what he says reaches the next attempt.

use phalanx_tests::install::Install;
use phalanx_tests::wait;
use protocol::task::{TaskState, TaskView, Verdict};

/// What `run` says beside its answer.
fn submit(install: &Install, name: &str, tasks: &str, code: i32) -> String {
    let file = install.file(&format!("{name}.yaml"), format!("name: {name}\ntasks:\n{tasks}"));
    install.run(&["run", &file]).ended_with(code).stderr
}

fn until(install: &Install, run: &str, task: &str, state: TaskState) -> TaskView {
    let look = || install.task(run, task);
    wait::until(wait::LIMIT, &format!("{task} is {state}"), look, |task| task.state == state)
}

#[test]
fn rejected_work_is_done_again_with_the_comment_and_lands_when_it_is_accepted() {
    let install = Install::start();
    let repo = install.repo("repo");
    let at = repo.path.display();
    let script = "if test -n \"$PHALANX_FEEDBACK_FILE\"; then cp \"$PHALANX_FEEDBACK_FILE\" said; else echo draft > said; fi";
    let tasks = format!(
        "  - {{name: essay, repo: '{at}', accept: review, command: [sh, -c, '{script}'], verify: 'test -f said', labels: {{kind: text}}}}\n  \
           - {{name: other, repo: '{at}', accept: review, command: [sh, -c, 'echo x > x']}}\n"
    );
    let said = submit(&install, "drafts", &tasks, 8);
    assert!(said.contains("phalanx accept") && said.contains("/TASK --comment"), "{said}");
    let essay = install.task("drafts", "essay");
    assert_eq!(
        (essay.state, essay.attempts[0].verification.as_ref().unwrap().passed),
        (TaskState::Review, Some(true))
    );
    assert!(repo.refs().iter().all(|name| !name.contains("heads/phalanx")), "nothing landed yet");

    // A long comment goes whole to the next attempt.
    let comment = format!("more of it\n{}", "naïve ".repeat(2_000));
    let ran = install.run_with(&["reject", "drafts/essay", "--comment", "-"], comment.as_bytes()).succeeded();
    assert!(ran.text().contains("essay"), "{}", ran.text());
    let essay = until(&install, "drafts", "essay", TaskState::Review);
    assert_eq!((essay.attempts.len(), essay.decisions.len()), (2, 1));
    assert_eq!((essay.decisions[0].verdict, essay.decisions[0].attempt), (Verdict::Rejected, 1));
    let said = install.run(&["diff", "essay"]).succeeded().text();
    assert!(said.contains("+more of it") && said.contains(&format!("+{}", "naïve ".repeat(2_000))));

    // Accepted, by label, with a yes.
    let refused = install.run(&["accept", "-l", "kind=text"]).ended_with(2);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    let _ = install.run(&["accept", "-l", "kind=text", "--yes", "--comment", "fine now"]).succeeded();
    let landed = |task: &TaskView| task.branch.is_some();
    let essay = wait::until(wait::LIMIT, "it landed", || install.task("drafts", "essay"), landed);
    let branch = essay.branch.clone().unwrap();
    assert!(repo.git(&["show", &format!("{branch}:said")]).starts_with("more of it"));
    let wide = install.run(&["tasks", "drafts", "-o", "wide"]).succeeded().text();
    assert!(wide.contains("accepted #2 by") && wide.contains("fine now"), "{wide}");

    // Taken back: the branch is told of and stays, until the next acceptance moves it.
    let first = repo.git(&["rev-parse", &branch]);
    let ran = install.run(&["reject", "essay", "--comment", "shorter"]).succeeded();
    assert!(ran.stderr.contains(&branch), "{}", ran.stderr);
    let _ = until(&install, "drafts", "essay", TaskState::Review);
    assert_eq!(repo.git(&["rev-parse", &branch]), first);
    let _ = install.run(&["accept", "essay"]).succeeded();
    let moved = || repo.git(&["rev-parse", &branch]);
    wait::until(wait::LIMIT, "its branch is moved", moved, |now| *now != first);
    assert_eq!(repo.git(&["show", &format!("{branch}:said")]), "shorter");

    // Who merges hears of what still waits for a person.
    let dry = install.run(&["merge", "drafts", "--into", "all", "--dry-run"]).succeeded();
    assert!(dry.stderr.contains("not accepted yet: other (REVIEW)"), "{}", dry.stderr);

    // For good, several at once, keys, and what cannot be.
    let json = ["reject", "other", "--final", "--key", "once", "-o", "json"];
    let once = install.run(&json).succeeded();
    let document: serde_json::Value = serde_json::from_slice(&once.stdout).unwrap();
    assert_eq!((&document["kind"], &document["items"][0]["state"]), (&"TaskList".into(), &"REJECTED".into()));
    let _ = install.run(&json).succeeded();
    assert_eq!(install.task("drafts", "other").decisions.len(), 1, "the same key decides once");
    let mixed = install.run(&["reject", "essay", "other", "--yes"]).ended_with(5);
    assert!(mixed.stderr.contains("other: the task is REJECTED"), "{}", mixed.stderr);
    let _ = install.run(&["accept", "nobody"]).ended_with(3);
    let _ = install.run(&["accept"]).ended_with(2);
    let _ = install.run(&["reject", "essay", "-f", "/no/such/file"]).ended_with(3);
}

#[test]
fn a_branch_that_cannot_be_made_is_told_and_the_work_stays_accepted() {
    let install = Install::start();
    let repo = install.repo("repo");
    let at = repo.path.display();
    let task =
        format!("  - {{name: essay, repo: '{at}', accept: review, command: [sh, -c, 'echo x > x']}}\n");
    submit(&install, "taken", &task, 8);
    let branch = install.agent("taken/essay#1").report().workspace.clone().unwrap().branch.unwrap();
    repo.git(&["branch", &branch, "main"]);
    let ran = install.run(&["accept", "taken/essay"]).ended_with(5);
    assert!(
        ran.stderr.contains("accepted, but") && ran.stderr.contains("its branch was not made"),
        "{}",
        ran.stderr
    );
    let essay = install.task("taken", "essay");
    assert_eq!((essay.state, essay.branch), (TaskState::Accepted, None));
}

#[test]
fn patches_of_a_run_are_those_of_accepted_work_unless_all_is_asked_for() {
    let install = Install::start();
    let repo = install.repo("repo");
    let at = repo.path.display();
    let tasks = format!(
        "  - {{name: taken, repo: '{at}', command: [sh, -c, 'echo x > x']}}\n  \
           - {{name: open, repo: '{at}', accept: review, command: [sh, -c, 'echo y > y']}}\n"
    );
    submit(&install, "mixed", &tasks, 7);
    let (some, all) = (install.text_path("some"), install.text_path("all"));
    let ran = install.run(&["patch", "mixed", "--out", &some]).succeeded();
    assert!(ran.text().contains("taken-") && !ran.text().contains("open-"), "{}", ran.text());
    let ran = install.run(&["patch", "mixed", "--out", &all, "--all"]).succeeded();
    assert!(ran.text().contains("taken-") && ran.text().contains("open-"), "{}", ran.text());
}
