//! Which texts of a task file are templates, what a file may hold beside its tasks, and what is said of one that is too much.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use manager_plan::runfile::{Options, Plan, Source, parse};

fn plan(name: &str, text: &str, set: &[(&str, &str)]) -> Result<Plan, String> {
    let source =
        Source { name: name.to_owned(), folder: PathBuf::from("/"), bytes: text.as_bytes().to_vec() };
    let set: BTreeMap<_, _> =
        set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    parse(&source, &Options { set, ..Options::default() }).map_err(|problems| problems.to_string())
}

fn command(plan: &Plan) -> &str {
    plan.tasks.first().and_then(|task| task.spec.program.last()).unwrap()
}

#[test]
fn without_rows_and_variables_every_text_is_taken_as_it_is_in_every_format() {
    let text = "s=ab; echo n ${#s} ${#arr[@]}; exit 9; echo {x#} '{{.Names}}' {{ nothing }}";
    let yaml = format!("tasks:\n  - command: \"{text}\"\n");
    assert_eq!(command(&plan("a.yaml", &yaml, &[]).unwrap()), text);
    let json = format!("{{\"command\": \"{text}\"}}\n");
    assert_eq!(command(&plan("a.jsonl", &json, &[]).unwrap()), text);
    assert_eq!(command(&plan("a.txt", text, &[]).unwrap()), text);
}

#[test]
fn with_variables_only_double_braces_are_templates_in_every_format() {
    let set = [("who", "you")];
    let text = "echo ${#s} {% x %} {# y #} {{ who }}";
    let wanted = "echo ${#s} {% x %} {# y #} you";
    assert_eq!(
        command(&plan("a.yaml", &format!("tasks:\n  - command: \"{text}\"\n"), &set).unwrap()),
        wanted
    );
    assert_eq!(command(&plan("a.jsonl", &format!("{{\"command\": \"{text}\"}}"), &set).unwrap()), wanted);
    assert_eq!(command(&plan("a.txt", text, &set).unwrap()), wanted);
}

#[test]
fn a_task_can_say_that_its_texts_are_no_templates() {
    let yaml = "rows: [a, b]\ndefaults: {template: false}\ntasks:\n  - command: \"docker ps --format '{{.Names}}'\"\n";
    let plan = plan("a.yaml", yaml, &[]).unwrap();
    assert_eq!(plan.tasks.len(), 2);
    assert_eq!(command(&plan), "docker ps --format '{{.Names}}'");
}

#[test]
fn keys_that_begin_with_x_are_a_place_for_anchors() {
    let yaml = "x-check: &check [make, test]\ntasks:\n  - {command: echo a, repo: /r, verify: [*check]}\n";
    assert_eq!(plan("a.yaml", yaml, &[]).unwrap().tasks[0].spec.verify, [["make", "test"]]);
    let error = plan("a.yaml", "xcheck: 1\ntasks:\n  - {command: a}\n", &[]).unwrap_err();
    assert!(error.contains("unknown key \"xcheck\""), "{error}");
}

#[test]
fn a_number_that_is_no_number_is_one_problem_among_others() {
    let yaml = "tasks:\n  - {command: a, priority: 1e400}\n  - {command: b, colour: red}\n";
    let error = plan("a.yaml", yaml, &[]).unwrap_err();
    assert!(error.contains("priority") && error.contains("colour"), "{error}");
}

#[test]
fn an_anchor_bomb_is_told_in_plain_words() {
    let mut bomb = "x-0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let row = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("x-{level}: &a{level} [{row}]\n"));
    }
    let error = plan("a.yaml", &bomb, &[]).unwrap_err();
    assert!(
        error.contains("anchors and aliases") && !error.contains('{') && !error.contains("budget"),
        "{error}"
    );
}

#[test]
fn an_included_file_that_is_none_is_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "password: [hunter2\n : }{").unwrap();
    let bytes = b"include: [secret]\ntasks:\n  - {command: a}\n".to_vec();
    let source = Source { name: "a.yaml".to_owned(), folder: folder.path().to_owned(), bytes };
    let error = parse(&source, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("secret:") && !error.contains("hunter2"), "{error}");
    std::fs::write(folder.path().join("secret"), "hunter2 = x\n").unwrap();
    let error = parse(&source, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("secret") && !error.contains("hunter2"), "{error}");
    std::fs::write(folder.path().join("secret"), "hunter2: x\n").unwrap();
    let error = parse(&source, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("secret") && !error.contains("hunter2"), "{error}");
}
