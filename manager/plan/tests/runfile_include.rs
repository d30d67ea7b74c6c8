//! Task files that include others, and prompt files that are templates: what wins, and which file a problem is in.

#![expect(clippy::unwrap_used, reason = "what builds the input of a test may fail it")]

use manager_plan::runfile::problem::Problems;
use manager_plan::runfile::{Options, Plan, Source, parse};

/// A folder with these files; the first is parsed.
fn parsed(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Plan, Problems>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let (name, text) = files.first().unwrap();
    let source =
        Source { name: (*name).to_owned(), folder: folder.path().into(), bytes: text.as_bytes().into() };
    let plan = parse(&source, &Options::default());
    (folder, plan)
}

fn refused(files: &[(&str, &str)]) -> String {
    parsed(files).1.unwrap_err().to_string()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.spec.name.as_str()).collect()
}

#[test]
fn the_including_file_wins_and_the_later_of_two_included_ones() {
    let main = "include: [one.yaml, sub/two.yaml]\nlabels: {a: main}\ncaps: {gpu: 1}\n\
        defaults: {timeout: 1m, labels: {x: main}}\ntasks:\n  - {name: same, command: 'echo main'}\n  - {name: own, command: b}\n";
    let one = "labels: {a: one, b: one, c: one}\ncaps: {gpu: 3, cpu: 2}\n\
        defaults: {timeout: 9m, memory: 1G, grace: 3s, labels: {x: one, y: one}}\n\
        tasks:\n  - {name: same, command: 'echo one'}\n  - {name: first, command: b}\n";
    let two = "labels: {c: two}\ndefaults: {grace: 4s}\nprofiles: {mine: {command: [my-agent]}}\n\
        tasks:\n  - {name: second, profile: mine, prompt_file: p.txt, repo: r}\n";
    let (folder, plan) = parsed(&[
        ("t.yaml", main),
        ("one.yaml", one),
        ("sub/two.yaml", two),
        ("sub/p.txt", "{{ as it is }}"),
    ]);
    let plan = plan.unwrap();
    assert_eq!(names(&plan), ["first", "second", "same", "own"]);
    let pairs = |map: &std::collections::BTreeMap<String, String>| format!("{map:?}");
    assert_eq!(pairs(&plan.labels), r#"{"a": "main", "b": "one", "c": "two"}"#);
    assert_eq!(format!("{:?}", plan.caps), r#"{"cpu": 2, "gpu": 1}"#);
    let same = &plan.tasks[2].spec;
    assert_eq!(same.program, ["sh", "-c", "echo main"]);
    assert_eq!(pairs(&same.labels), r#"{"x": "main", "y": "one"}"#);
    assert_eq!((same.limits.time_ms, same.grace_ms), (Some(60_000), 4_000));
    // Paths start at the file that names them; a file that is no template is taken as it is.
    let second = &plan.tasks[1];
    assert_eq!(second.repo.as_ref().unwrap().path, folder.path().join("sub/r"));
    assert_eq!(&**second.prompt.as_ref().unwrap(), b"{{ as it is }}");
}

#[test]
fn a_problem_names_the_included_file_with_line_and_column() {
    let main = "include: [sub/in.yaml]\ntasks:\n  - {name: a, comand: b}\n";
    let said = refused(&[
        ("t.yaml", main),
        ("sub/in.yaml", "tasks:\n  - name: b\n    command: c\n    timeout: soon\n"),
    ]);
    assert!(said.contains("t.yaml:3:") && said.contains("\"comand\""), "{said}");
    assert!(said.contains("sub/in.yaml:4:14: task \"b\": timeout"), "{said}");
    for (text, expected) in [
        ("name: x\ntasks: []\n", "in.yaml:1:1: unknown key \"name\" in an included task file"),
        ("tasks: {a: b}\n", "in.yaml:1:8: tasks must be a list, found a map"),
        ("a: [\n", "in.yaml:"),
        ("- a\n", "in.yaml:1: this is no task file"),
        (
            "tasks:\n  - {name: a, command: 'echo {{ nothing }}'}\n",
            "in.yaml:2:24: task \"a\": the template names nothing",
        ),
    ] {
        let said = refused(&[("t.yaml", "include: in.yaml\nrows: [1]\ntasks: []\n"), ("in.yaml", text)]);
        assert!(said.starts_with(expected) || said.contains(expected), "{said}");
    }
    let said = refused(&[("t.yaml", "include:\n  - gone.yaml\ntasks: [{command: x}]\n")]);
    assert!(
        said.starts_with("t.yaml:2:5: include: there is no file ") && said.ends_with("gone.yaml"),
        "{said}"
    );
    let double = "tasks:\n  - {name: a, command: b}\n";
    let both = [("t.yaml", "include: [x.yaml, y.yaml]\n"), ("x.yaml", double), ("y.yaml", double)];
    assert_eq!(refused(&both), "y.yaml:2:5: task \"a\": the name is already taken in line 2 of x.yaml");
}

#[test]
fn circles_are_refused_with_their_files_and_the_depth_is_bounded() {
    let said =
        refused(&[("t.yaml", "include: x.yaml\n"), ("x.yaml", "include: [t.yaml]\ntasks: [{command: x}]\n")]);
    assert_eq!(said, "x.yaml:1:11: include: a circle: t.yaml includes x.yaml includes t.yaml");
    let said = refused(&[("t.yaml", "include: t.yaml\ntasks: [{command: x}]\n")]);
    assert_eq!(said, "t.yaml:1:10: include: a circle: t.yaml includes t.yaml");
    let chain = |length: usize| {
        let folder = tempfile::tempdir().unwrap();
        for place in 1..length {
            let text = format!("include: {}.yaml\ntasks: [{{name: t{place}, command: x}}]\n", place + 1);
            std::fs::write(folder.path().join(format!("{place}.yaml")), text).unwrap();
        }
        let last = "tasks: [{name: last, command: x}]\n";
        std::fs::write(folder.path().join(format!("{length}.yaml")), last).unwrap();
        let bytes = b"include: 1.yaml\n".to_vec();
        parse(&Source { name: "t.yaml".into(), folder: folder.path().into(), bytes }, &Options::default())
    };
    assert_eq!(chain(10).unwrap().tasks.len(), 10);
    let said = chain(11).unwrap_err().to_string();
    assert_eq!(said, "10.yaml:1:10: include: 11.yaml is more than 10 files deep");
}

#[test]
fn a_file_that_two_include_is_read_once() {
    let shared = "tasks: [{command: shared}]\n";
    let (_folder, plan) = parsed(&[
        ("t.yaml", "include: [x.yaml, y.yaml]\n"),
        ("x.yaml", "include: s.yaml\n"),
        ("y.yaml", "include: [./s.yaml]\n"),
        ("s.yaml", shared),
    ]);
    assert_eq!(plan.unwrap().tasks.len(), 1);
}

#[test]
fn a_prompt_file_is_a_template_only_when_its_name_says_so() {
    let text = "rows: [{n: 7}]\ntasks:\n  - {name: a, profile: claude, prompt_file: p.md.j2}\n";
    let (_folder, plan) = parsed(&[("t.yaml", text), ("p.md.j2", "fix {{ row.n }}\n")]);
    assert_eq!(&**plan.unwrap().tasks[0].prompt.as_ref().unwrap(), b"fix 7\n");
    let said = refused(&[("t.yaml", text), ("p.md.j2", "fix\n{{ row.m }}\n")]);
    assert!(
        said.starts_with("t.yaml:3:") && said.contains("prompt_file p.md.j2: the template names row.m"),
        "{said}"
    );
    let said = refused(&[("t.yaml", text)]);
    assert!(said.contains("prompt_file: cannot read "), "{said}");
}
