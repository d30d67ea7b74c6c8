//! Words of the commands that change agents which are there.

use clap::{Args, Subcommand};

use super::agent::{Change, Targets, pair};

#[derive(Args, Debug)]
pub struct Pause {
    #[command(flatten)]
    pub agents: Targets,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Start {
    #[command(flatten)]
    pub agents: Targets,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Rename {
    #[arg(value_name = "AGENT")]
    pub target: String,
    /// New name
    #[arg(value_name = "NEW")]
    pub name: String,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Label {
    /// AGENT..., then K=V to set or K- to remove a label
    #[arg(required = true, value_name = "AGENT|K=V|K-")]
    pub words: Vec<String>,
    /// Select all agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Limit {
    #[command(flatten)]
    pub agents: Targets,
    /// CPU limit in cores, such as 1.5, or none
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory limit, such as 512M or 2G, or none
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Limit on processes and threads, or none
    #[arg(long, value_name = "N")]
    pub pids: Option<String>,
    /// Stop it after this wall-clock time since its start, such as 10m, or none
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

/// Create an agent from the current workspace of another, including uncommitted and untracked work
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx clone demo second
  phalanx clone demo --memory 4G -- bash -c 'make test'")]
pub struct CloneAgent {
    #[arg(value_name = "AGENT")]
    pub source: String,
    /// Name of the new agent [default: generated]
    #[arg(value_name = "NEW")]
    pub name: Option<String>,
    /// Program and arguments [default: those of the original]
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Include files that git ignores
    #[arg(long)]
    pub include_ignored: bool,
    /// Label to add, k=v
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Environment variable K=V, or only the name of one of yours; values of the original are not copied
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// CPU limit in cores [default: as the original]
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory limit [default: as the original]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Limit on processes and threads [default: as the original]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Wall-clock limit [default: as the original]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Idempotency key: repeating a command with the same key returns the same agent
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Return once the request is accepted, without waiting for the start
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Save an agent's workspace to a ref of its repository
    #[command(
        before_help = "Examples:\n  phalanx snapshot create demo\n  phalanx snapshot create demo --include-ignored"
    )]
    Create {
        #[arg(value_name = "AGENT")]
        agent: String,
        /// Include files that git ignores
        #[arg(long)]
        include_ignored: bool,
    },
    /// List the snapshots of an agent
    #[command(before_help = "Examples:\n  phalanx snapshot ls demo\n  phalanx snapshot ls demo -o json")]
    Ls {
        #[arg(value_name = "AGENT")]
        agent: String,
    },
    /// Restore the files of a snapshot into a paused or ended agent
    ///
    /// A new snapshot is taken first. HEAD, the index, and files that the snapshot does not contain are left as they are.
    #[command(
        before_help = "Examples:\n  phalanx snapshot restore demo 1\n  phalanx snapshot restore demo 1 -o json"
    )]
    Restore {
        #[arg(value_name = "AGENT")]
        agent: String,
        #[arg(value_name = "N")]
        number: u32,
    },
}
