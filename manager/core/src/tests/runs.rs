//! The life of tasks: starts, ends, classes of failure, retries, dependencies, cancelling.

use protocol::agent::{Blob, End, EndCause, StartStep};
use protocol::api::{Mutation, Reply};
use protocol::error::ErrorCode;
use protocol::event::Fact;
use protocol::ids::{AgentId, RunId};
use protocol::report::Collected;
use protocol::task::{FailureClass, TaskSpec, TaskState, Waiting};

use super::world::{World, after, capped, collected, end, host_id, retried, run_spec, task_spec, verified};
use crate::Input;
use crate::fleet::agent::Standing;

fn fail_with(world: &mut World, run: RunId, task: &str, end: End) {
    let agent = world.at_work(run, task);
    world.finish(agent, end, collected(None));
}

fn fail(world: &mut World, run: RunId, task: &str) {
    let end = end(EndCause::Exited, Some(1), world.now);
    fail_with(world, run, task, end);
}

fn rebooted(world: &mut World, run: RunId, task: &str) {
    let end = end(EndCause::Rebooted, None, world.now);
    fail_with(world, run, task, end);
}

#[test]
fn a_task_is_accepted_unverified_by_exit_zero() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    assert_eq!(world.state(run, "a"), TaskState::Running);
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.unverified), (TaskState::Accepted, true));
    assert_eq!(world.standing(agent), Standing::Gone, "cleared away");
    let states: Vec<TaskState> = world
        .events
        .iter()
        .filter_map(|fact| if let Fact::TaskState { state, .. } = fact { Some(*state) } else { None })
        .collect();
    assert_eq!(states, [TaskState::Assigned, TaskState::Running, TaskState::Accepted]);
    let ended = Fact::RunEnded { run, accepted: 1, failed: 0, cancelled: 0 };
    assert_eq!(world.events.iter().filter(|fact| **fact == ended).count(), 1);
    world.check_store();
}

#[test]
fn an_attempt_ends_only_when_nothing_is_left_running_and_its_work_is_collected() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    let now = world.now;
    let program = world.program(agent);
    program.end = Some(end(EndCause::Exited, Some(0), now));
    program.draining = true;
    world.report(agent);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    world.program(agent).draining = false;
    world.report(agent);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    world.program(agent).collected = Some(collected(None));
    world.report(agent);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn each_end_has_its_class() {
    let start = |step| End { step: Some(step), ..end(EndCause::StartFailed, None, Default::default()) };
    let plain = |cause| end(cause, None, Default::default());
    let cases = [
        (end(EndCause::Exited, Some(1), Default::default()), FailureClass::Agent),
        (plain(EndCause::Signalled), FailureClass::Agent),
        (plain(EndCause::OutOfMemory), FailureClass::Limit),
        (plain(EndCause::TimeLimit), FailureClass::Limit),
        (start(StartStep::ProgramMissing), FailureClass::Start),
        (start(StartStep::User), FailureClass::Start),
        (start(StartStep::Checkout), FailureClass::Infrastructure),
        (start(StartStep::Host), FailureClass::Infrastructure),
        (plain(EndCause::Lease), FailureClass::Infrastructure),
        (plain(EndCause::SupervisorLost), FailureClass::Infrastructure),
        (plain(EndCause::Rebooted), FailureClass::Infrastructure),
        (plain(EndCause::Unknown), FailureClass::Infrastructure),
    ];
    for (end, class) in cases {
        let mut world = World::new();
        let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
        fail_with(&mut world, run, "a", end.clone());
        let failure = world.task(run, "a").attempts[0].failure.clone().unwrap();
        assert_eq!(failure.class, class, "{end}");
        assert_eq!(failure.charged, class != FailureClass::Infrastructure);
    }
}

