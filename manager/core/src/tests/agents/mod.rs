//! Creating and stopping agents, and what is known of them.

mod changes;
mod destroying;
mod doing;
mod leading;
pub(super) mod program;
mod watching;

use protocol::agent::Phase;
use protocol::agent::{Checkout, CheckoutKind, EndCause, Environment};
use protocol::api::{AgentFilter, Mutation, Reachability, Reply};
use protocol::error::ErrorCode;
use protocol::ids::RequestKey;
use protocol::ids::{Fencing, Incarnation, Seq};
use protocol::order::Discard;
use protocol::report::{DigestRow, Heartbeat};
use protocol::row::{AgentRow, RowFilter};

use super::world::{World, collected, config, create, end, host_id, region};
use crate::fleet::agent::Standing;
use crate::{Config, Input};

fn outcome(reply: Reply) -> Option<protocol::error::WireError> {
    let Reply::Outcomes(outcomes) = reply else { panic!("{reply:?}") };
    outcomes.into_iter().next().unwrap().error
}

#[test]
fn an_accepted_agent_is_written_before_it_is_answered_and_ordered() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    assert!(world.stored.contains_key(&("desired", agent.to_string())));
    assert_eq!(world.standing(agent), Standing::Live);
    let order = &world.orders[0];
    assert_eq!((order.fencing, order.incarnation), (Fencing(7), Incarnation(1)));
    assert_eq!(world.core.agents(world.now, &AgentFilter::default()).unwrap().len(), 1);
    world.check_store();
}

#[test]
fn the_same_key_gives_the_same_agent_again_and_another_body_is_a_conflict() {
    let mut world = World::new();
    let key = RequestKey(String::from("a key with *, > and é"));
    let first = world.ask(Mutation::CreateAgent(Box::new(create(key.clone(), "a")))).unwrap();
    assert_eq!(world.ask(Mutation::CreateAgent(Box::new(create(key.clone(), "a")))), Ok(first.clone()));
    world.restart_manager();
    assert_eq!(world.ask(Mutation::CreateAgent(Box::new(create(key.clone(), "a")))), Ok(first));
    let other = world.ask(Mutation::CreateAgent(Box::new(create(key, "b"))));
    assert_eq!(other.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(world.core.agents(world.now, &AgentFilter::default()).unwrap().len(), 1);
}

#[test]
fn refs_that_a_client_makes_up_anew_are_no_part_of_what_a_key_asks_for() {
    let mut world = World::new();
    let key = RequestKey(String::from("k"));
    let with_refs = |leaf: &str, commit: &str| {
        let mut create = create(key.clone(), "a");
        create.spec.checkout = Some(Checkout {
            repo: "/r".to_owned(),
            commit: commit.repeat(40),
            branch: Some(format!("phalanx/adhoc/{leaf}")),
            kind: CheckoutKind::Auto,
            result_ref: Some(format!("refs/phalanx/adhoc/{leaf}")),
            near: None,
            snapshot: None,
            copy: Vec::new(),
            prepare: None,
        });
        Mutation::CreateAgent(Box::new(create))
    };
    let first = world.ask(with_refs("a-1", "1")).unwrap();
    assert_eq!(world.ask(with_refs("a-2", "1")), Ok(first));
    assert_eq!(world.ask(with_refs("a-3", "2")).unwrap_err().code, ErrorCode::Conflict);
    let agents = world.core.agents(world.now, &AgentFilter::default()).unwrap();
    assert_eq!(agents[0].spec.checkout.as_ref().unwrap().branch.as_deref(), Some("phalanx/adhoc/a-1"));
}

#[test]
fn a_name_is_free_again_only_when_the_destroyed_agent_is_reported_so() {
    let mut world = World::new();
    let first = world.create("a").unwrap();
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Conflict);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    let reply = world.destroy("a", Discard::Keep);
    assert_eq!(world.answer(reply), None);
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Conflict);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(12_000);
    assert_eq!(outcome(world.answer(reply).unwrap().unwrap()), None);
    let second = world.create("a").unwrap();
    assert_ne!(first, second);
    assert_eq!(world.core.find_agent("a"), Ok(second));
    world.check_store();
}

#[test]
fn without_a_host_that_is_heard_nothing_is_created() {
    let mut world = World::with(config(), &[]);
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Unavailable);
    world.add_host("one");
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(20_000);
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Unavailable);
    assert!(world.stored.is_empty());
}

#[test]
fn a_host_over_its_disk_share_and_one_at_its_cap_take_nothing() {
    let mut world = World::with(Config { host_cap: Some(1), ..config() }, &["one"]);
    world.hosts.get_mut(&host_id("one")).unwrap().facts.disk_free_bytes = 10;
    world.beat("one");
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Exhausted);
    world.hosts.get_mut(&host_id("one")).unwrap().facts.disk_free_bytes = 50;
    world.beat("one");
    world.create("a").unwrap();
    assert_eq!(world.create("b").unwrap_err().code, ErrorCode::Exhausted);
}

