//! A merge whose parts verify alone and not together: which one is left out, over every pair and over crashes.

use std::collections::BTreeMap;

use protocol::agent::Prepare;
use protocol::api::{MergeRun, Mutation, Reply};
use protocol::ids::{AgentId, RunId};
use protocol::merge::{MergeOutcome, MergeResult, MergeState, MergeTarget, MergeView};
use protocol::order::{Answer, Question};
use protocol::task::{Accept, TaskSpec, TaskState};

use super::super::world::{World, repo_spec, run_spec};
use crate::{AskToken, Input};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TIP: &str = "3333333333333333333333333333333333333333";

/// What a host would do: commits by what is in them, and verifications that fail when two are in.
struct Model {
    world: World,
    run: RunId,
    commits: BTreeMap<String, Vec<String>>,
    /// The commands of the first fail once the second is in.
    breaks: Vec<(&'static str, &'static str)>,
    /// But those of the first never once the second is in.
    spared: Option<(&'static str, &'static str)>,
    judged: usize,
    /// A person stops what verifies the whole.
    stops_whole: bool,
}

impl Model {
    fn new(spec: impl Fn(&str) -> TaskSpec, breaks: &[(&'static str, &'static str)]) -> Self {
        let mut world = World::new();
        let run = world.submit(run_spec("r"), NAMES.iter().map(|name| spec(name)).collect()).unwrap();
        for name in NAMES {
            for _ in 0..2 {
                if matches!(world.state(run, name), TaskState::Running | TaskState::Verifying) {
                    let agent = world.at_work(run, name);
                    world.exit(agent, 0);
                }
            }
            assert_eq!(world.state(run, name), TaskState::Accepted);
        }
        world.asked.clear();
        let commits = BTreeMap::from([(TIP.to_owned(), Vec::new())]);
        Self { world, run, commits, breaks: breaks.to_vec(), spared: None, judged: 0, stops_whole: false }
    }

    /// The rule of its own: commands that name the task.
    fn own(name: &str) -> TaskSpec {
        verified(name, vec![vec!["check".to_owned(), format!("<{name}>")]])
    }

    fn view(&self) -> MergeView {
        self.world.core.merge_view(self.run).unwrap()
    }

    fn passes(&self, agent: AgentId) -> bool {
        let host = self.world.host_of(agent);
        let spec = &self.world.hosts[&host].programs[&agent].spec;
        let within = &self.commits[&spec.checkout.as_ref().unwrap().commit];
        let has = |name: &str| within.iter().any(|have| have == name);
        let script = spec.program.join(" ");
        let is_of = |name: &str| script.contains(&format!("<{name}>"));
        self.spared.is_some_and(|(of, by)| is_of(of) && has(by))
            || !self.breaks.iter().any(|(of, with)| is_of(of) && has(with))
    }

    fn verifying(&self) -> Option<AgentId> {
        let programs = self.world.hosts.values().flat_map(|host| &host.programs);
        let live = programs.filter(|(_, program)| program.end.is_none());
        live.map(|(agent, _)| *agent).next()
    }

    /// Merges all, with the manager killed after every `crash`th step where that is not 0.
    fn merge(&mut self, crash: usize) -> MergeView {
        let wish = MergeRun {
            key: self.world.key(),
            run: self.run.to_string(),
            into: Some("main".to_owned()),
            tasks: Vec::new(),
            dry_run: false,
            verify: true,
            message: None,
            by: "ann".to_owned(),
        };
        let reply = self.world.ask(Mutation::MergeRun(Box::new(wish))).unwrap();
        assert!(matches!(reply, Reply::Merge(_)));
        for step in 1..500 {
            let view = self.view();
            if view.state != MergeState::UnderWay {
                return view;
            }
            if crash != 0 && step % crash == 0 {
                self.world.restart_manager();
                self.world.check_store();
            }
            if let Some(agent) = self.verifying() {
                self.judged += 1;
                if self.stops_whole && view.checking.is_some() {
                    self.world.stop(&agent.to_string());
                    continue;
                }
                let code = i32::from(!self.passes(agent));
                self.world.exit(agent, code);
                continue;
            }
            let merges =
                self.world.asked.iter().rev().find(|(token, _)| matches!(token, AskToken::Merge { .. }));
            let (token, question) = merges.unwrap().clone();
            let answer = self.answer(question);
            self.world.input(Input::Answered { token, answer: Ok(answer) });
        }
        panic!("it does not end: {:?}", self.view());
    }

    fn answer(&mut self, question: Question) -> Answer {
        if let Question::MergeLook { .. } = question {
            return Answer::MergeTarget(MergeTarget {
                branch: "main".to_owned(),
                tip: Some(TIP.to_owned()),
                start: TIP.to_owned(),
                checked_out: None,
                dirty: false,
                moved: Vec::new(),
            });
        }
        if let Question::Merge(wish) = question {
            let name = wish.message.lines().next().unwrap().trim_start_matches("Merge task ").to_owned();
            let mut within = self.commits[&wish.onto].clone();
            within.push(name);
            let commit = format!("{:0>40}", within.join(""));
            self.commits.insert(commit.clone(), within);
            return Answer::MergeResult(MergeResult::Merged { commit });
        }
        let Question::Advance { branch, commit, .. } = question else { panic!("{question:?}") };
        Answer::Landed { branch, commit }
    }

