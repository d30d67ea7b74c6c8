//! Words of the commands about settings and profiles.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use manager_plan::config::layer::Layer;

#[derive(Args, Debug)]
pub struct Config {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Show every setting in effect
    #[command(before_help = "Examples:\n  phalanx config view\n  phalanx config view --show-origin -o json")]
    View {
        /// Also show where each was set
        #[arg(long)]
        show_origin: bool,
    },
    /// Print one setting
    #[command(before_help = "Examples:
  phalanx config get defaults.memory
  phalanx config get defaults.output")]
    Get {
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Change one setting in a file
    #[command(before_help = "Examples:
  phalanx config set defaults.memory 2G
  phalanx config set defaults.max_parallel 8 --layer project")]
    Set {
        #[arg(value_name = "KEY")]
        key: String,
        value: String,
        #[command(flatten)]
        file: File,
    },
    /// Remove one setting from a file
    #[command(before_help = "Examples:
  phalanx config unset defaults.memory
  phalanx config unset defaults.max_parallel --layer project")]
    Unset {
        #[arg(value_name = "KEY")]
        key: String,
        #[command(flatten)]
        file: File,
    },
    /// Edit a file in $VISUAL or $EDITOR; it is saved only if it is valid
    #[command(before_help = "Examples:\n  phalanx config edit\n  phalanx config edit --layer project")]
    Edit {
        #[command(flatten)]
        file: File,
    },
    /// Check the settings, or one file
    #[command(before_help = "Examples:
  phalanx config validate
  phalanx config validate ./config.toml --layer user")]
    Validate {
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Layer the file is meant for
        #[arg(long, value_enum, default_value = "user", requires = "file")]
        layer: Layer,
    },
    /// Show the files that are read; later ones override earlier ones
    #[command(before_help = "Examples:\n  phalanx config path\n  phalanx config path -o json")]
    Path,
}

/// Which file is changed.
#[derive(Args, Debug)]
pub struct File {
    /// Layer to change
    #[arg(long, value_enum, default_value = "user")]
    pub layer: Layer,
}

#[derive(Args, Debug)]
pub struct Profile {
    #[command(subcommand)]
    pub command: ProfileCommand,
}

#[derive(Subcommand, Debug)]
pub enum ProfileCommand {
    /// List profiles
    #[command(before_help = "Examples:\n  phalanx profile ls\n  phalanx profile ls -o json")]
    Ls,
    /// Show details of profiles
    #[command(
        before_help = "Examples:\n  phalanx profile show claude\n  phalanx profile show claude codex -o json"
    )]
    Show {
        #[arg(required = true, value_name = "PROFILE")]
        names: Vec<String>,
    },
    /// Start a profile as an agent, report whether it becomes ready, and remove the agent
    #[command(
        before_help = "Examples:\n  phalanx profile test claude\n  phalanx profile test mine --timeout 2m --keep"
    )]
    Test {
        #[arg(value_name = "PROFILE")]
        name: String,
        /// Time within which it must become ready
        #[arg(long, value_name = "TIME", default_value = "1m")]
        timeout: String,
        /// Keep the agent for inspection
        #[arg(long)]
        keep: bool,
    },
}

#[derive(Args, Debug)]
pub struct Notify {
    #[command(subcommand)]
    pub command: NotifyCommand,
}

#[derive(Subcommand, Debug)]
pub enum NotifyCommand {
    /// List the hooks and the state of their deliveries
    #[command(before_help = "Examples:\n  phalanx notify ls\n  phalanx notify ls -o json")]
    Ls,
    /// Send a sample to every hook, or to one, and print the results
    #[command(
        before_help = "Examples:\n  phalanx notify test\n  phalanx notify test chat\n  phalanx notify test -o json"
    )]
    Test {
        /// Name of a hook [default: all of them]
        name: Option<String>,
    },
}
