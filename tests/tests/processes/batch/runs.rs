//! Runs: order, caps, retries, cancel, exit codes, and a manager that is killed in the middle of thirty tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_tests::install::{Install, Ran};
use phalanx_tests::json;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::wait;
use protocol::task::{FailureClass, TaskState, Waiting};

/// Submits a YAML file of these tasks; `@FAKE@` in it is the path of our agent, `@DIR@` the folder of the test.
fn submit(install: &Install, name: &str, yaml: &str, more: &[&str]) -> Ran {
    let folder = install.text_path("");
    let yaml = yaml.replace("@FAKE@", &fake_agent()).replace("@DIR@", folder.trim_end_matches('/'));
    let file = install.file(&format!("{name}.yaml"), yaml);
    let mut args = vec!["run", &file, "--name", name];
    args.extend(more);
    install.run(&args)
}

fn states(install: &Install, run: &str) -> BTreeMap<String, TaskState> {
    install.tasks(run).into_iter().map(|task| (task.spec.name.to_string(), task.state)).collect()
}

#[test]
fn the_exit_code_of_a_run_tells_all_some_or_none() {
    let install = Install::start();
    for (name, lines, code) in
        [("all", "true\ntrue # again\n", 0), ("some", "true\nfalse\n", 7), ("none", "false\nexit 3\n", 8)]
    {
        let ran = install
            .run_with(&["run", "-", "--format", "lines", "--name", name, "-o", "json"], lines.as_bytes());
        let runs: Vec<json::Run> = json::items(&ran.ended_with(code).stdout);
        assert!(runs[0].over && runs[0].total == 2, "{runs:?}");
    }
    let listed: Vec<json::Run> = json::items(&install.run(&["runs", "-o", "json"]).succeeded().stdout);
    assert_eq!(listed.len(), 3);
}

#[test]
fn a_task_waits_for_what_it_depends_on_and_a_failed_parent_never_releases_it() {
    let install = Install::start();
    let yaml = "
tasks:
  - {name: join, command: ['@FAKE@', tell, '@DIR@/order', join], depends_on: [left, right]}
  - {name: left, command: ['@FAKE@', sleep, '200', tell, '@DIR@/order', left], depends_on: [root]}
  - {name: right, command: ['@FAKE@', tell, '@DIR@/order', right], depends_on: [root]}
  - {name: root, command: ['@FAKE@', sleep, '200', tell, '@DIR@/order', root]}
  - {name: bad, command: ['@FAKE@', exit, '5']}
  - {name: child, command: ['@FAKE@', tell, '@DIR@/order', child], depends_on: [bad]}
  - {name: grandchild, command: ['@FAKE@', tell, '@DIR@/order', grandchild], depends_on: [child, root]}
";
    submit(&install, "dag", yaml, &[]).ended_with(7);
    let order = install.lines("order");
    assert_eq!(order.len(), 4, "{order:?}");
    assert_eq!((order[0].as_str(), order[3].as_str()), ("root", "join"), "{order:?}");
    let states = states(&install, "dag");
    for name in ["root", "left", "right", "join"] {
        assert_eq!(states[name], TaskState::Accepted, "{name}");
    }
    assert_eq!(states["bad"], TaskState::Failed);
    for name in ["child", "grandchild"] {
        let task = install.task("dag", name);
        assert!(task.state.is_final() && task.state != TaskState::Accepted, "{name}: {task:?}");
        assert!(task.attempts.is_empty() && !task.reason.is_empty(), "{task:?}");
    }
    let said = install.run(&["why", "dag", "-o", "json"]).succeeded().stdout;
    let reasons: Vec<json::Reason> = json::items(&said);
    assert!(
        reasons.iter().any(|row| row.subject.contains("grandchild") && row.why.contains("child")),
        "{reasons:?}"
    );
}

