//! Words of the commands that keep house.

use clap::Args;

use super::agent::Targets;

#[derive(Args, Debug)]
pub struct Du {
    #[command(flatten)]
    pub agents: Targets,
    /// Also each destroyed agent of which something is kept, not only their sum
    #[arg(short, long)]
    pub all: bool,
}

/// Take away what nobody needs any more
///
/// agents: ended ones are destroyed, and their workspaces with them, but never with the only copy of work.
/// transcripts: what is kept of destroyed agents. bases: checkouts that no workspace lies on. refs: those below
/// refs/phalanx whose work is in branches, tags or remotes of the repository, also squashed or rebased. leftovers: cgroups,
/// sessions and sockets of ended agents. runs: records of runs that are over, never those with accepted work that is not
/// merged, or with an agent that is still there. blobs: prompts, logs and inputs on the bus that no record names, and what is
/// left of those that were never brought whole.
#[derive(Args, Debug)]
#[command(before_help = "Examples:
  phalanx gc --dry-run
  phalanx gc --older 30d --what transcripts,bases --yes")]
pub struct Gc {
    /// Show what would go; change nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Only what nobody has needed for so long
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub older: String,
    /// Only the oldest, until no more than so much is left on each host
    #[arg(long, value_name = "SIZE")]
    pub keep_size: Option<String>,
    /// What may go
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "agents,transcripts,bases,refs,leftovers,runs,blobs"
    )]
    pub what: Vec<What>,
    /// Also declared outputs of destroyed agents, which may exist nowhere else
    #[arg(long)]
    pub discard: bool,
    /// Do not ask
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
