//! Changes of agents that are there: wanted first, then in force, then shown so; and never more than was asked for.

use std::collections::BTreeMap;

use protocol::agent::{Phase, ResourceLimits};
use protocol::api::{AgentView, Change, LimitChange, Mutation, Outcome, Reply};
use protocol::error::ErrorCode;
use protocol::ids::AgentId;
use protocol::order::{Command, Discard};
use protocol::row::{AgentRow, RowFilter};

use super::super::world::{World, collected, create, end, host_id, run_spec, task_spec};
use crate::fleet::agent::Standing;
use protocol::agent::EndCause;

fn change(world: &mut World, target: &str, change: Change) -> Outcome {
    let request = Mutation::ChangeAgents { key: world.key(), targets: vec![target.to_owned()], change };
    let Reply::Outcomes(mut outcomes) = world.ask(request).unwrap() else { panic!("outcomes") };
    outcomes.remove(0)
}

fn code(outcome: &Outcome) -> Option<ErrorCode> {
    outcome.error.as_ref().map(|error| error.code)
}

fn view(world: &World, agent: AgentId) -> AgentView {
    world.core.agent_view(world.now, agent).unwrap()
}

fn open(world: &World, agent: AgentId) -> Vec<String> {
    view(world, agent).unmet.into_iter().map(|unmet| unmet.what).collect()
}

fn ended(world: &mut World, agent: AgentId) {
    let now = world.now;
    world.finish(agent, end(EndCause::Exited, Some(0), now), collected(None));
    assert_eq!(world.standing(agent), Standing::Ended);
}

fn limit(memory_bytes: u64) -> Change {
    Change::Limit(LimitChange { memory_bytes: Some(memory_bytes), ..LimitChange::default() })
}

#[test]
fn a_change_is_written_then_ordered_and_open_until_the_host_reports_it() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    assert_eq!(open(&world, agent), Vec::<String>::new());
    world.drops_orders = true;
    assert_eq!(code(&change(&mut world, "a", Change::Freeze)), None);
    world.check_store();
    assert_eq!(open(&world, agent), ["order"]);
    assert_eq!(view(&world, agent).phase, Phase::Running, "only a report changes what is believed");
    world.drops_orders = false;
    world.pass(20_000);
    assert_eq!(open(&world, agent), Vec::<String>::new());
    assert!(world.program(agent).spec.frozen);
    // Once it is so nothing more is sent, over a restart either.
    let sent = world.orders.len();
    world.pass(60_000);
    world.restart_manager();
    assert_eq!(world.orders.len(), sent);
}

#[test]
fn what_is_so_already_is_not_ordered_again() {
    let mut world = World::new();
    world.create("a").unwrap();
    let sent = world.orders.len();
    assert_eq!(change(&mut world, "a", Change::Thaw).note, "it was not paused");
    assert_eq!(code(&change(&mut world, "a", Change::Limit(LimitChange::default()))), None);
    assert_eq!(world.orders.len(), sent);
}

#[test]
fn an_old_host_that_ignores_a_change_shows_as_not_in_force() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).is_old = true;
    change(&mut world, "a", Change::Freeze);
    change(&mut world, "a", limit(1 << 30));
    world.pass(60_000);
    assert_eq!(open(&world, agent), ["limits", "frozen"]);
    ended(&mut world, agent);
    change(&mut world, "a", Change::Start);
    world.pass(60_000);
    assert_eq!(
        (open(&world, agent), view(&world, agent).phase),
        (vec!["limits".into(), "launch".into()], Phase::Creating)
    );
    // A list says of it what a look at it says: the end before a start that is wanted is none of that start's.
    let rows =
        world.core.rows(world.now, &RowFilter { phases: vec![Phase::Creating], ..RowFilter::default() });
    assert_eq!(rows.unwrap(), [AgentRow::of(&view(&world, agent))]);
    // And it can still be taken back.
    world.stop("a");
    world.pass(60_000);
    assert_eq!(world.standing(agent), Standing::Ended);
}

