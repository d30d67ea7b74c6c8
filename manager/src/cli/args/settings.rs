//! Words of the commands that change agents which are there.

use clap::Args;

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
