//! Words of the commands about finished work: looking at it, taking it, refusing it, bringing it in.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Diff {
    /// RUN/TASK, a task of the latest run, an agent, or an id
    #[arg(value_name = "TASK|AGENT")]
    pub target: String,
    /// Attempt of the task [default: the last]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Show only how much each file changed
    #[arg(long, conflicts_with = "name_only")]
    pub stat: bool,
    /// Show only the names of changed files
    #[arg(long)]
    pub name_only: bool,
}

#[derive(Args, Debug)]
pub struct Patch {
    /// RUN/TASK, a task of the latest run, a run, or an id
    #[arg(value_name = "TASK|RUN")]
    pub target: String,
    /// Directory to write to; a run gets one subdirectory per task [default: .]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Attempt of the task [default: the last]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// For a run: also write work that was not accepted
    #[arg(long)]
    pub all: bool,
    /// Overwrite existing files
    #[arg(long)]
    pub force: bool,
}

/// Finished tasks, by name or label.
#[derive(Args, Debug)]
pub struct Finished {
    /// RUN/TASK, a task of the latest run, or an id
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// Select all tasks in review with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = super::agent::pair)]
    pub labels: Vec<(String, String)>,
    /// Run to select tasks from with -l [default: the latest]
    #[arg(long, requires = "labels")]
    pub run: Option<String>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Comment; - reads standard input
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Read the comment from a file
    #[arg(short = 'f', long = "file", value_name = "F", conflicts_with = "comment")]
    pub comment_file: Option<PathBuf>,
    /// Idempotency key: repeating a command with the same key returns the first answer
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}

#[derive(Args, Debug)]
pub struct Accept {
    #[command(flatten)]
    pub finished: Finished,
}

#[derive(Args, Debug)]
pub struct Reject {
    #[command(flatten)]
    pub finished: Finished,
    /// Reject for good, without another attempt
    #[arg(long = "final")]
    pub for_good: bool,
}

#[derive(Args, Debug)]
pub struct Merge {
    /// A run's name or id [default: the latest]
    pub run: Option<String>,
    /// Branch to merge into; a new one starts at HEAD [default: the branch that HEAD is on]
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// Merge only this task [default: all accepted tasks]
    #[arg(long = "task", value_name = "T")]
    pub tasks: Vec<String>,
    /// Show what would be merged and what conflicts, without verifying or moving anything
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the tasks' verify commands
    #[arg(long)]
    pub no_verify: bool,
    /// Subject line of the merge commits
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Idempotency key: repeating a command with the same key returns the same merge
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}
