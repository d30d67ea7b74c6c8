//! Settings reach what they are for, from every layer, and a wrong one does nothing but say so.

use phalanx_tests::install::{Install, Ran};
use serde_json::Value;

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn settings_are_written_read_and_refused_without_a_manager() {
    let install = Install::new();
    std::fs::remove_dir_all(install.path("user").join(".config")).unwrap();
    let view = install.run(&["config", "view", "-o", "json"]).succeeded();
    assert_eq!(json(&view)["kind"], "SettingList");
    install.run(&["config", "set", "defaults.memory", "300M"]).succeeded();
    assert_eq!(install.run(&["config", "get", "defaults.memory"]).succeeded().text(), "300M");
    let text = std::fs::read_to_string(install.settings_file()).unwrap();
    assert_eq!(text, "[defaults]\nmemory = \"300M\"\n");
    let origin = install.run(&["config", "view", "--show-origin"]).succeeded().text();
    assert!(origin.contains("config.toml:2"), "{origin}");

    for (args, code, said) in [
        (&["config", "set", "defaults.memry", "1G"][..], 3, "defaults.memory"),
        (&["config", "set", "defaults.memory", "lots"], 2, "is not a size"),
        (&["config", "set", "host.disk_share", "50%", "--layer", "project"], 4, "system, user"),
        (&["config", "get", "nothing.here"], 3, "no setting"),
        (&["config", "validate", "no-such-file"], 2, "no such file"),
    ] {
        let ran = install.run(args).ended_with(code);
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(install.settings_file()).unwrap(), text, "nothing was changed");

    install.run(&["config", "unset", "defaults.memory"]).succeeded();
    install.run(&["config", "unset", "defaults.memory"]).succeeded();
    assert_eq!(install.run(&["config", "get", "defaults.memory"]).succeeded().text(), "none");
    assert!(!install.layout().manager_socket().exists(), "nothing was started");
}

#[test]
fn a_wrong_file_stops_what_would_use_it_and_nothing_that_mends_it() {
    let install = Install::new();
    install.settings("[defaults]\ngrase = \"1s\"\n");
    let ran = install.run(&["ls"]).ended_with(2);
    assert!(ran.stderr.contains("config.toml:2:1") && ran.stderr.contains("\"grace\""), "{}", ran.stderr);
    install.run(&["config", "validate"]).ended_with(2);
    install.run(&["config", "path"]).succeeded();
    install.run(&["status", "--no-start"]).ended_with(9);
    install.run(&["down"]).succeeded();
    assert!(!install.layout().manager_socket().exists(), "nothing was started");
    // An edit that leaves it wrong is not taken; the next one goes on from there.
    let mut edit = install.command(&["config", "edit"]);
    edit.env("EDITOR", "sed -i s/grase/graze/");
    assert_eq!(edit.output().unwrap().status.code(), Some(2));
    assert!(std::fs::read_to_string(install.settings_file()).unwrap().contains("grase"));
    let mut edit = install.command(&["config", "edit"]);
    edit.env("EDITOR", "sed -i s/graze/grace/");
    assert_eq!(edit.output().unwrap().status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(install.settings_file()).unwrap(), "[defaults]\ngrace = \"1s\"\n");
}

#[test]
fn agents_and_tasks_have_what_settings_say_unless_they_say_otherwise() {
    let install = Install::new();
    install.run(&["config", "set", "defaults.grace", "3s"]).succeeded();
    install.run(&["config", "set", "defaults.memory", "300M"]).succeeded();
    install.run(&["config", "set", "host.disk_share", "99%"]).succeeded();
    let project = install.path("user").join(".phalanx.toml");
    std::fs::write(&project, "[defaults]\nmemory = '200M'\nmax_parallel = 1\n").unwrap();
    install.run(&["up"]).succeeded();
    install.create("plain", &[], &["hang"]);
    install.create("own", &["--memory", "100M", "--grace", "1s"], &["hang"]);
    let spec = |name: &str| {
        json(&install.run(&["show", name, "-o", "json"]).succeeded())["items"][0]["spec"].clone()
    };
    assert_eq!(spec("plain")["limits"]["memory_bytes"], 200 << 20);
    assert_eq!(spec("plain")["grace_ms"], 3000);
    assert_eq!(spec("own")["limits"]["memory_bytes"], 100 << 20);
    assert_eq!(spec("own")["grace_ms"], 1000);

    let file = install.file(
        "t.yaml",
        "tasks:\n  - {name: a, command: 'true'}\n  - {name: b, command: 'true', memory: 50M}\n",
    );
    install.run(&["run", &file]).succeeded();
    let memory = |task: &str| install.task("t", task).spec.limits.memory_bytes;
    assert_eq!((memory("a"), memory("b")), (Some(200 << 20), Some(50 << 20)));
    let runs = json(&install.run(&["runs", "-o", "json"]).succeeded());
    assert_eq!(runs["items"][0]["spec"]["max_parallel"], 1);

    // The environment is above the files, an option above all.
    let mut ls = install.command(&["ls"]);
    ls.env("PHALANX_DEFAULTS_OUTPUT", "name");
    assert_eq!(String::from_utf8(ls.output().unwrap().stdout).unwrap().lines().count(), 2);
    let mut ls = install.command(&["ls", "-o", "json"]);
    ls.env("PHALANX_DEFAULTS_OUTPUT", "name");
    assert!(serde_json::from_slice::<Value>(&ls.output().unwrap().stdout).is_ok());

    let hosts = json(&install.run(&["hosts", "-o", "json"]).succeeded());
    assert_eq!(hosts["items"][0]["facts"]["disk_share_max_percent"], 99);
}

#[test]
fn profiles_of_settings_start_agents_and_are_tried_for_real() {
    let install = Install::start();
    let fake = phalanx_tests::programs::fake_agent();
    let profile = |name: &str, steps: &str, ready: &str| {
        format!(
            "[profiles.{name}]\ncommand = ['sh', '-c', 'true']\ninteractive = '{fake} {steps}'\n{ready}\n"
        )
    };
    let text = [
        profile("good", "say hello hang", "ready = 'hello'"),
        profile("mute", "hang", "ready = 'hello'"),
        profile("plain", "hang", ""),
        profile("broken", "exit 7", "ready = 'hello'"),
    ];
    install.settings(&text.concat());
    let names = install.run(&["profile", "ls", "-o", "name"]).succeeded().text();
    for name in ["claude", "codex", "shell", "good"] {
        assert!(names.lines().any(|line| line == name), "{names}");
    }
    for (name, code, outcome) in
        [("good", 0, "ready"), ("plain", 0, "started"), ("broken", 1, "ended"), ("mute", 124, "timed-out")]
    {
        let ran = install.run(&["profile", "test", name, "--timeout", "4s", "-o", "json"]).ended_with(code);
        assert_eq!(json(&ran)["items"][0]["outcome"], outcome, "{name}");
    }
    assert!(install.agents(&[]).is_empty(), "tried agents are taken away");
    let ran = install.run(&["profile", "test", "god"]).ended_with(3);
    assert!(ran.stderr.contains("good"), "{}", ran.stderr);
    install.run(&["create", "one", "good"]).succeeded();
    let file = install.file("t.yaml", "tasks:\n  - {name: a, profile: good}\n");
    install.run(&["run", &file]).succeeded();
}
