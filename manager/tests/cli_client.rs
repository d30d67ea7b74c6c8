//! The client against a scripted manager that speaks the real frames: what the connection does, not what a manager
//! does.

#![expect(clippy::unwrap_used, reason = "what builds the input of a test may fail it")]

#[cfg(test)]
mod cli_support;
#[cfg(test)]
#[path = "cli_support/server.rs"]
mod server;

use std::time::{Duration, Instant};

use cli_support::Home;
use protocol::agent::{AgentSpec, Phase, Role};
use protocol::api::{Action, AgentView, Item, Mutation, Query, Reachability, Reply, Request};
use protocol::codec::Hello;
use protocol::error::{ErrorCode, WireError};
use protocol::ids::AgentId;
use protocol::order::OutputStream;
use protocol::row::AgentRow;
use protocol::time::Timestamp;
use server::{Answer, Manager};

fn view(number: u128, name: &str, phase: Phase) -> AgentView {
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    AgentView {
        id: AgentId::from_parts(now, number),
        name: name.to_owned(),
        role: Role::Own,
        region: "hub".parse().unwrap(),
        host: "here".parse().unwrap(),
        reachability: Reachability::Fresh,
        phase,
        reason: String::new(),
        wanted: "running".into(),
        as_of: Timestamp(now),
        created_at: Timestamp(now - 65_000),
        spec: AgentSpec::own("x".parse().unwrap(), vec!["true".into()], 1),
        report: None,
        last_output: None,
        memory_bytes: 0,
        cpu_ms: 0,
        generation: None,
        unmet: Vec::new(),
        messages: Vec::new(),
    }
}

/// As rows where those are asked for, as views else.
fn agents(request: &Request, agents: Vec<AgentView>) -> Answer {
    let as_of = Timestamp(1);
    Answer::Reply(match request {
        Request::Query(Query::ListRows(_)) => {
            Reply::Rows { rows: agents.iter().map(AgentRow::of).collect(), as_of }
        }
        _ => Reply::Agents { agents, as_of },
    })
}

#[test]
fn a_list_has_one_json_shape_for_none_one_and_many() {
    for count in [0_u128, 1, 300] {
        let home = Home::new();
        let _manager = Manager::start(&home, move |asked| {
            agents(asked, (0..count).map(|n| view(n, &format!("agent-{n}"), Phase::Running)).collect())
        });
        let said = home.run(&["ls", "-o", "json"]);
        let document: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(document["schema_version"], 1);
        assert_eq!(document["kind"], "AgentList");
        assert_eq!(document["items"].as_array().unwrap().len(), usize::try_from(count).unwrap());
        assert_eq!(home.run(&["ls", "-o", "name"]).out.lines().count(), usize::try_from(count).unwrap());
        assert_eq!(home.run(&["ls", "-o", "jsonl"]).out.lines().count(), usize::try_from(count).unwrap());
    }
}

#[test]
fn a_list_of_10_000_agents_comes_in_parts() {
    let home = Home::new();
    let _manager = Manager::start(&home, |asked| {
        agents(asked, (0..10_000).map(|n| view(n, &format!("a{n}"), Phase::Running)).collect())
    });
    assert_eq!(home.run(&["ls", "-o", "name"]).out.lines().count(), 10_000);
}

#[test]
fn a_table_shows_wide_names_stale_hosts_and_no_escapes() {
    let home = Home::new();
    let _manager = Manager::start(&home, |asked| {
        let mut lost = view(1, "名前", Phase::Running);
        lost.reachability = Reachability::Lost;
        lost.reason = "\x1b]52;c;aGk=\x07boo\u{9b}2J".into();
        agents(asked, vec![lost, view(2, "b\x1b[2J", Phase::Stopped)])
    });
    for format in ["table", "wide", "json", "jsonl", "name", "template={{ name }} {{ reason }}"] {
        let said = home.run(&["ls", "-o", format]);
        assert!(!said.out.contains(['\x1b', '\u{9b}', '\x07']), "{format}: {:?}", said.out);
    }
    let table = home.run(&["ls"]).out;
    assert!(table.starts_with("Not all of this is fresh: host here is lost"), "{table}");
    assert!(table.contains("RUNNING (host lost)") && table.contains("b\\x1b[2J"), "{table}");
    let show = home.run(&["show", "x"]).out;
    assert!(!show.contains('\x1b') && show.contains("\\x1b]52"), "{show}");
}