#[test]
fn a_cap_holds_at_every_instant() {
    let install = Install::start();
    let (fake, live) = (fake_agent(), install.text_path("live"));
    std::fs::create_dir(&live).unwrap();
    // Each counts who lives beside it: what the tasks see themselves, not what anybody reports.
    let line = format!(
        "touch {live}/$PHALANX_TASK; ls {live} | wc -l >> {live}.seen; {fake} sleep 60; rm {live}/$PHALANX_TASK\n"
    );
    let file = install
        .file("tasks", (0..24).map(|n| line.replace("60;", &format!("{};", 60 + n))).collect::<String>());
    let running = install.spawn(&["run", &file, "--name", "capped", "--max-parallel", "3"]);
    let mut most = 0;
    let sampled = wait::until(
        wait::LIMIT,
        "the run ends",
        || {
            let ran = install.run(&["tasks", "capped", "-o", "json"]);
            if ran.code == 0 { json::items(&ran.stdout) } else { Vec::new() }
        },
        |tasks: &Vec<protocol::task::TaskView>| {
            most = most.max(tasks.iter().filter(|task| task.state.is_live()).count());
            !tasks.is_empty() && tasks.iter().all(|task| task.state.is_final())
        },
    );
    running.end().succeeded();
    assert_eq!(sampled.len(), 24);
    assert_eq!(most, 3, "as many as may, never more");
    let seen: Vec<usize> =
        install.lines("live.seen").iter().map(|line| line.trim().parse().unwrap()).collect();
    assert!(seen.len() == 24 && seen.iter().all(|count| (1..=3).contains(count)), "{seen:?}");
}

#[test]
fn a_failed_attempt_is_tried_again_with_what_it_printed() {
    let install = Install::start();
    let yaml = "
tasks:
  - name: third-time
    command: ['sh', '-c', 'test -z \"$PHALANX_FEEDBACK_FILE\" || cp \"$PHALANX_FEEDBACK_FILE\" @DIR@/feedback-$PHALANX_ATTEMPT; exec @FAKE@ mark @DIR@/starts fail-until @DIR@/turns 3']
    retries: {max: 3, backoff: 100ms, jitter: 0%}
  - name: never
    command: ['@FAKE@', mark, '@DIR@/never', exit, '9']
    retries: {max: 2, backoff: 50ms}
  - name: no-such
    command: [/no/such/program]
    retries: {max: 5, backoff: 50ms}
";
    submit(&install, "again", yaml, &[]).ended_with(7);
    let third = install.task("again", "third-time");
    assert_eq!((third.state, third.attempts.len()), (TaskState::Accepted, 3), "{third:?}");
    assert_eq!(install.lines("starts").len(), 3);
    for attempt in [2, 3] {
        let feedback = install.lines(&format!("feedback-{attempt}")).join("\n");
        assert!(feedback.contains(&format!("turn {} fails", attempt - 1)), "{feedback:?}");
    }
    let failures: Vec<_> = third
        .attempts
        .iter()
        .filter_map(|attempt| attempt.failure.as_ref())
        .map(|f| (f.class, f.charged))
        .collect();
    assert_eq!(failures, [(FailureClass::Agent, true); 2]);
    let never = install.task("again", "never");
    assert_eq!((never.state, never.attempts.len()), (TaskState::Failed, 3));
    assert_eq!(install.lines("never").len(), 3);
    let absent = install.task("again", "no-such");
    assert_eq!(
        (absent.state, absent.attempts.len()),
        (TaskState::Failed, 1),
        "a missing program stays missing"
    );
    assert_eq!(absent.attempts[0].failure.as_ref().unwrap().class, FailureClass::Start);

    // By hand, whatever the limit was: what is mended then passes.
    install.run(&["retry", "again", "never"]).succeeded();
    let attempts = || install.task("again", "never");
    wait::until(wait::LIMIT, "a fourth attempt", attempts, |task| {
        task.attempts.len() >= 4 && task.state.is_final()
    });
}