#[test]
fn an_ended_agent_is_started_once_for_each_start_that_is_asked_for() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    assert_eq!(code(&change(&mut world, "a", Change::Start)), Some(ErrorCode::Conflict), "it is alive");
    world.stop("a");
    ended(&mut world, agent);
    world.drops_orders = true;
    let key = world.key();
    let start =
        || Mutation::ChangeAgents { key: key.clone(), targets: vec!["a".into()], change: Change::Start };
    let first = world.ask(start()).unwrap();
    assert_eq!((world.standing(agent), view(&world, agent).phase), (Standing::Live, Phase::Creating));
    assert_eq!(world.ask(start()).unwrap(), first, "the same key starts nothing more");
    assert_eq!(code(&change(&mut world, "a", Change::Start)), Some(ErrorCode::Conflict));
    world.restart_manager();
    world.drops_orders = false;
    world.pass(20_000);
    assert_eq!((world.program(agent).starts, view(&world, agent).phase), (2, Phase::Running));
    ended(&mut world, agent);
    world.restart_manager();
    world.restart_host("one");
    world.pass(60_000);
    assert_eq!(world.program(agent).starts, 2, "never by itself");
    assert_eq!(code(&change(&mut world, "a", Change::Start)), None);
    world.pass(20_000);
    assert_eq!((world.program(agent).starts, world.program(agent).spec.launch), (3, 3));
}

#[test]
fn a_start_that_is_stopped_before_its_host_heard_of_it_does_not_come_about_later() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    ended(&mut world, agent);
    world.drops_orders = true;
    change(&mut world, "a", Change::Start);
    let start = world.orders.last().cloned().unwrap();
    assert!(matches!(start.command, Command::Ensure { .. }));
    world.stop("a");
    assert_eq!(world.standing(agent), Standing::Live, "the order may have arrived");
    world.drops_orders = false;
    world.pass(20_000);
    assert_eq!(world.standing(agent), Standing::Ended);
    world.obey(start);
    world.pass(20_000);
    assert_eq!(world.program(agent).starts, 1, "the late order finds a newer generation");
}

#[test]
fn a_new_name_is_known_at_once_and_the_old_one_is_free() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.create("b").unwrap();
    let rename = |name: &str| Change::Rename { name: name.parse().unwrap() };
    assert_eq!(code(&change(&mut world, "a", rename("b"))), Some(ErrorCode::Conflict));
    assert_eq!(change(&mut world, "a", rename("c")).note, "now c");
    assert_eq!(world.core.find_agent("c"), Ok(agent));
    assert_eq!(world.core.find_agent("a").unwrap_err().code, ErrorCode::NotFound);
    assert_ne!(world.create("a").unwrap(), agent);
    world.restart_manager();
    assert_eq!(world.core.find_agent("c"), Ok(agent));
    assert_eq!(world.program(agent).spec.name.as_str(), "c");
    let several = Mutation::ChangeAgents {
        key: world.key(),
        targets: vec!["b".into(), "c".into()],
        change: rename("d"),
    };
    assert_eq!(world.ask(several).unwrap_err().code, ErrorCode::Invalid);
}

#[test]
fn labels_are_set_and_taken_away_and_the_old_values_told() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let label = |set: &[(&str, &str)], remove: &[&str]| Change::Label {
        set: set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        remove: remove.iter().map(|key| (*key).to_owned()).collect(),
    };
    assert_eq!(change(&mut world, "a", label(&[("team", "red"), ("x", "1")], &[])).note, "");
    assert_eq!(
        change(&mut world, "a", label(&[("team", "blue"), ("x", "1")], &["no"])).note,
        "team was red, no was not set"
    );
    assert_eq!(change(&mut world, "a", label(&[], &["x"])).note, "x was 1");
    ended(&mut world, agent);
    change(&mut world, "a", label(&[("late", "1")], &[]));
    world.stop("a");
    change(&mut world, "a", label(&[("later", "1")], &[]));
    world.pass(20_000);
    let labels: BTreeMap<String, String> =
        [("team", "blue"), ("late", "1"), ("later", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(world.program(agent).spec.labels, labels);
    assert_eq!(world.program(agent).starts, 1);
    assert_eq!(open(&world, agent), Vec::<String>::new());
    let both = Mutation::ChangeAgents {
        key: world.key(),
        targets: vec!["a".into()],
        change: label(&[("k", "v")], &["k"]),
    };
    assert_eq!(world.ask(both).unwrap_err().code, ErrorCode::Invalid);
}

#[test]
fn what_is_promised_of_a_host_follows_the_limits_of_its_agents() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    assert_eq!(code(&change(&mut world, "a", limit(6 << 30))), None);
    let large = |world: &mut World, name: &str| {
        let mut request = create(world.key(), name);
        request.spec.limits.memory_bytes = Some(4 << 30);
        world.ask(Mutation::CreateAgent(Box::new(request)))
    };
    assert_eq!(large(&mut world, "b").unwrap_err().code, ErrorCode::Exhausted);
    assert_eq!(code(&change(&mut world, "a", limit(9 << 30))), Some(ErrorCode::Exhausted));
    assert_eq!(code(&change(&mut world, "a", limit(1 << 30))), None);
    large(&mut world, "b").unwrap();
    // An ended one promises nothing, and has to fit again when it starts.
    ended(&mut world, agent);
    assert_eq!(code(&change(&mut world, "a", limit(6 << 30))), None);
    assert_eq!(code(&change(&mut world, "a", Change::Start)), Some(ErrorCode::Exhausted));
    assert_eq!(code(&change(&mut world, "a", limit(0))), None);
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().spec.limits, ResourceLimits::default());
    assert_eq!(code(&change(&mut world, "a", Change::Start)), None);
}

