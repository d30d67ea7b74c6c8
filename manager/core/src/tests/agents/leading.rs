//! The number that a host knows is taken over: a store that has forgotten it costs no time.

use protocol::api::Mutation;
use protocol::ids::Fencing;

use super::super::world::{World, create};
use crate::fleet::agent::Standing;

#[test]
fn a_manager_that_hears_a_higher_number_leads_above_it_and_orders_again_at_once() {
    let mut world = World::new();
    world.fencing = Fencing(40);
    let key = world.key();
    let reply = world.ask(Mutation::CreateAgent(Box::new(create(key, "a")))).unwrap();
    let protocol::api::Reply::Accepted { agent } = reply else { panic!("{reply:?}") };
    assert_eq!(world.standing(agent), Standing::Unheard, "its host takes no order of an older leader");
    world.beat("one");
    assert_eq!(world.core.config.fencing, Fencing(41));
    assert_eq!(world.orders.last().unwrap().fencing, Fencing(41));
    assert_eq!(world.standing(agent), Standing::Live, "without waiting for the next try");
    let orders = world.orders.len();
    world.beat("one");
    assert_eq!(world.orders.len(), orders, "once");
}

#[test]
fn a_number_that_no_leader_can_have_reached_is_not_followed() {
    let mut world = World::new();
    world.fencing = Fencing(u64::MAX);
    world.beat("one");
    assert_eq!(world.core.config.fencing, Fencing(7));
}
