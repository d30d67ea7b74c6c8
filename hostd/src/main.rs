//! The `hostd` program: reads its configuration and looks after this host until it is told to end.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

const USAGE: &str = "\
Look after the agents of one machine

Usage: hostd run [CONFIG]
       hostd check-config [CONFIG]

Commands:
  run           Look after this host until SIGTERM; agents go on after that
  check-config  Check whether the configuration can be used

Without CONFIG the configuration is host/hostd.json under PHALANX_HOME.

Options:
  -h, --help     Print help
  -V, --version  Print version";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Run { config: Option<PathBuf> },
    CheckConfig { config: Option<PathBuf> },
    Help,
    Version,
}

/// Two words and a path need no parser of their own crate.
fn action_of(arguments: &[OsString]) -> Result<Action, String> {
    let (first, rest) = arguments.split_first().ok_or("a command is missing")?;
    let word = first.to_str().unwrap_or_default();
    let asks_help = |argument: &OsString| argument == "-h" || argument == "--help";
    if word == "help" || asks_help(first) || rest.iter().any(asks_help) {
        return Ok(Action::Help);
    }
    if word == "-V" || word == "--version" {
        return Ok(Action::Version);
    }
    if !matches!(word, "run" | "check-config") {
        return Err(format!("unknown command {}", first.display()));
    }
    let config = match rest {
        [] => None,
        [path] if !path.as_encoded_bytes().starts_with(b"-") => Some(PathBuf::from(path)),
        [option] => return Err(format!("unknown option {}", option.display())),
        [_, surplus, ..] => return Err(format!("unexpected argument {}", surplus.display())),
    };
    Ok(if word == "run" { Action::Run { config } } else { Action::CheckConfig { config } })
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("PHALANX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let action = match action_of(&arguments) {
        Ok(action) => action,
        Err(fault) => {
            // As clap and most programs have it: 2 is a command line that was not understood.
            let _ = writeln!(std::io::stderr(), "error: {fault}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match action {
        Action::Help => say(USAGE),
        Action::Version => say(concat!("hostd ", env!("CARGO_PKG_VERSION"))),
        Action::Run { config } => tell(config_path(config).and_then(|path| run(&path))),
        Action::CheckConfig { config } => {
            tell(config_path(config).and_then(|path| hostd::daemon::read_config(&path).map(|_| ())))
        }
    }
}

fn tell(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn config_path(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let home = || std::env::var_os("PHALANX_HOME").map(PathBuf::from);
    given
        .or_else(|| home().map(|home| home.join("host/hostd.json")))
        .context("name a configuration file, or set PHALANX_HOME")
}

fn run(config: &std::path::Path) -> anyhow::Result<()> {
    let config = hostd::daemon::read_config(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let asked = async {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            let _ = stop.send(true);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            done = hostd::daemon::run(config, stopped) => done,
            () = asked => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{Action, OsString, PathBuf, action_of};

    fn of(words: &[&str]) -> Result<Action, String> {
        action_of(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn both_commands_take_at_most_one_configuration() {
        let config = || Some(PathBuf::from("a b.json"));
        assert_eq!(of(&["run"]), Ok(Action::Run { config: None }));
        assert_eq!(of(&["run", "a b.json"]), Ok(Action::Run { config: config() }));
        assert_eq!(of(&["check-config"]), Ok(Action::CheckConfig { config: None }));
        assert_eq!(of(&["check-config", "a b.json"]), Ok(Action::CheckConfig { config: config() }));
        assert_eq!(of(&["run", "a", "b"]), Err("unexpected argument b".to_owned()));
    }

    #[test]
    fn help_and_version_are_found_where_they_are_looked_for() {
        for words in [&["--help"][..], &["-h"], &["help"], &["help", "run"], &["run", "--help"]] {
            assert_eq!(of(words), Ok(Action::Help), "{words:?}");
        }
        for words in [&["--version"][..], &["-V"]] {
            assert_eq!(of(words), Ok(Action::Version), "{words:?}");
        }
    }

    #[test]
    fn a_word_that_is_not_known_is_an_error_that_names_it() {
        assert_eq!(of(&[]), Err("a command is missing".to_owned()));
        assert_eq!(of(&["runn"]), Err("unknown command runn".to_owned()));
        assert_eq!(of(&["run", "--config"]), Err("unknown option --config".to_owned()));
    }
}
