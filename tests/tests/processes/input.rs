//! Bad and odd input: names, prompts, repositories, environments. A clear error, nothing started, nothing lost.

use phalanx_tests::bytes;
use phalanx_tests::install::Install;
use phalanx_tests::programs::fake_agent;
use phalanx_tests::scratch::Repo;
use phalanx_tests::wait;
use protocol::agent::Phase;

#[test]
fn odd_names_work_and_are_told_apart() {
    let install = Install::start();
    let long = "x".repeat(200);
    let names = [
        "a.b:c",
        "a_b_c",
        "naïve 名前",
        &long,
        "job-1",
        "job-10",
        "job*",
        "job[",
        "10.0.0.5",
        "=x",
        "$(id)",
        "%1",
        "...",
    ];
    for name in names {
        install.create(name, &[], &["hang"]);
    }
    assert_eq!(install.agents(&[]).len(), names.len());
    let listed: Vec<String> = install.agents(&[]).into_iter().map(|agent| agent.name).collect();
    assert!(names.iter().all(|name| listed.iter().any(|found| found == name)), "{listed:?}");
    // Exact: never a prefix or a pattern.
    install.run(&["stop", "job-1"]).succeeded();
    install.run(&["stop", "job*"]).succeeded();
    install.run(&["stop", "job"]).ended_with(3);
    for agent in install.agents(&[]) {
        let stopped = ["job-1", "job*"].contains(&agent.name.as_str());
        assert_eq!(agent.phase, if stopped { Phase::Stopped } else { Phase::Running }, "{}", agent.name);
    }
    for name in names {
        install.run(&["destroy", name, "--discard"]).succeeded();
    }
    assert!(install.agents(&[]).is_empty());
}

#[test]
fn names_that_cannot_be_are_refused_and_nothing_is_started() {
    let install = Install::start();
    let too_long = "x".repeat(201);
    for name in ["", ".", "..", "-x", "a/b", "a@b", "a\nb", "a\u{1b}[2Jb", &too_long] {
        let ran = install.run(&["create", name, "--", "true"]).ended_with(2);
        assert!(!ran.stderr.is_empty() && !ran.stderr.contains('\u{1b}'), "{name:?}: {:?}", ran.stderr);
    }
    let named: Vec<_> =
        install.agents(&["-a"]).into_iter().filter(|agent| agent.phase == Phase::Running).collect();
    assert!(named.is_empty(), "{named:?}");
}

