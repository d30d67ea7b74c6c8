//! The profiles that need no definition.
//!
//! Signs of coding agents are those of what their screens end with, as recorded from Claude Code 2.1.197 and Codex
//! 0.171.0 (`tests/screens` has the recordings); aider's follow its source. The window's title counts where it can: no
//! answer that an agent prints can set it. Another version whose screen looks otherwise shows no sign, and is RUNNING.

use std::collections::BTreeMap;

use protocol::signals::{Children, Sign, Signals};

use super::Profile;

/// A braille spinner before a title.
const SPINNER: &str = "^[\u{2800}-\u{28ff}] ";

fn shell(command: &str) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), command.to_owned()]
}

pub fn built_in() -> BTreeMap<String, Profile> {
    // Name, command with a prompt, command for a person; both for `sh -c`.
    let all = [
        (
            "claude",
            r#"exec claude -p --output-format text < "$PHALANX_PROMPT_FILE""#,
            "exec claude",
            claude(),
        ),
        ("codex", r#"exec codex exec - < "$PHALANX_PROMPT_FILE""#, "exec codex", codex()),
        (
            "aider",
            r#"exec aider --yes-always --no-check-update --message-file "$PHALANX_PROMPT_FILE""#,
            "exec aider --no-check-update",
            aider(),
        ),
        ("shell", r#"exec sh "$PHALANX_PROMPT_FILE""#, r#"exec "${SHELL:-/bin/sh}""#, prompt(r"[$#%>❯»] $")),
        (
            "repl",
            r#"exec python3 "$PHALANX_PROMPT_FILE""#,
            "exec python3 -i",
            prompt(r"^(>>>|In \[\d+\]:) $"),
        ),
    ];
    all.into_iter()
        .map(|(name, command, interactive, signals)| {
            let profile = Profile {
                command: shell(command),
                interactive: shell(interactive),
                ready: None,
                signals: Some(Box::new(signals)),
            };
            (name.to_owned(), profile)
        })
        .collect()
}

fn screen(pattern: &str) -> Sign {
    Sign { screen: Some(pattern.to_owned()), ..Sign::default() }
}

fn title(pattern: &str) -> Sign {
    Sign { title: Some(pattern.to_owned()), ..Sign::default() }
}

/// A dialog takes the place of the box in which one types, and ends with how to leave it.
fn claude() -> Signals {
    let type_box = r"^─{10,}[^\n]*\n❯[^\n]*\n([^─\n][^\n]*\n)*─{10,}";
    Signals {
        asking: vec![screen(
            r"^ *❯ \d+\. [^\n]*\n([^\n]*\n)*[^\n]*\b(Esc to (cancel|exit|close|go back)|Enter to (confirm|select|continue))\b[^\n]*\z",
        )],
        busy: vec![title(SPINNER), screen(&format!(r"{type_box}\n +esc to interrupt\b[^\n]*\z"))],
        idle: vec![
            Sign { title: Some("^✳ ".to_owned()), ..screen(&format!(r"{type_box}(\n[^\n]*){{0,3}}\z")) },
            screen(&format!(r"{type_box}\n +\? for shortcuts\b[^\n]*\z")),
        ],
        ..Signals::default()
    }
}

/// Without a title it is not known whether it works: an answer can look like the line that says so.
fn codex() -> Signals {
    Signals {
        asking: vec![
            title(r"^\[ . \] Action Required\b"),
            screen(r"^ *› \d+\. [^\n]*\n([^\n]*\n)*[^\n]*\bPress enter to (confirm|continue)\b[^\n]*\z"),
        ],
        busy: vec![title(SPINNER)],
        idle: vec![Sign {
            title: Some("^[^\\[\u{2800}-\u{28ff}]".to_owned()),
            ..screen(r"^› [^\n]*\n([^\n]*\n){0,4}[^\n]*\z")
        }],
        ..Signals::default()
    }
}

fn aider() -> Signals {
    Signals {
        asking: vec![Sign {
            cursor: Some(r"\(Y\)es/\(N\)o.*\[[A-Za-z]+\]: ?".to_owned()),
            ..Sign::default()
        }],
        idle: vec![Sign { cursor: Some(r"^([a-z-]+ ?)*> $".to_owned()), ..Sign::default() }],
        ..Signals::default()
    }
}

/// A prompt before the cursor, and nothing that was started from it still running.
fn prompt(pattern: &str) -> Signals {
    let at_prompt =
        Sign { cursor: Some(pattern.to_owned()), children: Some(Children::None), ..Sign::default() };
    Signals { idle: vec![at_prompt], ..Signals::default() }
}
