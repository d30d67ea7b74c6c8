//! Rows that are watched: what is told adds up to what is listed, whatever the filter and wherever one goes on.

use std::collections::BTreeMap;

use protocol::agent::{EndCause, Phase};
use protocol::api::{Change, Mutation, Reachability};
use protocol::error::ErrorCode;
use protocol::ids::AgentId;
use protocol::order::Discard;
use protocol::report::DigestRow;
use protocol::row::{AgentRow, RowChange, RowFilter};

use super::super::world::{World, end, host_id};
use crate::{Following, Input, RowCursor, RowNews, Selection};

/// What a client knows that was told all along.
struct Client {
    selection: Selection,
    filter: RowFilter,
    rows: BTreeMap<AgentId, AgentRow>,
    cursor: RowCursor,
    /// Every change, with the place before it.
    told: Vec<(RowCursor, RowNews)>,
}

impl Client {
    fn new(world: &World, filter: RowFilter) -> Self {
        let selection = world.core.selection(&filter).unwrap();
        let (rows, cursor) = world.rows.all(&world.core, &selection);
        let rows = rows.into_iter().map(|row| (row.id, row)).collect();
        Self { selection, filter, rows, cursor, told: Vec::new() }
    }

    fn follow(&mut self, world: &World) {
        let Following::Changes { news, cursor, more: false } = changes(world, self.cursor, &self.selection)
        else {
            panic!("it is not behind");
        };
        for news in news {
            let before = self.rows.contains_key(&news.row.id);
            assert_eq!(before, news.change != RowChange::Added, "{news:?}");
            match news.change {
                RowChange::Gone => drop(self.rows.remove(&news.row.id)),
                RowChange::Added | RowChange::Changed | RowChange::Unknown => {
                    drop(self.rows.insert(news.row.id, news.row.clone()));
                }
            }
            let at = std::mem::replace(&mut self.cursor, news.cursor);
            self.told.push((at, news));
        }
        self.cursor = cursor;
        let listed = world.core.rows(world.now, &self.filter).unwrap();
        let still = |row: &AgentRow| AgentRow {
            figures: Default::default(),
            last_output: None,
            as_of: Default::default(),
            ..row.clone()
        };
        assert_eq!(
            self.rows.values().map(still).collect::<Vec<_>>(),
            listed.iter().map(still).collect::<Vec<_>>(),
            "{:?}",
            self.filter
        );
    }
}

fn changes(world: &World, cursor: RowCursor, selection: &Selection) -> Following {
    world.rows.after(cursor, selection, usize::MAX)
}

fn all_filters() -> Vec<RowFilter> {
    let label = BTreeMap::from([(String::from("team"), String::from("core"))]);
    vec![
        RowFilter::default(),
        RowFilter { all: true, ..RowFilter::default() },
        RowFilter { phases: vec![Phase::Running], ..RowFilter::default() },
        RowFilter { labels: label, ..RowFilter::default() },
        RowFilter { names: vec![String::from("b*")], ..RowFilter::default() },
        RowFilter { hosts: vec![host_id("nowhere")], ..RowFilter::default() },
    ]
}

/// A life with everything in it; `look` after each step.
fn live(world: &mut World, mut look: impl FnMut(&World)) {
    let first = world.create("a").unwrap();
    look(world);
    world.create("b").unwrap();
    look(world);
    let team = || String::from("team");
    let set = Change::Label { set: [(team(), String::from("core"))].into(), remove: Vec::new() };
    let taken_away = Change::Label { set: BTreeMap::new(), remove: vec![team()] };
    for change in [set, taken_away] {
        let key = world.key();
        let targets = vec![String::from("b")];
        world.ask(Mutation::ChangeAgents { key, targets, change }).unwrap();
        look(world);
    }
    world.exit(first, 3);
    look(world);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = true;
    world.pass(60_000);
    look(world);
    world.hosts.get_mut(&host_id("one")).unwrap().is_cut_off = false;
    world.pass(10_000);
    look(world);
    world.stop("b");
    look(world);
    world.destroy("a", Discard::Yes);
    world.destroy("b", Discard::Yes);
    look(world);
    world.input(Input::Forgotten(first));
    look(world);
}

