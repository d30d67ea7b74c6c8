//! Which argument of which command takes what kind of name.

use std::ffi::OsStr;
use std::sync::Arc;

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};

use super::names::Names;
use manager_installation::layout::Layout;

/// What a word can be. Several for one argument: any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Agent,
    /// `AGENT:`, a place in its workspace.
    Place,
    Host,
    Run,
    /// `TASK` of the latest run, `RUN/TASK` of another.
    Task,
    /// Of the run that is named before it.
    TaskOfRun,
    Profile,
    Setting,
    /// `NAME` of a hook, or `NAME:` with what it is told of.
    Hook,
    Schema,
    /// Number of a snapshot of the agent that is named before it.
    Snapshot,
    /// A word of `wait --for`.
    Awaited,
    Path,
}

/// By the command's words and the argument's id.
fn kinds(command: &str, argument: &str) -> &'static [Kind] {
    match (command, argument) {
        ("diff", "target") => &[Kind::Task, Kind::Agent],
        ("patch", "target") => &[Kind::Task, Kind::Run],
        ("why", "target") => &[Kind::Agent, Kind::Run, Kind::Task],
        ("wait", "targets") => &[Kind::Agent, Kind::Run, Kind::Task],
        ("wait", "until") => &[Kind::Awaited],
        ("cancel" | "retry" | "merge", "tasks") => &[Kind::TaskOfRun],
        ("show", "targets") => &[Kind::Agent, Kind::Run],
        ("run", "notify") | ("notify test", "name") => &[Kind::Hook],
        (_, "tasks") => &[Kind::Task],
        ("clone", "source") | ("send" | "label", "words") | ("ls" | "top", "names") => &[Kind::Agent],
        ("create", "profile") | ("profile show", "names") | ("profile test", "name") => &[Kind::Profile],
        ("config get" | "config set" | "config unset", "key") => &[Kind::Setting],
        ("schema", "words") => &[Kind::Schema],
        ("file ls" | "file get", "place") => &[Kind::Place],
        ("file put", "paths") => &[Kind::Place, Kind::Path],
        ("snapshot restore", "number") => &[Kind::Snapshot],
        (_, "run" | "resume") => &[Kind::Run],
        (_, "host" | "hosts") => &[Kind::Host],
        (_, "target" | "targets" | "agent") => &[Kind::Agent],
        _ => &[],
    }
}

struct Completer {
    kinds: &'static [Kind],
    names: Arc<Names>,
}

impl ValueCompleter for Completer {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let mut found = Vec::new();
        if let Some(begun) = current.to_str() {
            for kind in self.kinds.iter().filter(|kind| **kind != Kind::Path) {
                found.extend(self.names.of(*kind, begun).into_iter().filter(|name| name.starts_with(begun)));
            }
        }
        let mut found: Vec<CompletionCandidate> = found.into_iter().map(CompletionCandidate::new).collect();
        if self.kinds.contains(&Kind::Path) {
            found.extend(PathCompleter::any().complete(current));
        }
        found
    }
}

/// The command line with live names: of the installation at `home`, for the words that were typed.
pub(super) fn with_names(command: Command, words: &[String], home: Option<Layout>) -> Command {
    let names = Arc::new(Names::new(home, words));
    command.mut_subcommands(|command| {
        let name = command.get_name().to_owned();
        let command = with_completers(command, &name, &names);
        command.mut_subcommands(|below| {
            let whole = format!("{name} {}", below.get_name());
            with_completers(below, &whole, &names)
        })
    })
}

fn with_completers(command: Command, words: &str, names: &Arc<Names>) -> Command {
    command.mut_args(|argument: Arg| match kinds(words, argument.get_id().as_str()) {
        [] => argument,
        kinds => argument.add(ArgValueCompleter::new(Completer { kinds, names: Arc::clone(names) })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn every_argument_that_names_something_is_completed() {
        // Names of what is to be made, texts, and what another program knows.
        const FREE: &[(&str, &str)] = &[
            ("create", "name"),
            ("run", "name"),
            ("rename", "name"),
            ("clone", "name"),
            ("help", "words"),
            ("messages", "cancel"),
        ];
        let mut missing = Vec::new();
        let mut look = |command: &Command, words: &str| {
            for argument in command.get_arguments() {
                let id = argument.get_id().as_str();
                let names = [
                    "name", "names", "words", "target", "targets", "agent", "run", "tasks", "host", "hosts",
                    "notify",
                ];
                if names.contains(&id) && kinds(words, id).is_empty() && !FREE.contains(&(words, id)) {
                    missing.push(format!("{words} {id}"));
                }
            }
        };
        for command in args::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            look(command, command.get_name());
            for below in command.get_subcommands() {
                look(below, &format!("{} {}", command.get_name(), below.get_name()));
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
        assert!(!kinds("snapshot restore", "number").is_empty());
    }
}
