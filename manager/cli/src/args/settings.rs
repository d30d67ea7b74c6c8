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
    /// Its new label
    #[arg(value_name = "NEW")]
    pub name: String,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Label {
    /// AGENT..., then K=V to set and K- to take away
    #[arg(required = true, value_name = "AGENT|K=V|K-")]
    pub words: Vec<String>,
    /// All agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    #[command(flatten)]
    pub change: Change,
}

#[derive(Args, Debug)]
pub struct Limit {
    #[command(flatten)]
    pub agents: Targets,
    /// Cores, such as 1.5, or none
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory, such as 512M or 2G, or none
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Processes and threads, or none
    #[arg(long, value_name = "N")]
    pub pids: Option<String>,
    /// Wall-clock time from the start after which it is ended, such as 10m, or none
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    #[command(flatten)]
    pub change: Change,
}

/// Make a new agent that begins with what another has in its workspace now, uncommitted and untracked work too
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx clone demo second
  phalanx clone demo --memory 4G -- bash -c 'make test'")]
pub struct CloneAgent {
    #[arg(value_name = "AGENT")]
    pub source: String,
    /// Label of the new one; made up when absent
    #[arg(value_name = "NEW")]
    pub name: Option<String>,
    /// Program and its arguments [default: those of the other]
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<String>,
    /// Also the files that git is told to ignore
    #[arg(long)]
    pub include_ignored: bool,
    /// More labels, k=v
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// A variable, or only the name of one of yours; values of the other are not copied
    #[arg(long = "env", value_name = "K=V|K")]
    pub environment: Vec<String>,
    /// Cores [default: as the other]
    #[arg(long, value_name = "CORES")]
    pub cpu: Option<String>,
    /// Memory [default: as the other]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Processes and threads [default: as the other]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub pids: Option<u64>,
    /// Wall-clock time [default: as the other]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// The same key gives the same agent again
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
    /// Return once it is accepted, not once it was started
    #[arg(long)]
    pub no_wait: bool,
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Keep all that is in an agent's workspace now, in a ref of its repository
    #[command(
        before_help = "Examples:\n  phalanx snapshot create demo\n  phalanx snapshot create demo --include-ignored"
    )]
    Create {
        #[arg(value_name = "AGENT")]
        agent: String,
        /// Also the files that git is told to ignore
        #[arg(long)]
        include_ignored: bool,
    },
    /// List the snapshots of an agent
    #[command(before_help = "Examples:\n  phalanx snapshot ls demo\n  phalanx snapshot ls demo -o json")]
    Ls {
        #[arg(value_name = "AGENT")]
        agent: String,
    },
    /// Put the files of a snapshot back; the agent must be paused or have ended. HEAD and index stay, and so do files
    /// that the snapshot does not know of; one more snapshot is taken first
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