#[test]
fn rows_are_sorted_and_columns_chosen_by_their_names() {
    let home = Home::new();
    let manager = Manager::start(&home, |asked| {
        let with_memory =
            |number, name, bytes| AgentView { memory_bytes: bytes, ..view(number, name, Phase::Running) };
        agents(asked, vec![with_memory(1, "b", 5), with_memory(2, "c", 0), with_memory(3, "a", 900 << 20)])
    });
    let names = |sort: &str| home.run(&["ls", "--sort", sort, "-o", "name"]).out.replace('\n', "");
    assert_eq!(names("name"), "abc");
    assert_eq!(names("-name"), "cba");
    assert_eq!(names("mem"), "bac", "what was not measured comes last");
    assert_eq!(names("-mem"), "abc", "also the other way round");
    let table = home.run(&["ls", "--columns", "mem,name", "--sort", "name"]).out;
    assert_eq!(table, "MEM   NAME\n900M  a\n5     b\n-     c\n");
    for words in [&["ls", "--sort", "memm"][..], &["ls", "--columns", "name,memm"]] {
        let said = home.run(words);
        assert_eq!(said.code, Some(2), "{words:?}");
        assert!(said.err.contains("did you mean \"mem\""), "{}", said.err);
    }
    assert_eq!(home.run(&["ls", "--columns", "name", "-o", "json"]).code, Some(2));
    let filter = ["ls", "fix-*", "-a", "-l", "k=v", "--phase", "crashed", "--host", "db-01", "--run", "r"];
    assert_eq!(home.run(&filter).code, Some(0));
    let asked = manager.asked.lock().unwrap();
    let Some(Request::Query(Query::ListRows(filter))) = asked.last() else { panic!("{asked:?}") };
    assert_eq!((filter.all, filter.names.as_slice()), (true, &["fix-*".to_owned()][..]));
    assert_eq!((filter.phases.as_slice(), filter.run.as_deref()), (&[Phase::Crashed][..], Some("r")));
    assert_eq!((filter.hosts[0].as_str(), filter.labels["k"].as_str()), ("db-01", "v"));
}

#[test]
fn an_error_of_the_manager_keeps_its_code_and_remedy() {
    let home = Home::new();
    let _manager = Manager::start(&home, |_| {
        Answer::Error(
            WireError::new(ErrorCode::NotFound, "there is no agent \"x\x1b[2J\"").hint("phalanx ls -a"),
        )
    });
    let said = home.run(&["show", "x"]);
    assert_eq!(said.code, Some(3));
    assert!(said.err.contains("try: phalanx ls -a") && !said.err.contains('\x1b'), "{}", said.err);
    let json: serde_json::Value = serde_json::from_str(&home.run(&["show", "x", "-o", "json"]).err).unwrap();
    assert_eq!(json["error"]["code"], "not-found");
    assert_eq!(home.run(&["exec", "x", "--", "true"]).code, Some(125));
}

#[test]
fn another_version_is_exit_9_with_the_command_that_mends_it() {
    let home = Home::new();
    let hello = Hello { versions: vec![99], build: "9.9.9".into() };
    let _manager = Manager::with_hello(&home, hello, |asked| agents(asked, Vec::new()));
    let said = home.run(&["ls"]);
    assert_eq!(said.code, Some(9));
    assert!(said.err.contains("9.9.9") && said.err.contains("phalanx down && phalanx up"), "{}", said.err);
}

#[test]
fn a_manager_that_hangs_up_is_exit_9_and_the_key_is_told() {
    let home = Home::new();
    let _manager = Manager::start(&home, |_| Answer::HangUp);
    let said = home.run(&["ls"]);
    assert_eq!(said.code, Some(9));
    assert!(said.err.contains("closed the connection"), "{}", said.err);
    let said = home.run(&["create", "a", "--key", "k-17", "--", "true"]);
    assert_eq!(said.code, Some(9));
    assert!(said.err.contains("--key k-17"), "{}", said.err);
    let said = home.run(&["stop", "a"]);
    assert!(said.err.contains("--key "), "{}", said.err);
}

