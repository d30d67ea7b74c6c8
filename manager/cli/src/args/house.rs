//! Words of the commands that keep house.

use clap::Args;

use super::agent::Targets;

#[derive(Args, Debug)]
pub struct Du {
    #[command(flatten)]
    pub agents: Targets,
    /// List each destroyed agent of which data is kept, not only their sum
    #[arg(short, long)]
    pub all: bool,
}

/// Remove data that is no longer needed
///
/// agents: ended agents and their workspaces, but never the only copy of work. transcripts: data kept of destroyed agents.
/// bases: checkouts that no workspace uses. refs: refs below refs/phalanx whose work is in a branch, tag or remote of the
/// repository, also if it was squashed or rebased. leftovers: cgroups, sessions and sockets of ended agents. runs: records of
/// finished runs, except those with accepted work that is not merged or with an agent that still exists. blobs: prompts, logs
/// and inputs on the bus that no record refers to, and incomplete uploads.
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx gc --dry-run
  phalanx gc --older 30d --what transcripts,bases --yes")]
pub struct Gc {
    /// Show what would be removed without removing it
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Only remove what has not been needed for this long
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub older: String,
    /// Only remove the oldest, until at most this much is left on each host
    #[arg(long, value_name = "SIZE")]
    pub keep_size: Option<String>,
    /// What to remove
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "agents,transcripts,bases,refs,leftovers,runs,blobs"
    )]
    pub what: Vec<What>,
    /// Also remove declared outputs of destroyed agents, which may exist nowhere else
    #[arg(long)]
    pub discard: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    #[value(alias = "workspaces")]
    Agents,
    Transcripts,
    Bases,
    Refs,
    Leftovers,
    Runs,
    Blobs,
}