#[test]
fn exit_zero_without_the_declared_files_is_the_agents_failure_and_failed_collection_is_not() {
    let cases = [
        (
            Collected { problems: vec![String::from("result.json is missing")], ..collected(None) },
            FailureClass::Agent,
        ),
        (Collected { failed: Some(String::from("disk")), ..collected(None) }, FailureClass::Infrastructure),
        (
            Collected { failed: Some("x".into()), failed_by_content: true, ..collected(None) },
            FailureClass::Agent,
        ),
    ];
    for (collected, class) in cases {
        let mut world = World::new();
        let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
        let agent = world.at_work(run, "a");
        let end = end(EndCause::Exited, Some(0), world.now);
        world.finish(agent, end, collected);
        assert_ne!(world.state(run, "a"), TaskState::Accepted);
        assert_eq!(world.task(run, "a").attempts[0].failure.as_ref().unwrap().class, class);
    }
}

#[test]
fn a_failed_attempt_is_tried_again_with_back_off_and_its_log() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 2)]).unwrap();
    let first = world.at_work(run, "a");
    fail(&mut world, run, "a");
    let task = world.task(run, "a");
    assert_eq!(task.state, TaskState::Queued);
    assert_eq!(task.waiting, Some(Waiting::Backoff { until: world.now.after_ms(1_000) }));
    assert_eq!(world.logs, [first]);
    let blob = Blob { sha256: "a".repeat(64), bytes: 10 };
    world.input(Input::LogKept { agent: first, blob: Some(blob.clone()) });
    world.pass(1_001);
    let second = world.at_work(run, "a");
    assert_ne!(first, second);
    assert_eq!(world.program(second).spec.feedback, Some(blob));
    fail(&mut world, run, "a");
    world.input(Input::LogKept { agent: second, blob: None });
    world.pass(1_999);
    assert_eq!(world.state(run, "a"), TaskState::Queued, "the wait has doubled");
    world.pass(2);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    fail(&mut world, run, "a");
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Failed, 3));
    assert_eq!(world.standing(first), Standing::Gone);
    assert_eq!(world.standing(second), Standing::Gone);
    assert_eq!(world.standing(task.attempts[2].agent), Standing::Ended, "the last stays for a look");
}

#[test]
fn a_retry_waits_for_the_log_no_longer_than_its_limit() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 1)]).unwrap();
    fail(&mut world, run, "a");
    world.pass(9_900);
    assert_eq!(world.state(run, "a"), TaskState::Queued);
    world.pass(200);
    assert_eq!(world.state(run, "a"), TaskState::Running);
}

#[test]
fn a_class_that_is_not_retried_fails_at_once() {
    let mut world = World::new();
    let mut spec = retried("a", 5);
    spec.retries.on = vec![FailureClass::Verify];
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    fail(&mut world, run, "a");
    assert_eq!(world.state(run, "a"), TaskState::Failed);
}

#[test]
fn infrastructure_is_not_charged_within_its_bound_over_restarts_of_the_manager() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 1)]).unwrap();
    let mut starts = 1;
    while world.state(run, "a") == TaskState::Running {
        if starts == 4 {
            fail(&mut world, run, "a");
        } else {
            rebooted(&mut world, run, "a");
        }
        if starts == 6 {
            world.restart_manager();
        }
        world.pass(200_000);
        starts += u32::from(world.state(run, "a") == TaskState::Running);
        assert!(starts < 50);
    }
    assert_eq!(world.state(run, "a"), TaskState::Failed);
    assert_eq!(world.task(run, "a").attempts.len(), 1 + 1 + 10);
    world.check_store();
}

#[test]
fn infrastructure_alone_does_not_use_up_the_charged_starts() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 5)]).unwrap();
    while world.state(run, "a") == TaskState::Running {
        rebooted(&mut world, run, "a");
        world.pass(200_000);
    }
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Failed, 11));
}

#[test]
fn what_was_stopped_by_hand_is_not_tried_again() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 5)]).unwrap();
    let agent = world.at_work(run, "a");
    world.stop(&agent.to_string());
    let task = world.task(run, "a");
    assert_eq!((task.state, task.reason.as_str()), (TaskState::Failed, "stopped by hand"));
}