#[test]
fn a_lost_order_is_sent_again_at_a_bounded_pace_until_a_report_shows_it() {
    let mut world = World::new();
    world.drops_orders = true;
    let agent = world.create("a").unwrap();
    world.pass(60_000);
    let sent = world.orders.len();
    assert!((7..=10).contains(&sent), "{sent} in a minute");
    world.drops_orders = false;
    world.pass(12_000);
    assert_eq!(world.standing(agent), Standing::Live);
    let sent = world.orders.len();
    world.pass(60_000);
    assert_eq!(world.orders.len(), sent, "nothing more is sent");
}

#[test]
fn nothing_is_sent_to_a_host_that_is_lost_and_all_that_is_due_when_it_returns() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(20_000);
    let sent = world.orders.len();
    world.stop("a");
    world.pass(60_000);
    assert_eq!(world.orders.len(), sent);
    assert_eq!(world.standing(agent), Standing::Live, "silence is not an end");
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.beat("one");
    assert_eq!(world.standing(agent), Standing::Ended);
}

#[test]
fn orders_are_for_the_present_run_of_a_host_and_expire_in_its_time() {
    let mut world = World::new();
    world.hosts.get_mut(&host_id("one")).unwrap().clock_ahead_ms = 3_600_000;
    world.beat("one");
    world.drops_orders = true;
    let agent = world.create("a").unwrap();
    world.drops_orders = false;
    world.restart_host("one");
    assert_eq!(world.standing(agent), Standing::Live, "sent at once to the new run");
    let order = world.orders.last().unwrap();
    assert_eq!(order.incarnation, Incarnation(2));
    assert_eq!(order.expires, world.now.after_ms(3_600_000 + 30_000));
}

#[test]
fn a_stopped_agent_never_comes_back_over_restarts_and_late_duplicates() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let ensure = world.orders[0].clone();
    world.stop("a");
    assert_eq!(world.standing(agent), Standing::Ended);
    world.restart_host("one");
    world.restart_manager();
    world.obey(ensure);
    world.pass(30_000);
    assert_eq!(world.program(agent).starts, 1);
    assert!(world.program(agent).end.is_some());
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().wanted, "stopped");
}

#[test]
fn a_stop_that_overtakes_the_ensure_leaves_a_tombstone() {
    let mut world = World::new();
    world.drops_orders = true;
    let agent = world.create("a").unwrap();
    let ensure = world.orders[0].clone();
    world.drops_orders = false;
    world.stop("a");
    world.obey(ensure);
    assert_eq!(world.program(agent).starts, 0);
    assert_eq!(world.standing(agent), Standing::Ended);
}

#[test]
fn a_late_host_keeps_its_agents_and_is_given_no_new_one() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(10_000);
    let key = world.key();
    let mut create = create(key, "b");
    create.host = Some(host_id("one"));
    let refused = world.ask(Mutation::CreateAgent(Box::new(create)));
    assert_eq!(refused.unwrap_err().code, ErrorCode::Unavailable);
    let view = world.core.agent_view(world.now, agent).unwrap();
    assert_eq!((view.phase, view.reachability), (Phase::Running, Reachability::Late));
}

#[test]
fn an_agent_without_a_record_is_shown_and_left_alone_until_an_operator_says_so() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.stored.clear();
    world.restart_manager();
    let view = world.core.agent_view(world.now, agent).unwrap();
    assert_eq!(view.wanted, "unowned");
    let sent = world.orders.len();
    world.pass(60_000);
    assert_eq!(world.orders.len(), sent);
    assert_eq!(world.create("a").unwrap_err().code, ErrorCode::Conflict);
    world.stop("a");
    assert_eq!(world.standing(agent), Standing::Ended);
}

#[test]
fn an_older_report_changes_nothing_and_none_brings_back_the_destroyed() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let old = world.report_of(&host_id("one"), agent);
    world.stop("a");
    world.drops_orders = true;
    world.input(Input::Report(Box::new(old.clone())));
    assert_eq!(world.standing(agent), Standing::Ended);
    world.drops_orders = false;
    world.destroy("a", Discard::Keep);
    let mut late = old;
    late.incarnation = Incarnation(9);
    world.input(Input::Report(Box::new(late)));
    assert_eq!(world.standing(agent), Standing::Gone);
}

#[test]
fn a_report_of_a_newer_incarnation_counts_though_its_number_is_lower() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let mut before = world.report_of(&host_id("one"), agent);
    before.seq = Seq(50);
    world.input(Input::Report(Box::new(before.clone())));
    let mut after = before.clone();
    after.incarnation = before.incarnation.next();
    after.seq = Seq(1);
    after.reason = String::from("of the new hostd");
    world.input(Input::Report(Box::new(after.clone())));
    before.seq = Seq(99);
    world.input(Input::Report(Box::new(before)));
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().reason, "of the new hostd");
}