#[test]
fn a_prompt_of_eight_megabytes_arrives_whole_and_one_of_nine_is_refused() {
    let install = Install::start();
    let fake = fake_agent();
    let prompt: String = bytes::of_seed(3, 8 << 20).iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    let sum = bytes::sha256(prompt.as_bytes());
    install.file("eight.txt", &prompt);
    install.file("nine.txt", &prompt.repeat(2).as_bytes()[..9 << 20]);
    let yaml = |prompt: &str| {
        format!(
            "profiles:\n  summer: {{command: ['sh', '-c', 'exec {fake} sum-env-file PHALANX_PROMPT_FILE']}}\n\
             tasks:\n  - {{name: t, profile: summer, prompt_file: {prompt}}}\n"
        )
    };
    let file = install.file("eight.yaml", yaml("eight.txt"));
    install.run(&["run", &file, "--name", "eight"]).succeeded();
    let agent = install.task("eight", "t").attempts[0].agent;
    assert_eq!(install.run(&["logs", &agent.to_string()]).succeeded().text(), sum);

    let file = install.file("nine.yaml", yaml("nine.txt"));
    let ran = install.run(&["run", &file, "--name", "nine"]).ended_with(2);
    assert!(ran.stderr.contains("nine.txt") || ran.stderr.contains("prompt"), "{}", ran.stderr);
    assert_eq!(install.run(&["tasks", "nine"]).code, 3, "nothing was submitted");
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_place_and_nothing_is_started() {
    let install = Install::start();
    for (content, place) in [
        ("tasks:\n  - {name: a, command: 'true', retires: 2}\n", "retires"),
        (
            "tasks:\n  - {name: a, command: 'true', depends_on: [b]}\n  - {name: b, command: 'true', depends_on: [a]}\n",
            "circle",
        ),
        ("tasks:\n  - {name: a, command: 'true'}\n  - {name: a, command: 'true'}\n", "a"),
        ("tasks:\n  - {name: a, command: 'true', timeout: soon}\n", "timeout"),
        ("tasks: [\n", "1:8"),
        ("", ""),
    ] {
        let file = install.file("bad.yaml", content);
        let ran = install.run(&["run", &file]).ended_with(2);
        assert!(ran.stderr.contains("bad.yaml") && ran.stderr.contains(place), "{content:?}: {}", ran.stderr);
    }
    let runs: Vec<phalanx_tests::json::Run> =
        phalanx_tests::json::items(&install.run(&["runs", "-o", "json"]).succeeded().stdout);
    assert!(runs.is_empty(), "{runs:?}");
}

#[test]
fn repositories_that_are_dirty_bare_empty_or_missing() {
    let install = Install::start();
    let text = |repo: &Repo| repo.path.to_str().unwrap().to_owned();

    let dirty = install.repo("dirty");
    dirty.write("README", "half done\n");
    dirty.write("new.txt", "new\n");
    let picture = dirty.picture();
    let agent = install.create("of-dirty", &["--repo", &text(&dirty)], &["hang"]);
    assert_eq!(
        std::fs::read_to_string(agent.workspace().join("README")).unwrap(),
        "read me\n",
        "from a commit"
    );
    assert!(!agent.workspace().join("new.txt").exists());
    assert!(picture == dirty.picture());

    let bare = install.text_path("bare.git");
    dirty.git(&["clone", "-q", "--bare", ".", &bare]);
    let agent = install.create("of-bare", &["--repo", &bare], &["hang"]);
    assert!(agent.workspace().join("README").exists());

    let empty = Repo::empty(install.path("empty"));
    let folder = install.path("plain-folder");
    std::fs::create_dir(&folder).unwrap();
    for (name, repo, base) in [
        ("of-empty", text(&empty), "HEAD"),
        ("of-missing", install.text_path("nowhere"), "HEAD"),
        ("of-folder", folder.to_str().unwrap().to_owned(), "HEAD"),
        ("of-no-base", text(&dirty), "no-such-branch"),
        ("of-option", text(&dirty), "--upload-pack=touch"),
    ] {
        let base = format!("--base={base}");
        let ran = install.run(&["create", name, "--repo", &repo, &base, "--", "true"]);
        assert!((2..=5).contains(&ran.code), "{name}: {} {}", ran.code, ran.stderr);
        assert!(!ran.stderr.trim().is_empty());
        assert!(install.agents(&["-a"]).iter().all(|agent| agent.name != name), "{name} was not made");
    }
}

#[test]
fn an_empty_environment_says_what_is_missing_and_a_home_is_enough() {
    let install = Install::new();
    let bare = |args: &[&str]| {
        let mut command = install.command(args);
        command.env_clear();
        command
    };
    let output = bare(&["ls"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("PHALANX_HOME"));
    // No PATH: either nats-server is found in a usual place, or what is missing is named.
    let home = install.home().to_str().unwrap().to_owned();
    let output = bare(&["--home", &home, "up"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || said.contains("nats-server"), "{said}");
    install.run(&["up"]).succeeded();
    let output = bare(&["--home", &home, "ls"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_command_line_and_output_of_any_length_arrives_as_it_is() {
    let install = Install::start();
    let long: String = bytes::of_seed(5, 60_000).iter().map(|byte| char::from(b' ' + byte % 94)).collect();
    let out = install.text_path("said");
    install.create("wordy", &[], &["write", &out, &long, "hang"]);
    wait::until(
        wait::LIMIT,
        "it is written",
        || std::fs::read_to_string(&out).unwrap_or_default(),
        |text| *text == long,
    );
}