#[test]
fn no_new_attempt_starts_while_it_is_not_known_that_the_last_one_ended() {
    let mut world = World::with(super::world::config(), &["one", "two"]);
    let run = world.submit(run_spec("r"), vec![retried("a", 5)]).unwrap();
    let agent = world.at_work(run, "a");
    let host = world.host_of(agent);
    world.hosts.get_mut(&host).unwrap().is_cut_off = true;
    world.pass(3_600_000);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Running, 1));
}

#[test]
fn a_child_starts_when_all_its_parents_are_accepted_and_is_never_released_by_a_failed_one() {
    let mut world = World::new();
    let tasks = vec![task_spec("a"), task_spec("b"), after("c", &["a", "b"]), after("d", &["c"])];
    let run = world.submit(run_spec("r"), tasks).unwrap();
    let a = world.at_work(run, "a");
    world.exit(a, 0);
    let on = vec!["b".parse().unwrap()];
    assert_eq!(world.task(run, "c").waiting, Some(Waiting::Dependencies { on }));
    fail(&mut world, run, "b");
    let c = world.task(run, "c");
    assert_eq!((c.state, c.reason.as_str()), (TaskState::Cancelled, "dependency b failed"));
    assert_eq!(world.task(run, "d").reason, "dependency c was cancelled");
    let ended = Fact::RunEnded { run, accepted: 1, failed: 1, cancelled: 2 };
    assert!(world.events.contains(&ended));
    // Retrying the parent brings the children back.
    assert_eq!(
        world.retry(run, &["b"]),
        Reply::Outcomes(vec![protocol::api::Outcome {
            target: String::from("b"),
            agent: None,
            error: None,
            note: String::new()
        }])
    );
    assert_eq!(world.state(run, "d"), TaskState::Queued);
    let b = world.at_work(run, "b");
    world.exit(b, 0);
    assert_eq!(world.state(run, "c"), TaskState::Running);
    assert_eq!(world.task(run, "b").attempts.len(), 2, "numbers go on");
    assert_eq!(world.core.find_agent_of("b"), world.core.find_agent("b#2"));
    world.check_store();
}

#[test]
fn a_deep_chain_of_dependencies_is_cancelled_whole() {
    let mut world = World::new();
    let mut tasks = vec![task_spec("t0")];
    for n in 1..500 {
        tasks.push(after(&format!("t{n}"), &[&format!("t{}", n - 1)]));
    }
    let run = world.submit(run_spec("r"), tasks).unwrap();
    fail(&mut world, run, "t0");
    assert_eq!(world.core.run_view(run).unwrap().counts["CANCELLED"], 499);
}

#[test]
fn cancelling_takes_the_queued_at_once_and_the_live_when_they_have_ended() {
    let mut world = World::new();
    let run = world.submit(capped(1), vec![task_spec("a"), task_spec("b")]).unwrap();
    let agent = world.at_work(run, "a");
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    assert_eq!(world.cancel(run, &[]), Reply::Done);
    assert_eq!(world.state(run, "b"), TaskState::Cancelled);
    assert_eq!(world.state(run, "a"), TaskState::Running, "it may well run on");
    world.pass(30_000);
    world.restart_manager();
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(2_000);
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
    assert_eq!(world.standing(agent), Standing::Ended);
    assert!(world.core.run_view(run).unwrap().ended_at.is_some());
    world.check_store();
}

#[test]
fn cancelling_what_is_over_says_so_and_what_is_unknown_is_refused() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    let Reply::Outcomes(outcomes) = world.cancel(run, &["a", "z"]) else { panic!() };
    assert_eq!(
        (outcomes[0].error.clone(), outcomes[0].note.as_str()),
        (None, "it was over already: ACCEPTED")
    );
    assert_eq!(outcomes[1].error.as_ref().unwrap().code, ErrorCode::NotFound);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
}

