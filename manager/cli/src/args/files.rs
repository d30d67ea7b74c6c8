//! Words of the commands about files of agents.

use std::ffi::OsString;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum File {
    /// List files of an agent's workspace
    #[command(before_help = "Examples:\n  phalanx file ls demo\n  phalanx file ls -r demo:src -o json")]
    Ls(FileLs),
    /// Copy files of an agent's workspace to here
    #[command(before_help = "Examples:
  phalanx file get demo:src/x.rs ./x.rs
  phalanx file get -r demo:src - > src.tar")]
    Get(FileGet),
    /// Copy files into an agent's workspace; each gets its name once it is whole
    #[command(before_help = "Examples:
  phalanx file put ./x.rs demo:src/x.rs
  phalanx file put -r ./data demo:")]
    Put(FilePut),
}

#[derive(Args, Debug)]
pub struct FileLs {
    /// AGENT or AGENT:PATH, the path from its workspace; an agent with a : in its name goes by its id
    #[arg(value_name = "AGENT[:PATH]")]
    pub place: OsString,
    /// What is in the folders too
    #[arg(short, long)]
    pub recursive: bool,
    /// The outputs that were kept of it, not its workspace
    #[arg(long)]
    pub outputs: bool,
}

#[derive(Args, Debug)]
pub struct FileGet {
    /// The path from its workspace; an agent with a : in its name goes by its id
    #[arg(value_name = "AGENT:PATH")]
    pub place: OsString,
    /// A file, a folder to put it in, or - for standard output [default: its name, here]
    #[arg(value_name = "TO")]
    pub to: Option<OsString>,
    /// A whole folder, to a new one or as tar to standard output
    #[arg(short, long)]
    pub recursive: bool,
    /// From the outputs that were kept of it, not its workspace
    #[arg(long)]
    pub outputs: bool,
    /// Also files that are being written: as long as they were at first
    #[arg(long)]
    pub changing: bool,
}

#[derive(Args, Debug)]
pub struct FilePut {
    /// Files, or - for standard input; at last AGENT:PATH, a file or a folder to put them in
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "AGENT:PATH"])]
    pub paths: Vec<OsString>,
    /// Whole folders; of standard input, a tar
    #[arg(short, long)]
    pub recursive: bool,
    /// Make the folders that it is in
    #[arg(short, long)]
    pub parents: bool,
}
