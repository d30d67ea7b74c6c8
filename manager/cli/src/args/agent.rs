//! Words of the commands about agents.

use std::path::PathBuf;

use clap::Args;

/// Create an agent: a program in a terminal of its own, with limits and a workspace
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx create demo -- sh -c 'echo hello; sleep 60'
  phalanx create fixer claude --repo ~/src/lib --base main --memory 2G")]
pub struct Create {
    /// Label of the agent; made up when absent
    pub name: Option<String>,
    /// How it is started: see phalanx profile ls
    pub profile: Option<String>,
    /// Program and its arguments, executed as they are
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Repository whose checkout it works in
    #[arg(long, value_name = "PATH")]
    pub repo: Option<PathBuf>,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REF", requires = "repo")]
    pub base: Option<String>,
    /// How the checkout is made
    #[arg(long, value_enum, default_value = "auto")]
    pub workspace: Workspace,
    /// Labels, k=v
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// A variable, or only the name of one of yours
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// File of K=V lines
    #[arg(long, value_name = "F")]
    pub env_file: Vec<PathBuf>,
    /// Cores, such as 1.5 [default: setting defaults.cpu]
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory, such as 512M or 2G [default: setting defaults.memory]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Processes and threads [default: setting defaults.pids]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Wall-clock time after which it is ended, such as 10m [default: setting defaults.timeout]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Time between the request to end and the kill [default: setting defaults.grace]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// Where; the manager chooses when absent
    #[arg(long, value_name = "H")]
    pub host: Option<String>,
    /// User it runs as
    #[arg(long, value_name = "U")]
    pub user: Option<String>,
    /// The same key gives the same agent again
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Return once it is accepted, not once it was started
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
    /// All agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
}

#[derive(Args, Debug)]
pub struct Show {
    /// Agents, tasks (their last agents), or a run's name or id
    #[arg(required = true, value_name = "AGENT|TASK|RUN")]
    pub targets: Vec<String>,
}

#[derive(Args, Debug)]
pub struct Attach {
    #[arg(value_name = "AGENT|TASK")]
    pub target: String,
    /// Only look: nothing that is typed reaches it, and its size stays that of the others
    #[arg(short, long)]
    pub read_only: bool,
}

#[derive(Args, Debug)]
pub struct Exec {
    #[arg(value_name = "AGENT|TASK")]
    pub target: String,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Pass standard input on as it comes, to its end
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// A variable, or only the name of one of yours
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// The bytes as they are, also on a terminal
    #[arg(long)]
    pub raw: bool,
}

#[derive(Args, Debug)]
pub struct Wait {
    #[command(flatten)]
    pub agents: Targets,
    /// started, ended, destroyed, applied (changes are in force) or a phase such as PAUSED, BLOCKED or PAUSED:turn-done;
    /// of a run or RUN/TASK: ended, accepted or a state such as REVIEW
    #[arg(long = "for", value_name = "WHAT", default_value = "ended")]
    pub until: String,
    /// At most so long; then exit 124
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub timeout: String,
    /// The first one is enough
    #[arg(long, conflicts_with = "all")]
    pub any: bool,
    /// All of them (the default)
    #[arg(long)]
    pub all: bool,
}

#[derive(Args, Debug)]
pub struct Stop {
    #[command(flatten)]
    pub agents: Targets,
    /// Time before the kill [default: the agent's own]
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Destroy {
    #[command(flatten)]
    pub agents: Targets,
    /// Also when the workspace holds the only copy of work
    #[arg(long)]
    pub discard: bool,
    #[command(flatten)]
    pub change: Change,
}

/// What every change of agents takes.
#[derive(Args, Debug)]
pub struct Change {
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Return once it is accepted
    #[arg(long)]
    pub no_wait: bool,
    /// The same key gives the same answer again
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Args, Debug)]
pub struct Events {
    #[arg(value_name = "AGENT")]
    pub targets: Vec<String>,
    /// From then on: a duration ago (10m) or a date (2026-01-31, 2026-01-31T12:00:00+01:00), in UTC unless it has an offset
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Go on as they come, over restarts too
    #[arg(short, long)]
    pub follow: bool,
    /// Only what came after this event: its `cursor` in -o json or jsonl
    #[arg(long, value_name = "CURSOR", conflicts_with = "since")]
    pub cursor: Option<String>,
}

pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}
