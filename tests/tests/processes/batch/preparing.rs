//! `prepare:`: once per base, shown while it lasts, told when it fails, gone when hostd is killed in it.

use phalanx_tests::install::{Install, is_alive};
use phalanx_tests::json::{self, Reason};
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::agent::StartStep;
use protocol::task::{FailureClass, TaskState};

fn submit(install: &Install, repo: &Repo, name: &str, defaults: &str, tasks: &str) -> Vec<String> {
    let folder = install.text_path("");
    let text = format!(
        "name: {name}\ndefaults:\n  repo: '@REPO@'\n  allow_no_change: true\n{defaults}\ntasks:\n{tasks}"
    )
    .replace("@REPO@", repo.path.to_str().unwrap())
    .replace("@DIR@", folder.trim_end_matches('/'));
    let file = install.file(&format!("{name}.yaml"), text);
    ["run", &file].map(str::to_owned).to_vec()
}

fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn twenty_tasks_find_what_one_prepared_and_none_commits_it() {
    let install = Install::start();
    let repo = install.repo("repo");
    let tasks: String = (0..20)
        .map(|n| format!("  - {{name: t{n}, command: 'cat deps/lib > out{n}; date > deps/mine'}}\n"))
        .collect();
    let defaults = "  prepare: ['echo run >> @DIR@/runs', 'mkdir deps; echo \"lib for $WHO\" > deps/lib']\n  \
                    env: {WHO: all}\n  verify: ['grep -q \"lib for all\" deps/lib', 'test ! -e deps/mine']";
    let run = submit(&install, &repo, "many", defaults, &tasks);
    install.run(&words(&run)).succeeded();
    assert_eq!(install.lines("runs"), ["run"]);
    for (n, task) in install.tasks("many").iter().enumerate() {
        assert_eq!(task.state, TaskState::Accepted, "{}", task.reason);
        let commit = task.attempts[0].collected.as_ref().unwrap().commit.clone().unwrap();
        assert_eq!(repo.git(&["diff", "--name-only", "main", &commit]), format!("out{n}"));
        assert_eq!(repo.git(&["show", &format!("{commit}:out{n}")]), "lib for all");
    }
    // Other values are another base.
    let run = submit(
        &install,
        &repo,
        "other",
        "  prepare: ['echo run >> @DIR@/runs', 'mkdir deps; echo \"lib for $WHO\" > deps/lib']\n  env: {WHO: you}",
        "  - {name: t, command: 'grep you deps/lib'}\n",
    );
    install.run(&words(&run)).succeeded();
    assert_eq!(install.lines("runs").len(), 2);
}

#[test]
fn a_prepare_that_fails_is_told_with_what_it_printed_and_tried_again_by_the_next_attempt() {
    let install = Install::start();
    let repo = install.repo("repo");
    let prepare = "  prepare: 'echo run >> @DIR@/runs; echo npm says no >&2; test -e @DIR@/fixed || exit 7'";
    let run = submit(&install, &repo, "failing", prepare, "  - {name: a, command: 'true'}\n");
    install.run(&words(&run)).ended_with(8);
    let task = &install.tasks("failing")[0];
    let failure = task.attempts[0].failure.as_ref().unwrap();
    assert_eq!(failure.class, FailureClass::Start, "{failure:?}");
    assert_eq!(task.attempts[0].end.as_ref().unwrap().step, Some(StartStep::Prepare));
    assert!(failure.reason.contains("exit 7") && failure.reason.contains("npm says no"), "{failure:?}");
    let log = install.run(&["logs", "a"]).succeeded().text();
    assert!(log.contains("npm says no"), "{log}");
    install.file("fixed", "");
    install.run(&["retry", "failing", "--failed"]).succeeded();
    install.run(&["wait", "failing"]).succeeded();
    assert_eq!(install.tasks("failing")[0].state, TaskState::Accepted);
    assert_eq!(install.lines("runs").len(), 2);
}

#[test]
fn who_waits_for_its_base_says_so_and_can_be_cancelled() {
    let install = Install::start();
    let repo = install.repo("repo");
    let prepare = "  prepare: 'echo $$ >> @DIR@/pid; exec sleep 600'";
    let run = submit(
        &install,
        &repo,
        "slow",
        prepare,
        "  - {name: a, command: 'true'}\n  - {name: b, command: 'true'}\n",
    );
    let run: Vec<String> = run.into_iter().chain(["--detach".to_owned()]).collect();
    install.run(&words(&run)).succeeded();
    let why = || json::items::<Reason>(&install.run(&["why", "slow/a", "-o", "json"]).succeeded().stdout);
    wait::until(wait::LIMIT, "it says what it waits for", why, |reasons| {
        reasons.iter().any(|reason| reason.why.contains("preparing its base"))
    });
    // Others are started meanwhile.
    install.create("other", &[], &["hang"]);
    let pids = || install.lines("pid");
    let pid: u32 = wait::until(wait::LIMIT, "it runs", pids, |pids| pids.len() == 1)[0].parse().unwrap();
    install.run(&["cancel", "slow"]).succeeded();
    install.run(&["wait", "slow"]).succeeded();
    let alive = || is_alive(pid);
    wait::until(wait::LIMIT, "the program is gone with the last that waited", alive, |alive| !alive);
}

#[test]
fn a_hostd_that_is_killed_while_it_prepares_leaves_no_half_and_the_next_one_prepares_again() {
    let install = Install::start();
    let repo = install.repo("repo");
    let prepare = "  prepare: 'echo $$ >> @DIR@/pid; mkdir deps; echo half > deps/lib; test -e @DIR@/go || exec sleep 600; echo whole > deps/lib'";
    let run = submit(&install, &repo, "killed", prepare, "  - {name: a, command: 'grep whole deps/lib'}\n");
    let run: Vec<String> = run.into_iter().chain(["--detach".to_owned()]).collect();
    install.run(&words(&run)).succeeded();
    let pids = || install.lines("pid");
    let pid: u32 = wait::until(wait::LIMIT, "it runs", pids, |pids| pids.len() == 1)[0].parse().unwrap();
    install.file("go", "");
    install.kill("hostd");
    install.run(&["wait", "killed"]).succeeded();
    let task = &install.tasks("killed")[0];
    assert_eq!((task.state, task.attempts.len()), (TaskState::Accepted, 1), "{}", task.reason);
    assert_eq!(install.lines("pid").len(), 2);
    assert!(!is_alive(pid), "its program is gone");
    let left = std::fs::read_dir(install.layout().host().join("preparing")).unwrap().count();
    assert_eq!(left, 0);
}
