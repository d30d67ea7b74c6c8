//! Completions: the script that a shell is given once (`completion`), and the answer to each Tab (`complete`): words of
//! the command line, and names as they are now. An answer starts nothing, prints no error, and is short: what is not
//! known within [`names::LIMIT`] is left out.

mod kinds;
mod names;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use clap_complete::Shell;
use clap_complete::engine::{CompletionCandidate, complete};

use super::args::Complete;
use super::error::{Failure, exit};
use super::output::pipe::Stdout;
use crate::args;
use manager_installation::layout::Layout;

/// More are not looked through by anybody.
const MOST: usize = 1000;

/// The script for a shell.
pub fn script(shell: Shell) -> Result<u8, Failure> {
    let script = match shell {
        Shell::Bash => include_bytes!("shells/phalanx.bash").to_vec(),
        Shell::Zsh => include_bytes!("shells/phalanx.zsh").to_vec(),
        Shell::Fish => include_bytes!("shells/phalanx.fish").to_vec(),
        // Without live names.
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, &mut args::command(), "phalanx", &mut script);
            script
        }
    };
    let mut out = Stdout::default();
    out.bytes(&script)?;
    out.done()?;
    Ok(exit::OK)
}

/// What fits at the cursor, one a line, as the shell takes it. Always ends well.
pub fn answer(asked: &Complete) -> u8 {
    let typed = match &asked.line {
        Some(line) => words::of_line(line),
        None => words::of_words(&asked.words),
    };
    let found = candidates(typed.words.clone());
    let mut out = Stdout::default();
    for candidate in found.iter().take(MOST) {
        let value = candidate.get_value().to_string_lossy();
        // A line is one candidate, whatever somebody called his profile.
        if value.chars().any(char::is_control) {
            continue;
        }
        let line = match asked.shell {
            Shell::Bash => typed.completed(&value),
            Shell::Fish => described(&value, candidate),
            _ => value.into_owned(),
        };
        if out.line(&line).is_err() {
            break;
        }
    }
    let _ = out.done();
    exit::OK
}

fn described(value: &str, candidate: &CompletionCandidate) -> String {
    let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
    let help: String = help.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    if help.is_empty() { value.to_owned() } else { format!("{value}\t{help}") }
}

/// For the last of these words, which may be empty.
fn candidates(words: Vec<String>) -> Vec<CompletionCandidate> {
    let Some(last) = words.len().checked_sub(1) else { return Vec::new() };
    let mut command = kinds::with_names(args::command(), &words, home(&words));
    let words = words.into_iter().map(OsString::from).collect();
    let folder = std::env::current_dir().ok();
    complete(&mut command, words, last, folder.as_deref()).unwrap_or_default()
}

/// Of the installation that the typed command is about.
fn home(words: &[String]) -> Option<Layout> {
    let after = words.windows(2).find_map(|pair| match pair {
        [option, value] if option == "--home" => Some(value.clone()),
        _ => None,
    });
    let given =
        after.or_else(|| words.iter().find_map(|word| Some(word.strip_prefix("--home=")?.to_owned())));
    match given {
        Some(home) => Layout::at(std::path::absolute(PathBuf::from(home)).ok()?).ok(),
        None => Layout::from_env().ok(),
    }
}
