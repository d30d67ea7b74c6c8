//! Every document is what its schema says, printed by the real binaries: of nothing, of one and of many.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use jsonschema::Validator;
use phalanx_tests::install::{Install, Ran};
use serde_json::{Value, json};

/// The schemas as `phalanx schema` prints them, and which were tried.
struct Schemas {
    whole: BTreeMap<String, Validator>,
    lines: BTreeMap<String, Validator>,
    tried: RefCell<BTreeSet<String>>,
}

impl Schemas {
    fn of(install: &Install) -> Self {
        let list = install.run(&["schema", "--list", "-o", "json"]).succeeded();
        let list: Value = serde_json::from_slice(&list.stdout).unwrap();
        let (mut whole, mut lines) = (BTreeMap::new(), BTreeMap::new());
        for item in list["items"].as_array().unwrap() {
            let name = item["name"].as_str().unwrap();
            whole.insert(name.to_owned(), validator(install, &["schema", "--", name]));
            if item["has_lines"] == true {
                lines.insert(name.to_owned(), validator(install, &["schema", "--line", "--", name]));
            }
        }
        Self { whole, lines, tried: RefCell::default() }
    }

    /// The document that was printed; with how many items.
    #[track_caller]
    fn check(&self, name: &str, ran: &Ran) -> Value {
        // Warnings may come before it.
        let last = ran.stderr.lines().last().unwrap_or_default().as_bytes();
        let bytes = if name == "error" { last } else { &ran.stdout };
        let document = serde_json::from_slice::<Value>(bytes);
        assert!(document.is_ok(), "{}: {document:?}: {} {}", ran.words, ran.text(), ran.stderr);
        let document = document.unwrap();
        is_valid(&self.whole[name], &document, &ran.words);
        self.tried.borrow_mut().insert(name.to_owned());
        document
    }

    /// A command that reads, in both formats; how many items it told of.
    #[track_caller]
    fn read(&self, install: &Install, name: &str, args: &[&str]) -> usize {
        let with = |format| [args, &["-o", format]].concat();
        let document = self.check(name, &install.run(&with("json")).succeeded());
        let count = document["items"].as_array().map_or(1, Vec::len);
        let Some(line) = self.lines.get(name) else { return count };
        let ran = install.run(&with("jsonl")).succeeded();
        let lines: Vec<Value> = ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(|found| is_valid(line, found, &ran.words));
        // Events come meanwhile.
        assert!(lines.len() == count || (name == "events" && lines.len() > count), "{}", ran.words);
        count
    }
}

