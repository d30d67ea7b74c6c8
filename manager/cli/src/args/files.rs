//! Words of the commands about files of agents.

use std::ffi::OsString;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum File {
    /// List files in an agent's workspace
    #[command(before_help = "Examples:\n  phalanx file ls demo\n  phalanx file ls -r demo:src -o json")]
    Ls(FileLs),
    /// Copy files from an agent's workspace
    #[command(before_help = "Examples:
  phalanx file get demo:src/x.rs ./x.rs
  phalanx file get -r demo:src - > src.tar")]
    Get(FileGet),
    /// Copy files into an agent's workspace; each appears only when complete
    #[command(before_help = "Examples:
  phalanx file put ./x.rs demo:src/x.rs
  phalanx file put -r ./data demo:")]
    Put(FilePut),
}

#[derive(Args, Debug)]
pub struct FileLs {
    /// AGENT or AGENT:PATH, relative to its workspace; use the id of an agent whose name contains a colon
    #[arg(value_name = "AGENT[:PATH]")]
    pub place: OsString,
    /// List directories recursively
    #[arg(short, long)]
    pub recursive: bool,
    /// List its saved outputs instead of its workspace
    #[arg(long)]
    pub outputs: bool,
}

#[derive(Args, Debug)]
pub struct FileGet {
    /// AGENT:PATH, relative to its workspace; use the id of an agent whose name contains a colon
    #[arg(value_name = "AGENT:PATH")]
    pub place: OsString,
    /// A file, a directory, or - for standard output [default: the same name in the current directory]
    #[arg(value_name = "TO")]
    pub to: Option<OsString>,
    /// Copy a directory, to a new one or as a tar archive to standard output
    #[arg(short, long)]
    pub recursive: bool,
    /// Copy from its saved outputs instead of its workspace
    #[arg(long)]
    pub outputs: bool,
    /// Also copy files that are being written, up to their size at the start
    #[arg(long)]
    pub changing: bool,
}

#[derive(Args, Debug)]
pub struct FilePut {
    /// Files, or - for standard input, followed by AGENT:PATH, a file or a directory to put them in
    #[arg(required = true, num_args = 2.., value_names = ["FROM", "AGENT:PATH"])]
    pub paths: Vec<OsString>,
    /// Copy directories; a tar archive from standard input
    #[arg(short, long)]
    pub recursive: bool,
    /// Create missing parent directories
    #[arg(short, long)]
    pub parents: bool,
}
