//! Task files from the outside: what is accepted, what is refused and where, and that no input makes the parser panic.

#![expect(clippy::unwrap_used, reason = "what builds the input of a test may fail it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use manager_plan::notify::asked::{of_option, written};
use manager_plan::runfile::format::Format;
use manager_plan::runfile::map::parse_rows;
use manager_plan::runfile::problem::Problems;
use manager_plan::runfile::{Options, Plan, Source, parse};
use proptest::prelude::*;
use protocol::task::Accept;

fn source(name: &str, text: &[u8]) -> Source {
    Source { name: name.to_owned(), folder: "/base".into(), bytes: text.to_vec() }
}

fn yaml(text: &str) -> Result<Plan, Problems> {
    parse(&source("t.yaml", text.as_bytes()), &Options::default())
}

fn refused(text: &str) -> String {
    yaml(text).unwrap_err().to_string()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.spec.name.as_str()).collect()
}

const FULL: &str = r#"
name: nightly
max_parallel: 8
labels: {team: core}
profiles:
  mine: {command: [my-agent, --batch], ready: "ready>"}
defaults:
  repo: lib
  base: main
  labels: {kind: fix, team: a}
  retries: {max: 2, backoff: 2s, jitter: 10%, on: [agent, verify]}
tasks:
  - name: a
    prompt: fix the parser
    profile: claude
    verify: [make test, [cargo, test, --all]]
    timeout: 1h30m
    memory: 512M
    cpu: 1.5
    pids: 100
    env: {MODE: fast, N: 1.10}
  - name: b
    command: [echo, true, 1.10]
    depends_on: a
    labels: {kind: doc}
    result: out/result.json
    outputs: [report.txt]
    priority: 5
  - name: c
    prompt: x
    profile: mine
    depends_on: [a, b]
    accept: review
"#;

#[test]
fn every_field_arrives() {
    let plan = yaml(FULL).unwrap();
    assert_eq!(names(&plan), ["a", "b", "c"]);
    assert_eq!(plan.name.as_ref().unwrap().as_str(), "nightly");
    assert_eq!(plan.max_parallel, Some(8));
    let a = &plan.tasks[0];
    assert_eq!(a.repo.as_ref().unwrap().path, Path::new("/base/lib"));
    assert_eq!(a.spec.accept, Accept::Verify);
    assert_eq!(a.spec.verify[0], ["sh", "-c", "make test"]);
    assert_eq!(a.spec.verify[1], ["cargo", "test", "--all"]);
    assert_eq!(a.spec.limits.time_ms, Some(5_400_000));
    assert_eq!(a.spec.limits.cpu_millis, Some(1500));
    assert_eq!(a.spec.retries.max, 2);
    assert_eq!(a.spec.retries.jitter_percent, 10);
    assert_eq!(a.environment.0.get("N").unwrap(), "1.10");
    assert!(a.spec.has_environment && a.prompt.is_some());
    let b = &plan.tasks[1];
    assert_eq!(b.spec.program, ["echo", "true", "1.10"]);
    assert_eq!(b.spec.accept, Accept::Exit);
    assert_eq!(b.spec.labels, BTreeMap::from([("kind".into(), "doc".into()), ("team".into(), "a".into())]));
    assert_eq!(plan.tasks[2].spec.ready_text.as_deref(), Some("ready>"));
    assert_eq!(plan.tasks[2].spec.program, ["my-agent", "--batch"]);
}

