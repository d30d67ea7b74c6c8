//! Agents of which nothing is left: when they are forgotten, and what stays.

use protocol::api::Mutation;
use protocol::ids::RequestKey;
use protocol::order::Discard;

use super::world::{World, create, end};
use crate::Input;
use crate::fleet::agent::Standing;
use protocol::agent::EndCause;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[test]
fn only_an_agent_that_was_reported_destroyed_is_forgotten() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.pass(2 * DAY_MS);
    world.input(Input::Forgotten(agent));
    assert_eq!(world.standing(agent), Standing::Live, "a report that is missing proves nothing");
    assert!(world.core.may_forget(agent).is_err());
    world.destroy("a", Discard::Yes);
    assert_eq!(world.standing(agent), Standing::Gone);
    assert_eq!(world.core.may_forget(agent), Ok(()));
    world.input(Input::Forgotten(agent));
    world.input(Input::Forgotten(agent));
    assert!(world.core.agent_view(world.now, agent).is_none());
    assert!(!world.stored.contains_key(&("desired", agent.to_string())));
    assert!(world.core.find_agent("a").is_err());
    world.check_store();
}

#[test]
fn the_key_that_made_a_forgotten_agent_makes_no_other_one_for_a_day() {
    let mut world = World::new();
    let key = RequestKey(String::from("k"));
    let made = |world: &mut World| world.ask(Mutation::CreateAgent(Box::new(create(key.clone(), "a"))));
    let first = made(&mut world).unwrap();
    let agent = world.core.find_agent("a").unwrap();
    world.destroy("a", Discard::Yes);
    let orders = world.orders.len();
    world.input(Input::Forgotten(agent));
    let all = protocol::api::AgentFilter { all: true, ..Default::default() };
    assert!(world.core.agents(world.now, &all).unwrap().is_empty(), "it is listed no more");
    for target in [String::from("a"), agent.to_string()] {
        let unknown = world.core.find_agent(&target).unwrap_err();
        assert_eq!(unknown.code, protocol::error::ErrorCode::NotFound, "nothing wrong is said of it either");
    }
    assert_eq!(made(&mut world), Ok(first.clone()));
    world.hosts.values_mut().for_each(|host| host.programs.clear());
    world.restart_manager();
    assert_eq!(made(&mut world), Ok(first.clone()));
    assert_eq!(world.orders.len(), orders, "nothing is asked of its host any more");
    world.pass(DAY_MS);
    assert!(!world.stored.contains_key(&("desired", agent.to_string())));
    assert_ne!(made(&mut world), Ok(first));
    world.check_store();
}

#[test]
fn agents_that_ended_long_ago_are_found_once_and_those_that_hold_work_not_again() {
    let mut world = World::new();
    let (live, old, holds) =
        (world.create("live").unwrap(), world.create("old").unwrap(), world.create("holds").unwrap());
    world.program(holds).work = vec![String::from("notes")];
    for agent in [old, holds] {
        let end = end(EndCause::Exited, Some(0), world.now);
        world.finish(agent, end, super::world::collected(None));
    }
    assert!(world.core.ended_before(world.now, DAY_MS).is_empty());
    world.pass(2 * DAY_MS);
    assert_eq!(world.core.ended_before(world.now, DAY_MS), [old, holds]);
    world.destroy("old", Discard::Keep);
    world.destroy("holds", Discard::Keep);
    assert!(world.core.ended_before(world.now, DAY_MS).is_empty());
    assert_eq!((world.standing(live), world.standing(holds)), (Standing::Live, Standing::Ended));
}
