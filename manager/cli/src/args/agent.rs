//! Words of the commands about agents.

use std::path::PathBuf;

use clap::Args;

/// Create an agent: a program in a terminal of its own, with limits and a workspace
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx create demo -- sh -c 'echo hello; sleep 60'
  phalanx create fixer claude --repo ~/src/lib --base main --memory 2G")]
pub struct Create {
    /// Name of the agent [default: generated]
    pub name: Option<String>,
    /// Profile to start it with; see phalanx profile ls
    pub profile: Option<String>,
    /// Program and arguments, executed without a shell
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Repository to check out as its workspace
    #[arg(long, value_name = "PATH")]
    pub repo: Option<PathBuf>,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REF", requires = "repo")]
    pub base: Option<String>,
    /// How to make the checkout
    #[arg(long, value_enum, default_value = "auto")]
    pub workspace: Workspace,
    /// Label to set, k=v
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Environment variable K=V, or only the name of one of yours
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// Read environment variables from a file of K=V lines
    #[arg(long, value_name = "F")]
    pub env_file: Vec<PathBuf>,
    /// CPU limit in cores, such as 1.5 [default: setting defaults.cpu]
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory limit, such as 512M or 2G [default: setting defaults.memory]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Limit on processes and threads [default: setting defaults.pids]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Stop it after this wall-clock time, such as 10m [default: setting defaults.timeout]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Time between SIGTERM and SIGKILL [default: setting defaults.grace]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Host to run on [default: chosen by the manager]
    #[arg(long, value_name = "H")]
    pub host: Option<String>,
    /// User to run as
    #[arg(long, value_name = "U")]
    pub user: Option<String>,
    /// Idempotency key: repeating a command with the same key returns the same agent
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Return once the request is accepted, without waiting for the start
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    Auto,
    Overlay,
    Clone,
    Worktree,
    None,
}

/// Agents by name or label.
#[derive(Args, Debug)]
pub struct Targets {
    /// NAME, NAME@HOST or an id
    pub targets: Vec<String>,
    /// Select all agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub struct Show {
    /// Agents, tasks (their last agents), or the name or id of a run
    #[arg(required = true, value_name = "AGENT|TASK|RUN")]
    pub targets: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Attach {
    #[arg(value_name = "AGENT|TASK")]
    pub target: String,
    /// Attach read-only; do not resize the terminal
    #[arg(short, long)]
    pub read_only: bool,
}

#[derive(Args, Debug)]
pub struct Exec {
    #[arg(value_name = "AGENT|TASK")]
    pub target: String,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Pass standard input to the program
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Environment variable K=V, or only the name of one of yours
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// Print bytes unchanged, also on a terminal
    #[arg(long)]
    pub raw: bool,
}

#[derive(Args, Debug)]
pub struct Wait {
    #[command(flatten)]
    pub agents: Targets,
    /// What to wait for: started, ended, destroyed, applied (changes are in force), or a phase such as PAUSED, BLOCKED or
    /// PAUSED:turn-done; for a run or task: ended, accepted, or a state such as REVIEW
    #[arg(long = "for", value_name = "WHAT", default_value = "ended")]
    pub until: String,
    /// Give up after this time and exit with 124
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub timeout: String,
    /// Return when the first one gets there
    #[arg(long, conflicts_with = "all")]
    pub any: bool,
    /// Return when all of them get there (the default)
    #[arg(long)]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    pub agents: Targets,
    /// Time between SIGTERM and SIGKILL [default: the agent's own]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Destroy {
    #[command(flatten)]
    pub agents: Targets,
    /// Destroy even if the workspace holds the only copy of work
    #[arg(long)]
    pub discard: bool,
    #[command(flatten)]
    pub change: Change,
}

/// What every change of agents takes.
#[derive(Args, Debug)]
pub struct Change {
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Return once the request is accepted
    #[arg(long)]
    pub no_wait: bool,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Args, Debug)]
pub struct Events {
    #[arg(value_name = "AGENT")]
    pub targets: Vec<String>,
    /// Only events since a duration ago (10m) or a date (2026-01-31, 2026-01-31T12:00:00+01:00; UTC without an offset)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Keep printing events as they happen
    #[arg(short, long)]
    pub follow: bool,
    /// Only events after this one: its `cursor` from -o json or jsonl
    #[arg(long, value_name = "CURSOR", conflicts_with = "since")]
    pub cursor: Option<String>,
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}
