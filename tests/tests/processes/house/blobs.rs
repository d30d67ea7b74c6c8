//! Prompts, logs and inputs go from the bus once the run that named them was forgotten, when asked and as configured, and
//! not before.

use phalanx_tests::install::Install;
use phalanx_tests::wait;
use serde_json::Value;

/// Bytes of all blobs, and of those that nothing names.
fn used(install: &Install) -> (u64, u64) {
    let document: Value =
        serde_json::from_slice(&install.run(&["du", "-o", "json"]).succeeded().stdout).unwrap();
    let rows = document["items"].as_array().unwrap();
    let blobs = rows.iter().find(|row| row["what"] == "bus" && row["name"] == "blobs");
    blobs.map_or((0, 0), |row| (row["bytes"].as_u64().unwrap(), row["unnamed_bytes"].as_u64().unwrap()))
}

/// Outcome, reason and size of each blob that `gc` names.
fn gc(install: &Install, extra: &[&str]) -> Vec<(String, String, u64)> {
    let mut args = vec!["gc", "-o", "json", "--what", "blobs", "--older", "0"];
    args.extend(extra);
    let document: Value = serde_json::from_slice(&install.run(&args).succeeded().stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = document["items"].as_array().unwrap().iter();
    let row = |item: &Value| {
        assert_eq!((item["what"].as_str(), item["host"].is_null()), (Some("blob"), true), "{item}");
        (text(&item["outcome"]), text(&item["kept"]), item["bytes"].as_u64().unwrap())
    };
    items.map(row).collect()
}

/// A run whose first attempt fails, so that its log is kept for the second, and whose second task gets inputs.
fn run(install: &Install, name: &str, prompt: &str) {
    install.file(&format!("{name}.txt"), prompt);
    let yaml = format!(
        "profiles:\n  reader:\n    command: ['sh', '-c', 'test $PHALANX_ATTEMPT = 2 && cmp -s $PHALANX_PROMPT_FILE {path}']\n\
         tasks:\n  - {{name: a, profile: reader, prompt_file: {name}.txt, retries: {{max: 1, on: [agent], backoff: 1ms}}}}\n\
         \x20 - {{name: b, command: 'test -s $PHALANX_INPUTS_FILE', depends_on: [a]}}\n",
        path = install.text_path(&format!("{name}.txt")),
    );
    let file = install.file(&format!("{name}.yaml"), yaml);
    install.run(&["run", &file, "--name", name]).succeeded();
}

fn forget(install: &Install, run: &str) {
    let gone = || {
        install.run(&["gc", "--what", "runs", "--older", "0", "--yes"]).succeeded();
        install.run(&["tasks", run]).code
    };
    wait::until(wait::LIMIT, "its agents are cleared away and it is forgotten", gone, |code| *code == 3);
}

#[test]
fn what_a_forgotten_run_named_on_the_bus_goes_and_what_others_name_stays() {
    let install = Install::start();
    // More than one part of a blob.
    let large = "p".repeat(5 << 20);
    run(&install, "large", &large);
    let (bytes, unnamed) = used(&install);
    assert!(bytes > 5 << 20 && unnamed < 1 << 20, "{bytes} {unnamed}");
    assert!(gc(&install, &["--dry-run"]).iter().all(|row| row.2 < 1 << 20), "its prompt is named");
    forget(&install, "large");
    let fresh = gc(&install, &["--yes"]);
    assert!(fresh.iter().any(|row| row.2 == 5 << 20), "{fresh:?}");
    assert!(fresh.iter().all(|row| row.0 == "kept" && row.1.contains("brought just now")), "{fresh:?}");
    assert!(used(&install).1 > 5 << 20);

    install.run(&["config", "set", "retention.blobs", "1ms"]).succeeded();
    run(&install, "other", "a small prompt");
    let before = used(&install).0;
    install.restart();
    let swept = wait::until(
        wait::LIMIT,
        "the large one goes by itself",
        || used(&install).0,
        |bytes| *bytes < 1 << 20,
    );
    assert!(swept > 0 && swept < before - (5 << 20), "{swept} of {before}");
    let log = std::fs::read_to_string(install.layout().log_file("manager")).unwrap();
    assert!(log.contains("prompts, logs and inputs that nothing names went"), "{log}");
    // What is named is there, and serves another attempt of a run.
    assert_eq!(gc(&install, &["--dry-run"]), []);
    // Its last task fails, and what failed stays for a look: the run is not forgotten with the others.
    let yaml = std::fs::read_to_string(install.path("other.yaml")).unwrap();
    let file = install.file("again.yaml", yaml.replace("test -s $PHALANX_INPUTS_FILE", "false"));
    install.run(&["run", &file, "--name", "again"]).ended_with(7);

    forget(&install, "other");
    let shared = gc(&install, &["--yes"]);
    assert!(shared.iter().all(|row| row.0 == "gone"), "{shared:?}");
    assert!(used(&install).0 > 0, "the second run names the same prompt");
    install.run(&["destroy", "again/b#1", "--yes"]).succeeded();
    forget(&install, "again");
    gc(&install, &["--yes"]);
    assert_eq!(used(&install), (0, 0), "not even a mark is left");
}