#[test]
fn cancelling_a_task_takes_its_tree_at_once_and_a_retry_brings_all_of_it_back() {
    let mut world = World::new();
    let tasks = vec![
        task_spec("root"),
        after("child", &["root"]),
        after("leaf", &["child"]),
        task_spec("other"),
        TaskSpec { after: vec!["root".parse().unwrap()], ..task_spec("later") },
    ];
    let run = world.submit(run_spec("r"), tasks).unwrap();
    let Reply::Outcomes(outcomes) = world.cancel(run, &["root"]) else { panic!() };
    assert_eq!(outcomes[0].note, "and 2 that depend on it: child, leaf");
    for name in ["child", "leaf"] {
        assert_eq!(world.state(run, name), TaskState::Cancelled, "{name}");
    }
    assert!(world.task(run, "leaf").reason.contains("dependency child was cancelled"));
    assert_eq!(world.state(run, "root"), TaskState::Cancelled, "its host obeys at once");
    assert_eq!(world.state(run, "other"), TaskState::Running);
    assert_eq!(world.state(run, "later"), TaskState::Running, "it only waited for the end");
    world.restart_manager();
    world.retry(run, &["root"]);
    for name in ["child", "leaf"] {
        assert_eq!(world.state(run, name), TaskState::Queued, "{name}");
    }
    let agent = world.at_work(run, "root");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "child"), TaskState::Running);
}

#[test]
fn an_attempt_is_found_by_its_run_where_another_run_has_one_of_that_name() {
    let mut world = World::new();
    let first = world.submit(run_spec("first"), vec![task_spec("a")]).unwrap();
    let second = world.submit(run_spec("second"), vec![task_spec("a")]).unwrap();
    let (one, other) = (world.at_work(first, "a"), world.at_work(second, "a"));
    assert_eq!(world.core.find_agent("first/a#1"), Ok(one));
    assert_eq!(world.core.find_agent("second/a#1"), Ok(other));
    for nobody in ["first/a#2", "first/a", "first/b#1", "third/a#1", "first/#1"] {
        assert_eq!(world.core.find_agent(nobody).unwrap_err().code, ErrorCode::NotFound, "{nobody}");
    }
    assert!(world.core.why(world.now, "second/a#1").unwrap()[0].subject.starts_with("agent "));
    assert!(world.core.why(world.now, "second/a").unwrap()[0].subject.starts_with("task "));
}

#[test]
fn a_cancel_can_give_a_grace_of_its_own_and_keeps_the_work() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![verified("a")]).unwrap();
    let agent = world.at_work(run, "a");
    let key = world.key();
    let ask = |grace_ms| Mutation::CancelRun { key, run: run.to_string(), tasks: vec!["a".into()], grace_ms };
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.ask(ask(Some(77_000))).unwrap();
    let desired = world.core.fleet.desired(agent).unwrap();
    assert_eq!(desired.grace_ms, Some(77_000));
    let key = world.key();
    let too_long = Mutation::CancelRun { key, run: run.to_string(), tasks: vec![], grace_ms: Some(u64::MAX) };
    assert_eq!(world.ask(too_long).unwrap_err().code, ErrorCode::Invalid);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(30_000);
    let task = world.task(run, "a");
    assert_eq!(task.state, TaskState::Cancelled);
    assert!(task.attempts[0].collected.is_some(), "what was done so far is kept");
}

#[test]
fn a_retry_after_the_end_gives_a_fresh_budget() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![retried("a", 1)]).unwrap();
    for _ in 0..2 {
        fail(&mut world, run, "a");
        world.pass(20_000);
    }
    assert_eq!(world.state(run, "a"), TaskState::Failed);
    world.retry(run, &["a"]);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    assert!(world.core.run_view(run).unwrap().ended_at.is_none());
    fail(&mut world, run, "a");
    world.pass(20_000);
    assert_eq!(world.state(run, "a"), TaskState::Running);
    let numbers: Vec<u32> = world.task(run, "a").attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[test]
fn a_task_that_waits_for_review_says_so_and_can_be_cancelled() {
    let mut world = World::new();
    let mut spec = task_spec("a");
    spec.accept = protocol::task::Accept::Review;
    let run = world.submit(run_spec("r"), vec![spec]).unwrap();
    let agent = world.at_work(run, "a");
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Review);
    world.cancel(run, &["a"]);
    assert_eq!(world.state(run, "a"), TaskState::Cancelled);
}

