//! The command line: words → requests, replies → text or JSON, failures → exit codes. Blocking std code throughout:
//! a list costs a connect and one round trip. The daemons behind `supervise` and `manager` are given as [`Hooks`].

pub mod agent;
pub mod args;
pub mod client;
pub mod completion;
pub mod config;
pub mod context;
pub mod error;
pub mod explain;
pub mod files;
pub mod house;
pub mod message;
pub mod output;
pub mod report;
pub mod review;
pub mod run;
pub mod screen;
pub mod settings;
pub mod system;
pub mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use self::args::{Cli, Command};
use self::context::{Context, WrongSettings};
use self::error::{Failure, exit};
use self::explain::schema::Wanted;
use self::output::pipe::{Stdout, say};
use manager_installation::layout::Layout;
use manager_plan::config::format::OutputFormat;

/// The processes that this program can be.
pub struct Hooks {
    /// `phalanx supervise`.
    pub supervise: fn(&Layout) -> ExitCode,
    /// `phalanx manager`.
    pub manager: fn(&Layout) -> ExitCode,
}

/// The whole program.
pub fn main(args: impl IntoIterator<Item = OsString>, hooks: &Hooks) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = args::command().try_get_matches_from(&args).and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(usage(&error, asks_for_json(&args))),
    };
    if let Command::Complete(asked) = &cli.command {
        return ExitCode::from(completion::answer(asked));
    }
    let json = cli.global.output.as_ref().is_some_and(OutputFormat::is_json);
    let context = match Context::new(cli.global, with_wrong_settings(&cli.command)) {
        Ok(context) => context,
        Err(failure) => return ExitCode::from(told(&failure, json)),
    };
    let json = context.format.is_json();
    match cli.command {
        Command::Supervise => (hooks.supervise)(&context.layout),
        Command::Manager => (hooks.manager)(&context.layout),
        command => ExitCode::from(dispatch(&context, command).unwrap_or_else(|failure| told(&failure, json))),
    }
}

/// Daemons read their own part; what mends, ends or explains must work always.
fn with_wrong_settings(command: &Command) -> WrongSettings {
    match command {
        Command::Supervise
        | Command::Manager
        | Command::Down { .. }
        | Command::Status
        | Command::Doctor
        | Command::Config(_)
        | Command::Notify(_)
        | Command::Completion { .. }
        | Command::Help { .. }
        | Command::Schema { .. }
        | Command::Man { .. } => WrongSettings::Pass,
        _ => WrongSettings::Refuse,
    }
}

fn dispatch(context: &Context, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Up { enable, install_nats } => system::start::up(context, enable, install_nats),
        Command::Down { disable, stop_agents } => system::start::down(context, disable, stop_agents),
        Command::Status => system::status::run(context),
        Command::Doctor => system::doctor::run(context),
        Command::Hosts => system::hosts::run(context),
        Command::Events(args) => agent::events::run(context, &args),
        Command::Create(args) => agent::create::run(context, &args),
        Command::Ls(args) => watch::list::run(context, &args),
        Command::Top(args) => watch::top::run(context, &args),
        Command::Show(args) => agent::show::run(context, &args),
        Command::Logs(args) => watch::logs::run(context, &args),
        Command::Capture(args) => screen::capture::run(context, &args),
        Command::Attach(args) => agent::attach::run(context, &args),
        Command::Exec(args) => agent::exec::run(context, &args),
        Command::Send(args) => message::send::run(context, &args),
        Command::Messages(args) => message::list::run(context, &args),
        Command::Wait(args) => agent::wait::run(context, &args),
        Command::Stop(args) => agent::change::stop(context, &args),
        Command::Destroy(args) => agent::change::destroy(context, &args),
        Command::Clone(args) => settings::clone(context, &args),
        Command::Snapshot { command } => settings::snapshot(context, &command),
        Command::Start(args) => settings::start(context, &args),
        Command::Pause(args) => settings::pause(context, &args),
        Command::Resume(args) => settings::resume(context, &args),
        Command::Rename(args) => settings::rename(context, &args),
        Command::Label(args) => settings::label(context, &args),
        Command::Limit(args) => settings::limit(context, &args),
        Command::File(words) => files::run(context, &words),
        Command::Run(args) => run::submit::run(context, &args),
        Command::Runs => run::list::runs(context),
        Command::Tasks(args) => run::list::tasks(context, &args),
        Command::Cancel(args) => run::cancel::cancel(context, &args),
        Command::Retry(args) => run::change::retry(context, &args),
        Command::Scale(args) => run::change::scale(context, &args),
        Command::Why(args) => run::why::run(context, &args),
        Command::Diff(args) => review::diff::run(context, &args),
        Command::Accept(args) => review::decide::accept(context, &args),
        Command::Reject(args) => review::decide::reject(context, &args),
        Command::Merge(args) => review::merge::run(context, &args),
        Command::Patch(args) => review::patch::run(context, &args),
        Command::Report(args) => run::report::run(context, &args),
        Command::Du(args) => house::du::run(context, &args),
        Command::Gc(args) => house::gc::run(context, &args),
        Command::Config(args) => config::run(context, &args.command),
        Command::Notify(args) => system::notify::run(context, &args.command),
        Command::Profile(args) => config::profile::run(context, &args.command),
        Command::Schema { words, list, line } => {
            let wanted = match (list, line) {
                (true, _) => Wanted::List,
                (false, true) => Wanted::Line(&words),
                (false, false) => Wanted::Whole(&words),
            };
            explain::schema::run(context, &wanted)
        }
        Command::Help { words } => explain::help::run(&words),
        Command::Man { out } => explain::man::run(out.as_deref(), context.quiet),
        Command::Completion { shell } => completion::script(shell),
        // Taken by `main` before.
        Command::Supervise | Command::Manager | Command::Complete(_) => Ok(exit::USAGE),
    }
}

/// Says what failed; the exit code.
fn told(failure: &Failure, json: bool) -> u8 {
    if let Some(text) = failure.rendered(json) {
        say(&text);
    }
    failure.exit_code()
}

/// Help and version go to stdout, wrong words to stderr with exit 2.
fn usage(error: &clap::Error, json: bool) -> u8 {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let mut out = Stdout::default();
        let written = out.text(&error.render().to_string()).and_then(|()| out.done());
        return written.map_or_else(|failure| told(&failure, json), |()| exit::OK);
    }
    let text = error.render().to_string();
    if json {
        let message = text.trim().trim_start_matches("error: ").to_owned();
        return told(&Failure::usage(message).hint("phalanx --help"), true);
    }
    say(&output::sanitise::safe_text(text.trim_end().as_bytes()));
    exit::USAGE
}

/// Whether wrong words were meant to be answered in JSON.
fn asks_for_json(args: &[OsString]) -> bool {
    let words: Vec<&str> =
        args.iter().take_while(|word| *word != "--").filter_map(|word| word.to_str()).collect();
    let after = words.windows(2).any(|pair| {
        matches!(pair, [option, format] if matches!(*option, "-o" | "--output") && format.starts_with("json"))
    });
    after || words.iter().any(|word| word.starts_with("-ojson") || word.starts_with("--output=json"))
}
