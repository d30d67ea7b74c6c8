//! Merging: in order, verified, by compare-and-swap, and on through crashes.

use protocol::api::{MergeRun, Mutation, Reply};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::RunId;
use protocol::merge::{MergeOutcome, MergeResult, MergeState, MergeTarget, MergeView, MovedBranch};
use protocol::order::{Answer, Question};
use protocol::task::{TaskSpec, TaskState};

use super::super::world::{World, repo_spec, run_spec};
use crate::{AskToken, Input};

const TIP: &str = "3333333333333333333333333333333333333333";
const FIRST: &str = "4444444444444444444444444444444444444444";
const SECOND: &str = "5555555555555555555555555555555555555555";

fn wish(world: &mut World, run: RunId) -> MergeRun {
    MergeRun {
        key: world.key(),
        run: run.to_string(),
        into: Some(String::from("main")),
        tasks: Vec::new(),
        dry_run: false,
        verify: true,
        message: None,
        by: String::from("ann"),
    }
}

fn merge(world: &mut World, run: RunId) -> Result<MergeView, WireError> {
    let wish = wish(world, run);
    begin(world, wish)
}

fn begin(world: &mut World, wish: MergeRun) -> Result<MergeView, WireError> {
    let reply = world.ask(Mutation::MergeRun(Box::new(wish)))?;
    let Reply::Merge(view) = reply else { panic!("{reply:?}") };
    Ok(*view)
}

/// Two accepted tasks; the one submitted first depends on the second.
fn accepted(world: &mut World, verify: bool) -> RunId {
    let verify = if verify { vec![vec![String::from("/bin/true")]] } else { Vec::new() };
    let accept =
        if verify.is_empty() { protocol::task::Accept::Exit } else { protocol::task::Accept::Verify };
    let child = TaskSpec {
        depends_on: vec!["parent".parse().unwrap()],
        verify: verify.clone(),
        accept,
        ..repo_spec("child")
    };
    let parent = TaskSpec { verify, accept, ..repo_spec("parent") };
    let run = world.submit(run_spec("r"), vec![child, parent]).unwrap();
    for name in ["parent", "child"] {
        if world.task(run, name).attempts.is_empty() {
            let listed = world.core.tasks(world.now, run);
            let id = listed.iter().find(|task| task.spec.name.as_str() == name).unwrap().id;
            let blob = protocol::agent::Blob { sha256: "a".repeat(64), bytes: 1 };
            world.input(Input::InputsKept { task: id, blob: Some(blob) });
        }
        let agent = world.at_work(run, name);
        world.exit(agent, 0);
        if world.state(run, name) == TaskState::Verifying {
            let check = world.at_work(run, name);
            world.exit(check, 0);
        }
        assert_eq!(world.state(run, name), TaskState::Accepted);
    }
    world.asked.clear();
    run
}

fn target(tip: &str) -> MergeTarget {
    MergeTarget {
        branch: String::from("main"),
        tip: Some(tip.to_owned()),
        start: tip.to_owned(),
        checked_out: None,
        dirty: false,
        moved: Vec::new(),
    }
}

fn last(world: &World) -> (AskToken, Question) {
    let is_merge = |token: &AskToken| matches!(token, AskToken::Merge { .. });
    world.asked.iter().rev().find(|(token, _)| is_merge(token)).cloned().unwrap()
}

fn answer(world: &mut World, answer: Answer) {
    let (token, _) = last(world);
    world.input(Input::Answered { token, answer: Ok(answer) });
}

fn merged(world: &mut World, commit: &str) {
    answer(world, Answer::MergeResult(MergeResult::Merged { commit: commit.to_owned() }));
}

fn outcomes(world: &World, run: RunId) -> Vec<(String, MergeOutcome)> {
    let view = world.core.merge_view(run).unwrap();
    view.rows.iter().map(|row| (row.name.to_string(), row.outcome)).collect()
}

fn onto(world: &World) -> String {
    let Question::Merge(wish) = last(world).1 else { panic!() };
    wish.onto
}

