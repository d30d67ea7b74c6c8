//! Words of the commands about finished work: looking at it, taking it, refusing it, bringing it in.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct Diff {
    /// RUN/TASK, a task of the latest run, an agent, or an id
    #[arg(value_name = "TASK|AGENT")]
    pub target: String,
    /// This attempt of the task [default: the last]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Only how much of each file changed
    #[arg(long, conflicts_with = "name_only")]
    pub stat: bool,
    /// Only the names of changed files
    #[arg(long)]
    pub name_only: bool,
}

#[derive(Args, Debug)]
pub struct Patch {
    /// RUN/TASK, a task of the latest run, a run, or an id
    #[arg(value_name = "TASK|RUN")]
    pub target: String,
    /// Folder the files are written to; a run has a folder per task in it [default: .]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// This attempt of the task [default: the last]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Of a run: also work that was not accepted
    #[arg(long)]
    pub all: bool,
    /// Write over files that are there
    #[arg(long)]
    pub force: bool,
}

/// Finished tasks, by name or label.
#[derive(Args, Debug)]
pub struct Finished {
    /// RUN/TASK, a task of the latest run, or an id
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// All tasks in review with these labels, k=v
    #[arg(short = 'l', long = "selector", value_name = "K=V", value_parser = super::agent::pair)]
    pub labels: Vec<(String, String)>,
    /// The run that -l looks into [default: the latest]
    #[arg(long, requires = "labels")]
    pub run: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// What to say of it; - is standard input
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// What to say of it, from a file
    #[arg(short = 'f', long = "file", value_name = "F", conflicts_with = "comment")]
    pub comment_file: Option<PathBuf>,
    /// The same key gives the same answer again
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
    /// For good: no further attempt
    #[arg(long = "final")]
    pub for_good: bool,
}

#[derive(Args, Debug)]
pub struct Merge {
    /// A run's name or id [default: the latest]
    pub run: Option<String>,
    /// Branch that the work goes into; a new one begins at HEAD [default: the branch that HEAD is on]
    #[arg(long, value_name = "BRANCH")]
    pub into: Option<String>,
    /// Only this task [default: all that are accepted]
    #[arg(long = "task", value_name = "T")]
    pub tasks: Vec<String>,
    /// Tell what would be merged and what conflicts; verify nothing, move nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not run the tasks' verify commands on what was merged
    #[arg(long)]
    pub no_verify: bool,
    /// First line of the merge commits
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// The same key gives the same merge again
    #[arg(long, value_name = "K")]
    pub key: Option<String>,
}