#[test]
fn what_a_digest_knows_better_is_asked_for_at_a_pace() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let row = DigestRow {
        agent,
        seq: Seq(99),
        incarnation: Incarnation(1),
        phase: Phase::Running,
        last_output: None,
        cpu_ms: 5,
        memory_bytes: 6,
        transcript_bytes: 7,
    };
    let heartbeat = Heartbeat {
        region: region(),
        host: host_id("one"),
        incarnation: Incarnation(1),
        fencing: Fencing(7),
        now: world.now,
        build: String::new(),
        facts: world.hosts[&host_id("one")].facts.clone(),
        digest: Some(vec![row]),
    };
    world.input(Input::Heartbeat(Box::new(heartbeat.clone())));
    world.input(Input::Heartbeat(Box::new(heartbeat)));
    assert_eq!(world.reports_asked, vec![vec![agent]]);
    world.pass(3_000);
    assert_eq!(world.reports_asked.len(), 2);
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().memory_bytes, 6);
}

#[test]
fn names_that_look_alike_are_different_agents() {
    let mut world = World::new();
    let ids: Vec<_> = ["job-1", "job-10", "demo.app.io", "demo_app_io", "a:b", "*", "naïve 名前"]
        .map(|name| world.create(name).unwrap())
        .to_vec();
    world.stop("*");
    world.stop("job-1");
    let ended: Vec<bool> = ids.iter().map(|id| world.standing(*id) == Standing::Ended).collect();
    assert_eq!(ended, [true, false, false, false, false, true, false]);
    assert_eq!(world.core.find_agent("job-1@one"), Ok(ids[0]));
    assert!(world.core.find_agent("job-1@two").is_err());
    assert!(world.core.find_agent("job").is_err());
}

#[test]
fn values_of_an_environment_are_sealed_first_and_forgotten_with_the_agent() {
    let mut world = World::new();
    let key = world.key();
    let mut create = create(key, "a");
    create.environment = Environment([(String::from("TOKEN"), String::from("secret"))].into());
    let Ok(Reply::Accepted { agent }) = world.ask(Mutation::CreateAgent(Box::new(create))) else { panic!() };
    let owner = world.core.environment_owner(agent).unwrap().to_string();
    assert!(world.sealed.contains(&owner));
    assert!(world.stored.values().all(|value| !value.windows(6).any(|window| window == b"secret")));
    world.destroy("a", Discard::Keep);
    assert!(world.sealed.is_empty());
}

#[test]
fn a_kept_answer_is_forgotten_after_a_day() {
    let mut world = World::new();
    world.create("a").unwrap();
    world.stop("a");
    assert!(world.stored.keys().any(|(bucket, _)| *bucket == "requests"));
    world.now = world.now.after_ms(24 * 60 * 60 * 1_000 + 1);
    world.input(Input::Tick);
    assert!(!world.stored.keys().any(|(bucket, _)| *bucket == "requests"));
    world.check_store();
}

#[test]
fn an_agent_that_ended_by_itself_is_not_started_again() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.finish(agent, end(EndCause::Exited, Some(3), world.now), collected(None));
    world.restart_host("one");
    world.restart_manager();
    world.pass(60_000);
    assert_eq!(world.program(agent).starts, 1);
}

#[test]
fn rows_say_what_views_say_and_are_selected_by_name_host_phase_and_label() {
    let mut world = World::new();
    for name in ["fix-a", "fix-b", "other"] {
        world.create(name).unwrap();
    }
    let rows = |world: &World, filter: RowFilter| world.core.rows(world.now, &filter).unwrap();
    let names = |rows: Vec<AgentRow>| {
        let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
        names.sort();
        names
    };
    let views = world.core.agents(world.now, &AgentFilter::default()).unwrap();
    assert_eq!(rows(&world, RowFilter::default()), views.iter().map(AgentRow::of).collect::<Vec<_>>());
    let named = |names: &[&str]| RowFilter {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..RowFilter::default()
    };
    assert_eq!(names(rows(&world, named(&["fix-*"]))), ["fix-a", "fix-b"]);
    assert_eq!(names(rows(&world, named(&["fix-a", "oth?r"]))), ["fix-a", "other"]);
    let one = &views[0];
    assert_eq!(names(rows(&world, named(&[&one.id.to_string()]))), std::slice::from_ref(&one.name));
    assert!(rows(&world, named(&["fix"])).is_empty(), "never by a prefix");
    let elsewhere = RowFilter { hosts: vec!["elsewhere".parse().unwrap()], ..RowFilter::default() };
    assert!(rows(&world, elsewhere).is_empty());
    let here = RowFilter { hosts: vec![views[0].host.clone()], ..named(&["other"]) };
    assert_eq!(names(rows(&world, here)), ["other"]);
    let ended = RowFilter { phases: vec![Phase::Stopped], ..RowFilter::default() };
    assert!(rows(&world, ended).is_empty());
    let of_no_run = RowFilter { run: Some("nightly".to_owned()), ..RowFilter::default() };
    assert_eq!(world.core.rows(world.now, &of_no_run).unwrap_err().code, ErrorCode::NotFound);
}
