//! Merges: what a host is asked, what it says, what a client follows.

use protocol::api::{Item, MergeRun, Mutation, Query, Reply, Request};
use protocol::ids::Fencing;
use protocol::ids::{OrderId, RequestKey};
use protocol::merge::{
    ConflictFile, MergeOutcome, MergeResult, MergeRow, MergeState, MergeTarget, MergeView, MergeWish,
    RecordedBranch,
};
use protocol::order::{Answer, Ask, Question};

use super::{AT, BASE, COMMIT, agent_id, host, region, run_id, task_id, text, texts};
use crate::rules::Sample;

fn ask(question: Question) -> Ask {
    Ask {
        id: OrderId::from_parts(AT.0, 0xe),
        region: region(),
        host: host(),
        fencing: Fencing(7),
        expires: AT.after_ms(30_000),
        question,
    }
}

pub(crate) fn merge_view() -> MergeView {
    let row = MergeRow {
        task: task_id(),
        name: "fix it".parse().unwrap(),
        commit: text(COMMIT),
        branch: Some(text("phalanx/nightly-1/fix-it-2")),
        outcome: MergeOutcome::Conflict,
        reason: text("conflicts in README"),
        merged: Some(text(BASE)),
        agent: Some(agent_id()),
        files: vec![ConflictFile {
            path: text("README"),
            base: None,
            ours: Some(text(BASE)),
            theirs: Some(text(COMMIT)),
        }],
        moved: None,
    };
    MergeView {
        run: run_id(),
        run_name: "nightly".parse().unwrap(),
        number: 2,
        by: text("ann"),
        host: host(),
        repo: text("/srv/repo"),
        into: text("main"),
        dry_run: false,
        verify: true,
        state: MergeState::Refused,
        reason: text("branch main is checked out"),
        remedy: text("--into NEW"),
        started_at: AT,
        ended_at: Some(AT.after_ms(5)),
        from: Some(text(BASE)),
        to: Some(text(COMMIT)),
        rounds: 1,
        checking: None,
        rows: vec![row],
    }
}

fn least_view() -> MergeView {
    MergeView {
        ended_at: None,
        from: None,
        to: None,
        rows: Vec::new(),
        state: MergeState::UnderWay,
        ..merge_view()
    }
}

fn target() -> MergeTarget {
    MergeTarget {
        branch: text("main"),
        tip: Some(text(BASE)),
        start: text(BASE),
        checked_out: Some(text("/srv/repo")),
        dirty: true,
        moved: Vec::new(),
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let (repo, branch) = (|| text("/srv/repo"), || text("main"));
    let wish = MergeWish {
        repo: repo(),
        onto: text(BASE),
        work: text(COMMIT),
        message: text("Merge task fix it\n"),
        at: AT,
        keep: text("refs/phalanx/x/merge/1"),
        dry_run: false,
    };
    let merge = MergeRun {
        key: RequestKey(text("k-1")),
        run: text("nightly"),
        into: Some(branch()),
        tasks: texts(&["fix it"]),
        dry_run: true,
        verify: false,
        message: Some(text("Merge it")),
        by: text("ann"),
    };
    let least = MergeRun { into: None, tasks: Vec::new(), dry_run: false, message: None, ..merge.clone() };
    let checking = MergeView { checking: Some(text("what verifies a, once b is merged")), ..least_view() };
    let files = merge_view().rows.remove(0).files;
    let look = |into, recorded: Vec<RecordedBranch>| Question::MergeLook { repo: repo(), into, recorded };
    let advance = |from| Question::Advance { repo: repo(), branch: branch(), commit: text(COMMIT), from };
    vec![
        Sample::of("ask-merge-look", ask(look(Some(branch()), Vec::new()))),
        Sample::of("ask-merge-look-head", ask(look(None, Vec::new()))),
        Sample::of("ask-merge", ask(Question::Merge(Box::new(wish)))),
        Sample::of("ask-advance", ask(advance(Some(text(BASE))))),
        Sample::of("ask-advance-new", ask(advance(None))),
        Sample::of("answer-merge-target", Answer::MergeTarget(target())),
        Sample::of("answer-merged", Answer::MergeResult(MergeResult::Merged { commit: text(COMMIT) })),
        Sample::of("answer-already", Answer::MergeResult(MergeResult::Already)),
        Sample::of("answer-conflict", Answer::MergeResult(MergeResult::Conflict { files })),
        Sample::of("request-merge-run", Request::from(Mutation::MergeRun(Box::new(merge)))),
        Sample::of("request-merge-run-least", Request::from(Mutation::MergeRun(Box::new(least)))),
        Sample::of("request-follow-merge", Request::from(Query::FollowMerge { run: text("nightly") })),
        Sample::of("reply-merge", Reply::Merge(Box::new(merge_view()))),
        Sample::of("reply-merge-checking", Reply::Merge(Box::new(checking))),
        Sample::of("reply-merge-least", Reply::Merge(Box::new(least_view()))),
        Sample::of("item-merge", Item::Merge(Box::new(merge_view()))),
    ]
}