#[test]
fn dependencies_are_merged_first_and_the_branch_is_moved_from_where_it_was() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    assert!(matches!(last(&world).1, Question::MergeLook { into: Some(_), .. }));
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    assert_eq!(onto(&world), TIP);
    merged(&mut world, FIRST);
    assert_eq!(onto(&world), FIRST);
    let parents = outcomes(&world, run);
    assert_eq!(parents[0], (String::from("parent"), MergeOutcome::Merged));
    merged(&mut world, SECOND);
    let Question::Advance { commit, from, .. } = last(&world).1 else { panic!() };
    assert_eq!((commit.as_str(), from.as_deref()), (SECOND, Some(TIP)));
    assert_eq!(world.state(run, "child"), TaskState::Accepted, "not before the branch has it");
    let was_over = world.task(run, "child").ended_at;
    world.pass(60_000);
    answer(&mut world, Answer::Landed { branch: String::from("main"), commit });
    let view = world.core.merge_view(run).unwrap();
    assert_eq!((view.state, view.to.as_deref()), (MergeState::Done, Some(SECOND)));
    for name in ["parent", "child"] {
        assert_eq!(world.state(run, name), TaskState::Merged);
    }
    assert_eq!(world.task(run, "child").ended_at, was_over, "its work was over before");
    world.check_store();
    // Again it changes nothing: the host says what is there.
    merge(&mut world, run).unwrap();
    assert_eq!(world.core.may_forget_run(run).unwrap_err(), "its merge is under way");
    answer(&mut world, Answer::MergeTarget(target(SECOND)));
    answer(&mut world, Answer::MergeResult(MergeResult::Already));
    answer(&mut world, Answer::MergeResult(MergeResult::Already));
    let view = world.core.merge_view(run).unwrap();
    assert_eq!((view.state, view.to.as_deref()), (MergeState::Done, Some(SECOND)));
    assert!(outcomes(&world, run).iter().all(|(_, outcome)| *outcome == MergeOutcome::Already));
    assert_eq!(world.state(run, "child"), TaskState::Merged);
    world.check_store();
}

#[test]
fn what_conflicts_is_left_out_with_what_depends_on_it() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    answer(&mut world, Answer::MergeResult(MergeResult::Conflict { files: Vec::new() }));
    let rows = outcomes(&world, run);
    assert_eq!(rows[0].1, MergeOutcome::Conflict);
    assert_eq!(rows[1].1, MergeOutcome::LeftOut);
    let view = world.core.merge_view(run).unwrap();
    assert_eq!((view.state, view.to), (MergeState::Done, None));
    assert_eq!(world.state(run, "parent"), TaskState::Accepted);
    world.check_store();
}

#[test]
fn red_on_the_merged_commit_is_left_out_and_the_rest_goes_on() {
    let mut world = World::new();
    let run = accepted(&mut world, true);
    let mut first = wish(&mut world, run);
    first.tasks = vec![String::from("parent")];
    begin(&mut world, first).unwrap();
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    merged(&mut world, FIRST);
    let agent = world.core.merge_view(run).unwrap().rows[0].agent.unwrap();
    assert_eq!(world.program(agent).spec.checkout.as_ref().unwrap().commit, FIRST);
    // The manager dies meanwhile: the verification is found again, not started again.
    world.restart_manager();
    world.exit(agent, 1);
    let view = world.core.merge_view(run).unwrap();
    assert_eq!((view.rows[0].outcome, view.state), (MergeOutcome::Red, MergeState::Done));
    // The other one verifies.
    let mut second = wish(&mut world, run);
    second.tasks = vec![String::from("child")];
    begin(&mut world, second).unwrap();
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    merged(&mut world, SECOND);
    let agent = world.core.merge_view(run).unwrap().rows[0].agent.unwrap();
    world.exit(agent, 0);
    assert!(matches!(last(&world).1, Question::Advance { .. }));
    world.check_store();
}

#[test]
fn a_branch_that_moved_is_merged_into_anew_within_a_bound() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    for round in 0..=5_u32 {
        assert_eq!(world.core.merge_view(run).unwrap().rounds, round);
        merged(&mut world, FIRST);
        merged(&mut world, SECOND);
        let moved = format!("{round}").repeat(40);
        answer(&mut world, Answer::MergeTarget(target(&moved)));
        if round < 5 {
            assert_eq!(onto(&world), moved);
        }
    }
    assert_eq!(world.core.merge_view(run).unwrap().state, MergeState::Refused);
    assert_eq!(world.state(run, "parent"), TaskState::Accepted);
    world.check_store();
}