#[test]
fn each_mistake_is_named_with_its_place_and_the_remedy() {
    for (text, expected) in [
        (
            "tasks:\n  - comand: x\n",
            r#"t.yaml:2:5: task "task-1": unknown key "comand" in a task; did you mean "command"?"#,
        ),
        ("tasks:\n  - command: {a: 1}\n", "command must be a text or a list of texts, found a map"),
        ("taks: []\n", r#"unknown key "taks" in a task file; did you mean "tasks"?"#),
        ("tasks: 5\n", "t.yaml:1:8: tasks must be a list, found a number"),
        (
            "tasks:\n  - {name: a, command: x, depends_on: [b]}\n  - {name: b, command: x, depends_on: [a]}\n",
            "circle: a → b → a",
        ),
        ("tasks:\n  - {name: a, command: x, depends_on: [a]}\n", "circle: a → a"),
        (
            "tasks:\n  - {name: a, command: x}\n  - {name: a, command: y}\n",
            r#"t.yaml:3:5: task "a": the name is already taken in line 2"#,
        ),
        (
            "tasks:\n  - {name: a, command: x, depends_on: [bb]}\n  - {name: b, command: x}\n",
            r#"depends_on names "bb", which is no task; did you mean "b"?"#,
        ),
        ("tasks:\n  - {name: a}\n", "neither command nor prompt and profile"),
        ("tasks:\n  - {name: a, command: x, profile: claude}\n", "both command and profile"),
        ("tasks:\n  - {name: a, command: x, prompt: y}\n", "both command and prompt"),
        ("tasks:\n  - {name: a, prompt: x}\n", "a prompt needs a profile"),
        (
            "tasks:\n  - {name: a, prompt: x, profile: cluade}\n",
            r#"there is no profile "cluade"; did you mean "claude"?"#,
        ),
        ("tasks:\n  - {name: a, profile: claude}\n", "needs a prompt"),
        ("tasks:\n  - {name: -x, command: x}\n", "begins with '-'"),
        ("tasks:\n  - {name: '..', command: x}\n", "folder's own name"),
        ("tasks:\n  - {name: '', command: x}\n", "it is empty"),
        ("tasks:\n  - {name: [1], command: x}\n", "name must be a text, found a list"),
        ("tasks:\n  - {command: x, timeout: 90}\n", "timeout: \"90\" has no unit"),
        ("tasks:\n  - {command: x, memory: lots}\n", "memory: \"lots\" is not a size"),
        ("tasks:\n  - {command: x, cpu: -1}\n", "cpu: \"-1\" is not a number of cores"),
        ("tasks:\n  - {command: x, priority: high}\n", "priority: \"high\" is not a whole number"),
        (
            "tasks:\n  - {command: x, retries: {mx: 1}}\n",
            r#"unknown key "mx" in retries; did you mean "max"?"#,
        ),
        ("tasks:\n  - {command: x, retries: {on: [agnet]}}\n", r#"did you mean "agent"?"#),
        ("tasks:\n  - {command: x, verify: y}\n", "verify needs a repo"),
        ("tasks:\n  - {command: x, accept: verify}\n", "there is no verify"),
        ("tasks:\n  - {command: x, base: main}\n", "base is given without repo"),
        ("tasks:\n  - {command: x, result: ../out}\n", "must be a path inside the workspace"),
        ("tasks:\n  - {command: x, env: {A=B: 1}}\n", "cannot be the name of a variable"),
        ("tasks:\n  - {command: ''}\n", "command is empty"),
        ("tasks:\n  - {command: x, name: a, name: b}\n", r#"the key "name" is given twice"#),
        ("rows: [a]\ntasks:\n  - {command: 'echo {{ nope }}'}\n", "names nope, which is undefined"),
        ("rows: [a]\ntasks:\n  - {command: 'echo {{'}\n", "the template is wrong"),
        ("tasks: []\n", "there are no tasks in it"),
        ("tasks: [x]\n", "a task must be a map of keys, found a text"),
        ("", "the file is empty"),
        ("tasks: [\n", "not YAML"),
        ("max_parallel: 0\ntasks: [{command: x}]\n", "max_parallel must be at least 1"),
    ] {
        let said = refused(text);
        assert!(said.contains(expected), "{text}\n  said: {said}\n  expected: {expected}");
        assert!(said.starts_with("t.yaml"), "{said}");
    }
}

#[test]
fn caps_are_of_labels_and_whole_numbers() {
    let plan = yaml("caps: {team=infra: 3, gpu: 1}\ntasks: [{command: x}]\n").unwrap();
    let caps: Vec<_> = plan.caps.iter().map(|(label, most)| (label.as_str(), *most)).collect();
    assert_eq!(caps, [("gpu", 1), ("team=infra", 3)]);
    for (text, expected) in [
        ("caps: {gpu: 0}\ntasks: [{command: x}]\n", "with 0 nothing"),
        ("caps: {gpu: many}\ntasks: [{command: x}]\n", "\"many\" is not a whole number"),
        ("caps: {'=x': 1}\ntasks: [{command: x}]\n", "is no label"),
        ("caps: 3\ntasks: [{command: x}]\n", "caps must be a map"),
    ] {
        let said = refused(text);
        assert!(said.contains(expected) && said.starts_with("t.yaml:1"), "{text}\n  said: {said}");
    }
}

#[test]
fn a_run_names_hooks_and_can_say_neither_what_they_run_nor_where_they_write() {
    let told = |notify: &str| {
        let plan = yaml(&format!("notify: {notify}\ntasks: [{{command: x}}]\n")).unwrap();
        plan.notify.iter().map(|asked| written(&asked.told)).collect::<Vec<_>>()
    };
    assert_eq!(
        told("[pager, {to: chat room, on: [failed, run-end]}]"),
        ["pager", "chat room:failed,run-end"]
    );
    assert_eq!(told("pager"), ["pager"]);
    assert_eq!(told("{to: pager, on: blocked}"), ["pager:blocked"]);
    assert!(told("").is_empty());
    for (notify, expected) in [
        ("[{command: [sh, -c, s3cr3t]}]", "cannot say command"),
        ("{to: pager, url: 'https://s3cr3t.example'}", "cannot say url"),
        ("[{webhook: 'https://s3cr3t.example'}]", "webhook = \"https://…\""),
        ("['https://s3cr3t.example/x']", "cannot say an address"),
        ("[{to: /usr/bin/s3cr3t}]", "cannot say a command"),
        ("[{command: x}]", "[[notify]]\n    name = \"pager\"\n    only = \"asked\""),
        ("[pager, pager]", "\"pager\" is named twice"),
        ("['pager:failed']", "write {to: pager, on: [failed]}"),
        ("[{to: pager, on: [faild]}]", "did you mean \"failed\"?"),
        ("[{to: pager, on: []}]", "`on` is empty"),
        ("[{on: failed}]", "`to` is missing"),
        ("[{to: pager, off: failed}]", "unknown key \"off\" in notify; known are to, on"),
        ("[[pager]]", "found a list"),
        ("[-x]", "begins with '-'"),
    ] {
        let said = refused(&format!("notify: {notify}\ntasks: [{{command: x}}]\n"));
        assert!(said.contains(expected) && said.starts_with("t.yaml:1:"), "{notify}\n  said: {said}");
        assert!(!said.contains("s3cr3t"), "it may be a secret: {said}");
    }
    let said = refused("tasks: [{command: x, notify: [pager]}]\n");
    assert!(said.contains("unknown key \"notify\" in a task"), "{said}");
    assert_eq!(written(&of_option("chat room:failed,run-end").unwrap()), "chat room:failed,run-end");
    for wrong in ["pager:", "pager:faild", ":failed", "a/b", ""] {
        assert!(of_option(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_program_for_people_is_a_command_and_no_yes_or_no() {
    let profile = |interactive: &str| {
        yaml(&format!(
            "profiles: {{p: {{command: x, interactive: {interactive}}}}}\ntasks: [{{profile: p, prompt: y}}]\n"
        ))
    };
    assert!(profile("[x, --chat]").is_ok());
    for word in ["true", "false"] {
        let said = profile(word).unwrap_err().to_string();
        assert!(said.contains("interactive must be the command") && said.contains(word), "{said}");
    }
    assert!(profile("'true'").is_ok(), "in quotes it is the program of that name");
}

#[test]
fn a_base_is_prepared_within_a_limit_of_its_own() {
    let text = "
defaults: {repo: lib, prepare: [npm ci, [make, deps]]}
tasks:
  - {name: one, command: x}
  - {name: two, command: x, prepare: pip install -t deps ., prepare_timeout: 5m}
";
    let plan = yaml(text).unwrap();
    let prepares: Vec<_> = plan.tasks.iter().map(|task| task.spec.prepare.clone().unwrap()).collect();
    assert_eq!(prepares[0].programs, [vec!["sh", "-c", "npm ci"], vec!["make", "deps"]]);
    assert_eq!(prepares[0].timeout_ms, 1_800_000);
    assert_eq!(prepares[1].programs, [["sh", "-c", "pip install -t deps ."]]);
    assert_eq!(prepares[1].timeout_ms, 300_000);
    for (text, expected) in [
        ("tasks: [{command: x, prepare: y}]\n", "prepare needs a repo"),
        ("tasks: [{command: x, repo: r, prepare_timeout: 5m}]\n", "prepare_timeout is given without prepare"),
        ("tasks: [{command: x, repo: r, prepare: y, prepare_timeout: 0s}]\n", "must be longer than 0"),
    ] {
        let said = refused(text);
        assert!(said.contains(expected), "{text}\n  said: {said}");
    }
}

#[test]
fn a_task_may_build_on_another_and_one_may_come_after_all() {
    let text = "
defaults: {repo: lib}
tasks:
  - {name: first, command: make}
  - {name: second, command: make more, depends_on: first, base_from: first, setup: [./configure, [make, deps]]}
reduce: {command: sum up}
";
    let plan = yaml(text).unwrap();
    assert_eq!(names(&plan), ["first", "second", "reduce"]);
    let second = &plan.tasks[1].spec;
    assert_eq!(second.base_from.as_ref().map(|name| name.as_str()), Some("first"));
    assert_eq!(second.setup, [vec!["sh", "-c", "./configure"], vec!["make", "deps"]]);
    let reduce = &plan.tasks[2].spec;
    assert_eq!(reduce.after.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    assert!(reduce.depends_on.is_empty());

    let rows = mapped(
        "tasks:\n  - {name: do, command: 'x {{ row.n }}', repo: lib}\n  - {name: then, command: y, repo: lib, \
         depends_on: do, base_from: do, after: do}\nreduce: {name: sum, command: z, after: [do-1]}\n",
        "{\"n\": 1}\n{\"n\": 2}\n",
        &[],
    )
    .unwrap();
    let then = &rows.tasks[3].spec;
    assert_eq!(then.base_from.as_ref().map(|name| name.as_str()), Some("do-2"), "the one of the same row");
    assert_eq!(then.after[0].as_str(), "do-2");
    assert_eq!(rows.tasks[4].spec.after.len(), 1, "after those that it names");

    for (wrong, said) in [
        ("tasks: [{command: a, base_from: b}]", "base_from is given without repo"),
        ("tasks: [{name: x, command: a, repo: l, base_from: y}, {name: y, command: b}]", "not in depends_on"),
        ("tasks: [{name: x, command: a, after: nobody}]", "after names \"nobody\", which is no task"),
        (
            "tasks: [{name: x, command: a, after: y}, {name: y, command: b, depends_on: x}]",
            "in a circle: x → y → x",
        ),
        ("tasks: [{name: reduce, command: a}]\nreduce: {command: b}", "the name is already taken"),
    ] {
        let told = refused(wrong);
        assert!(told.contains(said), "{wrong}: {told}");
    }
}

#[test]
fn all_problems_are_told_at_once_up_to_twenty() {
    let said = refused("tasks:\n  - {comand: x}\n  - {command: x, cpu: no}\n  - {command: x, memory: no}\n");
    assert_eq!(said.lines().count(), 4, "{said}");
    let many: String = std::iter::once("tasks:\n".to_owned())
        .chain((0..50).map(|i| format!("  - {{name: t{i}, cmd: x, command: y}}\n")))
        .collect();
    let said = refused(&many);
    assert_eq!(said.lines().count(), 21);
    assert!(said.ends_with("and 30 more problems"), "{said}");
}

#[test]
fn an_8_mb_prompt_is_taken_and_a_9_mb_one_is_refused_with_its_size() {
    let with = |bytes: usize| {
        format!("tasks:\n  - name: a\n    profile: claude\n    prompt: \"{}\"\n", "x".repeat(bytes))
    };
    let plan = yaml(&with(8_000_000)).unwrap();
    assert_eq!(plan.tasks[0].spec.prompt.as_ref().unwrap().bytes, 8_000_000);
    assert!(refused(&with(9_000_000)).contains("prompt has 9000000 bytes; the limit is 8388608 (8 MiB)"));

    let folder = tempfile::tempdir().unwrap();
    let text = b"tasks: [{name: a, profile: claude, prompt_file: p.md}]".to_vec();
    let source =
        |text: &[u8]| Source { name: "t.yaml".into(), folder: folder.path().into(), bytes: text.to_vec() };
    std::fs::write(folder.path().join("p.md"), vec![b'x'; 8 << 20]).unwrap();
    assert_eq!(parse(&source(&text), &Options::default()).unwrap().tasks.len(), 1);
    std::fs::write(folder.path().join("p.md"), vec![b'x'; 9_000_000]).unwrap();
    let said = parse(&source(&text), &Options::default()).unwrap_err().to_string();
    assert!(said.contains("p.md has 9000000 bytes"), "{said}");
    std::fs::remove_file(folder.path().join("p.md")).unwrap();
    let said = parse(&source(&text), &Options::default()).unwrap_err().to_string();
    assert!(said.contains("cannot read") && said.contains("p.md"), "{said}");
}

fn mapped(text: &str, rows: &str, set: &[(&str, &str)]) -> Result<Plan, Problems> {
    let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let rows = Some(parse_rows("rows", rows).unwrap());
    parse(&source("t.yaml", text.as_bytes()), &Options { rows, set, ..Options::default() })
}

#[test]
fn every_task_is_repeated_for_each_row_under_a_name_of_its_own() {
    let plan = mapped(
        "tasks: [{name: 'fix {{ row.file }}', command: 'x {{ row.file }} {{ mode }} {{ index }}'}]",
        "{\"file\":\"a.rs\"}\n{\"file\":\"b.rs\"}\n",
        &[("mode", "fast")],
    )
    .unwrap();
    assert_eq!(names(&plan), ["fix a.rs", "fix b.rs"]);
    assert_eq!(plan.tasks[1].spec.program, ["sh", "-c", "x b.rs fast 2"]);

    let plan =
        mapped("tasks: [{name: a, command: x}, {name: b, command: y, depends_on: [a]}]", "1\n2\n", &[])
            .unwrap();
    assert_eq!(names(&plan), ["a-1", "b-1", "a-2", "b-2"]);
    assert_eq!(plan.tasks[3].spec.depends_on[0].as_str(), "a-2");

    let plan = mapped("tasks: [{name: 't {{ row }}', command: x}]", "same\nsame\n", &[]).unwrap();
    assert_eq!(names(&plan), ["t same", "t same-2"]);

    let said = mapped("tasks: [{name: a, command: x}, {name: a, command: y}]", "1\n2\n", &[]).unwrap_err();
    assert!(said.to_string().contains("already taken"), "{said}");
    let said = mapped("tasks: [{command: 'x {{ row.fiel }}'}]", "{\"file\":1}\n", &[]).unwrap_err();
    assert!(said.to_string().contains("row.fiel, which is undefined; did you mean \"file\"?"), "{said}");
    let said = mapped("tasks: [{command: x}]", "1\n", &[("row", "x")]).unwrap_err();
    assert!(said.to_string().contains("--set row"), "{said}");
}

#[test]
fn rows_cannot_add_keys_or_shell_words_to_an_argument_list() {
    let plan = mapped("tasks: [{name: a, command: [echo, '{{ row }}']}]", "x\", \"rm\n", &[]).unwrap();
    assert_eq!(plan.tasks[0].spec.program, ["echo", "x\", \"rm"]);
}

#[test]
fn lines_and_json_rows_are_literal_unless_there_is_something_to_put_in() {
    let lines = parse(&source("-", b"docker ps --format '{{.Names}}'\n# no\necho hi\n"), &Options::default())
        .unwrap();
    assert_eq!(lines.tasks[0].spec.program[2], "docker ps --format '{{.Names}}'");
    assert_eq!(names(&lines), ["docker-ps-format-names", "echo-hi"]);
    let rows =
        parse(&source("-", b"{\"command\":[\"a\",\"{{ b }}\"]}\n{\"command\":\"c\"}"), &Options::default())
            .unwrap();
    assert_eq!(rows.tasks[0].spec.program, ["a", "{{ b }}"]);
    let said =
        parse(&source("r.jsonl", b"{\"command\":\"a\"}\n{\"cmd\":\"c\"}"), &Options::default()).unwrap_err();
    assert!(said.to_string().contains("r.jsonl:2:2: task \"task-2\": unknown key \"cmd\""), "{said}");
    assert!(
        parse(&source("x", b"ok\n\xff\xfe\n"), &Options::default())
            .unwrap_err()
            .to_string()
            .starts_with("x:2: the file is not UTF-8")
    );
}

#[test]
fn ten_thousand_tasks_are_read_in_little_time() {
    let mut text = String::from("defaults: {repo: lib, labels: {a: b}}\ntasks:\n");
    for i in 0..10_000 {
        text.push_str(&format!(
            "  - name: t{i}\n    command: 'echo {{{{ index }}}} {i}'\n    timeout: 10m\n    priority: {}\n",
            i % 7
        ));
        if i > 0 {
            text.push_str(&format!("    depends_on: [t{}]\n", i - 1));
        }
    }
    let begun = Instant::now();
    let plan = yaml(&text).unwrap();
    let took = begun.elapsed();
    eprintln!("10,000 tasks of YAML ({} KiB) read in {} ms", text.len() / 1024, took.as_millis());
    assert_eq!(plan.tasks.len(), 10_000);
    // A guard against a reader that takes the square of it, not a figure: the machine may be busy.
    assert!(took.as_secs() < 120, "{took:?}");
}

/// Whatever was wrong is said: of this file, and in words.
fn read_or_told(name: &str, bytes: &[u8], options: &Options) {
    if let Err(problems) = parse(&source(name, bytes), options) {
        assert_eq!(problems.file, name);
        assert!(!problems.first.is_empty());
        assert!(problems.first.iter().all(|problem| !problem.message.is_empty()), "{problems}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_make_the_parser_panic(bytes: Vec<u8>, which in 0..4_usize) {
        let format = [None, Some(Format::Yaml), Some(Format::Jsonl), Some(Format::Lines)][which];
        read_or_told("x", &bytes, &Options { format, ..Options::default() });
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-:{}\\[\\]&*!|>'\"%#, \\n\\ta-z0-9.~]{0,200}") {
        let _ = yaml(&text);
        let _ = yaml(&format!("tasks:\n  - command: |\n      {text}\n"));
    }

    #[test]
    fn no_change_of_a_good_file_makes_the_parser_panic(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6)
    ) {
        let mut bytes = FULL.as_bytes().to_vec();
        for (at, byte, how) in cuts {
            let at = at.index(bytes.len().max(1));
            match how {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        read_or_told("t.yaml", &bytes, &Options::default());
    }
}