#[track_caller]
fn is_valid(validator: &Validator, document: &Value, what: &str) {
    let wrong: Vec<String> =
        validator.iter_errors(document).map(|error| format!("{} {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{what}: {}\n{document:#}", wrong.join("\n"));
}

/// Stricter than what is printed: a field that no schema knows is an error too.
fn validator(install: &Install, args: &[&str]) -> Validator {
    let ran = install.run(args).succeeded();
    let mut schema: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    close(&mut schema);
    jsonschema::draft202012::new(&schema).unwrap()
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            let is_one = fields.contains_key("properties") && !fields.contains_key("$ref");
            let is_composed = ["oneOf", "anyOf", "allOf"].iter().any(|word| fields.contains_key(*word));
            if is_one && !is_composed {
                fields.insert("additionalProperties".into(), json!(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

const TASKS: &str = "name: many
max_parallel: 3
labels: {team: core}
defaults: {repo: REPO, commit: auto}
tasks:
  - {name: good, command: 'echo a > a', verify: 'test -f a', outputs: [a], env: {KEY: value}}
  - {name: bad, command: 'echo b > b; exit 4', retries: 1}
  - {name: red, command: 'echo c > c', verify: 'echo no; exit 1'}
  - {name: seen, command: 'echo d > d', accept: review, labels: {k: v}}
  - {name: dropped, command: 'echo e > e', accept: review}
  - {name: late, command: 'echo f > f', depends_on: [bad]}
";

#[test]
fn every_document_of_nothing_one_and_many_is_what_its_schema_says() {
    let install = Install::new();
    let schemas = Schemas::of(&install);
    let away = install.run(&["status", "-o", "json", "--no-start"]).ended_with(9);
    schemas.check("status", &away);
    schemas.check("error", &install.run(&["ls", "--no-start", "-o", "json"]).ended_with(9));
    assert!(!install.layout().manager_socket().exists(), "schemas start nothing");
    install.run(&["up"]).succeeded();
    for (name, args) in [
        ("ls", &["ls"][..]),
        ("runs", &["runs"]),
        ("messages", &["messages"]),
        ("gc", &["gc", "--dry-run"]),
        ("du", &["du", "-l", "no=one"]),
        ("notify ls", &["notify", "ls"]),
        ("notify test", &["notify", "test"]),
    ] {
        assert_eq!(schemas.read(&install, name, args), 0, "{name}");
    }
    for (name, args) in [
        ("events", &["events"][..]),
        ("hosts", &["hosts"]),
        ("status", &["status"]),
        ("config view", &["config", "view"]),
        ("config get", &["config", "get", "defaults.memory"]),
        ("config path", &["config", "path"]),
        ("profile ls", &["profile", "ls"]),
        ("profile show", &["profile", "show", "claude", "shell"]),
        ("schema --list", &["schema", "--list"]),
    ] {
        assert!(schemas.read(&install, name, args) > 0, "{name}");
    }
    install.settings(
        "[host]\ndisk_share = \"100%\"\n[[notify]]\non = \"failed\"\ncommand = \"cat\"\n[[notify]]\non = \"failed\"\ncommand = \"exit 3\"\n",
    );
    assert_eq!(schemas.read(&install, "notify ls", &["notify", "ls"]), 2);
    schemas.check("notify test", &install.run(&["notify", "test", "-o", "json"]).ended_with(1));
    schemas.check("doctor", &install.run(&["doctor", "-o", "json"]));
    agents(&install, &schemas);
    work(&install, &schemas);
    let tried = schemas.tried.into_inner();
    let left: Vec<&String> = schemas.whole.keys().filter(|name| !tried.contains(*name)).collect();
    assert!(left.is_empty(), "not tried: {left:?}");
}

fn agents(install: &Install, schemas: &Schemas) {
    let repo = install.text_path("repo");
    install.repo("repo").write("f", "1");
    let hold = ["--", "sh", "-c", "echo new > new; echo hi; sleep 600"];
    let create = |name: &str| {
        install.run(&[&["create", name, "--repo", &repo, "--label", "a=b", "-o", "json"], &hold[..]].concat())
    };
    schemas.check("create", &create("one").succeeded());
    schemas.check("error", &create("one").ended_with(5));
    let print = |name: &str, args: &[&str]| {
        let args = [args, &["-o", "json"]].concat();
        schemas.check(name, &install.run(&args))
    };
    let read = |name: &str, args: &[&str]| schemas.read(install, name, args);
    assert_eq!(read("ls", &["ls"]), 1);
    watched(install, schemas);
    assert_eq!(read("top", &["top", "--once"]), 1);
    assert_eq!(read("show", &["show", "one"]), 1);
    assert_eq!(read("capture", &["capture", "one"]), 1);
    assert!(read("file ls", &["file", "ls", "one:"]) > 1);
    assert_eq!(read("diff", &["diff", "one"]), 1);
    assert_eq!(read("why", &["why", "one"]), 1);
    assert_eq!(read("snapshot ls", &["snapshot", "ls", "one"]), 0);
    print("snapshot create", &["snapshot", "create", "one"]);
    assert_eq!(read("snapshot ls", &["snapshot", "ls", "one"]), 1);
    print("pause", &["pause", "one"]);
    print("resume", &["resume", "one"]);
    print("label", &["label", "one", "k=v", "a-"]);
    print("limit", &["limit", "one", "--timeout", "1h"]);
    print("rename", &["rename", "one", "uno"]);
    print("send", &["send", "uno", "hello", "--no-wait"]);
    print("send", &["send", "uno", "nobody", "hello", "--no-wait"]);
    assert!(read("messages", &["messages"]) > 0);
    print("wait", &["wait", "uno", "--for", "started"]);
    print("clone", &["clone", "uno", "due"]);
    create("tre").succeeded();
    assert_eq!(read("ls", &["ls"]), 3);
    print("stop", &["stop", "uno", "tre", "--yes"]);
    print("snapshot restore", &["snapshot", "restore", "uno", "1"]);
    print("start", &["start", "tre"]);
    print("destroy", &["destroy", "uno", "due", "--yes"]);
    print("destroy", &["destroy", "uno", "--discard"]);
    assert!(read("du", &["du", "--all"]) > 1);
    assert!(read("events", &["events"]) > 5);
    print("profile test", &["profile", "test", "shell", "--timeout", "10s"]);
    print("gc", &["gc", "--older", "0", "--yes"]);
    assert!(read("ls", &["ls", "-a"]) > 2);
}

/// A list that goes on: what is there, that it was all, and a change.
fn watched(install: &Install, schemas: &Schemas) {
    let mut watching = install.command(&["ls", "--watch", "-o", "json"]);
    let mut watching = watching.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = || -> Value {
        let line = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        is_valid(&schemas.whole["ls --watch"], &line, "ls --watch");
        line
    };
    assert_eq!((&next()["change"], &next()["change"]), (&json!("listed"), &json!("synced")));
    install.run(&["label", "one", "seen=yes"]).succeeded();
    assert_eq!(next()["agent"]["labels"]["seen"], "yes");
    watching.kill().unwrap();
    watching.wait().unwrap();
    schemas.tried.borrow_mut().insert("ls --watch".to_owned());
}

fn work(install: &Install, schemas: &Schemas) {
    let file = install.file("many.yaml", TASKS.replace("REPO", &install.text_path("repo")));
    let print = |name: &str, args: &[&str]| {
        let args = [args, &["-o", "json"]].concat();
        schemas.check(name, &install.run(&args))
    };
    let read = |name: &str, args: &[&str]| schemas.read(install, name, args);
    schemas.check("error", &install.run(&["tasks", "-o", "json"]).ended_with(3));
    assert_eq!(read("run --dry-run", &["run", &file, "--dry-run"]), 6);
    let single = install.file("single.yaml", "name: single\ntasks: [{name: t, command: sleep 600}]\n");
    install.run(&["run", &single, "--detach"]).succeeded();
    assert_eq!((read("runs", &["runs"]), read("tasks", &["tasks"])), (1, 1));
    print("scale", &["scale", "single", "3"]);
    print("cancel", &["cancel", "single"]);
    assert_eq!(print("run", &["run", &file])["items"][0]["total"], 6);
    assert_eq!((read("runs", &["runs"]), read("tasks", &["tasks", "many"])), (2, 6));
    assert_eq!(read("tasks", &["tasks", "many", "--state", "QUEUED"]), 0);
    read("why", &["why", "many"]);
    read("diff", &["diff", "many/good"]);
    print("report", &["report", "many"]);
    print("accept", &["accept", "many/seen"]);
    print("reject", &["reject", "many/dropped", "--final", "--comment", "no"]);
    print("wait RUN", &["wait", "many", "--for", "ended"]);
    print("show RUN", &["show", "many"]);
    print("wait RUN/TASK", &["wait", "many/seen", "--for", "accepted"]);
    print("patch", &["patch", "many", "--out", &install.text_path("patches")]);
    print("merge", &["merge", "many", "--into", "all", "--dry-run"]);
    print("merge", &["merge", "many", "--into", "all"]);
    print("retry", &["retry", "many", "bad"]);
    assert!(read("ls", &["ls", "-a"]) > 5);
    read("show", &["show", "bad#1"]);
}
