//! Which two states a `diff` compares.

use protocol::compare::Compared;
use protocol::error::ErrorCode;
use protocol::task::TaskState;

use super::super::world::{BASE, WORK, World, repo_spec, run_spec, task_spec};

#[test]
fn a_task_is_compared_by_what_was_recorded_of_its_attempt() {
    let mut world = World::new();
    let run = world.submit(run_spec("nightly"), vec![repo_spec("fix")]).unwrap();
    let agent = world.at_work(run, "fix");
    let early = world.core.to_compare("fix", None).unwrap_err();
    assert_eq!(
        early.code,
        ErrorCode::Conflict,
        "nothing is recorded and its workspace is not known: {early}"
    );
    world.exit(agent, 0);
    assert_eq!(world.state(run, "fix"), TaskState::Accepted);
    let id = world.task(run, "fix").id;
    for target in ["fix", "nightly/fix", &format!("{run}/{id}"), &id.to_string()] {
        let found = world.core.to_compare(target, None).unwrap();
        let commits =
            Compared::Commits { repo: String::from("/repo"), from: BASE.to_owned(), to: WORK.to_owned() };
        assert_eq!(found.what, commits, "{target}");
        assert_eq!((found.about.task, found.about.attempt), (Some(id), Some(1)), "{target}");
        assert_eq!(found.host, world.task(run, "fix").attempts[0].host);
    }
    let code = |target: &str, attempt| world.core.to_compare(target, attempt).unwrap_err().code;
    assert_eq!(code("fix", Some(2)), ErrorCode::NotFound);
    assert_eq!(code("nightly/other", None), ErrorCode::NotFound);
    assert_eq!(code("nobody", None), ErrorCode::NotFound);
}

#[test]
fn a_name_of_a_task_and_of_an_agent_is_not_guessed() {
    let mut world = World::new();
    let run = world.submit(run_spec("nightly"), vec![repo_spec("fix")]).unwrap();
    let agent = world.at_work(run, "fix");
    world.exit(agent, 0);
    world.create("fix").unwrap();
    let refused = world.core.to_compare("fix", None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(world.core.to_compare("nightly/fix", None).is_ok());
}

#[test]
fn a_task_means_one_of_the_latest_run() {
    let mut world = World::new();
    world.submit(run_spec("one"), vec![task_spec("same")]).unwrap();
    world.pass(1_000);
    let latest = world.submit(run_spec("two"), vec![task_spec("same")]).unwrap();
    let id = world.task(latest, "same").id;
    assert_eq!(world.core.find_task("same"), Ok(id));
    assert_ne!(world.core.find_task("one/same"), Ok(id));
    assert_eq!(world.core.find_task("one/none").unwrap_err().code, ErrorCode::NotFound);
}