#[test]
fn limits_that_a_host_refuses_are_told_with_its_reason_and_wanted_no_more() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).refuses = Some(String::from("it holds more"));
    change(&mut world, "a", limit(1 << 20));
    world.pass(1_000);
    let shown = view(&world, agent);
    assert_eq!((shown.unmet[0].what.as_str(), shown.unmet[0].why.as_str()), ("limits", "it holds more"));
    assert_eq!(shown.report.unwrap().spec.limits, ResourceLimits::default());
    assert_eq!(shown.spec.limits, ResourceLimits::default(), "no later start brings them");
    world.check_store();
    world.restart_manager();
    assert_eq!(open(&world, agent), ["limits"]);
    // Told until the next change, which is not held up by it.
    let label = Change::Label { set: [(String::from("k"), String::from("v"))].into(), remove: Vec::new() };
    change(&mut world, "a", label);
    world.pass(1_000);
    assert_eq!(open(&world, agent), Vec::<String>::new());
    world.program(agent).refuses = None;
    change(&mut world, "a", limit(1 << 20));
    world.pass(1_000);
    assert_eq!(open(&world, agent), Vec::<String>::new());
    assert_eq!(view(&world, agent).report.unwrap().spec.limits.memory_bytes, Some(1 << 20));
}

#[test]
fn nothing_is_changed_of_what_is_destroyed_and_nothing_paused_that_has_ended() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    ended(&mut world, agent);
    assert_eq!(code(&change(&mut world, "a", Change::Freeze)), Some(ErrorCode::Conflict));
    assert_eq!(code(&change(&mut world, "a", Change::Thaw)), Some(ErrorCode::Conflict));
    world.destroy("a", Discard::Yes);
    world.pass(1_000);
    for wanted in [Change::Start, Change::Freeze, limit(1 << 30)] {
        assert_eq!(code(&change(&mut world, &agent.to_string(), wanted)), Some(ErrorCode::Conflict));
    }
    assert_eq!(code(&change(&mut world, "nobody", Change::Start)), Some(ErrorCode::NotFound));
}

#[test]
fn a_host_that_cannot_freeze_says_why_and_what_helps() {
    let mut world = World::new();
    world.create("a").unwrap();
    let host = world.hosts.get_mut(&host_id("one")).unwrap();
    host.facts.cannot_freeze = Some(String::from("there is no freezer"));
    world.beat("one");
    let error = change(&mut world, "a", Change::Freeze).error.unwrap();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.message.contains("no freezer") && !error.hint.is_empty(), "{error:?}");
}

#[test]
fn an_agent_of_a_user_that_its_host_cannot_take_on_is_refused_before_it_is_made() {
    let mut world = World::new();
    let host = world.hosts.get_mut(&host_id("one")).unwrap();
    host.facts.user = String::from("ann");
    host.facts.cannot_change_user = Some(String::from("hostd does not run as root"));
    world.beat("one");
    for (user, refused) in [(None, false), (Some("ann"), false), (Some("bob"), true)] {
        let mut create = create(world.key(), user.unwrap_or("none"));
        create.spec.user = user.map(str::to_owned);
        match world.ask(Mutation::CreateAgent(Box::new(create))) {
            Ok(_) => assert!(!refused, "{user:?}"),
            Err(error) => {
                assert!(
                    refused && error.code == ErrorCode::Denied && error.message.contains("root"),
                    "{error:?}"
                );
            }
        }
    }
}

#[test]
fn a_name_that_would_be_taken_for_an_id_is_refused() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    assert_eq!(world.create(&agent.to_string()).unwrap_err().code, ErrorCode::Invalid);
    let rename = Change::Rename { name: agent.to_string().parse().unwrap() };
    assert_eq!(code(&change(&mut world, "a", rename)), Some(ErrorCode::Invalid));
    for (run, task) in [(agent.to_string(), "t"), ("r".to_owned(), agent.to_string().as_str())] {
        let refused = world.submit(run_spec(&run), vec![task_spec(task)]);
        assert_eq!(refused.unwrap_err().code, ErrorCode::Invalid, "{run}/{task}");
    }
}
