//! Words of the commands that look at many agents at once.

use clap::Args;
use protocol::agent::Phase;
use protocol::ids::HostId;

use super::super::watch::columns::{Column, Sort};
use super::agent::{Targets, pair};

/// Which agents are shown.
#[derive(Args, Debug, Clone, Default)]
pub struct Filter {
    /// Names or ids; * matches any text, ? one character
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Also show ended attempts and destroyed agents
    #[arg(short, long)]
    pub all: bool,
    /// Show only agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Show only agents in this phase
    #[arg(long = "phase", value_name = "PHASE", value_parser = phase)]
    pub phases: Vec<Phase>,
    /// Show only agents on this host
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<HostId>,
    /// Show only agents of this run
    #[arg(long)]
    pub run: Option<String>,
}

#[derive(Args, Debug)]
pub struct Ls {
    #[command(flatten)]
    pub filter: Filter,
    /// Sort by this column; -COLUMN for descending order
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<Sort>,
    /// Columns of the table, separated by commas
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub columns: Vec<Column>,
    /// Keep watching: redraw on a terminal, print one line per change elsewhere
    #[arg(short, long)]
    pub watch: bool,
    /// Resume an earlier --watch after the line with this cursor
    #[arg(long, value_name = "CURSOR", requires = "watch")]
    pub cursor: Option<String>,
}

#[derive(Args, Debug)]
pub struct Top {
    #[command(flatten)]
    pub filter: Filter,
    /// Sort by this figure in descending order, or by name
    #[arg(long, value_enum, default_value = "cpu")]
    pub sort: TopSort,
    /// Time between two measurements
    #[arg(long, value_name = "TIME", conflicts_with = "once")]
    pub interval: Option<String>,
    /// Measure once
    #[arg(long)]
    pub once: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopSort {
    Cpu,
    Memory,
    Disk,
    Pids,
    Name,
}

#[derive(Args, Debug)]
pub struct Logs {
    #[command(flatten)]
    pub agents: Targets,
    /// Print bytes as they were written, including escape sequences; otherwise lines of text, one object each with -o json
    #[arg(long, conflicts_with = "grep")]
    pub raw: bool,
    /// Follow the output as it is written
    #[arg(short, long)]
    pub follow: bool,
    /// Print only the last N lines [default for several agents: 10]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub tail: Option<u64>,
    /// Start at this byte offset
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<u64>,
    /// Print output since a duration ago (10m) or a date (UTC without an offset); a few seconds more may be shown
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "tail"])]
    pub since: Option<String>,
    /// Print only lines that match this regular expression; escape sequences are ignored
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<String>,
}

fn phase(text: &str) -> Result<Phase, String> {
    let all = Phase::ALL;
    Phase::from_word(&text.to_uppercase()).ok_or_else(|| {
        format!("it is one of {}", all.iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(", "))
    })
}
