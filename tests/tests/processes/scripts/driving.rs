//! The examples that drive runs from a script, as they are told to people.

use std::process::Command;

use phalanx_tests::install::{Install, Ran};
use phalanx_tests::programs;

/// A program of a person who has `phalanx` on his search path.
fn with_phalanx(install: &Install, program: &str, args: &[&str], input: &str) -> Ran {
    use std::io::Write;

    let mut command: Command = install.command(&[]);
    let own = programs::path_of("phalanx");
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", own.parent().unwrap().display());
    let mut person = Command::new(program);
    person.args(args).env_clear().current_dir(install.path("repo"));
    person.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?)))).env("PATH", path);
    command = person;
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let begun = std::time::Instant::now();
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    Ran {
        words: format!("{program} {args:?}"),
        code: output.status.code().unwrap(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: begun.elapsed(),
    }
}

fn drive(install: &Install, tasks: &[(&str, &str)]) -> Ran {
    let script = format!("{}/../deploy/example/drive.py", env!("CARGO_MANIFEST_DIR"));
    let line = |(name, command): &(&str, &str)| {
        let task = serde_json::json!({
            "name": name, "repo": ".", "command": command,
            "verify": "grep -q right answer || { echo the answer is: $(cat answer); exit 1; }",
        });
        format!("{task}\n")
    };
    let input: String = tasks.iter().map(line).collect();
    with_phalanx(install, "python3", &[&script], &input)
}

#[test]
fn a_script_drives_runs_and_says_what_failed_with_its_log() {
    let install = Install::start();
    let repo = install.repo("repo");
    let (good, bad) = (("good", "echo right > answer"), ("bad", "echo wrong > answer"));
    let ran = drive(&install, &[good, bad]).ended_with(7);
    let text = ran.text();
    assert!(text.starts_with("1 of 2 tasks accepted\n"), "{text}");
    assert!(text.contains("\ngood: ACCEPTED: phalanx/"), "{text}");
    assert!(text.contains("\nbad: FAILED: verification failed: exit 1"), "{text}");
    assert!(text.contains("the answer is: wrong"), "{text}");
    assert_eq!(repo.git(&["branch", "--list", "phalanx/*"]).lines().count(), 1);

    assert!(drive(&install, &[bad]).ended_with(8).text().starts_with("0 of 1 tasks accepted\n"));
    assert!(drive(&install, &[good]).succeeded().text().starts_with("1 of 1 tasks accepted\n"));
    // What is wrong with the words or the tasks is told by phalanx, with its code.
    let ran = drive(&install, &[("", "true")]).ended_with(2);
    assert!(ran.stderr.contains("\"error\"") && ran.stdout.is_empty(), "{} {}", ran.stderr, ran.text());
}

#[test]
fn names_go_through_xargs_whatever_is_in_them() {
    let install = Install::start();
    let _repo = install.repo("repo");
    let names = ["plain", "two words", "it's \"quoted\" \\ $HOME *"];
    for name in names {
        install.try_create(name, &["--label", "team=core"], &["exit", "3"]).ended_with(1);
    }
    let list = "phalanx ls --phase CRASHED -o name | xargs -r -d '\\n' phalanx logs --tail 5";
    with_phalanx(&install, "sh", &["-c", list], "").succeeded();
    let destroy = "phalanx ls --phase CRASHED -o name | xargs -r -d '\\n' -n 1 phalanx destroy";
    with_phalanx(&install, "sh", &["-c", destroy], "").succeeded();
    assert!(install.agents(&[]).is_empty());
    with_phalanx(&install, "sh", &["-c", destroy], "").succeeded();
}