#[test]
fn what_a_person_has_checked_out_is_refused_before_anything_is_merged() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    let checked_out = MergeTarget { checked_out: Some(String::from("/repo")), dirty: true, ..target(TIP) };
    answer(&mut world, Answer::MergeTarget(checked_out.clone()));
    let view = world.core.merge_view(run).unwrap();
    assert_eq!(view.state, MergeState::Refused);
    assert!(view.reason.contains("not committed") && view.remedy.contains("--into"), "{view:?}");
    // A dry run moves nothing, so it may look.
    let mut dry = wish(&mut world, run);
    dry.dry_run = true;
    begin(&mut world, dry).unwrap();
    answer(&mut world, Answer::MergeTarget(checked_out));
    merged(&mut world, FIRST);
    answer(&mut world, Answer::MergeResult(MergeResult::Already));
    let view = world.core.merge_view(run).unwrap();
    assert_eq!((view.state, view.to.as_deref()), (MergeState::Done, Some(FIRST)));
    assert_eq!(world.state(run, "parent"), TaskState::Accepted, "a dry run changes no task");
    world.check_store();
}

#[test]
fn unknown_is_asked_again_and_a_late_or_doubled_answer_changes_nothing() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    let (look, _) = last(&world);
    let unknown = WireError::new(ErrorCode::Unavailable, "no answer");
    world.input(Input::Answered { token: look, answer: Err(unknown) });
    let before = world.asked.len();
    world.pass(2_000);
    assert!(world.asked.len() > before, "asked again");
    answer(&mut world, Answer::MergeTarget(target(TIP)));
    let (first, question) = last(&world);
    world.restart_manager();
    assert_eq!(last(&world), (first, question), "and after a restart, the same");
    merged(&mut world, FIRST);
    let late = Answer::MergeResult(MergeResult::Conflict { files: Vec::new() });
    world.input(Input::Answered { token: first, answer: Ok(late) });
    let late = Answer::MergeTarget(target(SECOND));
    world.input(Input::Answered { token: look, answer: Ok(late) });
    assert_eq!(outcomes(&world, run)[0].1, MergeOutcome::Merged);
    assert_eq!(onto(&world), FIRST);
    assert_eq!(merge(&mut world, run).unwrap_err().code, ErrorCode::Conflict, "one merge of a run at a time");
    world.check_store();
}

#[test]
fn a_task_that_is_being_merged_is_not_taken_back() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    merge(&mut world, run).unwrap();
    let decide = protocol::api::DecideTasks {
        key: world.key(),
        tasks: vec![String::from("parent")],
        verdict: protocol::task::Verdict::Rejected,
        by: String::from("ann"),
        comment: String::new(),
        feedback: None,
    };
    let reply = world.ask(Mutation::DecideTasks(Box::new(decide))).unwrap();
    let Reply::Outcomes(outcomes) = reply else { panic!() };
    assert_eq!(outcomes[0].error.as_ref().unwrap().message, "the task is being merged");
}

#[test]
fn commits_that_a_branch_got_after_acceptance_are_asked_about_and_told() {
    let mut world = World::new();
    let run = accepted(&mut world, false);
    let id = world.task(run, "parent").id;
    let branch = String::from("phalanx/r/parent");
    let landed = Answer::Landed { branch: branch.clone(), commit: FIRST.to_owned() };
    world.land(id, Ok(landed));
    merge(&mut world, run).unwrap();
    let Question::MergeLook { recorded, .. } = last(&world).1 else { panic!() };
    assert_eq!(recorded.iter().map(|row| row.branch.as_str()).collect::<Vec<_>>(), [branch.as_str()]);
    let shown = vec![String::from("abc1234 by hand")];
    let moved = vec![MovedBranch { branch, tip: SECOND.to_owned(), commits: 2, shown }];
    answer(&mut world, Answer::MergeTarget(MergeTarget { moved, ..target(TIP) }));
    merged(&mut world, FIRST);
    let rows = world.core.merge_view(run).unwrap().rows;
    assert_eq!(rows[0].outcome, MergeOutcome::Merged);
    let wanted = "its branch phalanx/r/parent moved after acceptance; not merged: abc1234 by hand and 1 more";
    assert_eq!(rows[0].reason, wanted);
    // Nor is it forgotten where all that was accepted is there.
    answer(&mut world, Answer::MergeResult(MergeResult::Already));
    assert_eq!(world.core.merge_view(run).unwrap().rows[1].reason, "the branch has it");
}
