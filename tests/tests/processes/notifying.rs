//! Notifications: a real program and a real web hook hear of what happens, once each under one id, and never a secret;
//! a run says who hears of it, and settings that change are read while the manager runs.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;

use manager_cli::client::Client;
use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::api::{Mutation, Query, Reply, SubmitRun};
use protocol::ids::RequestKey;
use protocol::notify::Told;
use protocol::task::SubmitTask;
use serde_json::Value;

/// Answers each request with the next of `answers` (the last for ever), and hands over what it was sent.
fn server(answers: &'static [u16]) -> (u16, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for (place, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let (mut bytes, mut buffer) = (Vec::new(), [0_u8; 4096]);
            let (head, body) = loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.to_lowercase();
                    let length = length.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
                    if length.is_some_and(|length| body.len() >= length.trim().parse().unwrap()) {
                        break (head.to_owned(), body.to_owned());
                    }
                }
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "cut off: {text}");
                bytes.extend_from_slice(&buffer[..count]);
            };
            let code = answers.get(place).or(answers.last()).unwrap();
            let answer = format!("HTTP/1.1 {code} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            if sender.send((head, serde_json::from_str(&body).unwrap())).is_err() {
                return;
            }
        }
    });
    (port, receiver)
}

fn settings(install: &Install, hooks: &str) {
    install.settings(&format!("[host]\ndisk_share = \"100%\"\n{hooks}"));
}

