//! Destroying: what is refused, what is said of the work that is left, and what a host that says nothing means.

use protocol::agent::EndCause;
use protocol::api::{Mutation, Reply};
use protocol::error::ErrorCode;
use protocol::order::{Command, Discard};
use protocol::report::Collected;

use super::outcome;
use crate::fleet::agent::Standing;
use crate::tests::world::{World, collected, end, host_id};

#[test]
fn a_live_agent_that_holds_the_only_copy_of_work_is_refused_and_goes_on() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).work = vec![String::from("work/notes.txt")];
    let reply = world.destroy("a", Discard::Keep);
    let error = outcome(world.answer(reply).unwrap().unwrap()).unwrap();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.message.contains("work/notes.txt") && error.message.contains("goes on"), "{error:?}");
    assert!(error.hint.contains("--discard") && !error.hint.contains("start"), "{error:?}");
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().wanted, "running");
    assert!(matches!(world.orders.last().unwrap().command, Command::Ensure { .. }), "newer than the destroy");
    let sent = world.orders.len();
    world.pass(60_000);
    assert_eq!((world.orders.len(), world.standing(agent)), (sent, Standing::Live), "it is not asked again");
    // It can be asked for again, and what it saved meanwhile counts.
    world.program(agent).work.clear();
    let reply = world.destroy("a", Discard::Keep);
    assert_eq!(outcome(world.answer(reply).unwrap().unwrap()), None);
    assert_eq!(world.standing(agent), Standing::Gone);
    world.check_store();
}

#[test]
fn who_asked_for_a_stop_gets_it_whatever_becomes_of_the_destroy() {
    for stop_first in [true, false] {
        let mut world = World::new();
        let agent = world.create("a").unwrap();
        world.program(agent).work = vec![String::from("inner/")];
        world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
        if stop_first {
            world.stop("a");
        }
        world.destroy("a", Discard::Keep);
        if !stop_first {
            world.stop("a");
        }
        world.restart_manager();
        world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
        world.pass(10_000);
        assert_eq!(world.standing(agent), Standing::Ended, "{stop_first}");
        assert!(world.program(agent).work == ["inner/"], "and nothing of it is lost");
    }
}

#[test]
fn a_refusal_of_a_live_agent_does_not_keep_it_once_it_has_ended() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).work = vec![String::from("inner/")];
    world.destroy("a", Discard::Keep);
    world.finish(agent, end(EndCause::Exited, Some(0), world.now), collected(Some("c1")));
    assert_eq!(world.core.ended_before(world.now.after_ms(1), 0), [agent]);
}

#[test]
fn an_ended_agent_that_holds_the_only_copy_of_work_is_refused_and_stays() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).work = vec![String::from("work/notes.txt")];
    world.stop("a");
    let reply = world.destroy("a", Discard::Keep);
    let error = outcome(world.answer(reply).unwrap().unwrap()).unwrap();
    assert_eq!(error.code, ErrorCode::Conflict);
    assert!(error.message.contains("work/notes.txt") && error.hint.contains("phalanx start"), "{error:?}");
    assert_eq!(world.core.agent_view(world.now, agent).unwrap().wanted, "stopped");
    assert!(matches!(world.orders.last().unwrap().command, Command::Stop { .. }), "newer than the destroy");
    world.pass(60_000);
    assert_eq!(world.standing(agent), Standing::Ended);
    let reply = world.destroy("a", Discard::Yes);
    assert_eq!(outcome(world.answer(reply).unwrap().unwrap()), None);
    assert_eq!(world.standing(agent), Standing::Gone);
    world.check_store();
}

#[test]
fn who_destroys_hears_where_the_work_is_and_what_was_so_before() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let note = |reply: Reply| {
        let Reply::Outcomes(outcomes) = reply else { panic!("{reply:?}") };
        outcomes[0].note.clone()
    };
    let left = Collected {
        result_ref: Some(String::from("refs/phalanx/adhoc/a")),
        uncommitted: Some(String::from("c2")),
        uncommitted_ref: Some(String::from("refs/phalanx/adhoc/a-uncommitted")),
        ..collected(Some("c1"))
    };
    world.finish(agent, end(EndCause::Exited, Some(0), world.now), left);
    assert_eq!(note(world.stop("a")), "it had ended before");
    let reply = world.destroy("a", Discard::Keep);
    let said = note(world.answer(reply).unwrap().unwrap());
    let place = "its commits are kept as refs/phalanx/adhoc/a, what it did not commit as refs/phalanx/adhoc/a-uncommitted";
    assert_eq!(said, place);
    assert_eq!(note(world.stop("a")), "it was destroyed before");
    let reply = world.destroy("a", Discard::Keep);
    assert_eq!(note(world.answer(reply).unwrap().unwrap()), format!("before this; {place}"));
}

#[test]
fn a_refusal_that_nobody_waited_for_is_told_when_the_key_comes_back() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.program(agent).work = vec![String::from("work/notes.txt")];
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    let key = world.key();
    let request = Mutation::DestroyAgents { key, targets: vec![String::from("a")], discard: Discard::Keep };
    let reply = world.request(request.clone());
    world.pass(31_000);
    let error = outcome(world.answer(reply).unwrap().unwrap()).unwrap();
    assert_eq!(error.code, ErrorCode::Unavailable);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(10_000);
    assert_eq!(outcome(world.ask(request.clone()).unwrap()).unwrap().code, ErrorCode::Conflict);
    world.restart_manager();
    assert_eq!(outcome(world.ask(request).unwrap()).unwrap().code, ErrorCode::Conflict);
}

#[test]
fn a_destroy_that_no_host_decides_is_answered_after_its_limit_and_stays_wanted() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    let key = world.key();
    let request = Mutation::DestroyAgents {
        key,
        targets: vec![String::from("a"), String::from("nobody")],
        discard: Discard::Keep,
    };
    let reply = world.request(request.clone());
    world.pass(29_000);
    assert_eq!(world.answer(reply), None);
    world.pass(2_000);
    let Ok(Reply::Outcomes(outcomes)) = world.answer(reply).unwrap() else { panic!() };
    assert_eq!(outcomes[0].error.as_ref().unwrap().code, ErrorCode::Unavailable);
    assert_eq!(outcomes[1].error.as_ref().unwrap().code, ErrorCode::NotFound);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(2_000);
    assert_eq!(world.standing(agent), Standing::Gone);
    // The same key, also after a restart, means the same agent, though the name is another's by now.
    let other = world.create("a").unwrap();
    world.restart_manager();
    let Ok(Reply::Outcomes(outcomes)) = world.ask(request) else { panic!() };
    assert_eq!((outcomes[0].agent, &outcomes[0].error), (Some(agent), &None));
    assert_eq!(world.standing(other), Standing::Live);
}
