//! What a submission may say.

use protocol::error::ErrorCode;
use protocol::notify::{NoticeKind, Told};
use protocol::task::{Accept, RunSpec, TaskSpec};

use super::world::{World, after, capped, repo_spec, run_spec, task_spec, verified};

fn refused(tasks: Vec<TaskSpec>) -> String {
    let mut world = World::new();
    let error = world.submit(run_spec("r"), tasks).unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert!(world.stored.is_empty(), "nothing was written");
    error.message
}

fn changed(change: impl FnOnce(&mut TaskSpec)) -> Vec<TaskSpec> {
    let mut spec = verified("a");
    change(&mut spec);
    vec![spec]
}

#[test]
fn a_refusal_names_the_task_and_the_field() {
    let text = String::from;
    let cases: Vec<(Vec<TaskSpec>, &str)> = vec![
        (vec![], r#"run "r": tasks"#),
        (vec![task_spec("a"), task_spec("a")], r#"task "a": name"#),
        (vec![after("a", &["z"])], r#"task "a": depends_on: there is no task "z""#),
        (changed(|s| s.program.clear()), r#"task "a": program"#),
        (changed(|s| s.program = vec![text("x\0y")]), r#"task "a": program"#),
        (changed(|s| s.repo = Some(text("relative"))), r#"task "a": repo"#),
        (changed(|s| s.base_commit = None), r#"task "a": base"#),
        (changed(|s| s.repo = None), r#"task "a": verify"#),
        (changed(|s| s.verify.clear()), r#"task "a": accept"#),
        (changed(|s| s.verify = vec![vec![]]), r#"task "a": verify"#),
        (changed(|s| s.accept = Accept::Exit), r#"task "a": accept"#),
        (changed(|s| s.accept = Accept::Unknown), r#"task "a": accept"#),
        (changed(|s| s.result = Some(text("../x"))), r#"task "a": result"#),
        (changed(|s| s.result = Some(text("/etc/passwd"))), r#"task "a": result"#),
        (changed(|s| s.outputs = vec![text("a/../../b")]), r#"task "a": outputs"#),
        (changed(|s| s.limits.memory_bytes = Some(0)), r#"task "a": limits.memory_bytes"#),
        (changed(|s| s.grace_ms = u64::MAX), r#"task "a": grace_ms"#),
        (changed(|s| s.retries.jitter_percent = 101), r#"task "a": retries.jitter"#),
        (changed(|s| s.move_after_ms = Some(299_999)), r#"task "a": move_after"#),
        (changed(|s| s.verify_timeout_ms = Some(0)), r#"task "a": verify_timeout_ms"#),
    ];
    for (tasks, named) in cases {
        let message = refused(tasks);
        assert!(message.contains(named), "{message} should name {named}");
    }
    let mut world = World::new();
    assert!(world.submit(capped(0), vec![task_spec("a")]).unwrap_err().message.contains("max_parallel"));
}

#[test]
fn a_run_names_each_hook_once_and_no_word_that_this_build_does_not_know() {
    let told = |to: &str, on: &[NoticeKind]| Told { to: to.parse().unwrap(), on: on.to_vec() };
    let asking = |notify| RunSpec { notify, ..run_spec("r") };
    for (notify, named) in [
        (vec![told("a", &[]), told("a", &[NoticeKind::Failed])], "named twice"),
        (vec![told("a", &[NoticeKind::Unknown])], "does not know one of the words"),
    ] {
        let mut world = World::new();
        let error = world.submit(asking(notify), vec![task_spec("a")]).unwrap_err();
        assert!(error.message.contains(named) && world.stored.is_empty(), "{}", error.message);
    }
    let mut world = World::new();
    let asked = vec![told("a", &[NoticeKind::RunEnd]), told("b", &[])];
    let run = world.submit(asking(asked.clone()), vec![task_spec("a")]).unwrap();
    assert_eq!(world.core.told(run), Some(asked.as_slice()));
    assert_eq!(world.core.asking().map(|(id, _)| id).collect::<Vec<_>>(), [run]);
    world.restart_manager();
    assert_eq!(world.core.told(run), Some(asked.as_slice()), "it is in the run's record");
}

#[test]
fn a_circle_is_refused_by_its_tasks() {
    let tasks = vec![after("out", &["a"]), after("a", &["b"]), after("b", &["c"]), after("c", &["a"])];
    assert!(refused(tasks).contains(r#""a" → "b" → "c" → "a""#));
    assert!(refused(vec![after("a", &["a"])]).contains(r#""a" → "a""#));
}

#[test]
fn all_problems_are_told_at_once() {
    let message = refused(vec![after("a", &["x"]), after("b", &["y"])]);
    assert!(message.contains("\"x\"") && message.contains("\"y\""), "{message}");
}

#[test]
fn attempts_of_like_named_tasks_have_names_and_branches_of_their_own() {
    let mut world = World::new();
    let long = "名".repeat(200);
    let names = ["Fix", "fix", "x.lock", "a:b", long.as_str()];
    let first = world.submit(run_spec("r"), names.iter().map(|name| repo_spec(name)).collect()).unwrap();
    let second = world.submit(run_spec("r"), names.iter().map(|name| repo_spec(name)).collect()).unwrap();
    let mut labels = std::collections::BTreeSet::new();
    let mut branches = std::collections::BTreeSet::new();
    for run in [first, second] {
        for name in &names {
            let agent = world.at_work(run, name);
            let spec = world.program(agent).spec.clone();
            assert!(labels.insert(spec.name));
            let branch = spec.checkout.unwrap().branch.unwrap();
            assert!(branch.is_ascii() && !branch.contains(".lock"), "{branch}");
            assert!(branches.insert(branch.to_lowercase()));
        }
    }
}