#[test]
fn what_is_told_adds_up_to_what_is_listed_whatever_the_filter() {
    let mut world = World::new();
    let mut clients: Vec<Client> =
        all_filters().into_iter().map(|filter| Client::new(&world, filter)).collect();
    live(&mut world, |world| clients.iter_mut().for_each(|client| client.follow(world)));
    let told = |client: &Client, change| client.told.iter().filter(|(_, news)| news.change == change).count();
    for client in &clients {
        let is_nowhere = !client.filter.hosts.is_empty();
        assert_eq!(told(client, RowChange::Added) > 0, !is_nowhere, "{:?}", client.filter);
        let left = told(client, RowChange::Gone) + client.rows.len();
        assert_eq!(told(client, RowChange::Added), left, "{:?}", client.filter);
    }
    let lost = |(_, news): &(_, RowNews)| news.row.reachability == Reachability::Lost;
    assert!(clients[0].told.iter().any(lost), "a host that is lost is told");
}

#[test]
fn whoever_goes_on_after_a_cursor_hears_what_followed_it_once_and_in_order() {
    let mut world = World::new();
    let mut clients: Vec<Client> =
        all_filters().into_iter().map(|filter| Client::new(&world, filter)).collect();
    live(&mut world, |world| clients.iter_mut().for_each(|client| client.follow(world)));
    for client in &clients {
        for (place, (before, _)) in client.told.iter().enumerate() {
            let rest: Vec<RowNews> = client.told[place..].iter().map(|(_, news)| news.clone()).collect();
            let again = changes(&world, *before, &client.selection);
            assert!(matches!(again, Following::Changes { news, .. } if news == rest));
        }
        // Piece by piece it is the same.
        let (mut at, mut heard) = (client.told.first().map_or(client.cursor, |(at, _)| *at), Vec::new());
        while let Following::Changes { news, cursor, more } = world.rows.after(at, &client.selection, 1) {
            heard.extend(news);
            at = cursor;
            if !more {
                break;
            }
        }
        assert_eq!(heard, client.told.iter().map(|(_, news)| news.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn a_cursor_of_another_manager_or_from_too_long_ago_is_told_as_lost_and_no_other_word_is_one() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let client = Client::new(&world, RowFilter::default());
    world.restart_manager();
    let why = |world: &World, cursor| match changes(world, cursor, &client.selection) {
        Following::Lost { why } => why,
        Following::Changes { .. } => "",
    };
    assert!(why(&world, client.cursor).contains("restarted"));
    let (_, cursor) = world.rows.all(&world.core, &client.selection);
    for turn in 0..5_000_u64 {
        world.program(agent).draining = turn % 2 == 0;
        world.report(agent);
    }
    assert!(why(&world, cursor).contains("more has changed"));
    let text = cursor.to_string();
    assert_eq!(text.parse::<RowCursor>().unwrap(), cursor);
    let ahead: RowCursor = format!("{:016x}-999999", 2).parse().unwrap();
    assert!(why(&world, ahead).contains("not come"));
    for word in ["", "x", "1", "-", "g-1", "1-x", "1-99999999999999999999999"] {
        assert_eq!(word.parse::<RowCursor>().unwrap_err().code, ErrorCode::Invalid, "{word:?}");
    }
}

#[test]
fn figures_and_heartbeats_alone_are_no_change_and_are_fresh_in_a_list() {
    let mut world = World::new();
    let agent = world.create("a").unwrap();
    let mut client = Client::new(&world, RowFilter::default());
    for memory_bytes in [1 << 20, 2 << 20] {
        let host = &world.hosts[&host_id("one")];
        let row = DigestRow {
            agent,
            seq: host.seq,
            incarnation: host.incarnation,
            phase: Phase::Running,
            last_output: Some(world.now),
            cpu_ms: memory_bytes,
            memory_bytes,
            transcript_bytes: 7,
        };
        world.beat_with("one", Some(vec![row]));
        world.report(agent);
        client.follow(&world);
    }
    assert_eq!(client.told, Vec::new());
    let (rows, _) = world.rows.all(&world.core, &client.selection);
    assert_eq!(rows[0].figures.memory_bytes, Some(2 << 20));
    let now = world.now;
    world.finish(agent, end(EndCause::Exited, Some(0), now), super::collected(None));
    client.follow(&world);
    assert_eq!(client.told.len(), 1);
}
