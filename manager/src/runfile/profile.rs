//! Profiles: how a coding agent is started, as data. The built-in ones, and the shape of those in a task file.

use std::collections::BTreeMap;

/// How a program is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Started for a task; reads its prompt from the file that `PHALANX_PROMPT_FILE` names.
    pub command: Vec<String>,
    /// Started for a person, without a prompt.
    pub interactive: Vec<String>,
    /// Text in its output that shows that it is ready.
    pub ready: Option<String>,
}

/// Name, command with a prompt, command for a person; both for `sh -c`.
const BUILT_IN: &[(&str, &str, &str)] = &[
    ("claude", r#"exec claude -p --output-format text < "$PHALANX_PROMPT_FILE""#, "exec claude"),
    ("codex", r#"exec codex exec - < "$PHALANX_PROMPT_FILE""#, "exec codex"),
    ("shell", r#"exec sh "$PHALANX_PROMPT_FILE""#, r#"exec "${SHELL:-/bin/sh}""#),
];

fn shell(command: &str) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), command.to_owned()]
}

/// The profiles that need no definition.
pub fn built_in() -> BTreeMap<String, Profile> {
    BUILT_IN
        .iter()
        .map(|(name, command, interactive)| {
            let profile = Profile { command: shell(command), interactive: shell(interactive), ready: None };
            ((*name).to_owned(), profile)
        })
        .collect()
}