    fn landed(&self, view: &MergeView) -> Vec<String> {
        view.to.as_ref().map(|commit| self.commits[commit].clone()).unwrap_or_default()
    }
}

fn verified(name: &str, verify: Vec<Vec<String>>) -> TaskSpec {
    let accept = if verify.is_empty() { Accept::Exit } else { Accept::Verify };
    TaskSpec { verify, accept, ..repo_spec(name) }
}

fn outcome(view: &MergeView, name: &str) -> MergeOutcome {
    view.rows.iter().find(|row| row.name.as_str() == name).unwrap().outcome
}

#[test]
fn a_merge_that_breaks_what_was_merged_before_it_is_found_and_left_out() {
    for (first, broken) in NAMES.iter().enumerate() {
        for (second, culprit) in NAMES.iter().enumerate().skip(first + 1) {
            for crash in [0, 1, 3] {
                let mut model = Model::new(Model::own, &[(*broken, *culprit)]);
                let view = model.merge(crash);
                let rest: Vec<&str> = NAMES.into_iter().filter(|name| name != culprit).collect();
                assert_eq!(model.landed(&view), rest, "{broken} {culprit} {crash}");
                for name in &rest {
                    assert_eq!(outcome(&view, name), MergeOutcome::Merged);
                    assert_eq!(model.world.state(model.run, name), TaskState::Merged);
                }
                let row = &view.rows[second];
                assert_eq!(row.outcome, MergeOutcome::Red);
                assert!(row.reason.contains(&format!("verification of {broken} fails")), "{}", row.reason);
                assert!(row.agent.is_some() && row.merged.is_none(), "its log can be read: {row:?}");
                assert_eq!(model.world.state(model.run, culprit), TaskState::Accepted, "its work is kept");
                assert_eq!(view.checking, None);
                model.world.check_store();
            }
        }
    }
}

#[test]
fn several_that_break_several_are_all_left_out() {
    let mut model = Model::new(Model::own, &[("a", "c"), ("b", "e"), ("d", "f")]);
    let view = model.merge(0);
    assert_eq!(model.landed(&view), ["a", "b", "d"]);
    assert_eq!(view.state, MergeState::Done);
    model.world.check_store();
}

#[test]
fn what_was_verified_before_something_was_left_out_is_verified_again() {
    // With c in, d does no harm to a; but c breaks b.
    let mut model = Model::new(Model::own, &[("a", "d"), ("b", "c")]);
    model.spared = Some(("a", "c"));
    let view = model.merge(0);
    assert_eq!(model.landed(&view), ["a", "b", "e", "f"]);
    model.world.check_store();
}

#[test]
fn what_the_last_verdict_says_already_is_not_verified_again() {
    // One rule for all: the last merge was verified by it.
    let alike = |name: &str| verified(name, vec![vec!["check".to_owned()]]);
    let mut model = Model::new(alike, &[]);
    let view = model.merge(0);
    assert_eq!((model.landed(&view).len(), model.judged), (6, 6));
    // The same rule over what was prepared otherwise is another one.
    let prepared = |name: &str| {
        let programs = vec![vec!["install".to_owned(), name.to_owned()]];
        let prepare = Some(Box::new(Prepare { programs, timeout_ms: 1_000 }));
        TaskSpec { prepare, ..alike(name) }
    };
    let mut model = Model::new(prepared, &[]);
    let view = model.merge(0);
    assert_eq!((model.landed(&view).len(), model.judged), (6, 11));
    // A rule for each: all but the last one are verified once more.
    let mut model = Model::new(Model::own, &[]);
    let view = model.merge(0);
    assert_eq!((model.landed(&view).len(), model.judged), (6, 11));
    // No rules: nothing to verify.
    let mut model = Model::new(|name| verified(name, Vec::new()), &[]);
    let view = model.merge(0);
    assert_eq!((model.landed(&view).len(), model.judged), (6, 0));
}

#[test]
fn what_is_merged_into_one_branch_can_be_merged_into_another_and_again() {
    let mut model = Model::new(Model::own, &[]);
    let first = model.merge(0);
    assert_eq!(model.landed(&first).len(), 6);
    let again = model.merge(0);
    assert_eq!(model.landed(&again).len(), 6, "{again:?}");
    assert_eq!(model.world.state(model.run, "a"), TaskState::Merged);
}

#[test]
fn a_verification_of_the_whole_that_is_stopped_by_hand_is_no_verdict() {
    let mut model = Model::new(Model::own, &[]);
    model.stops_whole = true;
    let view = model.merge(0);
    assert_eq!(view.state, MergeState::Refused);
    assert!(view.reason.contains("stopped by hand"), "{}", view.reason);
    assert_eq!(model.world.state(model.run, "a"), TaskState::Accepted, "nothing was moved");
    model.world.check_store();
}
