//! What the built-in profiles make of screens that were recorded from real agents, shown by a program of their name.

use phalanx_tests::install::Install;
use protocol::agent::Phase;

/// Prints the recording that `$SCREEN` names: its title, then its rows.
const SHOWS: &str = "#!/bin/sh
printf '\\033]0;%s\\007' \"$(head -n 1 \"$SCREEN\")\"
tail -n +2 \"$SCREEN\"
sleep 100000
";
/// As aider leaves its prompts: the cursor stands behind them.
const ASKS: &str = "#!/bin/sh
printf 'Aider v0.86\\n\\nAdd calc.py to the chat? (Y)es/(N)o/(D)on'\\''t ask again [Yes]: '
read -r answer
printf 'Added calc.py to the chat.\\n\\n> '
sleep 100000
";

/// Recording, and the phase, the reason, and what it is known by.
const RECORDED: &[(&str, Phase, &str)] = &[
    ("claude-idle", Phase::Paused, "turn-done"),
    ("claude-draft", Phase::Paused, "turn-done"),
    ("claude-fooled", Phase::Paused, "turn-done"),
    ("claude-busy", Phase::Running, ""),
    ("claude-ask", Phase::Blocked, "question"),
    ("claude-trust", Phase::Blocked, "question"),
    ("codex-idle", Phase::Paused, "turn-done"),
    ("codex-interrupted", Phase::Paused, "turn-done"),
    ("codex-fooled", Phase::Paused, "turn-done"),
    ("codex-busy", Phase::Running, ""),
    ("codex-ask", Phase::Blocked, "question"),
];

fn program(install: &Install, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(install.path("bin")).unwrap();
    let path = install.path("bin").join(name);
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn path_of(install: &Install) -> String {
    format!("PATH={}:/usr/local/bin:/usr/bin:/bin", install.text_path("bin"))
}

#[test]
fn recorded_screens_of_agents_are_told_apart_and_none_is_fooled_by_what_it_answers() {
    let install = Install::start();
    let path = path_of(&install);
    for name in ["claude", "codex"] {
        program(&install, name, SHOWS);
    }
    for (recording, ..) in RECORDED {
        let (profile, _) = recording.split_once('-').unwrap();
        let file = format!("SCREEN={}/screens/{recording}.txt", env!("CARGO_MANIFEST_DIR"));
        let args = ["create", recording, profile, "--env", &path, "--env", &file, "--no-wait"];
        install.run(&args).succeeded();
    }
    for (recording, phase, reason) in RECORDED {
        let agent = install.agent_until(recording, "is known by its screen", |agent| {
            agent.report.as_ref().is_some_and(|report| report.source == "screen" && report.phase == *phase)
        });
        let report = agent.report();
        let told = report.phase_reason.map(|reason| reason.as_str()).unwrap_or_default();
        assert_eq!(told, *reason, "{recording}");
    }
    let dialog = install.agent("claude-ask").report().dialog.clone().unwrap();
    assert_eq!(dialog.text, "Do you want to proceed?");
    assert_eq!(dialog.choices.len(), 3);
    assert_eq!((dialog.choices[0].as_str(), dialog.choices[2].as_str()), ("1. Yes", "3. No"));
    let dialog = install.agent("codex-ask").report().dialog.clone().unwrap();
    // The row that asks and is nearest to the choices: the agent's reason, in its own words.
    assert_eq!(dialog.text, "Reason: May I make this file?");
    assert_eq!((dialog.choices.len(), dialog.choices[0].as_str()), (3, "1. Yes, proceed (y)"));
    // Neither has shown anything else on its way.
    for (recording, phase, _) in RECORDED.iter().filter(|(_, phase, _)| *phase != Phase::Blocked) {
        let events = install.run(&["events", recording]).succeeded().text();
        assert!(!events.contains("BLOCKED"), "{recording} {phase}: {events}");
    }
}

#[test]
fn a_question_at_the_cursor_is_answered_and_the_prompt_follows() {
    let install = Install::start();
    program(&install, "aider", ASKS);
    let ran = install.run(&["create", "pair", "aider", "--env", &path_of(&install)]).succeeded();
    assert!(ran.stderr.contains("phalanx attach"), "it says that it asks: {}", ran.stderr);
    let agent = install.agent_until("pair", "asks", |agent| agent.phase == Phase::Blocked);
    assert!(agent.report().dialog.as_ref().unwrap().text.starts_with("Add calc.py to the chat?"));
    assert!(!agent.report().ready, "one that asks is not ready for a message");
    super::press(&install, "pair", &["Enter"]);
    let agent = install.agent_until("pair", "is at its prompt", |agent| agent.phase == Phase::Paused);
    assert!(agent.report().ready && agent.report().dialog.is_none());
}
