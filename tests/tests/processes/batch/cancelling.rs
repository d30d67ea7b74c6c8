//! `cancel`: a tree at once, work that is kept, and the truth about what was over already. Attempts by their run's name.

use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::task::TaskState;

fn submit(install: &Install, name: &str, tasks: &str) {
    let text = format!("name: {name}\ntasks:\n{tasks}").replace("@FAKE@", &fake_agent());
    let file = install.file(&format!("{name}.yaml"), text);
    install.run(&["run", &file, "--detach"]).succeeded();
}

#[test]
fn a_cancelled_task_takes_its_tree_with_it_and_leaves_the_others() {
    let install = Install::start();
    let tasks = "  - {name: root, command: ['@FAKE@', hang]}\n  \
                 - {name: child, command: 'true', depends_on: root}\n  \
                 - {name: leaf, command: 'true', depends_on: child}\n  \
                 - {name: other, command: 'true'}\n";
    submit(&install, "tree", tasks);
    let running = || install.task("tree", "root").state;
    wait::until(wait::LIMIT, "it runs", running, |state| *state == TaskState::Running);
    // As RUN/TASK#ATTEMPT, wherever an agent is named.
    assert_eq!(install.agent("tree/root#1").name, "root#1");
    install.run(&["wait", "tree/root#1", "--for", "started"]).succeeded();
    install.run(&["show", "tree/root#2"]).ended_with(3);

    let ran = install.run(&["cancel", "root", "--wait", "--grace", "30s"]).succeeded();
    assert!(ran.stderr.contains("and 2 that depend on it: child, leaf"), "{}", ran.stderr);
    for name in ["root", "child", "leaf"] {
        assert_eq!(install.task("tree", name).state, TaskState::Cancelled, "{name}");
    }
    install.run(&["wait", "tree"]).ended_with(0);
    assert_eq!(install.task("tree", "other").state, TaskState::Accepted);
    // Once more, by other names: it is over, which is no error.
    let again = install.run(&["cancel", "tree/root"]).succeeded();
    assert!(again.stderr.contains("it was over already: CANCELLED"), "{}", again.stderr);
    let whole = install.run(&["cancel", "tree", "--wait"]).succeeded();
    assert!(whole.stderr.contains("was over already"), "{}", whole.stderr);
    install.run(&["cancel", "nothing"]).ended_with(3);
    install.run(&["cancel", "tree/nothing"]).ended_with(3);
    install.run(&["cancel", "tree", "--grace", "soon"]).ended_with(2);
    // A retry of the root brings the tree back.
    install.run(&["retry", "tree", "root"]).succeeded();
    let back = || install.task("tree", "leaf").state;
    wait::until(wait::LIMIT, "it is back", back, |state| *state == TaskState::Queued);
    install.run(&["cancel", "tree", "--wait"]).succeeded();
}

#[test]
fn what_an_attempt_did_before_it_was_cancelled_is_kept_also_in_review() {
    let install = Install::start();
    let repo = install.repo("repo");
    let at = repo.path.display();
    let tasks = format!(
        "  - {{name: busy, repo: '{at}', command: ['@FAKE@', write, half.txt, half, hang]}}\n  \
           - {{name: done, repo: '{at}', accept: review, command: ['@FAKE@', write, whole.txt, whole]}}\n"
    );
    submit(&install, "kept", &tasks);
    let states = || (install.task("kept", "busy").state, install.task("kept", "done").state);
    let right = (TaskState::Running, TaskState::Review);
    wait::until(wait::LIMIT, "one runs, one is in review", states, |states| *states == right);
    let folder = install.agent("kept/busy#1").workspace();
    let written = || folder.join("half.txt").exists();
    wait::until(wait::LIMIT, "it has begun", written, |written| *written);
    install.run(&["cancel", "kept", "--wait"]).succeeded();
    for (name, file) in [("busy", "half.txt"), ("done", "whole.txt")] {
        let task = install.task("kept", name);
        assert_eq!(task.state, TaskState::Cancelled, "{name}");
        let collected = task.attempts[0].collected.clone().unwrap();
        let kept = collected.result_ref.unwrap();
        assert!(!repo.git(&["show", &format!("{kept}:{file}")]).is_empty(), "{name}: {kept}");
    }
}

#[test]
fn retry_failed_brings_back_what_failed_with_what_depends_on_it() {
    let install = Install::start();
    let folder = install.text_path("");
    let tasks = "  - {name: root, command: 'test -e @DIR@/fixed'}\n  \
                 - {name: child, command: 'true', depends_on: root}\n  \
                 - {name: good, command: 'true'}\n"
        .replace("@DIR@", folder.trim_end_matches('/'));
    submit(&install, "again", &tasks);
    install.run(&["wait", "again"]).succeeded();
    assert_eq!(install.task("again", "child").state, TaskState::Cancelled);
    install.file("fixed", "");
    install.run(&["retry", "again", "--failed"]).succeeded();
    install.run(&["wait", "again", "--for", "accepted"]).succeeded();
    assert_eq!(install.task("again", "good").attempts.len(), 1);
    assert_eq!(install.task("again", "root").attempts.len(), 2);
}
