//! The `hostd` program: reads its configuration and looks after this host until it is told to end.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

#[derive(Parser)]
#[command(name = "hostd", version, about = "Looks after the agents of one machine")]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

/// Without a path the configuration is `host/hostd.json` under `PHALANX_HOME`.
#[derive(Subcommand)]
enum Action {
    /// Look after this host until SIGTERM; agents go on after that.
    Run { config: Option<PathBuf> },
    /// Say whether the configuration can be used.
    CheckConfig { config: Option<PathBuf> },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = EnvFilter::try_from_env("PHALANX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
    let done = match arguments.command {
        Action::CheckConfig { config } => {
            config_path(config).and_then(|path| hostd::daemon::read_config(&path)).map(|_| ())
        }
        Action::Run { config } => config_path(config).and_then(|path| run(&path)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
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
