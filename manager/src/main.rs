//! The `phalanx` program: the command line, and the two daemons that it can be.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use manager_cli::Hooks;
use manager_installation::Layout;
use manager_installation::supervisor::{self, component};
use manager_plan::config::Settings;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Within which every component must have become ready.
const START_LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    manager_cli::main(std::env::args_os(), &Hooks { supervise, manager: manage })
}

/// The words that start the supervisor.
fn supervise_command() -> Result<Vec<OsString>, component::ProgramError> {
    Ok(vec![component::current_program()?.into_os_string(), "supervise".into()])
}

fn supervise(layout: &Layout) -> ExitCode {
    ended(supervise_now(layout))
}

fn supervise_now(layout: &Layout) -> Result<(), Box<dyn std::error::Error>> {
    let command = supervise_command()?;
    let options = supervisor::Options {
        components: component::daemons(layout)?,
        supervise: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        start_limit: START_LIMIT,
    };
    Ok(supervisor::main(layout, options, &command)?)
}

fn manage(layout: &Layout) -> ExitCode {
    let filter = EnvFilter::try_from_env("PHALANX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    ended(manage_now(layout))
}

fn manage_now(layout: &Layout) -> Result<(), Box<dyn std::error::Error>> {
    let settings = Settings::of_daemons().unwrap_or_else(|wrong| {
        tracing::error!(%wrong, "the settings are wrong: there are no caps of labels");
        Settings::default()
    });
    let label_caps = settings.label_caps();
    let (layout, supervise) = (layout.clone(), Some(supervise_command()?));
    let blob_grace_ms = settings.blob_grace_ms();
    let options = manager_daemon::Options { layout, supervise, host_cap: None, label_caps, blob_grace_ms };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let shutdown = async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        };
        Ok(manager_daemon::run(options, shutdown).await?)
    })
}

/// What a daemon says when it could not go on: one line with its causes, in its log.
fn ended(result: Result<(), Box<dyn std::error::Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", protocol::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
