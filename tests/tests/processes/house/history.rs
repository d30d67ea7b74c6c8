//! Records of runs that are over go beyond what is to be kept, never those that somebody may come back to.

use phalanx_tests::install::Install;
use phalanx_tests::json;
use phalanx_tests::wait;
use serde_json::Value;

fn names(install: &Install) -> Vec<String> {
    let runs: Vec<json::Run> = json::items(&install.run(&["runs", "-o", "json"]).succeeded().stdout);
    let mut names: Vec<String> = runs.into_iter().map(|run| run.name).collect();
    names.sort();
    names
}

/// Name, outcome and reason of each run that `gc` names.
fn gc(install: &Install, extra: &[&str]) -> Vec<(String, String, String)> {
    let mut args = vec!["gc", "-o", "json", "--what", "runs", "--older", "0"];
    args.extend(extra);
    let document: Value = serde_json::from_slice(&install.run(&args).succeeded().stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = document["items"].as_array().unwrap().iter();
    let mut rows: Vec<_> = items
        .map(|item| {
            assert_eq!((item["what"].as_str(), item["host"].is_null()), (Some("run"), true), "{item}");
            (text(&item["name"]), text(&item["outcome"]), text(&item["kept"]))
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn runs_that_nobody_needs_are_forgotten_when_asked_and_as_configured() {
    let install = Install::start();
    let repo = install.repo("repo");
    let path = phalanx_tests::programs::text(&repo.path);
    install
        .run_with(&["run", "-", "--format", "lines", "--name", "done"], b"true\ntrue # again\n")
        .succeeded();
    let yaml = format!(
        "defaults: {{repo: '{path}', commit: auto}}\ntasks:\n  - {{name: a, command: 'echo work > made'}}\n"
    );
    install.run(&["run", &install.file("work.yaml", yaml), "--name", "work"]).succeeded();
    install.run_with(&["run", "-", "--format", "lines", "--name", "failed"], b"false\n").ended_with(8);

    let over = || gc(&install, &["--dry-run"]);
    let cleared =
        |rows: &Vec<(String, String, String)>| rows.iter().any(|row| row.0 == "done" && row.1 == "would-go");
    let planned = wait::until(wait::LIMIT, "the agents of the one are cleared away", over, cleared);
    let kept = |name: &str| planned.iter().find(|row| row.0 == name && row.1 == "kept").unwrap().2.clone();
    assert!(kept("work").contains("accepted and not merged"), "{planned:?}");
    assert!(kept("failed").contains("is still there"), "{planned:?}");
    assert_eq!(names(&install), ["done", "failed", "work"], "a look changes nothing");

    let done = gc(&install, &["--yes"]);
    assert!(done.contains(&("done".to_owned(), "gone".to_owned(), String::new())), "{done:?}");
    assert_eq!(names(&install), ["failed", "work"]);
    install.run(&["tasks", "done"]).ended_with(3);
    install.restart();
    assert_eq!(names(&install), ["failed", "work"], "it does not come back");

    install.run(&["merge", "work", "--into", "integration"]).succeeded();
    let refs = repo.git(&["for-each-ref", "refs/phalanx", "refs/heads"]);
    install.run(&["config", "set", "retention.runs", "500, 1s"]).succeeded();
    install.restart();
    let left = || names(&install);
    wait::until(wait::LIMIT, "the merged one goes", left, |names| names == &["failed"]);
    assert_eq!(repo.git(&["for-each-ref", "refs/phalanx", "refs/heads"]), refs, "its refs stay");
    let log = std::fs::read_to_string(install.layout().log_file("manager")).unwrap();
    assert!(log.contains("the records of a run that was over went") && log.contains("work"), "{log}");
}
