//! Words of the commands that look at many agents at once.

use clap::Args;
use protocol::agent::Phase;
use protocol::ids::HostId;

use super::super::watch::columns::{Column, Sort};
use super::agent::{Targets, pair};

/// Which agents are shown.
#[derive(Args, Debug, Clone, Default)]
pub struct Filter {
    /// Names or ids, with * for any text and ? for one character
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Also ended attempts and destroyed agents
    #[arg(short, long)]
    pub all: bool,
    /// Only agents with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Only agents in this phase
    #[arg(long = "phase", value_name = "PHASE", value_parser = phase)]
    pub phases: Vec<Phase>,
    /// Only agents on this host
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<HostId>,
    /// Only agents of this run
    #[arg(long)]
    pub run: Option<String>,
}

#[derive(Args, Debug)]
pub struct Ls {
    #[command(flatten)]
    pub filter: Filter,
    /// By this column; -COLUMN for the other way round
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    pub sort: Option<Sort>,
    /// These columns of a table, with commas between
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    pub columns: Vec<Column>,
    /// Go on with what changes: drawn again in place on a terminal, a line for each change elsewhere
    #[arg(short, long)]
    pub watch: bool,
    /// Only what changed after this line of an earlier --watch
    #[arg(long, value_name = "CURSOR", requires = "watch")]
    pub cursor: Option<String>,
}

#[derive(Args, Debug)]
pub struct Top {
    #[command(flatten)]
    pub filter: Filter,
    /// By this figure, the largest first; or by name
    #[arg(long, value_enum, default_value = "cpu")]
    pub sort: TopSort,
    /// Between two measurements on a terminal, or elsewhere where it is given
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
    /// The bytes as they were printed, escape sequences too; else lines of text, with -o json or jsonl an object each
    #[arg(long, conflicts_with = "grep")]
    pub raw: bool,
    /// Go on as it prints
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last so many lines [default of several agents: 10]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    pub tail: Option<u64>,
    /// From this byte on
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<u64>,
    /// What was printed since: a duration ago (10m) or a date, in UTC unless it has an offset; some seconds more may be shown, never less
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "tail"])]
    pub since: Option<String>,
    /// Only lines, without their escape sequences, that this regular expression fits
    #[arg(long, value_name = "REGEX")]
    pub grep: Option<String>,
}

fn phase(text: &str) -> Result<Phase, String> {
    let all = Phase::ALL;
    Phase::from_word(&text.to_uppercase()).ok_or_else(|| {
        format!("it is one of {}", all.iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(", "))
    })
}