#[test]
fn a_stale_socket_is_no_manager() {
    let home = Home::new();
    drop(Manager::start(&home, |_| Answer::HangUp));
    let path = home.state().join("run/manager.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    assert_eq!(home.run(&["--no-start", "ls"]).code, Some(9));
}

#[test]
fn a_home_deeper_than_a_socket_address_works() {
    let home = Home::new();
    let deep = home.folder.path().join("d".repeat(120)).join("e".repeat(120));
    std::fs::create_dir_all(&deep).unwrap();
    std::os::unix::fs::symlink(&deep, home.state()).unwrap();
    let _manager = Manager::start(&home, |asked| agents(asked, Vec::new()));
    let said = home.run(&["--home", deep.to_str().unwrap(), "ls", "-o", "name"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn a_wait_ends_at_its_limit_and_not_a_second_later() {
    let home = Home::new();
    let _manager = Manager::start(&home, |_| Answer::Silence(Vec::new()));
    let begun = Instant::now();
    let said = home.run(&["wait", "a", "--for", "PAUSED", "--timeout", "400ms"]);
    let took = begun.elapsed();
    assert_eq!(said.code, Some(124), "{}", said.err);
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn any_of_several_is_enough_and_all_are_waited_for() {
    let home = Home::new();
    let _manager = Manager::start(&home, |request| match request {
        Request::Query(Query::WaitAgents { .. }) => {
            Answer::Silence(vec![Item::Agent(Box::new(view(1, "a", Phase::Stopped)))])
        }
        _ => Answer::HangUp,
    });
    assert_eq!(home.run(&["wait", "a", "b", "--any", "--timeout", "20s"]).code, Some(0));
    assert_eq!(home.run(&["wait", "a", "b", "--timeout", "300ms"]).code, Some(124));
}

#[test]
fn an_agent_that_can_no_longer_be_there_is_exit_1() {
    let home = Home::new();
    let _manager = Manager::start(&home, |_| {
        Answer::Items(vec![Item::Agent(Box::new(view(1, "a", Phase::Crashed)))], Reply::Done)
    });
    let said = home.run(&["wait", "a", "--for", "PAUSED"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("a cannot become PAUSED: CRASHED"), "{}", said.err);
}

#[test]
fn logs_are_exact_when_raw_safe_otherwise_and_gaps_are_told() {
    let home = Home::new();
    let log = |offset: u64, bytes: &[u8]| Item::Log { offset, bytes: bytes.to_vec() };
    let _manager = Manager::start(&home, move |_| {
        let items = vec![log(0, b"a\x1b["), log(2, b"[31mred\xff\r\n"), log(20, b"end")];
        Answer::Items(items, Reply::Done)
    });
    let raw = std::process::Command::output(&mut home.command(&["logs", "a", "--raw"])).unwrap();
    assert_eq!(raw.stdout, b"a\x1b[31mred\xff\r\nend");
    assert!(String::from_utf8_lossy(&raw.stderr).contains("8 bytes from 12 on are no longer kept"));
    assert_eq!(home.run(&["logs", "a"]).out, "ared\u{fffd}\nend");
}

#[test]
fn exec_has_the_programs_code_and_output() {
    let home = Home::new();
    let _manager = Manager::start(&home, |_| {
        let out = Item::Output { stream: OutputStream::Stdout, bytes: b"out\xff".to_vec() };
        let err = Item::Output { stream: OutputStream::Stderr, bytes: b"err".to_vec() };
        Answer::Items(vec![out, err], Reply::Exited { code: Some(7), signal: None })
    });
    let said = home.run(&["exec", "a", "--", "sh", "-c", "x"]);
    assert_eq!((said.code, said.err.as_str()), (Some(7), "err"));
    let raw = std::process::Command::output(&mut home.command(&["exec", "a", "--", "x"])).unwrap();
    assert_eq!(raw.stdout, b"out\xff");
}

#[test]
fn values_of_the_environment_reach_the_manager_and_no_screen() {
    let home = Home::new();
    let manager = Manager::start(&home, |_| Answer::Error(WireError::new(ErrorCode::Failed, "no")));
    let mut command = home.command(&["create", "a", "--env", "CANARY", "--env", "B=2", "--", "true"]);
    let said = cli_support::run(command.env("CANARY", "s3cr3t-42"), b"");
    assert!(!said.err.contains("s3cr3t") && !said.out.contains("s3cr3t"), "{}", said.err);
    let asked = manager.asked.lock().unwrap();
    let Some(Request::Mutation(Mutation::CreateAgent(create))) = asked.first() else { panic!("{asked:?}") };
    assert_eq!(create.environment.0.get("CANARY").map(String::as_str), Some("s3cr3t-42"));
    assert!(create.spec.has_environment);
}

#[test]
fn a_made_up_name_that_is_taken_is_made_up_again() {
    let home = Home::new();
    let manager = Manager::start(&home, |request| match request {
        Request::Mutation(Mutation::CreateAgent(_)) => {
            Answer::Error(WireError::new(ErrorCode::Conflict, "the name is taken"))
        }
        _ => Answer::HangUp,
    });
    let said = home.run(&["create", "--", "true"]);
    assert_eq!(said.code, Some(5), "{}", said.err);
    let asked = manager.asked.lock().unwrap();
    assert!(asked.len() > 2, "{}", asked.len());
    drop(asked);
    assert_eq!(home.run(&["create", "mine", "--", "true"]).code, Some(5));
}

#[test]
fn a_change_of_many_needs_a_yes_off_a_terminal() {
    let home = Home::new();
    let manager = Manager::start(&home, |request| match request {
        request @ Request::Query(Query::ListRows(_)) => {
            agents(request, vec![view(1, "a", Phase::Running), view(2, "b", Phase::Running)])
        }
        _ => Answer::HangUp,
    });
    for words in [&["destroy", "-l", "k=v"][..], &["stop", "a", "b"], &["stop", "-l", "k=v"]] {
        let said = home.run_with(words, b"y\nyes\nhello\n");
        assert_eq!(said.code, Some(2), "{words:?}");
        assert!(said.err.contains("--yes"), "{}", said.err);
    }
    let asked = manager.asked.lock().unwrap();
    assert!(
        asked.iter().all(|request| !matches!(request, Request::Mutation(_))),
        "nothing was changed: {asked:?}"
    );
}

#[test]
fn prompts_and_repositories_are_sent_once_each() {
    let home = Home::new();
    let manager = Manager::start(&home, |request| match request {
        Request::Action(Action::PutBlob { .. }) => Answer::Reply(Reply::Stored),
        Request::Query(Query::ResolveRepo { repo, .. }) => {
            Answer::Reply(Reply::Resolved(protocol::order::ResolvedBase {
                repo: repo.clone(),
                commit: "c".repeat(40),
                dirty: true,
            }))
        }
        Request::Mutation(Mutation::SubmitRun(_)) => {
            Answer::Error(WireError::new(ErrorCode::Exhausted, "the disk is too full"))
        }
        _ => Answer::HangUp,
    });
    let prompt = "x".repeat(700_000);
    let file = home.file("t.yaml", format!(
        "defaults: {{repo: lib, profile: claude, prompt: {prompt}}}\ntasks: [{{name: a}}, {{name: b}}, {{name: c, repo: lib, base: v1}}]\n"
    ));
    let said = home.run(&["run", &file]);
    assert_eq!(said.code, Some(6), "{}", said.err);
    assert!(said.err.contains("not committed"), "{}", said.err);
    let asked = manager.asked.lock().unwrap();
    let blobs: Vec<_> =
        asked.iter().filter(|request| matches!(request, Request::Action(Action::PutBlob { .. }))).collect();
    let repos =
        asked.iter().filter(|request| matches!(request, Request::Query(Query::ResolveRepo { .. }))).count();
    assert_eq!((blobs.len(), repos), (2, 2));
    let Some(Request::Action(Action::PutBlob { offset, last, .. })) = blobs.get(1) else { panic!() };
    assert_eq!((*offset, *last), (512 << 10, true));
    let Some(Request::Mutation(Mutation::SubmitRun(run))) = asked.last() else { panic!() };
    assert_eq!(run.tasks[0].spec.repo.as_deref(), Some(home.folder.path().join("lib").to_str().unwrap()));
    assert_eq!(run.tasks[0].spec.base_commit.as_deref(), Some("c".repeat(40).as_str()));
    assert_eq!(run.run.name.as_str(), "t");
}

#[test]
fn a_list_costs_little_more_than_a_process() {
    let home = Home::new();
    let _manager = Manager::start(&home, |asked| agents(asked, vec![view(1, "a", Phase::Running)]));
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(home.run(&["ls"]).code, Some(0));
            begun.elapsed()
        })
        .collect();
    times.sort();
    eprintln!("ls: median {:?}, best {:?}", times[times.len() / 2], times[0]);
    assert!(times[0] < Duration::from_millis(500), "{times:?}");
}
