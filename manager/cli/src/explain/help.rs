//! `help`: a topic, or the help of a command.

use clap::Command;
use protocol::error::ErrorCode;

use super::super::args;
use super::super::error::{Failure, exit};
use super::super::output::pipe::Stdout;
use manager_plan::config::key::KEYS;
use manager_plan::config::layer::Layer;
use manager_plan::runfile::problem::suggestion;

const TOPICS: &[(&str, &str)] = &[
    ("environment", include_str!("topics/environment.txt")),
    ("examples", super::examples::TEXT),
    ("exit-codes", include_str!("topics/exit-codes.txt")),
    ("files", include_str!("topics/files.txt")),
    ("phases", include_str!("topics/phases.txt")),
    ("tasks", include_str!("topics/tasks.txt")),
];

pub fn run(words: &[String]) -> Result<u8, Failure> {
    let text = text_of(words)?;
    let mut out = Stdout::default();
    out.text(&text)?;
    out.done()?;
    Ok(exit::OK)
}

fn text_of(words: &[String]) -> Result<String, Failure> {
    let root = args::command();
    let Some(first) = words.first() else {
        let topics: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        let topics = topics.join(", ");
        return Ok(format!("{}\nTopics of phalanx help: {topics}\n", root.clone().render_help()));
    };
    if let ([_], Some((name, text))) = (words, TOPICS.iter().find(|(name, _)| name == first)) {
        let more = if *name == "environment" { variables() } else { String::new() };
        return Ok(format!("{text}{more}"));
    }
    let mut found = &root;
    let mut called = String::from("phalanx");
    for word in words {
        called.push_str(&format!(" {word}"));
        found = found.find_subcommand(word).ok_or_else(|| missing(found, word))?;
    }
    let command: Command = found.clone().bin_name(called);
    Ok(command.clone().render_long_help().to_string())
}

fn variables() -> String {
    let of_environment = KEYS.iter().filter(|key| key.may_be_set_by(Layer::Environment));
    of_environment.map(|key| format!("  {:<31} {}\n", key.variable(), key.kind.as_str())).collect()
}

fn missing(command: &Command, word: &str) -> Failure {
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut known: Vec<&str> = commands.map(Command::get_name).collect();
    known.extend(TOPICS.iter().map(|(name, _)| *name));
    let message = format!("there is no command or topic {word:?}{}", suggestion(word, known));
    Failure::new(ErrorCode::NotFound, message).hint("phalanx help")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::exit as codes;
    use protocol::agent::Phase;
    use protocol::task::TaskState;

    fn topic(name: &str) -> String {
        text_of(&[name.to_owned()]).unwrap()
    }

    #[test]
    fn topics_name_every_phase_state_code_and_variable() {
        let phases = topic("phases");
        let words = Phase::ALL.iter().map(|phase| phase.as_str());
        for word in words.chain(TaskState::ALL.iter().map(|state| state.as_str())) {
            assert!(phases.lines().any(|line| line.trim_start().starts_with(&format!("{word} "))), "{word}");
        }
        for code in [
            codes::OK,
            codes::FAILED,
            codes::USAGE,
            codes::MISSING,
            codes::DENIED,
            codes::CONFLICT,
            codes::EXHAUSTED,
            codes::SOME_ACCEPTED,
            codes::NONE_ACCEPTED,
            codes::UNAVAILABLE,
            codes::TIMED_OUT,
            codes::EXEC_FAULT,
            codes::INTERRUPTED,
        ] {
            assert!(topic("exit-codes").contains(&format!("\n  {code} ")), "{code}");
        }
        assert!(topic("environment").contains("PHALANX_DEFAULTS_MEMORY"));
    }

    #[test]
    fn help_of_a_command_is_its_help_and_a_typo_names_the_nearest() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(text_of(&words("config set")).unwrap().contains("phalanx config set defaults.memory 2G"));
        assert!(text_of(&[]).unwrap().contains("exit-codes"));
        let wrong = text_of(&words("exit-code")).unwrap_err();
        assert_eq!(wrong.exit_code(), 3);
        assert!(wrong.rendered(false).unwrap().contains("exit-codes"));
    }
}