#[test]
fn work_that_only_the_workspace_has_is_kept_and_not_asked_for_again() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    world.program(agent).work = vec![String::from("ignored.bin")];
    world.exit(agent, 0);
    assert_eq!(world.state(run, "a"), TaskState::Accepted);
    assert_eq!(world.standing(agent), Standing::Ended);
    let sent = world.orders.len();
    world.pass(60_000);
    world.restart_manager();
    world.pass(60_000);
    assert_eq!(world.orders.len(), sent);
    world.check_store();
}

#[test]
fn why_tells_state_reason_and_remedy_of_agents_tasks_and_runs() {
    let mut world = World::new();
    let run = world.submit(capped(1), vec![task_spec("a"), task_spec("b"), task_spec("c")]).unwrap();
    let words = |target: &str| world.core.why(world.now, target).unwrap();
    assert_eq!(words("r/b")[0].why, "the run may have 1 live at once, and has");
    assert_eq!(words("r/c")[0].why, "1 tasks go before it");
    assert_eq!(words("r")[0].state, "under way");
    assert!(words("a#1")[0].subject.contains("a#1"));
    assert_eq!(words("b"), words("r/b"), "a task of the latest run");
    assert!(world.core.why(world.now, "nothing").is_err());
    for (named, hint) in [("a", "a#1"), ("r/a", "r/a#1"), ("b", "phalanx ls"), ("nothing", "phalanx ls")] {
        assert!(world.core.find_agent(named).unwrap_err().hint.contains(hint), "{named}");
    }
    let last = world.core.find_agent("a#1");
    for named in ["a", "r/a", "a#1"] {
        assert_eq!(world.core.find_agent_of(named), last, "who looks at a task means its last agent");
    }
    assert!(world.core.find_agent_of("b").is_err(), "it has had none");
    let agent: AgentId = world.at_work(run, "a");
    world.exit(agent, 2);
    assert_eq!(world.core.why(world.now, "r/a").unwrap()[0].why, "exit 2");
}

#[test]
fn a_task_is_accepted_at_most_once() {
    let mut world = World::new();
    let run = world.submit(run_spec("r"), vec![task_spec("a")]).unwrap();
    let agent = world.at_work(run, "a");
    let host = world.host_of(agent);
    world.exit(agent, 0);
    let last_word = world.report_of(&host, agent);
    let again = |world: &mut World| {
        for _ in 0..2 {
            world.input(Input::Report(Box::new(last_word.clone())));
        }
        // Every order that was ever on its way comes once more.
        for order in world.orders.clone() {
            world.obey(order);
        }
        world.pass(60_000);
    };
    again(&mut world);
    world.restart_manager();
    again(&mut world);
    world.restart_host(host.as_str());
    again(&mut world);
    let Reply::Outcomes(outcomes) = world.retry(run, &["a"]) else { panic!() };
    assert_eq!(outcomes[0].error.as_ref().map(|error| error.code), Some(ErrorCode::Conflict));
    again(&mut world);

    let accepted = |fact: &&Fact| matches!(fact, Fact::TaskState { state: TaskState::Accepted, .. });
    assert_eq!(world.events.iter().filter(accepted).count(), 1);
    let task = world.task(run, "a");
    assert_eq!((task.state, task.attempts.len()), (TaskState::Accepted, 1));
    assert_eq!(
        world.hosts.values().flat_map(|host| host.programs.values()).map(|p| p.starts).sum::<u32>(),
        1
    );
}

#[test]
fn the_labels_of_a_run_are_those_of_its_agents_but_where_a_task_says_otherwise() {
    let mut world = World::new();
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut spec = run_spec("r");
    spec.labels = labels(&[("team", "core"), ("kind", "batch")]);
    let mut task = task_spec("a");
    task.labels = labels(&[("kind", "special")]);
    let run = world.submit(spec, vec![task]).unwrap();
    let agent = world.at_work(run, "a");
    assert_eq!(world.program(agent).spec.labels, labels(&[("team", "core"), ("kind", "special")]));
}