#[test]
fn cancel_ends_what_runs_and_why_tells_what_each_waits_for() {
    let install = Install::start();
    let yaml = "
max_parallel: 2
tasks:
  - {name: one, command: ['@FAKE@', mark, '@DIR@/starts', hang]}
  - {name: two, command: ['@FAKE@', mark, '@DIR@/starts', hang]}
  - {name: three, command: ['@FAKE@', mark, '@DIR@/starts', hang]}
  - {name: four, command: ['@FAKE@', mark, '@DIR@/starts', hang], depends_on: [one]}
";
    submit(&install, "stuck", yaml, &["--detach"]).succeeded();
    wait::until(
        wait::LIMIT,
        "two run",
        || states(&install, "stuck"),
        |states| states.values().filter(|state| **state == TaskState::Running).count() == 2,
    );
    assert_eq!(install.task("stuck", "three").waiting, Some(Waiting::RunCap { cap: 2 }));
    assert_eq!(
        install.task("stuck", "four").waiting,
        Some(Waiting::Dependencies { on: vec!["one".parse().unwrap()] })
    );
    let reasons: Vec<json::Reason> =
        json::items(&install.run(&["why", "stuck", "-o", "json"]).succeeded().stdout);
    assert!(reasons.iter().any(|row| row.subject.contains("four") && row.why.contains("one")), "{reasons:?}");

    install.run(&["cancel", "stuck", "two"]).succeeded();
    wait::until(
        wait::LIMIT,
        "its place is taken",
        || states(&install, "stuck"),
        |states| states["two"] == TaskState::Cancelled && states["three"] == TaskState::Running,
    );
    install.run(&["cancel", "stuck"]).succeeded();
    wait::until(
        wait::LIMIT,
        "all are cancelled",
        || states(&install, "stuck"),
        |states| states.values().all(|state| *state == TaskState::Cancelled),
    );
    let look = || install.traces().processes;
    wait::until(wait::LIMIT, "no attempt runs", look, |processes| {
        !processes.iter().any(|found| found.command.contains(" hang"))
    });
    assert_eq!(install.lines("starts").len(), 3);
}

#[test]
fn outputs_and_results_are_recorded_and_a_missing_one_fails_the_task() {
    let install = Install::start();
    let yaml = "
tasks:
  - name: good
    command: ['sh', '-c', 'echo {\\\"n\\\": 1} > r.json; mkdir -p out; echo data > out/a.txt']
    result: r.json
    outputs: ['out/*.txt']
  - {name: no-output, command: ['@FAKE@', exit, '0'], outputs: ['out/*.txt']}
  - {name: bad-result, command: ['@FAKE@', write, r.json, 'not json'], result: r.json}
  - {name: link-away, command: ['sh', '-c', 'ln -s /etc/passwd r.json'], result: r.json}
";
    submit(&install, "outputs", yaml, &[]).ended_with(7);
    let good = install.task("outputs", "good");
    assert_eq!(good.state, TaskState::Accepted, "{good:?}");
    let collected = good.attempts[0].collected.as_ref().unwrap();
    assert_eq!(collected.outputs[0].path, "out/a.txt");
    assert_eq!(collected.outputs[0].sha256, phalanx_tests::bytes::sha256(b"data\n"));
    assert!(collected.result.as_ref().is_some_and(|text| text.contains("\"n\"")), "{collected:?}");
    for name in ["no-output", "bad-result", "link-away"] {
        let task = install.task("outputs", name);
        assert_eq!(task.state, TaskState::Failed, "{name}");
        assert!(!task.reason.is_empty() && !task.reason.contains("root:"), "{}", task.reason);
    }
    let out = install.text_path("report");
    install.run(&["report", "outputs", "--out", &out]).succeeded();
    let page = std::fs::read_dir(&out).unwrap().flatten().map(|entry| entry.file_name()).collect::<Vec<_>>();
    assert!(page.iter().any(|name| name.to_string_lossy().ends_with(".html")), "{page:?}");
    assert!(page.iter().any(|name| name.to_string_lossy().ends_with(".json")), "{page:?}");
}

/// Each attempt appends its process id: what ran twice would show.
fn thirty_tasks_over_kills(parts: &[&str]) {
    let install = Install::start();
    let tasks: String = (0..30)
        .map(|n| {
            format!(
                "{} tell-env {}.ran PHALANX_TASK_NAME sleep 150 exit {}\n",
                fake_agent(),
                install.text_path("t"),
                n % 5 / 4
            )
        })
        .collect();
    let file = install.file("tasks", tasks);
    let running = install.spawn(&["run", &file, "--name", "thirty", "--max-parallel", "6"]);
    for (turn, part) in parts.iter().enumerate() {
        let ran = || install.lines("t.ran").len();
        wait::until(wait::LIMIT, "the run is in its middle", ran, |ran| *ran > 4 + 6 * turn);
        wait::pause(Duration::from_millis(37 * (turn as u64 + 1)));
        install.kill(part);
    }
    let ended = running.end();
    install.settled();
    let over = |tasks: &Vec<protocol::task::TaskView>| tasks.iter().all(|task| task.state.is_final());
    let tasks = wait::until(wait::LIMIT, "all are over", || install.tasks("thirty"), over);
    assert_eq!(tasks.len(), 30);
    for task in &tasks {
        let fails = task.spec.program.last().unwrap().ends_with('1');
        let right = if fails { TaskState::Failed } else { TaskState::Accepted };
        assert_eq!((task.state, task.attempts.len()), (right, 1), "{task:?}");
    }
    let mut ran = install.lines("t.ran");
    ran.sort();
    let mut names: Vec<String> = tasks.iter().map(|task| task.spec.name.to_string()).collect();
    names.sort();
    assert_eq!(ran, names, "each ran once");
    assert_eq!(ended.code, 7, "who waits is told in the end: {}", ended.stderr);
}