/// What the command of a test was given, by its place.
fn told(install: &Install) -> Vec<Value> {
    install.lines("told").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hook(install: &Install) -> String {
    let file = install.text_path("told");
    format!("[[notify]]\non = ['failed', 'run-end']\ncommand = 'cat >> {file}; env >> {file}.env'\n")
}

#[test]
fn a_program_and_a_web_hook_hear_of_a_failure_without_its_secrets() {
    let install = Install::new();
    let (port, heard) = server(&[503, 200]);
    let webhook = format!("http://me:h00k-s3cr3t@127.0.0.1:{port}/in?token=h00k-t0k3n");
    let hooks = format!("{}[[notify]]\non = 'failed'\nwebhook = '{webhook}'\n", hook(&install));
    settings(&install, &hooks);
    install.run(&["up"]).succeeded();
    let tasks =
        "name: bad\ntasks:\n  - {name: fix, command: ['/no/such/canary-77'], env: {KEY: canary-77}}\n";
    let file = install.file("bad.yaml", tasks);
    let _ = install.run(&["run", &file]);
    let all = wait::until(wait::LIMIT, "both are told", || told(&install), |told| told.len() >= 2);
    let events: Vec<&str> = all.iter().map(|notice| notice["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["failed", "run-end"]);
    assert_eq!((&all[0]["task"]["name"], &all[0]["run"]["name"]), (&"fix".into(), &"bad".into()));
    let reason = all[0]["reason"].as_str().unwrap();
    assert!(reason.contains("[redacted]") && reason.contains("/no/such/"), "{reason}");
    assert_eq!(all[1]["counts"]["failed"], 1);
    let variables = install.lines("told.env");
    assert!(variables.iter().any(|line| line == "PHALANX_TASK_NAME=fix"), "{variables:?}");
    assert!(variables.iter().all(|line| !line.contains("canary-77")), "{variables:?}");
    // Refused once, sent again under the same id.
    let first = heard.recv_timeout(wait::LIMIT).unwrap();
    let second = heard.recv_timeout(wait::LIMIT).unwrap();
    assert_eq!(first.1, second.1);
    assert_eq!(first.1["id"], all[0]["id"]);
    assert!(first.0.starts_with("POST /in?token=h00k-t0k3n HTTP/1.1"), "{}", first.0);
    let credentials = "authorization: Basic bWU6aDAway1zM2NyM3Q=";
    assert!(first.0.contains(credentials), "{}", first.0);
    let listed = || install.run(&["notify", "ls", "-o", "json"]).succeeded().text();
    wait::until(wait::LIMIT, "both are counted", listed, |text| text.contains("\"delivered\": 1,"));
    // The address is nowhere but in the settings.
    for words in [&["notify", "ls"][..], &["config", "view"], &["doctor"], &["status"], &["notify", "test"]] {
        let ran = install.run(words);
        let said = format!("{}{}", ran.text(), ran.stderr);
        assert!(!said.contains("h00k"), "{words:?}: {said}");
    }
    for entry in std::fs::read_dir(install.layout().log()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
        assert!(!text.contains("h00k") && !text.contains("canary-77"), "{text}");
    }
}

#[test]
fn what_happens_while_a_hook_fails_is_told_by_the_next_manager_under_its_id() {
    let install = Install::new();
    let (file, gate) = (install.text_path("told"), install.text_path("open"));
    let command = format!("test -e {gate} || {{ echo the line is down >&2; exit 1; }}; cat >> {file}");
    settings(&install, &format!("[[notify]]\non = ['run-end']\ncommand = '{command}'\n"));
    install.run(&["up"]).succeeded();
    let tasks = install.file("ok.yaml", "name: ok\ntasks:\n  - {name: a, command: 'true'}\n");
    install.run(&["run", &tasks]).succeeded();
    let status = || install.run(&["status"]).text();
    wait::until(wait::LIMIT, "the failure is shown", status, |text| text.contains("the line is down"));
    let doctor = install.run(&["doctor"]).text();
    assert!(doctor.contains("the line is down"), "{doctor}");
    install.kill("manager");
    install.file("open", "");
    let all = wait::until(wait::LIMIT, "it is told", || told(&install), |told| !told.is_empty());
    assert_eq!(all[0]["run"]["name"], "ok");
    let good = |text: &String| !text.contains("the line is down");
    wait::until(wait::LIMIT, "all is well again", status, good);
    // A second restart tells nothing twice: what is told in order after it is new.
    install.kill("manager");
    install.settled();
    let tasks = install.file("more.yaml", "name: more\ntasks:\n  - {name: b, command: 'true'}\n");
    install.run(&["run", &tasks]).succeeded();
    let is_told = |told: &Vec<Value>| told.iter().any(|notice| notice["run"]["name"] == "more");
    let all = wait::until(wait::LIMIT, "the next one is told", || told(&install), is_told);
    let names: Vec<&str> = all.iter().map(|notice| notice["run"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ok", "more"]);
    assert_ne!(all[0]["id"], all[1]["id"]);
}

#[test]
fn an_agent_that_asks_is_told_of_without_its_screen() {
    let install = Install::new();
    let file = install.text_path("told");
    settings(
        &install,
        &format!(
            "[[notify]]\non = 'blocked'\ncommand = 'cat >> {file}'\n\
             [profiles.asker]\ncommand = ['{}', 'ask', 'Proceed?', 'raw', 'hang']\n\
             [profiles.asker.signals]\nasking = 'Proceed\\?$\\z'\nbusy = '^GOT'\n",
            fake_agent()
        ),
    );
    install.run(&["up"]).succeeded();
    install.run(&["create", "mine", "asker"]).succeeded();
    let all = wait::until(wait::LIMIT, "it is told", || told(&install), |told| !told.is_empty());
    assert_eq!((&all[0]["event"], &all[0]["agent"]["name"]), (&"blocked".into(), &"mine".into()));
    assert_eq!((&all[0]["phase"], &all[0]["reason"]), (&"BLOCKED".into(), &"question".into()));
    assert!(!all[0].to_string().contains("Proceed"), "{}", all[0]);
}

#[test]
fn a_test_says_what_came_back_and_a_project_can_name_no_hook() {
    let install = Install::new();
    let (port, _heard) = server(&[404]);
    let good = hook(&install);
    let bad = format!("[[notify]]\non = 'blocked'\nwebhook = 'http://127.0.0.1:{port}/x'\n");
    let slow = "[[notify]]\non = 'blocked'\ncommand = 'sleep 600'\ntimeout = '300ms'\n";
    settings(&install, &format!("{good}{bad}{slow}"));
    let ran = install.run(&["notify", "test", "-o", "json"]).ended_with(1);
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let said: Vec<(bool, &str)> = document["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["delivered"].as_bool().unwrap(), item["came_back"].as_str().unwrap()))
        .collect();
    assert_eq!(said[0], (true, "exit 0"));
    assert!(!said[1].0 && said[1].1.contains("HTTP 404"), "{said:?}");
    assert!(!said[2].0 && said[2].1.contains("not done within"), "{said:?}");
    assert_eq!(told(&install)[0]["event"], "sample");
    for (wrong, expected) in [
        ("[[notify]]\non = 'faild'\ncommand = 'x'\n", "failed"),
        ("[[notify]]\non = 'failed'\n", "neither command nor webhook"),
        ("[[notify]]\non = 'failed'\nwebhook = 'hooks/s3cr3t'\n", "http://"),
        ("[notify]\non = 'failed'\n", "write [[notify]]"),
    ] {
        settings(&install, wrong);
        let ran = install.run(&["config", "validate"]).ended_with(2);
        assert!(ran.stderr.contains(expected) && !ran.stderr.contains("s3cr3t"), "{}", ran.stderr);
    }
    settings(&install, "");
    std::fs::write(install.path("user").join(".phalanx.toml"), good).unwrap();
    let ran = install.run(&["config", "validate"]).ended_with(2);
    assert!(ran.stderr.contains("notify cannot be set in this file"), "{}", ran.stderr);
}

/// Of the file that a hook writes to: event and run of each notice.
fn heard(install: &Install, file: &str) -> Vec<String> {
    let lines = install.lines(file);
    let notices = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    notices
        .map(|notice| {
            let run = notice["run"]["name"].as_str().unwrap_or("-").to_owned();
            format!("{} {run}", notice["event"].as_str().unwrap())
        })
        .collect()
}

fn named(install: &Install, name: &str, more: &str) -> String {
    let file = install.text_path(name);
    format!("[[notify]]\nname = '{name}'\non = ['failed', 'run-end']\n{more}\ncommand = 'cat >> {file}'\n")
}

/// A run of this name with one task that fails and one that does not.
fn tasks(install: &Install, name: &str, notify: &str) -> String {
    let tasks = "tasks:\n  - {name: a, command: 'exit 3'}\n  - {name: b, command: 'true'}\n";
    install.file(&format!("{name}.yaml"), format!("name: {name}\n{notify}\n{tasks}"))
}

/// A run that asks for a hook, as a client brings it that does not look at the hooks first.
fn submit(key: &str, to: &Told) -> Mutation {
    let spec = serde_json::from_value(serde_json::json!({
        "name": "t", "program": ["true"], "grace_ms": 1_000, "accept": "exit", "commit": "agent",
    }));
    Mutation::SubmitRun(Box::new(SubmitRun {
        key: RequestKey(key.to_owned()),
        run: serde_json::from_value(serde_json::json!({"name": "x", "notify": [to]})).unwrap(),
        tasks: vec![SubmitTask { spec: spec.unwrap(), environment: Default::default() }],
    }))
}

fn hooks(install: &Install) -> Value {
    serde_json::from_slice(&install.run(&["notify", "ls", "-o", "json"]).succeeded().stdout).unwrap()
}

#[test]
fn a_hook_that_is_only_for_the_asking_hears_of_the_run_that_asked_over_a_killed_manager() {
    let install = Install::new();
    let gate = install.text_path("open");
    let file = install.text_path("pager");
    let pager = format!(
        "[[notify]]\nname = 'pager'\nonly = 'asked'\non = ['failed', 'run-end']\n\
         command = 'test -e {gate} || {{ echo the line is down >&2; exit 1; }}; cat >> {file}'\n"
    );
    settings(&install, &format!("{pager}{}", named(&install, "all", "")));
    install.run(&["up"]).succeeded();
    install.run(&["run", &tasks(&install, "silent", "")]).ended_with(7);
    let loud = tasks(&install, "loud", "notify: [pager]");
    install.run(&["run", &loud]).ended_with(7);
    // Less than the hook is for, and more than it.
    install.run(&["run", &tasks(&install, "less", ""), "--notify", "pager:run-end"]).ended_with(7);
    let failing = || hooks(&install)["items"][0]["failure"].to_string();
    wait::until(wait::LIMIT, "the pager fails", failing, |said| said.contains("the line is down"));
    // What is written down is not told again.
    let delivered = || hooks(&install)["items"][1]["delivered"].clone();
    wait::until(wait::LIMIT, "the other is done", delivered, |count| *count == 6);
    install.kill("manager");
    install.settled();
    let shown: Value = serde_json::from_slice(&install.run(&["show", "loud", "-o", "json"]).stdout).unwrap();
    assert_eq!(shown["items"][0]["spec"]["notify"][0]["to"], "pager");
    let text = install.run(&["show", "less"]).succeeded().text();
    assert!(text.lines().any(|line| line.starts_with("notify") && line.ends_with("pager:run-end")), "{text}");
    install.file("open", "");
    let pager = || heard(&install, "pager");
    let all = wait::until(wait::LIMIT, "both are told", pager, |heard| {
        heard.last().is_some_and(|last| last == "run-end less")
    });
    assert_eq!(all, ["failed loud", "run-end loud", "run-end less"]);
    let every = || heard(&install, "all");
    let all = wait::until(wait::LIMIT, "all is told", every, |heard| heard.len() >= 6);
    let silent =
        ["failed silent", "run-end silent", "failed loud", "run-end loud", "failed less", "run-end less"];
    assert_eq!(all, silent);
}

#[test]
fn a_hook_that_is_not_there_is_refused_before_anything_starts_and_by_the_manager_too() {
    let install = Install::new();
    settings(&install, &named(&install, "pager", "only = 'asked'"));
    install.run(&["up"]).succeeded();
    let file = tasks(&install, "r", "notify:\n  - pagr");
    let ran = install.run(&["run", &file]).ended_with(2);
    let said = "r.yaml:3:5: notify: there is no hook \"pagr\"; did you mean \"pager\"?";
    assert!(ran.stderr.contains(said) && ran.stderr.contains("nothing was sent"), "{}", ran.stderr);
    let ran = install.run(&["run", &file, "--dry-run"]).ended_with(2);
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let plain = tasks(&install, "p", "");
    let ran = install.run(&["run", &plain, "--notify", "nobody:failed"]).ended_with(2);
    assert!(ran.stderr.contains("--notify: there is no hook \"nobody\"; known are pager"), "{}", ran.stderr);
    let ran = install.run(&["run", &plain, "--notify", "pager:faild"]).ended_with(2);
    assert!(ran.stderr.contains("did you mean \"failed\"?"), "{}", ran.stderr);
    let runs = || install.run(&["runs", "-o", "name"]).succeeded().text();
    assert_eq!(runs(), "");
    // Who asks the manager without asking for its hooks first.
    let told = Told { to: "nobody".parse().unwrap(), on: Vec::new() };
    let mut client = Client::open(&install.layout().manager_socket()).unwrap();
    let refused = client.ask(&submit("k-1", &told)).unwrap_err();
    let said = refused.rendered(false).unwrap();
    assert!(said.contains("there is no hook \"nobody\"") && refused.exit_code() == 2, "{said}");
    assert_eq!(runs(), "");
    // A key that was taken has its answer, whatever became of the hook.
    let pager = Told { to: "pager".parse().unwrap(), ..told };
    let first = client.ask(&submit("k-2", &pager)).unwrap();
    settings(&install, "");
    assert_eq!(client.ask(&submit("k-2", &pager)).unwrap(), first);
    assert!(client.ask(&submit("k-3", &pager)).is_err());
}

#[test]
fn settings_that_change_count_from_the_next_notice_and_wrong_ones_change_nothing() {
    let install = Install::new();
    settings(&install, &named(&install, "zero", ""));
    install.run(&["up"]).succeeded();
    let run = |name: &str, notify: &str| {
        install.run(&["run", &tasks(&install, name, notify)]).ended_with(7);
    };
    run("before", "");
    let zero = || heard(&install, "zero");
    wait::until(wait::LIMIT, "the first hook is told", zero, |heard| heard.len() >= 2);
    // Nobody asks between the change and what is to be told.
    settings(&install, &named(&install, "one", ""));
    run("first", "");
    let one = || heard(&install, "one");
    wait::until(wait::LIMIT, "a new hook is told", one, |heard| heard == &["failed first", "run-end first"]);
    // Of the same place with another purpose, and one more.
    let narrow = named(&install, "one", "").replace("'failed', ", "");
    settings(&install, &format!("{narrow}{}", named(&install, "two", "only = 'asked'")));
    let gate = install.text_path("gate");
    let waiting = install.file(
        "second.yaml",
        format!(
            "name: second\nnotify: [two]\ntasks:\n  - name: a\n    command: 'until test -e {gate}; do sleep 0.1; \
             done; exit 3'\n"
        ),
    );
    install.run(&["run", &waiting, "--detach"]).succeeded();
    // What does not parse changes nothing, and is told.
    settings(&install, "[[notify]]\non = 'faild'\ncommand = 'x'\n");
    let document = hooks(&install);
    assert_eq!(document["items"].as_array().unwrap().len(), 2, "{document:#}");
    assert!(document["wrong"].as_str().unwrap().contains("did you mean \"failed\"?"), "{document:#}");
    let ran = install.run(&["notify", "ls"]).succeeded();
    assert!(
        ran.stderr.contains("the settings are wrong; the hooks of before are in force"),
        "{}",
        ran.stderr
    );
    let log = std::fs::read_to_string(install.layout().log_file("manager")).unwrap();
    assert!(log.contains("the hooks of before stay in force"), "{log}");
    // The hook is taken out that the run asks for: the run goes on, and it is told where.
    settings(&install, &narrow);
    let document = hooks(&install);
    assert_eq!(
        (&document["missing"][0]["hook"], &document["missing"][0]["run_name"]),
        (&"two".into(), &"second".into())
    );
    assert_eq!(document["wrong"], Value::Null);
    let ran = install.run(&["notify", "ls"]).succeeded();
    assert!(
        ran.stderr.contains("run second asks for the hook \"two\", which is not there any more"),
        "{}",
        ran.stderr
    );
    let log = std::fs::read_to_string(install.layout().log_file("manager")).unwrap();
    assert!(log.contains("a hook that is not in the settings any more"), "{log}");
    install.file("gate", "");
    install.run(&["wait", "second"]).succeeded();
    wait::until(wait::LIMIT, "the end is told", one, |heard| heard.len() >= 3);
    assert_eq!(one(), ["failed first", "run-end first", "run-end second"]);
    // What comes back begins anew: it is not told of the time between.
    settings(&install, &format!("{narrow}{}", named(&install, "two", "only = 'asked'")));
    run("third", "notify: two");
    let two = || heard(&install, "two");
    wait::until(wait::LIMIT, "it is told again", two, |heard| heard == &["failed third", "run-end third"]);
    // What is written down is not told again.
    let delivered = || {
        hooks(&install)["items"].as_array().unwrap().iter().map(|hook| hook["delivered"].clone()).collect()
    };
    wait::until(wait::LIMIT, "both are done", delivered, |counts: &Vec<Value>| *counts == [4, 2]);
    install.kill("manager");
    install.settled();
    run("fourth", "");
    wait::until(wait::LIMIT, "nothing is told twice", one, |heard| {
        heard == &["failed first", "run-end first", "run-end second", "run-end third", "run-end fourth"]
    });
    assert_eq!((two().len(), zero().len()), (2, 2));
}

#[test]
fn what_happens_while_the_settings_are_wrong_over_a_killed_manager_is_told_once_they_are_right() {
    let install = Install::new();
    let right = named(&install, "all", "");
    settings(&install, &right);
    install.run(&["up"]).succeeded();
    install.run(&["run", &tasks(&install, "one", "")]).ended_with(7);
    let all = || heard(&install, "all");
    wait::until(wait::LIMIT, "the hook is told", all, |heard| heard.len() >= 2);
    let delivered = || hooks(&install)["items"][0]["delivered"].clone();
    wait::until(wait::LIMIT, "it is written down", delivered, |count| *count == 2);
    let gate = install.text_path("gate");
    let waiting = install.file(
        "two.yaml",
        format!("name: two\nnotify: [all]\ntasks:\n  - {{name: a, command: 'until test -e {gate}; do sleep 0.1; done; exit 3'}}\n"),
    );
    install.run(&["run", &waiting, "--detach"]).succeeded();
    settings(&install, &format!("{right}garbage = \n"));
    install.kill("manager");
    install.settled();
    // Who cannot read the settings begins nothing new, nor does the manager for whom it cannot know. What goes on fails.
    let ran = install.run(&["run", &tasks(&install, "refused", "")]).ended_with(2);
    assert!(ran.stderr.contains("the settings are wrong; nothing was done"), "{}", ran.stderr);
    let mut client = Client::open(&install.layout().manager_socket()).unwrap();
    let refused =
        client.ask(&submit("k-1", &Told { to: "all".parse().unwrap(), on: Vec::new() })).unwrap_err();
    let said = refused.rendered(false).unwrap();
    assert!(said.contains("which hooks there are is not known") && refused.exit_code() == 2, "{said}");
    install.file("gate", "");
    let runs = || match client.ask(&Query::ListRuns).unwrap() {
        Reply::Runs(runs) => runs,
        other => panic!("{other:?}"),
    };
    wait::until(wait::LIMIT, "the run fails", runs, |runs| {
        runs.iter().any(|run| run.spec.name.as_str() == "two" && run.ended_at.is_some())
    });
    let says_nobody = || {
        let ran = install.run(&["notify", "ls"]).succeeded();
        let said = "the settings are wrong; nobody is notified until they are mended";
        assert!(ran.stderr.contains(said) && ran.stderr.contains("config.toml:"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("there any more"), "{}", ran.stderr);
        let document = hooks(&install);
        assert_eq!(
            (&document["items"], &document["missing"]),
            (&Value::from([0_u8; 0]), &Value::from([0_u8; 0]))
        );
        assert!(document["wrong"].is_string(), "{document:#}");
    };
    says_nobody();
    settings(&install, &right);
    install.run(&["run", &tasks(&install, "three", "")]).ended_with(7);
    let told = ["failed one", "run-end one", "failed two", "run-end two", "failed three", "run-end three"];
    wait::until(wait::LIMIT, "all is told", all, |heard| heard == &told);
    // The same of a manager that does not run.
    settings(&install, &format!("{right}garbage = \n"));
    install.run(&["down"]).succeeded();
    says_nobody();
}