#[test]
fn a_run_over_a_killed_manager_ends_right_and_nothing_runs_twice() {
    thirty_tasks_over_kills(&["manager", "manager"]);
}

#[test]
fn a_run_over_a_killed_host_daemon_and_bus_ends_right_and_nothing_runs_twice() {
    thirty_tasks_over_kills(&["hostd", "nats-server", "manager"]);
}

#[test]
fn tasks_build_on_one_another_and_the_last_one_gets_what_all_left() {
    let install = Install::start();
    let repo = install.repo("repo");
    let gate = install.text_path("gate");
    let yaml = format!(
        r#"
max_parallel: 1
defaults: {{repo: {repo}, allow_no_change: true}}
tasks:
  - {{name: first, command: "echo one > one.txt; echo '{{\"n\": 1}}' > r.json", result: r.json}}
  - {{name: second, command: "cat one.txt > two.txt", depends_on: first, base_from: first, setup: "echo set > up.txt",
      verify: "grep one two.txt && grep set up.txt"}}
  - {{name: broken, command: "true", setup: "exit 4"}}
  - {{name: gated, command: "while ! [ -e {gate} ]; do sleep 0.05; done"}}
  - {{name: beside, command: "true"}}
reduce:
  name: sum
  repo: {repo}
  command: cp "$PHALANX_INPUTS_FILE" inputs.json
"#,
        repo = repo.path.display(),
    );
    let file = install.file("building.yaml", yaml);
    install.run(&["run", &file, "--name", "building", "--detach"]).succeeded();
    let gated = || install.tasks("building");
    let is_up = |tasks: &Vec<protocol::task::TaskView>| {
        tasks.iter().any(|task| task.spec.name.as_str() == "gated" && task.state == TaskState::Running)
    };
    wait::until(wait::LIMIT, "the one that holds the run up", gated, is_up);
    assert_eq!(install.task("building", "beside").state, TaskState::Queued, "one at a time");
    install.run(&["scale", "building", "2"]).succeeded();
    install.run(&["scale", "building", "0"]).ended_with(2);
    let beside = || install.task("building", "beside").state;
    wait::until(wait::LIMIT, "there is room for two", beside, |state| *state == TaskState::Accepted);
    assert_eq!(install.task("building", "sum").state, TaskState::Queued, "not before all are over");
    install.file("gate", "");
    let all = || install.tasks("building");
    wait::until(wait::LIMIT, "all are over", all, |tasks| tasks.iter().all(|task| task.state.is_final()));

    let second = install.task("building", "second");
    assert_eq!((second.state, second.reason.as_str()), (TaskState::Accepted, "verified"));
    let branch = second.branch.unwrap();
    assert_eq!(repo.git(&["show", &format!("{branch}:two.txt")]).trim(), "one");
    let broken = install.task("building", "broken");
    assert_eq!((broken.state, broken.reason.as_str()), (TaskState::Failed, "exit 4"));
    let sum = install.task("building", "sum");
    assert_eq!(sum.state, TaskState::Accepted, "{}", sum.reason);
    let inputs = repo.git(&["show", &format!("{}:inputs.json", sum.branch.unwrap())]);
    let inputs: serde_json::Value = serde_json::from_str(&inputs).unwrap();
    let rows = inputs["items"].as_array().unwrap();
    let states: Vec<(&str, &str)> =
        rows.iter().map(|row| (row["task"].as_str().unwrap(), row["state"].as_str().unwrap())).collect();
    let wanted = [
        ("first", "ACCEPTED"),
        ("second", "ACCEPTED"),
        ("broken", "FAILED"),
        ("gated", "ACCEPTED"),
        ("beside", "ACCEPTED"),
    ];
    assert_eq!(states, wanted);
    assert_eq!(rows[0]["result"]["n"], 1);
    let commit = rows[1]["commit"].as_str().unwrap();
    assert_eq!(repo.git(&["show", &format!("{commit}:one.txt")]).trim(), "one");
}
